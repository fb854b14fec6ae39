//! Given clusters and workloads with quota, what is offered, committed and taken back.

use muster_core::Service;
use muster_proto::{self as proto, Kind, Outcome};

use super::world::*;
use crate::Federation;

fn exhausted(facts: &[Kind]) -> Vec<(String, String)> {
    let [Kind::PlacementExhausted(fact)] = facts else { panic!("{facts:?}") };
    fact.reasons.iter().map(|reason| (reason.cluster.clone(), reason.reason.clone())).collect()
}

#[test]
fn an_offer_is_granted_and_committed() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    let id = world.gang(2, 4, "a100");
    let facts = world.decide();
    let [Kind::PlacementOffered(offer)] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!((offer.attempt, Some(offer.reservation)), (1, world.row(id).reservation));
    let range =
        proto::PodRange { pod_set: "main".to_owned(), first: 0, count: 2, flavors: labels(&[(GPU, "a100")]) };
    assert_eq!(offer.legs, [proto::Leg { cluster: "c1".to_owned(), pods: vec![range] }]);
    assert_eq!(world.why(id).reason, "WaitingForGrant");
    world.grant(id);
    assert_eq!(world.why(id).reason, "WaitingForCommit");
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::PlacementCommitted(_)]), "{facts:?}");
    assert_eq!(world.why(id).reason, "Placed");
}

#[test]
fn the_tightest_cluster_is_chosen_and_the_first_by_name_among_equals() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 4, 8)]);
    world.join("c2", vec![nodes("a100", 1, 8)]);
    world.join("c3", vec![nodes("a100", 1, 8)]);
    let id = world.gang(1, 4, "a100");
    assert_eq!(world.run(id), "c2");
    let large = world.gang(2, 8, "a100");
    assert_eq!(world.run(large), "c1");
}

#[test]
fn a_flavor_means_the_nodes_that_bear_its_labels() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 4, 8)]);
    world.join("c2", vec![nodes("h100", 4, 8)]);
    let id = world.gang(1, 4, "h100");
    assert_eq!(world.run(id), "c2");
    let any = world.gang(4, 8, "any");
    assert_eq!(world.run(any), "c1");
    let full = world.gang(1, 1, "a100");
    let reasons = exhausted(&world.decide());
    assert_eq!(
        reasons[0].1, "Insufficient: needs 1 nvidia.com/gpu: capacity 32, used 32 → short by 1",
        "pods of `any` lie on nodes of a100 too"
    );
    assert_eq!(world.why(full).reason, "NoClusterFits");
}

#[test]
fn a_pod_larger_than_a_node_fits_nowhere_and_pods_are_counted_node_by_node() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 4, 8)]);
    world.gang(1, 9, "a100");
    assert_eq!(exhausted(&world.decide())[0].1, "NodesTooSmall: 1 pods of main, at most 0 fit on its nodes");
    world.gang(5, 5, "a100");
    assert_eq!(exhausted(&world.decide())[0].1, "NodesTooSmall: 5 pods of main, at most 4 fit on its nodes");
    let fits = world.gang(4, 5, "a100");
    assert_eq!(world.run(fits), "c1");
}

#[test]
fn selectors_and_taints_of_nodes_count() {
    let mut world = World::new();
    let taint = proto::Taint { key: "t".to_owned(), value: String::new(), effect: "NoSchedule".to_owned() };
    world.join("c1", vec![proto::NodeGroup { taints: vec![taint], ..nodes("a100", 1, 8) }]);
    world.gang(1, 1, "a100");
    assert_eq!(exhausted(&world.decide())[0].1, "NodesTooSmall: 1 pods of main, at most 0 fit on its nodes");
    let toleration = proto::Toleration { operator: "Exists".to_owned(), ..Default::default() };
    let set = proto::PodSet { tolerations: vec![toleration], ..pods(1, 1) };
    let tolerates = world.submit(0, vec![set.clone()]);
    world.reserve(tolerates, &[(GPU, "a100")]);
    assert_eq!(world.run(tolerates), "c1");
    let elsewhere = proto::PodSet { node_selector: labels(&[("zone", "b")]), ..set };
    let selects = world.submit(0, vec![elsewhere]);
    world.reserve(selects, &[(GPU, "a100")]);
    assert_eq!(exhausted(&world.decide()).len(), 1);
}

#[test]
fn free_capacity_is_offered_once_in_a_decision_and_across_decisions() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    let first = world.gang(1, 8, "a100");
    let second = world.gang(1, 8, "a100");
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::PlacementOffered(_)]), "{facts:?}");
    assert_eq!(world.why(second).reason, "WaitingForOffers");
    world.grant(first);
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::PlacementCommitted(_), Kind::PlacementExhausted(_)]), "{facts:?}");
    world.end(first, Outcome::Succeeded);
    assert_eq!(world.row(second).blocked, Some(3));
    assert_eq!(world.given.state.lifecycle.capacity_version(), 4);
}

#[test]
fn an_offer_that_comes_to_nothing_is_free_for_those_who_waited_for_it() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    let first = world.gang(1, 8, "a100");
    let second = world.gang(1, 8, "a100");
    world.decide();
    world.cancel(first);
    assert_eq!(world.run(second), "c1");
}

