//! Ids come from sequences of the log, never from randomness.

use std::{fmt, str::FromStr};

use borsh::{BorshDeserialize, BorshSerialize};
use muster_proto::WorkloadRef;

/// A sequence of the stream EVENTS. 0 is before the first message.
pub type Seq = u64;

/// A workload: the log's generation, the sequence of its request in REQUESTS, and the
/// command's index in that message. Written `w<generation, 8 hex>-<request>-<index>`, which is
/// a valid Kubernetes name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct WorkloadId {
    pub generation: u32,
    pub request: u64,
    pub index: u32,
}

impl fmt::Display for WorkloadId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{:08x}-{}-{}", self.generation, self.request, self.index)
    }
}

/// Not a workload's id; ids look like `w1f2e3d4c-118-0`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a workload's id; ids look like w1f2e3d4c-118-0")]
pub struct BadId(pub String);

impl FromStr for WorkloadId {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        let parse = || {
            let mut parts = text.strip_prefix('w')?.split('-');
            let generation = parts.next().filter(|hex| hex.len() == 8)?;
            let id = Self {
                generation: u32::from_str_radix(generation, 16).ok()?,
                request: parts.next()?.parse().ok()?,
                index: parts.next()?.parse().ok()?,
            };
            parts.next().is_none().then_some(id)
        };
        parse().ok_or_else(|| BadId(text.to_owned()))
    }
}

impl From<WorkloadId> for WorkloadRef {
    fn from(id: WorkloadId) -> Self {
        Self { generation: id.generation, request: id.request, index: id.index }
    }
}

impl From<&WorkloadRef> for WorkloadId {
    fn from(id: &WorkloadRef) -> Self {
        Self { generation: id.generation, request: id.request, index: id.index }
    }
}

impl WorkloadId {
    /// The id in a message; an absent one is the id of nothing.
    #[must_use]
    pub fn of(id: Option<&WorkloadRef>) -> Self {
        id.map_or(Self { generation: 0, request: 0, index: 0 }, Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_as_it_is_written() {
        let id = WorkloadId { generation: 0x1f2e_3d4c, request: 118, index: 2 };
        assert_eq!(id.to_string(), "w1f2e3d4c-118-2");
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "w1-2-3", "x1f2e3d4c-1-1", "w1f2e3d4c-1", "w1f2e3d4c-1-1-1", "w1f2e3d4c--1"] {
            assert!(text.parse::<WorkloadId>().is_err(), "{text}");
        }
    }
}
