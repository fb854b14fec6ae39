use muster_proto::*;

use super::world::*;
use crate::Config;

/// A world with one workload, queued.
fn queued() -> World {
    let mut world = World::new();
    world.ask([submit("a")]);
    assert_eq!(names(&world.settle()), ["WorkloadQueued"]);
    world
}

fn finished(facts: &[Kind]) -> (Result, &str, Option<i32>) {
    match facts {
        [Kind::WorkloadFinished(fact)] => (fact.result(), &fact.reason, fact.exit_code),
        other => panic!("{other:?}"),
    }
}

fn requeued(facts: &[Kind]) -> (u32, i64, &str) {
    match facts {
        [Kind::WorkloadRequeued(fact)] => (fact.round, fact.not_before_us - START.0, &fact.reason),
        other => panic!("{other:?}"),
    }
}

const JOB: muster_core::WorkloadId = muster_core::WorkloadId { generation: GENERATION, request: 1, index: 0 };

#[test]
fn success_ends_it_with_the_exit_code() {
    let mut world = queued();
    world.run(JOB);
    assert!(world.decided().is_empty());
    world.end(JOB, Outcome::Succeeded, Some(0), "Completed");
    assert_eq!(world.reason(JOB), Some("DecisionPending"));
    assert_eq!(finished(&world.settle()), (Result::Succeeded, "Succeeded", Some(0)));
    assert_eq!(world.reason(JOB), Some("Succeeded"));
}

#[test]
fn success_of_a_live_attempt_wins_over_a_cancellation() {
    let mut world = queued();
    world.run(JOB);
    world.ask([cancel(JOB)]);
    assert_eq!(names(&world.settle()), ["WorkloadCancelled"]);
    assert_eq!(world.reason(JOB), Some("Cancelling"));
    world.end(JOB, Outcome::Succeeded, Some(0), "");
    assert_eq!(finished(&world.settle()).0, Result::Succeeded);
}

#[test]
fn a_cancelled_workload_is_over_when_its_pods_have_stopped() {
    let mut world = queued();
    world.run(JOB);
    world.ask([cancel(JOB)]);
    world.settle();
    world.end(JOB, Outcome::Stopped, Some(143), "");
    assert_eq!(finished(&world.settle()), (Result::Cancelled, "Cancelled", None));
}

#[test]
fn a_failing_program_is_tried_again_after_a_while_and_then_it_has_failed() {
    let mut world = queued();
    world.run(JOB);
    world.end(JOB, Outcome::UserFailed, Some(1), "Error");
    assert_eq!(requeued(&world.settle()), (2, SECOND, "ProgramFailed"));
    assert_eq!(world.reason(JOB), Some("Requeued"));
    world.pass(SECOND);
    assert_eq!(world.reason(JOB), None, "admission's turn");
    world.run(JOB);
    world.end(JOB, Outcome::UserFailed, Some(3), "OOMKilled");
    assert_eq!(finished(&world.settle()), (Result::Failed, "OOMKilled", Some(3)));
    assert_eq!(world.reason(JOB), Some("Failed"));
}

#[test]
fn a_preempted_workload_is_queued_again_at_once_when_its_pods_have_stopped() {
    let mut world = queued();
    world.run(JOB);
    world.preempt(JOB);
    assert!(world.settle().is_empty());
    assert_eq!(world.reason(JOB), Some("Preempting"));
    world.end(JOB, Outcome::Stopped, None, "");
    assert_eq!(requeued(&world.settle()), (2, 0, "Preempted"));
    assert_eq!(world.reason(JOB), None);
}

#[test]
fn a_broken_attempt_waits_for_a_plan_until_the_recorded_deadline() {
    let mut world = queued();
    world.run(JOB);
    world.end(JOB, Outcome::NodeFailed, None, "");
    // The deadline was recorded: another configuration changes nothing.
    world.queue.config = Config { recovery_deadline_us: 0, ..Config::default() };
    assert!(world.settle().is_empty());
    assert_eq!(world.reason(JOB), Some("WaitingForRecoveryPlan"));
    assert_eq!(world.wake(), Some(START.plus_us(10 * SECOND)));
    world.pass(10 * SECOND - 1);
    assert!(world.settle().is_empty());
    world.pass(1);
    assert_eq!(requeued(&world.settle()), (2, 11 * SECOND, "NodeFailed"));
    assert_eq!(world.wake(), None);
}

