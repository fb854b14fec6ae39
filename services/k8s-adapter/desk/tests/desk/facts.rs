//! From reports to facts.

use muster_proto::{self as proto, Kind, Outcome, Phase};

use crate::common::*;

#[test]
fn the_first_report_joins_cluster_agent_and_capacity() {
    let given = desk().incoming(report(3, 0, vec![]));
    let facts = kinds(&given);
    assert!(matches!(facts[0], Kind::ClusterJoined(_)));
    assert!(matches!(&facts[1], Kind::AgentJoined(fact) if fact.epoch == 3));
    assert!(matches!(&facts[2], Kind::CapacityReported(fact) if fact.groups.len() == 1));
}

#[test]
fn a_report_of_another_generation_or_an_older_epoch_says_nothing() {
    let given = joined().incoming(report(2, 0, vec![]));
    assert!(matches!(&kinds(&given)[..], [Kind::AgentJoined(fact)] if fact.epoch == 2));
    let mut given = given;
    given.decide_until_content("c", 2);
    let given = given.incoming(report(1, 99, vec![object(1, "u", Phase::Stopped)]));
    assert_eq!(kinds(&given), vec![]);
    let muster_core::Incoming::Report { mut report, time } = report(9, 99, vec![]) else { unreachable!() };
    report.generation = 6;
    assert_eq!(kinds(&given.incoming(muster_core::Incoming::Report { report, time })), vec![]);
}

#[test]
fn a_grant_needs_a_report_made_after_the_offer_was_known() {
    let given = asked();
    let offer = given.seq;
    let given = given.incoming(report(1, offer - 1, vec![object(1, "u1", Phase::Stopped)]));
    assert_eq!(kinds(&given), vec![]);
    let given = given.incoming(report(1, offer, vec![object(1, "u1", Phase::Stopped)]));
    assert!(matches!(&kinds(&given)[..], [Kind::LegGranted(fact)] if fact.uid == "u1"));
}

#[test]
fn a_refusal_carries_the_agents_reason() {
    let given = asked();
    let mut refusal = object(1, "", Phase::Refused);
    refusal.reason = "no room".into();
    let echo = given.seq;
    let given = given.incoming(report(1, echo, vec![refusal]));
    assert!(matches!(&kinds(&given)[..], [Kind::LegRefused(fact)] if fact.reason == "no room"));
}

#[test]
fn absence_is_believed_only_of_a_report_that_knows_the_commit() {
    let given = committed();
    let commit = given.seq;
    let given = given.incoming(report(1, commit - 1, vec![]));
    assert_eq!(kinds(&given), vec![]);
    let given = given.incoming(report(1, commit, vec![]));
    assert!(matches!(&kinds(&given)[..], [Kind::LegEnded(fact)] if fact.outcome() == Outcome::Gone));
}

#[test]
fn another_object_of_the_name_is_as_good_as_none() {
    let given = committed();
    let echo = given.seq;
    let given = given.incoming(report(1, echo, vec![object(1, "u2", Phase::Stopped)]));
    assert!(matches!(&kinds(&given)[..], [Kind::LegEnded(fact)] if fact.outcome() == Outcome::Gone));
}

#[test]
fn ends_carry_outcome_and_exit_code() {
    for (phase, outcome) in [
        (Phase::Succeeded, Outcome::Succeeded),
        (Phase::Failed, Outcome::UserFailed),
        (Phase::Lost, Outcome::NodeFailed),
    ] {
        let mut end = object(1, "u1", phase);
        end.exit_code = Some(3);
        let given = committed();
        // The echo may be of before the commit: the uid alone tells.
        let echo = given.seq - 1;
        let given = given.incoming(report(1, echo, vec![end]));
        let expected = |fact: &proto::LegEnded| fact.outcome() == outcome && fact.exit_code == Some(3);
        assert!(matches!(&kinds(&given)[..], [Kind::LegEnded(fact)] if expected(fact)), "{phase:?}");
    }
}

#[test]
fn a_success_wins_over_a_cancel_and_any_other_end_is_a_stop() {
    for (phase, outcome) in [(Phase::Succeeded, Outcome::Succeeded), (Phase::Failed, Outcome::Stopped)] {
        let given = committed().message("queue", "0", [cancelled(2)]);
        let echo = given.seq - 1;
        let given = given.incoming(report(1, echo, vec![object(1, "u1", phase)]));
        assert!(matches!(&kinds(&given)[..], [Kind::LegEnded(fact)] if fact.outcome() == outcome));
    }
}

#[test]
fn a_body_that_was_erased_or_altered_is_a_refusal() {
    let gone = muster_core::Incoming::BodyFetched { seq: 41, body: None };
    let altered = muster_core::Incoming::BodyFetched { seq: 41, body: Some("kind: Other".into()) };
    for body in [gone, altered] {
        let given = asked().incoming(body);
        assert!(matches!(&kinds(&given)[..], [Kind::LegRefused(fact)] if fact.reason.contains("manifest")));
    }
}

#[test]
fn a_suspected_cluster_is_reconciled_by_a_report_that_knows_of_the_suspicion() {
    let suspected = proto::ClusterSuspected { cluster: "c".into(), ..Default::default() };
    let given = joined().message("federation", "0", [Kind::ClusterSuspected(suspected)]);
    assert_eq!(kinds(&given), vec![]);
    assert_eq!(desired(&given).map(|desired| desired.seq), Some(given.seq));
    let echo = given.seq;
    let given = given.incoming(report(1, echo, vec![]));
    assert!(matches!(&kinds(&given)[..], [Kind::ClusterReconciled(_)]));
}

#[test]
fn a_running_object_that_the_log_never_granted_refuses_the_offer() {
    let given = asked();
    let echo = given.seq;
    let given = given.incoming(report(1, echo, vec![object(1, "u9", Phase::Running)]));
    assert!(matches!(&kinds(&given)[..], [Kind::LegRefused(_)]));
}

#[test]
fn when_something_of_no_fact_leaves_room_those_refused_are_tried_again_once() {
    // given a refusal while a running stranger took the room
    let mut refusal = object(1, "", Phase::Refused);
    refusal.reason = "no room".into();
    let mut stranger = object(1, "u9", Phase::Running);
    stranger.workload = Some(proto::WorkloadRef { request: 77, ..W });
    let given = asked();
    let echo = given.seq;
    let mut given = given.incoming(report(1, echo, vec![refusal, stranger]));
    given.decide_until_content("c", 3);
    // when it is gone, then the capacity is reported again, and that is all
    let mut given = given.incoming(report(1, echo, vec![]));
    let facts = given.decide_until_content("c", 2);
    assert!(matches!(&facts[..], [Kind::CapacityReported(_)]));
}
