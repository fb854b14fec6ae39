//! Every command of every request is answered by exactly one fact that takes effect.

use std::collections::{BTreeMap, BTreeSet};

use muster_proto::{Kind, RequestRef};

use super::Violation;

#[derive(Clone, Debug, Default)]
pub struct Answers {
    /// (message, command) → the kind of fact that answered it.
    answered: BTreeMap<(u64, u32), &'static str>,
    /// Commands whose sender was told of the rejection. Not undone when the log is cut.
    told: BTreeSet<(u64, u32)>,
}

impl Answers {
    pub fn told(&mut self, request: Option<&RequestRef>) {
        if let Some(request) = request {
            self.told.insert((request.seq, request.index));
        }
    }

    /// # Errors
    /// A second answer; or a rejection that nobody was told of.
    pub fn read(&mut self, fact: &Kind, commands: &[u32]) -> Result<(), Violation> {
        let (first, through, kind) = match fact {
            Kind::WorkloadQueued(fact) => (fact.request, fact.request, "queued"),
            Kind::WorkloadCancelled(fact) => (fact.request, fact.request, "cancelled"),
            Kind::CommandAccepted(fact) => (fact.request, fact.request, "accepted"),
            Kind::PolicyApplied(fact) => (fact.request, fact.request, "applied"),
            Kind::RequestsRejected(fact) => (fact.first, fact.through, "rejected"),
            _ => return Ok(()),
        };
        let (Some(first), Some(through)) = (first, through) else { return Ok(()) };
        let mut at = (first.seq, first.index);
        while at <= (through.seq, through.index) {
            if kind == "rejected" && !self.told.contains(&at) {
                return Err(Violation::new("a sender is told of a rejection", format!("{at:?} was not")));
            }
            if let Some(before) = self.answered.insert(at, kind) {
                let detail = format!("{at:?}: {before}, then {kind}");
                return Err(Violation::new("a request is answered once", detail));
            }
            let of = commands.get(at.0 as usize - 1).copied().unwrap_or(1);
            at = if at.1 + 1 < of { (at.0, at.1 + 1) } else { (at.0 + 1, 0) };
        }
        Ok(())
    }

    /// The first command without an answer.
    #[must_use]
    pub fn missing(&self, commands: &[u32]) -> Option<(u64, u32)> {
        let all = (1u64..).zip(commands).flat_map(|(seq, of)| (0..*of).map(move |index| (seq, index)));
        all.into_iter().find(|at| !self.answered.contains_key(at))
    }

    /// The log was cut: read it again.
    pub fn forget(&mut self) {
        self.answered.clear();
    }
}
