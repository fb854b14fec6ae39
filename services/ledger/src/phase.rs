//! A workload's phase in one word, and a leg's state.

use muster_model::lifecycle::{Attempt, Leg, LegState, Terminal, Workload};
use muster_proto::Outcome;

/// Queued, Admitted, Placing, Running, Stopping, Ending, or how it ended.
pub fn phase(row: &Workload) -> &'static str {
    match row.terminal {
        Some(Terminal::Succeeded) => return "Succeeded",
        Some(Terminal::Failed) => return "Failed",
        Some(Terminal::Cancelled) => return "Cancelled",
        None => {}
    }
    match row.live() {
        Some(_) if row.stopping() => "Stopping",
        Some(attempt) if attempt.committed => "Running",
        Some(_) => "Placing",
        None if row.cancel => "Stopping",
        None if row.won() || row.user_failed() || row.infra_failed() => "Ending",
        None if row.reservation.is_some() => "Admitted",
        None => "Queued",
    }
}

/// Asked, Granted, Refused, Running, Ready, Withdrawn, or how it ended.
pub fn leg_state(attempt: &Attempt, leg: &Leg) -> &'static str {
    match leg.state {
        LegState::Over(outcome) => outcome_name(Outcome::try_from(outcome).unwrap_or_default()),
        LegState::Refused => "Refused",
        _ if attempt.over => "Withdrawn",
        LegState::Asked => "Asked",
        LegState::Granted if !attempt.committed => "Granted",
        LegState::Granted if leg.ready => "Ready",
        LegState::Granted => "Running",
    }
}

pub fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Unspecified => "Unspecified",
        Outcome::Succeeded => "Succeeded",
        Outcome::UserFailed => "UserFailed",
        Outcome::NodeFailed => "NodeFailed",
        Outcome::Gone => "Gone",
        Outcome::Fenced => "Fenced",
        Outcome::Stopped => "Stopped",
        Outcome::Dead => "Dead",
    }
}
