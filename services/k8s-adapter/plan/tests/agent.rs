//! The agent's order of things, its epochs, and what lost and late answers do.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod world;

use muster_plan::{Done, Effect, Input};
use muster_proto::{Phase, Verb};
use world::{World, agent, desired, key, leg};

fn tickets(effects: &[Effect]) -> Vec<u64> {
    effects
        .iter()
        .filter_map(|e| if let Effect::Observe { ticket } = e { Some(*ticket) } else { None })
        .collect()
}

fn calls(effects: &[Effect]) -> Vec<u64> {
    effects.iter().filter_map(|e| if let Effect::Act { id, .. } = e { Some(*id) } else { None }).collect()
}

fn echoes(effects: &[Effect]) -> Vec<u64> {
    effects.iter().filter_map(|e| if let Effect::Report(r) = e { Some(r.echo) } else { None }).collect()
}

#[test]
fn reports_the_echo_only_of_a_look_that_began_after_the_last_answer() {
    // given an agent with a create in hand and a look of the heartbeat under way
    let mut w = World::with_cpu(4000);
    let mut a = agent(&mut w, "a");
    let look = a.step(Input::Desired(desired(5, 1, vec![leg(1, Verb::Create, "")])));
    let create = a.step(Input::Observed { ticket: tickets(&look)[0], seen: Ok(w.seen.clone()) });
    assert_eq!((calls(&create).len(), echoes(&create)), (1, vec![0]));
    let heartbeat = tickets(&a.step(Input::Tick(2_000_000)))[0];

    // when the create lands, and only then the older look is answered
    w.put(key(1), Phase::Stopped);
    let confirm = a.step(Input::Acted { id: calls(&create)[0], done: Done::Ok });
    let old = a.step(Input::Observed { ticket: heartbeat, seen: Ok(w.seen.clone()) });

    // then it says nothing, and the look after the answer carries the echo
    assert_eq!(old, vec![]);
    let done = a.step(Input::Observed { ticket: tickets(&confirm)[0], seen: Ok(w.seen.clone()) });
    assert_eq!(echoes(&done), vec![5]);
}

#[test]
fn goes_on_reporting_the_old_echo_while_a_call_hangs_and_the_new_one_after_its_deadline() {
    let mut w = World::with_cpu(4000);
    let mut a = agent(&mut w, "a");
    let look = a.step(Input::Desired(desired(5, 1, vec![leg(1, Verb::Create, "")])));
    a.step(Input::Observed { ticket: tickets(&look)[0], seen: Ok(w.seen.clone()) });

    let heartbeat = a.step(Input::Tick(2_000_000));
    let meanwhile = a.step(Input::Observed { ticket: tickets(&heartbeat)[0], seen: Ok(w.seen.clone()) });
    assert_eq!(echoes(&meanwhile), vec![0]);

    let late = a.step(Input::Tick(10_000_001));
    let after = a.step(Input::Observed { ticket: tickets(&late)[0], seen: Ok(w.seen.clone()) });
    assert_eq!(echoes(&after), vec![5]);
}

#[test]
fn ignores_older_foreign_and_misdirected_desired_states() {
    let mut w = World::with_cpu(4000);
    let mut a = agent(&mut w, "a");
    w.run("a", &mut a, Input::Desired(desired(5, 1, vec![])));
    let old = desired(4, 1, vec![leg(1, Verb::Create, "")]);
    let mut other_generation = desired(9, 1, vec![leg(1, Verb::Create, "")]);
    other_generation.generation = 8;
    let mut other_cluster = desired(9, 1, vec![leg(1, Verb::Create, "")]);
    other_cluster.cluster = "d".into();
    for message in [old, other_generation, other_cluster] {
        w.run("a", &mut a, Input::Desired(message));
    }
    assert!(w.seen.objects.is_empty());
}

#[test]
fn remembers_a_refusal_until_the_desk_stops_asking() {
    // given a leg refused for want of room
    let mut w = World::with_cpu(500);
    let mut a = agent(&mut w, "a");
    let reports = w.run("a", &mut a, Input::Desired(desired(1, 1, vec![leg(1, Verb::Create, "")])));
    let refused = &reports.last().unwrap().legs[0];
    assert_eq!(refused.phase(), Phase::Refused);
    assert_eq!(refused.reason, "pod main-0 (cpu 1000) fits on none of 1 nodes: 1 insufficient cpu");

    // when room appears, then it stays refused, as the desk may have recorded it
    w.seen.nodes[0].free.insert("cpu".into(), 4000);
    w.run("a", &mut a, Input::Desired(desired(2, 1, vec![leg(1, Verb::Create, "")])));
    assert!(w.seen.objects.is_empty());

    // and is forgotten with the wish
    w.run("a", &mut a, Input::Desired(desired(3, 1, vec![])));
    w.run("a", &mut a, Input::Desired(desired(4, 1, vec![leg(1, Verb::Create, "")])));
    assert_eq!(w.seen.objects.len(), 1);
}

#[test]
fn a_newer_agent_silences_the_older_one_for_good() {
    let mut w = World::with_cpu(4000);
    let mut a = agent(&mut w, "a");
    let mut b = agent(&mut w, "b");
    for (seq, now) in [(1, 2_000_000), (2, 4_000_000)] {
        w.run("a", &mut a, Input::Tick(now));
        w.run("a", &mut a, Input::Desired(desired(seq, 2, vec![leg(seq, Verb::Create, "")])));
        assert!(w.seen.objects.is_empty());
    }
    assert_eq!(a.superseded().unwrap().agent, "b");
    assert_eq!(w.seen.lease.epoch, 2);
    let reports = w.run("b", &mut b, Input::Desired(desired(3, 2, vec![leg(3, Verb::Create, "")])));
    assert_eq!((reports.last().unwrap().epoch, w.seen.objects.len()), (2, 1));
}

#[test]
fn in_a_rebuilt_cluster_the_epoch_jumps_past_the_log_before_anything_is_done() {
    let mut w = World::with_cpu(4000);
    let mut a = agent(&mut w, "a");
    assert_eq!(w.seen.lease.epoch, 1);
    let reports = w.run("a", &mut a, Input::Desired(desired(1, 40, vec![leg(1, Verb::Create, "")])));
    assert_eq!((reports.last().unwrap().epoch, w.seen.lease.epoch), (41, 41));
    // Twins under one name don't chase each other.
    w.run("a", &mut a, Input::Desired(desired(2, 42, vec![])));
    assert!(a.superseded().is_some());
    assert_eq!(w.seen.lease.epoch, 41);
}

#[test]
fn takes_the_lease_again_when_the_cluster_forgot_it() {
    let mut w = World::with_cpu(4000);
    let mut a = agent(&mut w, "a");
    w.run("a", &mut a, Input::Desired(desired(1, 4, vec![])));
    w.seen = World::with_cpu(4000).seen;
    w.run("a", &mut a, Input::Tick(5_000_000));
    assert_eq!(w.seen.lease, muster_plan::Lease { epoch: 6, agent: "a".into() });
}
