"""Counts the primes below two million on every node of its Ray cluster."""
import collections
import ray

LIMIT, PARTS = 2_000_000, 16


@ray.remote(num_cpus=1)
def count(first, last):
    composite = bytearray(last - first)
    for p in range(2, int(last**0.5) + 1):
        for n in range(max(p * p, -(-first // p) * p), last, p):
            composite[n - first] = 1
    return composite.count(0), ray.get_runtime_context().get_node_id()


ray.init(log_to_driver=False)
print(f"Ray {ray.__version__}, {len(ray.nodes())} nodes, {ray.cluster_resources()['CPU']:.0f} CPUs")
step = LIMIT // PARTS
found, by_node = 0, collections.Counter()
for primes, node in ray.get([count.remote(max(2, i * step), (i + 1) * step) for i in range(PARTS)]):
    found += primes
    by_node[node] += 1
for node, parts in by_node.items():
    print(f"node {node[:8]} counted {parts} of {PARTS} parts")
print(f"{found} primes below {LIMIT}")
assert found == 148_933
