//! The queue: which requests become workloads, and what becomes of a workload that has stopped.
//!
//! A request's way: [`Inbox`] takes it from REQUESTS and reads it once (`parse`). `judge` walks
//! the commands from the cursor on, in order, and says of each whether it is accepted. `outbox`
//! asks for what has to be done first: the body of a manifest is stored before the workload is
//! queued, a sender is told before the rejection is recorded. `requests` turns the prefix that
//! is ready into facts. The cursor is part of the folded state, so a command takes effect once.
//!
//! ```text
//! REQUESTS ─▶ Inbox ─▶ judge ─┬▶ accepted: StoreBody ─▶ WorkloadQueued | WorkloadCancelled |
//!                             │                         PolicyApplied | CommandAccepted
//!                             └▶ refused: SendRejection ─▶ RequestsRejected (summed up)
//! ```
//!
//! A workload's rounds: `evolve` lets the one lifecycle fold judge every fact and keeps an index
//! of the workloads that need the queue, by time. `rounds` looks at that index alone: it ends what
//! has succeeded, was cancelled, or failed too often, and queues the rest again.
//!
//! A job's `activeDeadline` is recorded and not enforced: a cancellation is the answer to a
//! request, so no fact of the queue could carry it yet.

mod config;
mod evolve;
mod explain;
mod inbox;
mod judge;
mod outbox;
mod parse;
mod refusal;
mod requests;
mod rounds;
mod state;
#[cfg(test)]
mod tests;

pub use config::Config;
pub use inbox::Inbox;
pub use state::State;

use muster_core::{At, Broken, Decision, Event, Incoming, Outgoing, Service, Timestamp, Why, WorkloadId};

/// The service `queue`.
pub struct Queue;

impl Service for Queue {
    const NAME: &'static str = "queue";
    type Config = Config;
    type State = State;
    type Inbox = Inbox;
    type Fact = muster_proto::Fact;

    fn evolve(state: &mut State, at: At, event: &Event) {
        evolve::evolve(state, at, event);
    }

    fn absorb(inbox: &mut Inbox, state: &State, now: Timestamp, incoming: Incoming) {
        inbox.absorb(state, now, incoming);
    }

    fn folded(inbox: &mut Inbox, state: &State) {
        inbox.folded(state);
    }

    fn has_room(inbox: &Inbox) -> bool {
        inbox.has_room()
    }

    fn requests_after(state: &State) -> Option<u64> {
        Some(state.lifecycle().cursor().seq)
    }

    fn decide(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Decision<Self::Fact> {
        let mut batch = requests::Batch::default();
        let cancelled = requests::decide(config, state, inbox, now, &mut batch);
        rounds::decide(config, state, now, &cancelled, &mut batch);
        rounds::erased(state, inbox, &mut batch);
        Decision { facts: batch.facts }
    }

    fn outbox(_: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Vec<Outgoing> {
        outbox::outbox(state, inbox, now)
    }

    fn wake_at(_: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Option<Timestamp> {
        let due = state.due_after(now.0).map(Timestamp);
        due.into_iter().chain(inbox.next_retry(now)).min()
    }

    fn explain(
        _: &Config,
        state: &State,
        inbox: &Inbox,
        workload: &WorkloadId,
        now: Timestamp,
    ) -> Option<Why> {
        explain::explain(state, inbox, workload, now)
    }

    fn check(state: &State) -> Result<(), Broken> {
        state.check()
    }
}