#[test]
fn a_plan_keeps_the_queue_away() {
    let mut world = queued();
    world.run(JOB);
    world.end(JOB, Outcome::Gone, None, "");
    let plan = RecoveryPlanned { workload: Some(JOB.into()), attempt: 1, ..RecoveryPlanned::default() };
    world.fold("failover", "0", [Kind::RecoveryPlanned(plan)]);
    world.pass(3_600 * SECOND);
    assert!(world.settle().is_empty());
    assert_eq!(world.reason(JOB), None);
    world.run(JOB);
    world.end(JOB, Outcome::Succeeded, None, "");
    assert_eq!(finished(&world.settle()).0, Result::Succeeded);
}

#[test]
fn a_declined_recovery_is_requeued_at_once() {
    let mut world = queued();
    world.run(JOB);
    world.end(JOB, Outcome::Fenced, None, "");
    let declined = RecoveryDeclined { workload: Some(JOB.into()), attempt: 1, reason: String::new() };
    world.fold("queue", "0", [Kind::RecoveryDeclined(declined)]);
    assert_eq!(requeued(&world.settle()), (2, SECOND, "ClusterFenced"));
}

#[test]
fn the_wait_after_broken_attempts_doubles_until_one_runs_for_long() {
    let mut world = World::with(Config { recovery_deadline_us: 0, ..Config::default() });
    world.ask([submit("a")]);
    world.settle();
    let mut waits = Vec::new();
    for run_us in [0, 0, 0, 600 * SECOND, 0] {
        world.run(JOB);
        world.pass(run_us);
        world.end(JOB, Outcome::NodeFailed, None, "");
        let before = world.queue.now.0 - START.0;
        waits.push((requeued(&world.settle()).1 - before) / SECOND);
    }
    assert_eq!(waits, [1, 2, 4, 1, 2]);
    assert_eq!(world.life(JOB).fails, 0, "not the user's failures");
}

#[test]
fn a_dead_clusters_work_waits_for_a_plan_too() {
    let mut world = queued();
    let cluster = || "c".to_owned();
    world.fold(
        "desk",
        "c",
        [Kind::ClusterJoined(ClusterJoined { cluster: cluster(), ..Default::default() })],
    );
    world.run(JOB);
    let suspected = ClusterSuspected { cluster: cluster(), ..ClusterSuspected::default() };
    world.fold("federation", "0", [Kind::ClusterSuspected(suspected)]);
    world.send("_ops", encoded("", [command::Kind::DeclareDead(DeclareDeadRequest { cluster: cluster() })]));
    world.settle();
    let command = world.queue.state.lifecycle().cluster("c").unwrap().oath.unwrap();
    let dead = ClusterDeclaredDead { cluster: cluster(), command };
    world.fold("federation", "0", [Kind::ClusterDeclaredDead(dead)]);
    assert_eq!(world.row(JOB).broken.attempt, 1);
    world.pass(10 * SECOND);
    assert_eq!(requeued(&world.settle()).2, "ClusterDead");
}

#[test]
fn a_workload_that_this_decision_cancels_is_not_requeued_by_it() {
    let mut world = queued();
    world.run(JOB);
    world.end(JOB, Outcome::UserFailed, Some(1), "");
    world.ask([cancel(JOB)]);
    assert_eq!(names(&world.decided()), ["WorkloadCancelled"]);
    assert_eq!(names(&world.settle()), ["WorkloadCancelled", "WorkloadFinished"]);
}

#[test]
fn idle_workloads_are_not_looked_at() {
    let mut world = World::new();
    for n in 0..40 {
        world.ask((0..50).map(|m| submit(&format!("j{n}-{m}"))));
        world.settle();
    }
    assert_eq!(world.queue.state.jobs.len(), 2_000);
    assert_eq!(world.queue.state.due.len(), 0);
}
