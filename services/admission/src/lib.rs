//! Quota: who may run next.
//!
//! A workload names a LocalQueue; that leads to a ClusterQueue, which owns quota: per group of
//! resources a list of flavors, per flavor and resource a nominal amount. Admission looks at
//! what waits, in order of priority, then time, then id, and reserves quota for whole gangs:
//! for each pod set and group the first flavor that agrees with it and has room. Nothing is
//! reserved in part.
//!
//! ```text
//!  policy   what Kueue's manifests say, as rows             facts ─▶ state ─▶ decide ─▶ QuotaReserved
//!  job      what admission keeps of a workload                          │             QuotaReleased
//!  state    the fold: who waits where, who holds what                   └─▶ explain
//!  order    one ClusterQueue's waiting workloads, in order, shape by shape
//!  quota    usage, and what one decision has already taken
//!  stir     which ClusterQueues have changed: an idle step looks at no other
//!  assign   flavors for one gang
//! ```
//!
//! Whether a reservation stands is the lifecycle's to judge, never admission's own: usage is the
//! sum over workloads whose reservation the lifecycle holds, kept by one row of contribution per
//! workload. A fact that lost its race never counts.
//!
//! Not judged yet: cohorts (every ClusterQueue is on its own), preemption (so `HoldAndDrain`
//! holds, and drains nothing), and `namespaceSelector`, as namespaces have no labels here.

mod assign;
mod decide;
mod explain;
mod job;
mod order;
mod policy;
mod quota;
mod state;
mod stir;
#[cfg(test)]
mod tests;

pub use state::State;
pub use stir::Inbox;

use borsh::BorshSerialize;
use muster_core::{At, Broken, Decision, Event, Incoming, Service, Timestamp, Why, WorkloadId};
use muster_proto::Fact;

/// The service.
pub struct Admission;

/// What operators tune.
#[derive(Clone, Debug, BorshSerialize)]
pub struct Config {
    /// Facts of one decision at most: one message of at most 512 KiB carries them.
    pub batch: u32,
}

impl Default for Config {
    fn default() -> Self {
        Self { batch: 200 }
    }
}

impl Service for Admission {
    const NAME: &'static str = "admission";
    type Config = Config;
    type State = State;
    type Inbox = Inbox;
    type Fact = Fact;

    fn evolve(state: &mut State, at: At, event: &Event) {
        state.evolve(at, event);
    }

    /// Admission decides from facts alone: nothing reaches it from outside the log.
    fn absorb(_: &mut Inbox, _: &State, _: Timestamp, _: Incoming) {}

    fn folded(inbox: &mut Inbox, state: &State) {
        inbox.look(&state.stirred, |queue| decide::something_fits(state, queue));
    }

    fn decide(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Decision<Fact> {
        Decision { facts: decide::decide(config, state, inbox, now) }
    }

    fn wake_at(_: &Config, state: &State, _: &Inbox, now: Timestamp) -> Option<Timestamp> {
        state.next_backoff_end(now)
    }

    fn explain(_: &Config, state: &State, _: &Inbox, workload: &WorkloadId, now: Timestamp) -> Option<Why> {
        explain::explain(state, workload, now)
    }

    fn check(state: &State) -> Result<(), Broken> {
        state.check()
    }
}
