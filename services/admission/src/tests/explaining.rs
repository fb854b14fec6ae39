//! Reasons a person can act on.

use muster_proto::policy::Object;

use super::world::*;

#[test]
fn a_shortage_says_how_much_and_who_holds_it() {
    let mut world = World::with_gpus(8);
    let holder = world.submit(gpus(6));
    world.admit();
    let id = world.submit(gpus(4));
    world.submit(gpus(4));
    let why = world.why(id);
    assert_eq!(why.reason, "QuotaExceeded");
    assert_eq!(
        why.message,
        format!(
            "pod set main needs 4 nvidia.com/gpu of flavor a100 in ClusterQueue cq: nominal 8, used 6 → short by 2. \
             Held by {holder} (6)"
        )
    );
    let numbers = why.numbers.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    assert_eq!(
        numbers,
        [
            "pod_set=main",
            "flavor=a100",
            "resource=nvidia.com/gpu",
            "need=4",
            "nominal=8",
            "used=6",
            "short_by=2",
            "cluster_queue=cq",
            "ahead=0"
        ]
    );
}

#[test]
fn the_place_in_the_queue_counts_those_in_front() {
    let mut world = World::with_gpus(1);
    world.submit(gpus(1));
    world.admit();
    for n in 0..5 {
        let id = world.submit(gpus(1 + n % 2));
        assert_eq!(world.why(id).numbers.last(), Some(&("ahead".to_owned(), n.to_string())));
    }
}

#[test]
fn an_uncovered_resource_is_named() {
    let mut world = World::with_gpus(1);
    let id = world.submit(Submit { requests: vec![("cpu", 1000)], ..gpus(1) });
    let why = world.why(id);
    assert_eq!(why.reason, "ResourceNotCovered");
    assert!(
        why.message.contains("requests cpu, which no resource group of ClusterQueue cq covers"),
        "{why:?}"
    );
}

#[test]
fn the_missing_flavor_of_an_inactive_queue_is_named() {
    let mut world = World::with_gpus(1);
    let id = world.submit(gpus(1));
    world.delete(Object::ResourceFlavor(flavor("a100")));
    assert!(world.why(id).message.contains("names ResourceFlavor a100, which does not exist"));
    assert_eq!(world.admit(), []);
}
