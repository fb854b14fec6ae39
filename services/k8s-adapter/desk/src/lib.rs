//! A cluster's desk: it makes the cluster look like its placements and writes down what came of it.
//!
//! ```text
//!  EVENTS ─▶ State ─▶ desired state ──▶ muster.to.<cluster> ──▶ agent
//!  EVENTS ◀─ facts ◀─ decide ◀─ Inbox ◀── muster.from.<cluster> ◀── agent's reports
//! ```
//!
//! The desk decides nothing of policy. What it says about a leg follows from three things: where the
//! leg stands on the log, what the latest report shows of the object that the log granted, and whether
//! that report was made after the agent had carried out a desired state at least as new as the leg's
//! last fact (its `echo`). Absence, grants and refusals are believed only of such a report: an older
//! one speaks of a time before the leg was there.
//!
//! Only the granted uid is ever started. What else bears the name is a ghost: a create that landed
//! late. Ghosts that are not running are removed; running objects that the log knows nothing of are
//! held, never killed without a verdict.
//!
//! - [`DeskState`] folds the lifecycle and what a leg's specification needs;
//! - [`Inbox`] keeps the latest report, bodies of manifests, and what was sent;
//! - `decide` reads both and writes facts; `desired` reads both and says what the cluster shall hold.

mod decide;
mod desired;
mod explain;
mod ghosts;
mod inbox;
mod state;

pub use inbox::Inbox;
pub use state::{ClusterRow, DeskState, LegRow, SpecRow};

use muster_core::{At, Broken, Decision, Event, Incoming, Outgoing, Service, Timestamp, Why, WorkloadId};
use muster_proto::Fact;

/// Which cluster, and how often its desired state is repeated.
#[derive(Clone, Debug, PartialEq, Eq, borsh::BorshSerialize)]
pub struct Config {
    pub cluster: String,
    /// Between two sends while something is awaited from the agent. Microseconds.
    pub repeat_us: i64,
    /// Between two sends while nothing is. Microseconds.
    pub heartbeat_us: i64,
}

impl Config {
    /// Repeats every second while something is awaited, else every five.
    #[must_use]
    pub fn new(cluster: &str) -> Self {
        Self { cluster: cluster.to_owned(), repeat_us: 1_000_000, heartbeat_us: 5_000_000 }
    }
}

/// The service. Its partition is the cluster's name.
#[derive(Debug)]
pub struct Desk;

impl Service for Desk {
    const NAME: &'static str = "desk";
    type Config = Config;
    type State = DeskState;
    type Inbox = Inbox;
    type Fact = Fact;

    fn evolve(state: &mut DeskState, at: At, event: &Event) {
        state.fold(at, event);
    }

    fn absorb(inbox: &mut Inbox, state: &DeskState, now: Timestamp, incoming: Incoming) {
        inbox.absorb(state, now, incoming);
    }

    fn folded(inbox: &mut Inbox, state: &DeskState) {
        inbox.forget_bodies(state);
    }

    fn decide(config: &Config, state: &DeskState, inbox: &Inbox, _now: Timestamp) -> Decision<Fact> {
        Decision { facts: decide::decide(config, state, inbox) }
    }

    fn outbox(config: &Config, state: &DeskState, inbox: &Inbox, now: Timestamp) -> Vec<Outgoing> {
        desired::outbox(config, state, inbox, now)
    }

    fn wake_at(config: &Config, state: &DeskState, inbox: &Inbox, now: Timestamp) -> Option<Timestamp> {
        Some(desired::wake_at(config, state, inbox, now))
    }

    fn explain(
        config: &Config,
        state: &DeskState,
        inbox: &Inbox,
        workload: &WorkloadId,
        _now: Timestamp,
    ) -> Option<Why> {
        explain::explain(config, state, inbox, workload)
    }

    fn check(state: &DeskState) -> Result<(), Broken> {
        state.check()
    }
}
