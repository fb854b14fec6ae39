//! Which node a pod may go to.

use std::collections::BTreeMap;

use muster_plan::{Node, fit::place};
use muster_proto::{LegSpec, NodeAffinityTerm, NodeRequirement, PodRange, PodSet, Taint, Toleration};

fn map<V>(pairs: &[(&str, V)]) -> BTreeMap<String, V>
where
    V: Clone,
{
    pairs.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect()
}

fn node(name: &str, gpus: i64, zone: &str) -> Node {
    let free = map(&[("nvidia.com/gpu", gpus)]);
    let labels = map(&[("zone", zone.to_owned()), ("size", gpus.to_string())]);
    Node { name: name.into(), labels, allocatable: free.clone(), free, ..Node::default() }
}

fn pods(count: u32, gpus: i64) -> LegSpec {
    LegSpec {
        pods: vec![PodRange { pod_set: "w".into(), first: 3, count, ..PodRange::default() }],
        pod_sets: vec![PodSet {
            name: "w".into(),
            requests: map(&[("nvidia.com/gpu", gpus)]),
            ..PodSet::default()
        }],
        ..LegSpec::default()
    }
}

fn nodes_of(spec: &LegSpec, nodes: &mut [Node]) -> Result<Vec<String>, String> {
    place(spec, nodes)
        .map(|bindings| bindings.into_iter().map(|b| format!("{}@{}", b.index, b.node)).collect())
}

#[test]
fn fills_the_first_node_first_and_keeps_the_numbers_of_the_range() {
    let mut nodes = [node("a", 4, "x"), node("b", 8, "x")];
    assert_eq!(nodes_of(&pods(3, 2), &mut nodes).unwrap(), ["3@a", "4@a", "5@b"]);
    assert_eq!(nodes[1].free["nvidia.com/gpu"], 6);
}

#[test]
fn all_or_nothing_and_says_what_was_missing_where() {
    let mut nodes = [node("a", 4, "x"), node("b", 8, "x")];
    nodes[0].taints.push(Taint { key: "k".into(), value: "v".into(), effect: "NoSchedule".into() });
    let reason = nodes_of(&pods(3, 4), &mut nodes).unwrap_err();
    assert_eq!(
        reason,
        "pod w-5 (nvidia.com/gpu 4) fits on none of 2 nodes: 1 insufficient nvidia.com/gpu, 1 untolerated taint k=v:NoSchedule"
    );
    assert_eq!(nodes[1].free["nvidia.com/gpu"], 8);
}

#[test]
fn heeds_selectors_taints_and_affinity() {
    let taint = Taint { key: "k".into(), value: "v".into(), effect: "NoExecute".into() };
    let tainted = Node { taints: vec![taint], ..node("t", 8, "y") };
    let fresh = || [node("a", 8, "x"), tainted.clone()];
    let mut spec = pods(1, 1);
    spec.pod_sets[0].node_selector = map(&[("zone", "y".to_owned())]);
    assert!(place(&spec, &mut fresh()).is_err());
    spec.pod_sets[0].tolerations =
        vec![Toleration { key: "k".into(), operator: "Exists".into(), ..Toleration::default() }];
    assert_eq!(nodes_of(&spec, &mut fresh()).unwrap(), ["3@t"]);

    for (operator, values, fits) in [
        ("In", vec!["x"], true),
        ("NotIn", vec!["x"], false),
        ("Exists", vec![], true),
        ("DoesNotExist", vec![], false),
    ] {
        let mut spec = pods(1, 1);
        let values = values.into_iter().map(str::to_owned).collect();
        let requirement = NodeRequirement { key: "zone".into(), operator: operator.into(), values };
        spec.pod_sets[0].affinity = vec![NodeAffinityTerm { requirements: vec![requirement] }];
        assert_eq!(place(&spec, &mut fresh()).is_ok(), fits, "{operator}");
    }
    let mut spec = pods(1, 1);
    let requirement = NodeRequirement { key: "size".into(), operator: "Gt".into(), values: vec!["8".into()] };
    spec.pod_sets[0].affinity = vec![NodeAffinityTerm { requirements: vec![requirement] }];
    assert!(place(&spec, &mut fresh()).is_err());
}
