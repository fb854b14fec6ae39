//! The same sequence has the same hash: over replicas, restarts and a replay of the whole log.

use std::collections::BTreeMap;

use muster_core::{Input, Seq};

use super::Violation;
use crate::{host, host::Kind, log::MemLog, options::Options};

#[derive(Clone, Debug)]
pub struct Hashes {
    seen: Vec<BTreeMap<Seq, u128>>,
}

impl Hashes {
    #[must_use]
    pub fn new(kinds: usize) -> Self {
        Self { seen: vec![BTreeMap::new(); kinds] }
    }

    /// # Errors
    /// Another replica had another hash at this sequence.
    pub fn saw(&mut self, kind: usize, seq: Seq, hash: u128) -> Result<(), Violation> {
        match self.seen.get_mut(kind).and_then(|seen| seen.insert(seq, hash)) {
            Some(before) if before != hash => {
                let detail = format!("service {kind} at {seq}: {before:032x} and {hash:032x}");
                Err(Violation::new("the same sequence has the same hash", detail))
            }
            _ => Ok(()),
        }
    }

    /// The log was cut: what was seen beyond is of another history.
    pub fn cut(&mut self, head: Seq) {
        for seen in &mut self.seen {
            seen.split_off(&(head + 1));
        }
    }

    /// Folds the whole log from nothing and compares.
    ///
    /// # Errors
    /// A hash that a replica had and the replay has not.
    pub fn replay(&mut self, kinds: &[Kind], options: &Options, log: &MemLog) -> Result<(), Violation> {
        for (index, kind) in kinds.iter().enumerate() {
            let mut host = host::open(kind, options, "replay".to_owned(), None)
                .map_err(|error| Violation::new("a log can be replayed", error.to_string()))?;
            for record in log.read(1, usize::MAX) {
                host.step(None, Input::Records(vec![record]));
                if let Some(stop) = host.stopped() {
                    return Err(Violation::new("a log can be replayed", stop.to_string()));
                }
                let position = host.position();
                self.saw(index, position.seq, position.hash)?;
            }
        }
        Ok(())
    }
}
