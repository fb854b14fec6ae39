//! Why a workload stands where it stands, as far as the queue holds it.

use muster_core::{Timestamp, Why, WorkloadId};
use muster_model::lifecycle::{Terminal, Workload};
use muster_proto::RequestRef;

use crate::inbox::{Entry, Inbox};
use crate::state::{Job, State};

pub(crate) fn explain(state: &State, inbox: &Inbox, id: &WorkloadId, now: Timestamp) -> Option<Why> {
    match (state.lifecycle.workload(id), state.jobs.get(id)) {
        (Some(row), Some(job)) => held(state, id, row, job, now),
        _ if id.generation == state.lifecycle.generation() => requested(inbox, id),
        _ => None,
    }
}

fn why(reason: &'static str, message: impl Into<String>, numbers: &[(&str, i64)]) -> Option<Why> {
    let numbers = numbers.iter().map(|(name, number)| ((*name).to_owned(), number.to_string())).collect();
    Some(Why { reason, message: message.into(), numbers })
}

/// Its request is not recorded yet.
fn requested(inbox: &Inbox, id: &WorkloadId) -> Option<Why> {
    let entry = inbox.find(RequestRef { seq: id.request, index: id.index, of: 0 })?;
    match entry {
        Entry { parsed: Err(refusal), .. } | Entry { told: Some(refusal), .. } => {
            let faults: Vec<String> =
                refusal.faults.iter().map(|fault| format!("{} {}", fault.field, fault.message)).collect();
            why("Rejected", format!("the request is rejected: {}", faults.join("; ").trim()), &[])
        }
        Entry { body: None, .. } => why("WaitingForBody", "its manifest is being stored", &[]),
        Entry { .. } => why("WaitingForTurn", "earlier requests are recorded first", &[]),
    }
}

fn held(state: &State, id: &WorkloadId, row: &Workload, job: &Job, now: Timestamp) -> Option<Why> {
    if let Some(terminal) = row.terminal {
        return over(terminal, job);
    }
    if row.live().is_some() {
        return match (row.cancel, row.preempted) {
            (true, _) => why("Cancelling", "it was cancelled; its pods are being stopped", &[]),
            (_, true) => {
                why("Preempting", "it was preempted; it is queued again when its pods have stopped", &[])
            }
            _ => None,
        };
    }
    if let Some(due) = state.due_of(id) {
        if due <= now.0 {
            return why("DecisionPending", "its end or its next round is about to be recorded", &[]);
        }
        let wait = due.saturating_sub(now.0) / 1_000;
        let message = format!(
            "attempt {} broke; a recovery plan may come within {wait} ms, else it is queued again",
            row.attempts
        );
        return why(
            "WaitingForRecoveryPlan",
            message,
            &[("deadline_us", due), ("attempt", row.attempts.into())],
        );
    }
    if row.reservation.is_none() && job.not_before_us > now.0 {
        let wait = job.not_before_us.saturating_sub(now.0) / 1_000;
        let message = format!("round {} begins in {wait} ms, after {}", row.round, job.requeued_for);
        let numbers = [("not_before_us", job.not_before_us), ("round", row.round.into())];
        return why("Requeued", message, &numbers);
    }
    None
}

fn over(terminal: Terminal, job: &Job) -> Option<Why> {
    let code = job.exit.code.map(|code| ("exit_code", i64::from(code)));
    let numbers = code.as_slice();
    match terminal {
        Terminal::Succeeded => why("Succeeded", "it has succeeded", numbers),
        Terminal::Cancelled => why("Cancelled", "it was cancelled", &[]),
        Terminal::Failed => {
            let reason = if job.exit.reason.is_empty() { "ProgramFailed" } else { &job.exit.reason };
            why("Failed", format!("its program failed and no retry is left: {reason}"), numbers)
        }
    }
}
