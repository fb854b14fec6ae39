//! Folding records: check the chain, then evolve. Folding never stops on meaning.

use muster_proto::{Envelope, Kind};

use super::{Driver, Stop};
use crate::{At, Event, Record, Service, decode, sha256};

impl<S: Service> Driver<S> {
    pub(super) fn fold(&mut self, records: &[Record]) -> Result<(), Stop> {
        for record in records {
            // A reader may see a message again after a reconnect; it was folded already.
            if record.seq > self.meta.position {
                self.fold_one(record)?;
            }
        }
        S::folded(&mut self.inbox, &self.state);
        self.settle_publish();
        Ok(())
    }

    fn fold_one(&mut self, record: &Record) -> Result<(), Stop> {
        let expected = self.meta.position + 1;
        if record.seq != expected && self.meta.position != 0 {
            return Err(Stop::Gap { expected, got: record.seq });
        }
        match decode(record) {
            Ok(envelope) => {
                self.check_chain(record, &envelope)?;
                self.evolve_all(record, envelope)?;
            }
            // Its owner's scope is halted until an operator lifts it; nothing is skipped silently.
            Err(reason) => self.halts.put(record.subject.clone(), (record.seq, reason.to_string())),
        }
        let hash = sha256(&record.payload);
        self.links.put(record.subject.clone(), (record.seq, hash));
        self.meta.position = record.seq;
        self.meta.last_hash = hash;
        Ok(())
    }

    fn check_chain(&self, record: &Record, envelope: &Envelope) -> Result<(), Stop> {
        let (folded, hash) = self.links.get(&record.subject).copied().unwrap_or_default();
        let (seq, subject) = (record.seq, record.subject.clone());
        if envelope.prev != folded {
            return Err(Stop::ChainBroken { seq, subject, prev: envelope.prev, folded });
        }
        if folded != 0 && envelope.prev_hash != hash[..] {
            return Err(Stop::ChainAltered { seq, subject });
        }
        Ok(())
    }

    fn evolve_all(&mut self, record: &Record, envelope: Envelope) -> Result<(), Stop> {
        if record.subject == self.subject {
            self.meta.last_now_us = self.meta.last_now_us.max(envelope.now_us);
        }
        let at = At { seq: record.seq, time: record.time };
        let Envelope { service, partition, facts, .. } = envelope;
        let mut event = Event { service, partition, fact: Kind::GenerationStarted(Default::default()) };
        for fact in facts.into_iter().filter_map(|fact| fact.kind) {
            event.fact = fact;
            self.evolve_host(record.seq, &event)?;
            S::evolve(&mut self.state, at, &event);
        }
        Ok(())
    }

    /// The facts that concern the host itself.
    fn evolve_host(&mut self, seq: u64, event: &Event) -> Result<(), Stop> {
        match &event.fact {
            Kind::GenerationStarted(fact) => self.meta.generation = fact.generation,
            Kind::RulesActivated(fact) if fact.service == S::NAME => {
                if fact.rules > S::RULES {
                    let (service, rules, known) = (fact.service.clone(), fact.rules, S::RULES);
                    return Err(Stop::RulesUnknown { seq, service, rules, known });
                }
                self.meta.rules = fact.rules;
            }
            Kind::ScopeResumed(fact) => _ = self.halts.remove(&fact.scope),
            Kind::FactVoided(fact) => {
                let voided: Vec<_> = self
                    .halts
                    .iter()
                    .filter(|(_, halt)| halt.0 == fact.seq)
                    .map(|(scope, _)| scope.clone())
                    .collect();
                for scope in voided {
                    self.halts.remove(&scope);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl<S: Service> Driver<S> {
    /// Whether this driver's own scope is halted.
    pub(super) fn is_halted(&self) -> bool {
        self.halts.contains(&self.subject)
    }
}
