//! A log in a test: facts judged one after the other.

use muster_core::{At, Event, State, Timestamp, WorkloadId, hash_of};
use muster_model::{Lifecycle, Verdict, lifecycle::Workload, lifecycle::owner};
use muster_proto::{GenerationStarted, Kind, RequestRef};

pub const GENERATION: u32 = 7;

#[derive(Clone, Default)]
pub struct Log {
    pub lifecycle: Lifecycle,
    pub seq: u64,
}

/// The lifecycle alone, as a service's state.
#[derive(Default)]
pub struct Alone(pub Lifecycle);

impl State for Alone {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn muster_core::AnyTable)) {
        self.0.tables(visit);
    }

    fn reindex(&mut self) {
        self.0.reindex();
    }
}

impl Log {
    pub fn new() -> Self {
        let mut log = Self::default();
        let started = GenerationStarted { generation: GENERATION, ..Default::default() };
        log.apply("0", Kind::GenerationStarted(started));
        log
    }

    /// A fact at the next sequence, written by its owner.
    pub fn apply(&mut self, partition: &str, fact: Kind) -> Verdict {
        self.seq += 1;
        let at = At { seq: self.seq, time: Timestamp(0) };
        let event = Event { service: owner(&fact).to_owned(), partition: partition.to_owned(), fact };
        self.lifecycle.apply(at, &event)
    }

    /// As [`Log::apply`], for a fact that must take effect.
    pub fn must(&mut self, (partition, fact): (String, Kind)) {
        let verdict = self.apply(&partition, fact.clone());
        assert!(verdict.is_effective(), "{fact:?}: {verdict:?}");
    }

    /// The next command of the queue: one in a message of its own.
    pub fn next_request(&self) -> RequestRef {
        RequestRef { seq: self.lifecycle.cursor().seq + 1, index: 0, of: 1 }
    }

    /// The id that the next request's workload has.
    pub fn next_id(&self) -> WorkloadId {
        WorkloadId { generation: GENERATION, request: self.next_request().seq, index: 0 }
    }

    pub fn row(&self, id: &WorkloadId) -> Workload {
        self.lifecycle.workload(id).cloned().unwrap_or_default()
    }

    pub fn hash(&self) -> u128 {
        hash_of(&mut Alone(self.lifecycle.clone()))
    }
}