#[test]
fn higher_priority_is_offered_first_then_earlier_quota() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    let late = world.submit(0, vec![pods(1, 8)]);
    let early = world.gang(1, 8, "a100");
    world.reserve(late, &[(GPU, "a100")]);
    let offered = |world: &World| match &world.given.decide()[0].kind {
        Some(Kind::PlacementOffered(fact)) => fact.workload,
        other => panic!("{other:?}"),
    };
    assert_eq!(offered(&world), Some(early.into()));
    let urgent = world.submit(9, vec![pods(1, 8)]);
    world.reserve(urgent, &[(GPU, "a100")]);
    assert_eq!(offered(&world), Some(urgent.into()));
}

#[test]
fn a_refusal_stands_until_something_changes_in_that_cluster() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    world.join("c2", vec![nodes("a100", 2, 8)]);
    let id = world.gang(1, 8, "a100");
    world.decide();
    assert_eq!(world.cluster_of(id), "c1");
    world.refuse(id);
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::PlacementWithdrawn(_), Kind::PlacementOffered(_)]), "{facts:?}");
    assert_eq!(world.cluster_of(id), "c2");
    world.refuse(id);
    let facts = world.decide();
    let reason = "Refused: it refused, and nothing has changed there since".to_owned();
    assert!(matches!(facts[..], [Kind::PlacementWithdrawn(_), Kind::PlacementExhausted(_)]), "{facts:?}");
    assert_eq!(exhausted(&facts[1..]), [("c1".to_owned(), reason.clone()), ("c2".to_owned(), reason)]);
    world.release(id);
    assert_eq!(world.why(id).reason, "NoClusterFits", "still so when its quota has gone back");
    world.agent("c2");
    assert_eq!(world.why(id).reason, "WaitingForQuota");
    world.reserve(id, &[(GPU, "a100")]);
    assert_eq!(world.run(id), "c2");
}

#[test]
fn a_silent_cluster_loses_its_ask_when_another_can_take_it() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    let id = world.gang(1, 8, "a100");
    world.decide();
    assert_eq!(world.wake_at(), Some(world.given.now.plus_us(30 * SECOND)));
    world.pass(31);
    assert_eq!(world.decide(), [], "to ask the same cluster again gains nothing");
    assert_eq!(world.wake_at(), None);
    world.join("c2", vec![nodes("a100", 1, 8)]);
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::PlacementWithdrawn(_), Kind::PlacementOffered(_)]), "{facts:?}");
    assert_eq!(world.cluster_of(id), "c2");
    world.pass(31);
    assert_eq!(world.decide(), [], "c1 left an ask without answer and has not changed since");
    world.agent("c1");
    assert_eq!(world.decide().len(), 2);
    assert_eq!(world.cluster_of(id), "c1");
}

#[test]
fn two_overdue_asks_are_not_promised_the_same_room() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 2, 8)]);
    let ids = [world.gang(1, 8, "a100"), world.gang(1, 8, "a100")];
    world.decide();
    world.join("c2", vec![nodes("a100", 1, 8)]);
    world.pass(31);
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::PlacementWithdrawn(_), Kind::PlacementOffered(_)]), "{facts:?}");
    assert_eq!(ids.map(|id| world.cluster_of(id)), ["c2", "c1"]);
}

#[test]
fn a_recovery_is_placed_anew_and_keeps_away_from_what_the_plan_names() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    world.join("c2", vec![nodes("a100", 2, 8)]);
    let id = world.gang(1, 8, "a100");
    assert_eq!(world.run(id), "c1");
    world.end(id, Outcome::NodeFailed);
    assert_eq!(world.decide(), [], "without a plan nothing is placed");
    assert_eq!(world.why(id).reason, "WaitingForRecovery");
    world.plan(id, &["c1"]);
    assert_eq!(world.run(id), "c2");
    assert_eq!(world.row(id).attempts, 2);
    world.end(id, Outcome::NodeFailed);
    world.plan(id, &[]);
    assert_eq!(world.run(id), "c1", "an old plan no longer counts");
}

#[test]
fn capacity_may_shrink_below_what_runs() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 2, 8), nodes("h100", 1, 8)]);
    let id = world.gang(2, 8, "a100");
    world.run(id);
    world.capacity("c1", vec![nodes("a100", 1, 8)]);
    assert_eq!(Federation::check(&world.given.state), Ok(()));
    world.gang(1, 1, "a100");
    let reasons = exhausted(&world.decide());
    assert_eq!(
        reasons[0].1,
        "Insufficient: needs 1 nvidia.com/gpu of flavor a100: capacity 8, used 16 → short by 9"
    );
}

#[test]
fn empty_roles_and_pods_without_requests_are_placed() {
    let mut world = World::new();
    world.join("c1", vec![nodes("a100", 1, 8)]);
    let bare = proto::PodSet { name: "bare".to_owned(), count: 3, ..Default::default() };
    let empty = proto::PodSet { count: 0, ..pods(0, 8) };
    let id = world.submit(0, vec![bare, empty]);
    world.reserve(id, &[(GPU, "a100")]);
    assert_eq!(world.run(id), "c1");
}

#[test]
fn a_batch_is_bounded() {
    let mut world = World::new();
    world.given.config.batch = 5;
    world.join("c1", vec![nodes("a100", 10, 8)]);
    for _ in 0..12 {
        world.gang(1, 1, "a100");
    }
    assert_eq!(world.given.decide().len(), 5);
    assert_eq!(world.decide().len(), 12);
}
