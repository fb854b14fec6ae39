//! What the fold keeps of a member cluster.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::Seq;

#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Cluster {
    /// The highest agent epoch on the log.
    pub epoch: u64,
    /// The sequence of the suspicion that stands.
    pub suspected: Option<Seq>,
    pub dead: bool,
    /// An operator's declare-dead command accepted during this suspicion: its sequence.
    pub oath: Option<Seq>,
    /// Grows whenever something may fit here that did not.
    pub capacity_version: u64,
}

impl Cluster {
    /// Whether new legs may be offered to this cluster.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.suspected.is_none() && !self.dead && self.epoch > 0
    }
}
