//! Deciding: decide, try it on an overlay, check, and wrap it into an envelope.

use muster_proto::{Envelope, Fact, Writer};
use prost::Message;

use super::{Driver, Effect, Publish, Stop};
use crate::{At, Event, Service, State, Timestamp, hash_of};

/// One decision's payload stays below this.
const MAX_DECISION_BYTES: usize = 512 * 1024;

impl<S: Service> Driver<S> {
    pub(super) fn advance(&mut self, now: Timestamp, effects: &mut Vec<Effect>) {
        if !self.is_caught_up() || self.is_halted() {
            return;
        }
        let now = now.max(Timestamp(self.meta.last_now_us));
        if self.publish == Publish::Idle {
            let decision = S::decide(&self.config, &self.state, &self.inbox, now);
            if !decision.facts.is_empty() {
                let facts = decision.facts.into_iter().map(Into::into).collect();
                match self.try_on(now, facts) {
                    Ok(effect) => effects.push(effect),
                    Err(stop) => {
                        self.stopped = Some(stop.clone());
                        effects.push(Effect::Stop(stop));
                        return;
                    }
                }
            }
        }
        for wish in S::outbox(&self.config, &self.state, &self.inbox, now) {
            if self.under_way.insert(wish.key()) {
                effects.push(Effect::Do(wish));
            }
        }
        if let Some(at) = S::wake_at(&self.config, &self.state, &self.inbox, now) {
            effects.push(Effect::WakeAt(at));
        }
    }

    /// Folds the decision on an overlay, checks the invariants there, and takes it back.
    fn try_on(&mut self, now: Timestamp, facts: Vec<Fact>) -> Result<Effect, Stop> {
        let state_hash = hash_of(&mut self.state);
        let at = At { seq: self.meta.position + 1, time: now };
        self.state.tables(&mut |table| table.begin());
        for fact in &facts {
            let Some(kind) = fact.kind.clone() else { continue };
            let (service, partition) = (S::NAME.to_owned(), self.identity.partition.clone());
            S::evolve(&mut self.state, at, &Event { service, partition, fact: kind });
        }
        let checked = S::check(&self.state);
        self.state.tables(&mut |table| table.rollback());
        checked?;
        self.envelope(now, state_hash, facts)
    }

    fn envelope(&mut self, now: Timestamp, state_hash: u128, facts: Vec<Fact>) -> Result<Effect, Stop> {
        let (prev, prev_hash) = self.links.get(&self.subject).copied().unwrap_or_default();
        let envelope = Envelope {
            generation: self.meta.generation,
            service: S::NAME.to_owned(),
            partition: self.identity.partition.clone(),
            prev,
            prev_hash: if prev == 0 { Default::default() } else { prev_hash.to_vec().into() },
            as_of: self.meta.position,
            now_us: now.0,
            rules: self.meta.rules,
            state_hash: state_hash.to_le_bytes().to_vec().into(),
            config_hash: self.config_hash.to_le_bytes().to_vec().into(),
            writer: Some(Writer {
                instance: self.identity.instance.clone(),
                build: self.identity.build.clone(),
            }),
            facts,
        };
        let payload = envelope.encode_to_vec();
        if payload.len() > MAX_DECISION_BYTES {
            return Err(Stop::TooLarge { bytes: payload.len(), limit: MAX_DECISION_BYTES });
        }
        self.publish = Publish::Sent { expect: prev };
        Ok(Effect::Publish {
            subject: self.subject.clone(),
            expect: prev,
            payload: payload.into(),
            decided: now,
        })
    }
}
