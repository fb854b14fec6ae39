//! Given facts, when deciding, then these facts: tests of pure deciders read like sentences.

use muster_proto::Kind;

use crate::{At, Decision, Event, Incoming, Service, Timestamp};

/// A service's state and inbox, made from facts and messages, to be asked for decisions.
pub struct Given<S: Service> {
    pub config: S::Config,
    pub state: S::State,
    pub inbox: S::Inbox,
    pub seq: u64,
    pub now: Timestamp,
}

impl<S: Service> Given<S> {
    pub fn new(config: S::Config) -> Self {
        Self { config, state: S::State::default(), inbox: S::Inbox::default(), seq: 0, now: Timestamp(0) }
    }

    /// One message of the log, written by `service.partition`, with these facts.
    #[must_use]
    pub fn message(mut self, service: &str, partition: &str, facts: impl IntoIterator<Item = Kind>) -> Self {
        self.fold(service, partition, facts);
        self
    }

    /// As [`Given::message`], on a harness that is kept.
    pub fn fold(&mut self, service: &str, partition: &str, facts: impl IntoIterator<Item = Kind>) {
        self.seq += 1;
        let at = At { seq: self.seq, time: self.now };
        for fact in facts {
            let event = Event { service: service.to_owned(), partition: partition.to_owned(), fact };
            S::evolve(&mut self.state, at, &event);
        }
    }

    /// Something arrives from outside the log.
    #[must_use]
    pub fn incoming(mut self, incoming: Incoming) -> Self {
        S::absorb(&mut self.inbox, &self.state, self.now, incoming);
        self
    }

    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = now;
        self
    }

    /// What the service decides now.
    pub fn decide(&self) -> Vec<S::Fact> {
        let Decision { facts } = S::decide(&self.config, &self.state, &self.inbox, self.now);
        facts
    }

    /// Records decisions until the service is content, and gives all facts; fails the test after
    /// `rounds`: a decider that never rests would fill the log at full speed.
    ///
    /// # Panics
    /// When the service still has something to say after that many rounds, or breaks an invariant.
    pub fn decide_until_content(&mut self, partition: &str, rounds: usize) -> Vec<Kind> {
        let mut all = Vec::new();
        for _ in 0..rounds {
            let facts: Vec<Kind> = self.decide().into_iter().filter_map(|fact| fact.into().kind).collect();
            if facts.is_empty() {
                return all;
            }
            self.fold(S::NAME, partition, facts.clone());
            if let Err(broken) = S::check(&self.state) {
                panic!("{broken}");
            }
            all.extend(facts);
        }
        panic!("{} does not come to rest in {rounds} rounds", S::NAME)
    }
}
