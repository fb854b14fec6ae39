//! Clusters that fall silent, die and come back.

use muster_proto::{Kind, Outcome};

use super::world::*;

fn suspected(facts: &[Kind]) -> Vec<String> {
    facts
        .iter()
        .map(|fact| match fact {
            Kind::ClusterSuspected(fact) => fact.cluster.clone(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Two clusters and suspicion after ten seconds.
fn two_clusters() -> World {
    let mut world = World::new();
    world.given.config.suspect_after_us = 10 * SECOND;
    world.join("c1", vec![nodes("a100", 1, 8)]);
    world.join("c2", vec![nodes("a100", 1, 8)]);
    world
}

fn listen(world: &mut World, seconds: i64, clusters: &[&str]) {
    for _ in 0..seconds {
        world.pass(1);
        for cluster in clusters {
            world.heard(cluster);
        }
    }
}

#[test]
fn a_cluster_silent_for_a_whole_timeout_is_suspected_once() {
    let mut world = two_clusters();
    listen(&mut world, 3, &["c1", "c2"]);
    listen(&mut world, 9, &["c2"]);
    assert_eq!(world.decide(), []);
    assert_eq!(world.wake_at(), Some(world.given.now.plus_us(SECOND)));
    listen(&mut world, 1, &["c2"]);
    assert_eq!(suspected(&world.decide()), ["c1"]);
    listen(&mut world, 20, &["c2"]);
    assert_eq!(world.decide(), []);
    world.reconcile("c1");
    world.heard("c1");
    assert_eq!(world.decide(), []);
}

#[test]
fn when_all_fall_silent_nothing_is_suspected() {
    let mut world = two_clusters();
    listen(&mut world, 3, &["c1", "c2"]);
    world.pass(60);
    assert_eq!(world.decide(), []);
    world.heard("c1");
    assert_eq!(world.decide(), [], "we were deaf: listening begins anew");
    listen(&mut world, 9, &["c1"]);
    assert_eq!(world.decide(), []);
    listen(&mut world, 1, &["c1"]);
    assert_eq!(suspected(&world.decide()), ["c2"]);
}

#[test]
fn a_fresh_inbox_listens_for_a_whole_timeout_first() {
    let mut world = two_clusters();
    world.pass(1_000);
    world.heard("c2");
    listen(&mut world, 9, &["c2"]);
    assert_eq!(world.decide(), []);
    listen(&mut world, 1, &["c2"]);
    assert_eq!(suspected(&world.decide()), ["c1"]);
}

#[test]
fn a_lone_cluster_and_a_timeout_of_zero_suspect_nobody() {
    let mut world = World::new();
    world.given.config.suspect_after_us = 10 * SECOND;
    world.join("c1", vec![]);
    listen(&mut world, 3, &["c1"]);
    world.pass(60);
    assert_eq!(world.decide(), []);

    let mut world = two_clusters();
    world.given.config.suspect_after_us = 0;
    listen(&mut world, 60, &["c1"]);
    assert_eq!(world.decide(), []);
    assert_eq!(world.wake_at(), None);
}

#[test]
fn a_suspected_cluster_gets_no_offers_and_no_commits_and_keeps_its_work() {
    let mut world = two_clusters();
    let runs = world.gang(1, 8, "a100");
    assert_eq!(world.run(runs), "c1");
    let asked = world.gang(1, 8, "a100");
    world.decide();
    assert_eq!(world.cluster_of(asked), "c2");
    world.grant(asked);
    world.suspect("c1");
    world.suspect("c2");
    assert_eq!(world.decide(), []);
    assert!(world.row(runs).live().is_some());
    world.reconcile("c2");
    assert!(matches!(world.decide()[..], [Kind::PlacementCommitted(_)]));
}

#[test]
fn an_operators_oath_makes_a_suspected_cluster_dead_and_frees_its_work() {
    let mut world = two_clusters();
    let id = world.gang(1, 8, "a100");
    assert_eq!(world.run(id), "c1");
    world.declare_dead("c1");
    assert_eq!(world.decide(), [], "nobody suspects it: the oath does not count");
    world.suspect("c1");
    assert_eq!(world.decide(), []);
    world.declare_dead("c1");
    assert!(matches!(world.decide()[..], [Kind::ClusterDeclaredDead(_)]));
    assert!(world.row(id).infra_failed());
    world.plan(id, &[]);
    assert_eq!(world.run(id), "c2");
    world.reconcile("c1");
    world.agent("c1");
    let next = world.gang(1, 8, "a100");
    assert_eq!(world.run(next), "c1", "what died there occupies nothing");
}

#[test]
fn a_gang_asked_of_a_cluster_that_dies_is_offered_to_another() {
    let mut world = two_clusters();
    let id = world.gang(1, 8, "a100");
    world.decide();
    assert_eq!(world.cluster_of(id), "c1");
    world.suspect("c1");
    world.declare_dead("c1");
    let facts = world.decide();
    assert!(matches!(facts[..], [Kind::ClusterDeclaredDead(_), Kind::PlacementOffered(_)]), "{facts:?}");
    assert_eq!(world.cluster_of(id), "c2");
    world.grant(id);
    world.decide();
    world.end(id, Outcome::Succeeded);
    assert!(world.row(id).won());
}
