//! Rounds and ends: what the queue decides about workloads that have stopped running.

use muster_core::{Timestamp, WorkloadId};
use muster_model::lifecycle::Workload;
use muster_proto::{BodyErased, Kind, Outcome, Result as Finish, WorkloadFinished, WorkloadRequeued};

use crate::config::Config;
use crate::inbox::Inbox;
use crate::requests::Batch;
use crate::state::{Job, State};

/// What the queue does next about a workload that needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Finish { result: Finish, reason: String, exit_code: Option<i32> },
    Requeue { wait_us: i64, reason: &'static str },
}

/// Decides for the workloads that need the queue at `now`, except those that this decision cancels.
pub(crate) fn decide(
    config: &Config,
    state: &State,
    now: Timestamp,
    cancelled: &[WorkloadId],
    batch: &mut Batch,
) {
    for id in state.due_by(now.0).filter(|id| !cancelled.contains(id)) {
        let (Some(row), Some(job)) = (state.lifecycle.workload(&id), state.jobs.get(&id)) else { continue };
        let Some(action) = action(config, row, job) else { continue };
        if batch.is_full() || !batch.push(fact(id, row, now, action)) {
            return;
        }
    }
}

/// A body whose deletion is confirmed is recorded as erased.
pub(crate) fn erased(state: &State, inbox: &Inbox, batch: &mut Batch) {
    for (id, body) in state.erasing().filter(|(_, body)| inbox.deleted.contains(body)) {
        let fact = BodyErased { workload: Some(id.into()), body };
        if batch.is_full() || !batch.push(Kind::BodyErased(fact)) {
            return;
        }
    }
}

/// Success wins over a cancellation, a cancellation over everything else.
pub(crate) fn action(config: &Config, row: &Workload, job: &Job) -> Option<Action> {
    let last = row.last.as_ref();
    let attempt = last.map_or(0, |last| last.no);
    let exit = Some(&job.exit).filter(|exit| exit.attempt == attempt);
    let exit_code = exit.and_then(|exit| exit.code);
    let finish = |result, reason: &str| Action::Finish { result, reason: reason.to_owned(), exit_code };
    if row.won() {
        return Some(finish(Finish::Succeeded, "Succeeded"));
    }
    if row.cancel {
        return Some(Action::Finish {
            result: Finish::Cancelled,
            reason: "Cancelled".to_owned(),
            exit_code: None,
        });
    }
    if row.preempted {
        return Some(Action::Requeue { wait_us: 0, reason: "Preempted" });
    }
    if row.user_failed() {
        if row.fails <= job.max_retries {
            return Some(Action::Requeue { wait_us: config.backoff(row.fails), reason: "ProgramFailed" });
        }
        let why = exit.map(|exit| exit.reason.as_str()).filter(|reason| !reason.is_empty());
        return Some(finish(Finish::Failed, why.unwrap_or("ProgramFailed")));
    }
    if row.infra_failed() {
        let wait_us = config.backoff(job.infra_requeues.saturating_add(1));
        return Some(Action::Requeue { wait_us, reason: broken_by(last.and_then(|last| last.fail)) });
    }
    None
}

fn broken_by(outcome: Option<i32>) -> &'static str {
    match outcome.and_then(|outcome| Outcome::try_from(outcome).ok()) {
        Some(Outcome::NodeFailed) => "NodeFailed",
        Some(Outcome::Gone) => "PodsGone",
        Some(Outcome::Fenced) => "ClusterFenced",
        Some(Outcome::Dead) => "ClusterDead",
        Some(Outcome::Stopped) => "PodsStopped",
        _ => "InfrastructureFailed",
    }
}

fn fact(id: WorkloadId, row: &Workload, now: Timestamp, action: Action) -> Kind {
    let workload = Some(id.into());
    match action {
        Action::Finish { result, reason, exit_code } => {
            Kind::WorkloadFinished(WorkloadFinished { workload, result: result.into(), reason, exit_code })
        }
        Action::Requeue { wait_us, reason } => Kind::WorkloadRequeued(WorkloadRequeued {
            workload,
            round: row.round.saturating_add(1),
            not_before_us: now.plus_us(wait_us).0,
            reason: reason.to_owned(),
        }),
    }
}
