//! Given facts, what is reserved.

use muster_core::{Service, Timestamp};
use muster_proto::{self as proto, Kind, Outcome, command_accepted::Command, policy::Object};

use super::world::*;
use crate::Admission;

/// The flavors of the only pod set of the only reservation decided.
fn flavors(world: &World) -> Vec<(String, String)> {
    let facts = world.given.decide();
    let Some(Kind::QuotaReserved(fact)) = facts.first().and_then(|fact| fact.kind.clone()) else {
        panic!("{facts:?}")
    };
    fact.assignments[0].flavors.clone().into_iter().collect()
}

#[test]
fn a_gang_gets_quota_as_a_whole_or_not_at_all() {
    let mut world = World::with_gpus(8);
    let set = |name: &str, count| proto::PodSet {
        name: name.to_owned(),
        count,
        requests: [("nvidia.com/gpu".to_owned(), 2)].into(),
        ..Default::default()
    };
    let large = world.submit_sets("lq", 0, vec![set("head", 1), set("workers", 4)]);
    assert_eq!(world.admit(), []);
    assert_eq!(world.row(large).reservation, None);
    let fits = world.submit_sets("lq", 0, vec![set("head", 1), set("workers", 3)]);
    assert_eq!(world.admit(), [fits]);
    assert_eq!(world.why(fits).message, "holds 8 nvidia.com/gpu of flavor a100 in ClusterQueue cq");
}

#[test]
fn the_first_flavor_that_agrees_and_has_room_is_taken() {
    let mut world = World::with_gpus(2);
    world.policy(Object::ResourceFlavor(flavor("h100")));
    let group = group(&["nvidia.com/gpu"], &[("a100", &[2]), ("h100", &[8])]);
    world.policy(Object::ClusterQueue(cluster_queue("cq", vec![group])));
    let gpu = |flavor: &str| vec![("nvidia.com/gpu".to_owned(), flavor.to_owned())];

    world.submit(gpus(1));
    assert_eq!(flavors(&world), gpu("a100"));
    world.admit();
    world.submit(gpus(2));
    assert_eq!(flavors(&world), gpu("h100"), "a100 has no room for 2");
    world.admit();
    world.submit(Submit { selector: vec![("gpu", "h100")], ..gpus(1) });
    assert_eq!(flavors(&world), gpu("h100"), "a100 has room, but other nodes are selected");
    world.admit();
    let never = world.submit(Submit { selector: vec![("gpu", "v100")], ..gpus(1) });
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(never).reason, "NoMatchingFlavor");
}

#[test]
fn a_tainted_flavor_is_for_those_who_tolerate_it() {
    let mut world = World::with_gpus(8);
    let taint =
        proto::Taint { key: "dedicated".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    world
        .policy(Object::ResourceFlavor(proto::ResourceFlavor { node_taints: vec![taint], ..flavor("a100") }));
    let refused = world.submit(gpus(1));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(refused).reason, "NoMatchingFlavor");
    let toleration = proto::Toleration { operator: "Exists".to_owned(), ..Default::default() };
    let set = proto::PodSet {
        name: "main".to_owned(),
        count: 1,
        requests: [("nvidia.com/gpu".to_owned(), 1)].into(),
        tolerations: vec![toleration],
        ..Default::default()
    };
    let tolerates = world.submit_sets("lq", 0, vec![set]);
    assert_eq!(world.admit(), [tolerates]);
}

#[test]
fn groups_choose_their_flavors_apart_and_pods_count() {
    let mut world = World::with_gpus(8);
    world.policy(Object::ResourceFlavor(proto::ResourceFlavor {
        name: "any".to_owned(),
        ..Default::default()
    }));
    let groups = vec![
        group(&["cpu", "pods"], &[("any", &[40_000, 3])]),
        group(&["nvidia.com/gpu"], &[("a100", &[8])]),
    ];
    world.policy(Object::ClusterQueue(cluster_queue("cq", groups)));
    let both = |count| Submit { count, requests: vec![("cpu", 1000), ("nvidia.com/gpu", 1)], ..gpus(1) };
    let four = world.submit(both(4));
    let three = world.submit(both(3));
    assert_eq!(
        flavors(&world),
        [("cpu", "any"), ("nvidia.com/gpu", "a100"), ("pods", "any")]
            .map(|(resource, flavor)| (resource.to_owned(), flavor.to_owned()))
    );
    assert_eq!(world.admit(), [three]);
    assert_eq!(world.why(four).numbers[2], ("resource".to_owned(), "pods".to_owned()));
}

