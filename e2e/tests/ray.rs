//! A real Ray: head and workers as processes of this machine, under an agent that dies meanwhile.

use muster_e2e::{Cell, Setup, eventually, manifest, ray_venv};

const SCRIPT: &str = r#"
import os, sys, time, ray
ray.init(log_to_driver=False)
print("connected", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.1)

@ray.remote(num_cpus=1)
def square(n):
    time.sleep(0.2)
    return n * n, ray.get_runtime_context().get_node_id()

answers = ray.get([square.remote(n) for n in range(8)])
print("sum", sum(answer for answer, _ in answers), "on", len({node for _, node in answers}), "nodes")
"#;

#[test]
fn a_ray_job_succeeds_although_its_agent_is_killed() {
    ray_venv().unwrap();
    let cell = Cell::start(&Setup::default()).unwrap();
    let (script, go) = (cell.dir().join("squares.py"), cell.dir().join("go"));
    std::fs::write(&script, SCRIPT).unwrap();
    let entrypoint = format!("python {} {}", script.display(), go.display());
    let job = manifest::ray_job("squares", "default", 1, &entrypoint);
    let id = cell.submit(&job, &[]).unwrap().remove(0);
    let connected = || Ok(cell.run(&["logs", &id])?.out.contains("connected"));
    eventually("the driver has joined its Ray cluster", connected).unwrap();
    cell.kill("agent").unwrap();
    std::fs::write(&go, "").unwrap();
    let workload = cell.reach(&id, "Succeeded").unwrap();
    assert_eq!(workload["attempts"], 1, "{workload}");
    let output = cell.ok(&["logs", &id]).unwrap();
    assert!(output.contains("sum 140 on 2 nodes"), "{output}");
    let pods = || muster_agent::proc::carrying(&[format!("MUSTER_WORKLOAD={id}")]);
    eventually("nothing of Ray is left", || Ok(pods()?.is_empty())).unwrap();
}
