//! Which cluster: offers, commits, attempts.
//!
//! A workload with quota is offered, whole, to one open cluster in which it fits; the cluster's
//! desk grants or refuses; federation commits what is granted and withdraws what is not. It
//! alone numbers attempts, and it alone says that a cluster is suspected or dead.
//!
//! ```text
//!  cluster  node groups of member clusters, and flavors      facts ─▶ state ─▶ decide ─▶ PlacementOffered
//!  gang     what federation keeps of a workload                        ▲  │             PlacementCommitted
//!  usage    what live legs occupy, per cluster and flavor     reports ─┘  │             PlacementWithdrawn
//!  room     where a gang fits, on top of what one decision               │             PlacementExhausted
//!           has already offered                                          │             ClusterSuspected
//!  hearing  which clusters were heard, and for how long we listened      │             ClusterDeclaredDead
//!  decide   offers, answers, timeouts, clusters                           └─▶ explain
//! ```
//!
//! Two choices keep the log at rest. A workload that would fit if offers under way came to
//! nothing waits for these, instead of being exhausted at a version that their end does not
//! raise. And an ask without answer is withdrawn only when another cluster can take the gang: to
//! ask the same cluster again would gain nothing, and go on forever.

mod cluster;
mod decide;
mod explain;
mod gang;
mod hearing;
mod room;
mod state;
#[cfg(test)]
mod tests;
mod usage;

pub use hearing::Inbox;
pub use state::State;

use borsh::BorshSerialize;
use muster_core::{At, Broken, Decision, Event, Incoming, Service, Timestamp, Why, WorkloadId};
use muster_proto::Fact;

/// The service.
pub struct Federation;

/// What operators tune.
#[derive(Clone, Debug, BorshSerialize)]
pub struct Config {
    /// Facts of one decision at most.
    pub batch: u32,
    /// How long an asked cluster may be silent before another one is tried, in microseconds.
    pub offer_timeout_us: i64,
    /// How long a cluster may be silent before it is suspected, in microseconds; 0: never.
    pub suspect_after_us: i64,
}

impl Default for Config {
    fn default() -> Self {
        Self { batch: 200, offer_timeout_us: 30_000_000, suspect_after_us: 0 }
    }
}

impl Service for Federation {
    const NAME: &'static str = "federation";
    type Config = Config;
    type State = State;
    type Inbox = Inbox;
    type Fact = Fact;

    fn evolve(state: &mut State, at: At, event: &Event) {
        state.evolve(at, event);
    }

    fn absorb(inbox: &mut Inbox, state: &State, _: Timestamp, incoming: Incoming) {
        if let Incoming::Report { report, time } = incoming {
            inbox.heard(&state.lifecycle, &report, time);
        }
    }

    fn decide(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Decision<Fact> {
        Decision { facts: decide::decide(config, state, inbox, now) }
    }

    fn wake_at(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Option<Timestamp> {
        let timeout = state.next_timeout(config.offer_timeout_us, now);
        timeout.into_iter().chain(inbox.next_suspicion(config, &state.lifecycle, now)).min()
    }

    fn explain(
        config: &Config,
        state: &State,
        _: &Inbox,
        workload: &WorkloadId,
        now: Timestamp,
    ) -> Option<Why> {
        explain::explain(config, state, workload, now)
    }

    fn check(state: &State) -> Result<(), Broken> {
        state.check()
    }
}