#[test]
fn the_order_is_priority_then_time_then_id() {
    let mut world = World::with_gpus(100);
    let early = world.submit(gpus(1));
    let same_time = world.submit(gpus(2));
    world.pass(1);
    let late = world.submit(gpus(1));
    let urgent = world.submit(Submit { priority: 10, ..gpus(1) });
    assert_eq!(world.admit(), [urgent, early, same_time, late]);
}

#[test]
fn best_effort_goes_on_behind_a_head_that_does_not_fit_and_strict_does_not() {
    let mut world = World::with_gpus(4);
    let head = world.submit(gpus(5));
    let behind = world.submit(gpus(1));
    let strict = proto::ClusterQueue {
        queueing_strategy: "StrictFIFO".to_owned(),
        ..cluster_queue("cq", vec![group(&["nvidia.com/gpu"], &[("a100", &[4])])])
    };
    world.policy(Object::ClusterQueue(strict.clone()));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(behind).reason, "BehindHead");
    assert_eq!(world.why(head).reason, "NeverFits");
    world.policy(Object::ClusterQueue(proto::ClusterQueue { queueing_strategy: String::new(), ..strict }));
    assert_eq!(world.admit(), [behind]);
}

#[test]
fn a_stopped_queue_admits_nothing_until_it_is_resumed() {
    let mut world = World::with_gpus(4);
    let groups = || vec![group(&["nvidia.com/gpu"], &[("a100", &[4])])];
    for policy in ["Hold", "HoldAndDrain"] {
        let stop_policy = policy.to_owned();
        world.policy(Object::ClusterQueue(proto::ClusterQueue {
            stop_policy,
            ..cluster_queue("cq", groups())
        }));
        let id = world.submit(gpus(1));
        assert_eq!(world.admit(), []);
        assert_eq!(world.why(id).reason, "StoppedClusterQueue");
        world.policy(Object::ClusterQueue(cluster_queue("cq", groups())));
        assert_eq!(world.admit(), [id]);
    }
    let stopped = proto::LocalQueue { stop_policy: "Hold".to_owned(), ..local_queue("lq", "cq") };
    world.policy(Object::LocalQueue(stopped));
    let id = world.submit(gpus(1));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(id).reason, "StoppedLocalQueue");
}

#[test]
fn quota_comes_back_when_the_lifecycle_says_so_and_not_before() {
    let mut world = World::with_gpus(4);
    let first = world.submit(gpus(4));
    world.admit();
    world.run(first);
    let second = world.submit(gpus(4));
    world.cancel(first);
    assert_eq!(world.admit(), [], "its pods still run");
    world.end(first, Outcome::Stopped);
    assert_eq!(world.admit(), [second]);
}

#[test]
fn an_exhausted_reservation_goes_back_and_is_tried_again_only_when_capacity_grows() {
    let mut world = World::with_gpus(4);
    let large = world.submit(gpus(4));
    let small = world.submit(gpus(1));
    assert_eq!(world.admit(), [large]);
    world.exhaust(large);
    let released = world.given.decide();
    assert!(matches!(released[..], [proto::Fact { kind: Some(Kind::QuotaReleased(_)) }]), "{released:?}");
    assert_eq!(world.admit(), [small], "what goes back is free for others, in the next decision");
    assert_eq!(world.why(large).reason, "WaitingForCapacity");
    world.cancel(small);
    assert_eq!(world.admit(), []);
    world.agent_joins(2);
    assert_eq!(world.admit(), [large]);
}

#[test]
fn a_changed_flavor_lets_what_fitted_nowhere_try_again() {
    let mut world = World::with_gpus(4);
    let id = world.submit(gpus(4));
    world.admit();
    world.exhaust(id);
    assert_eq!(world.admit(), []);
    world.policy(Object::ResourceFlavor(flavor("a100")));
    assert_eq!(world.admit(), [id]);
}

#[test]
fn a_backoff_ends_by_the_clock_alone_or_by_a_later_message() {
    for by_message in [false, true] {
        let mut world = World::with_gpus(4);
        let id = world.submit(gpus(4));
        world.admit();
        world.run(id);
        world.end(id, Outcome::UserFailed);
        let until = world.given.now.plus_us(30 * SECOND);
        world.requeue(id, until.0);
        assert_eq!(world.admit(), []);
        assert_eq!(world.why(id).reason, "BackingOff");
        let given = &world.given;
        assert_eq!(Admission::wake_at(&given.config, &given.state, &given.inbox, given.now), Some(until));
        world.pass(30);
        if by_message {
            world.agent_joins(2);
        }
        assert_eq!(world.admit(), [id]);
        let given = &world.given;
        assert_eq!(Admission::wake_at(&given.config, &given.state, &given.inbox, Timestamp(0)), None);
    }
}

#[test]
fn a_preempted_workload_keeps_its_place_and_a_failed_one_does_not() {
    for failed in [false, true] {
        let mut world = World::with_gpus(4);
        let first = world.submit(gpus(4));
        world.admit();
        world.pass(1);
        let second = world.submit(gpus(4));
        if failed {
            world.run(first);
            world.end(first, Outcome::UserFailed);
        } else {
            world.preempt(first);
        }
        world.pass(1);
        world.requeue(first, 0);
        assert_eq!(world.admit(), [if failed { second } else { first }]);
    }
}

#[test]
fn quota_cut_below_usage_stops_admission_and_breaks_nothing() {
    let mut world = World::with_gpus(4);
    let runs = world.submit(gpus(3));
    world.admit();
    let cut = group(&["nvidia.com/gpu"], &[("a100", &[2])]);
    world.policy(Object::ClusterQueue(cluster_queue("cq", vec![cut])));
    let waits = world.submit(gpus(1));
    assert_eq!(world.admit(), []);
    assert_eq!(Admission::check(&world.given.state), Ok(()));
    world.cancel(runs);
    assert_eq!(world.admit(), [waits]);
}

#[test]
fn missing_policies_are_waited_for() {
    let mut world = World::empty();
    let id = world.submit(gpus(1));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(id).reason, "InvalidLocalQueue");
    world.policy(Object::LocalQueue(local_queue("lq", "cq")));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(id).reason, "InactiveClusterQueue");
    let group = group(&["nvidia.com/gpu"], &[("a100", &[1])]);
    world.policy(Object::ClusterQueue(cluster_queue("cq", vec![group])));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(id).reason, "InactiveClusterQueue");
    world.policy(Object::ResourceFlavor(flavor("a100")));
    assert_eq!(world.admit(), [id]);
    world.delete(Object::LocalQueue(local_queue("lq", "cq")));
    let late = world.submit(gpus(1));
    assert_eq!(world.why(late).reason, "InvalidLocalQueue");
}

#[test]
fn a_held_workload_waits_for_its_owner() {
    let mut world = World::with_gpus(1);
    let id = world.submit(gpus(1));
    world.command(Command::Hold(proto::HoldWorkload { workload: Some(id.into()) }));
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(id).reason, "Held");
    world.command(Command::Release(proto::ReleaseWorkload { workload: Some(id.into()) }));
    assert_eq!(world.admit(), [id]);
}

#[test]
fn a_raised_priority_moves_a_workload_ahead() {
    let mut world = World::with_gpus(1);
    world.submit(gpus(1));
    let raised = world.submit(gpus(1));
    world.command(Command::Priority(proto::SetPriority { workload: Some(raised.into()), priority: 5 }));
    assert_eq!(world.admit(), [raised]);
}

#[test]
fn queues_take_turns_in_a_batch() {
    let mut world = World::with_gpus(100);
    world.given.config.batch = 4;
    let group = group(&["nvidia.com/gpu"], &[("a100", &[100])]);
    world.policy(Object::ClusterQueue(cluster_queue("other", vec![group])));
    world.policy(Object::LocalQueue(local_queue("lq2", "other")));
    for _ in 0..10 {
        world.submit(gpus(1));
    }
    world.submit(Submit { local_queue: "lq2", ..gpus(1) });
    let facts = world.given.decide();
    let of_other = facts.iter().filter(
        |fact| matches!(&fact.kind, Some(Kind::QuotaReserved(fact)) if fact.cluster_queue == "other"),
    );
    assert_eq!((facts.len(), of_other.count()), (4, 1));
}

#[test]
fn amounts_beyond_i64_never_fit() {
    let mut world = World::with_gpus(i64::MAX);
    let id = world.submit(Submit { count: u32::MAX, ..gpus(i64::MAX) });
    assert_eq!(world.admit(), []);
    assert_eq!(world.why(id).reason, "NeverFits");
    let all = world.submit(gpus(i64::MAX));
    assert_eq!(world.admit(), [all]);
}
