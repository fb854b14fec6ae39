//! What admission keeps of a workload besides its lifecycle, until its end.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{Seq, WorkloadId};
use muster_model::PodSet;
use muster_proto as proto;

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Job {
    pub namespace: String,
    pub local_queue: String,
    pub priority: i32,
    /// When it took its place in the queue: submitted, or requeued after a failure. A preempted
    /// workload keeps its place.
    pub queued_us: i64,
    /// Nothing is reserved before this time; 0: none, or it has passed.
    pub not_before_us: i64,
    /// Its owner asked to hold it back.
    pub held: bool,
    /// The sequence of the last PlacementExhausted; 0: none.
    pub exhausted: Seq,
    pub pod_sets: Vec<PodSet>,
    /// Workloads of one shape fit or don't fit alike.
    pub shape: u128,
}

/// A place in a queue: what sorts first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct Place {
    /// The priority's negative: the higher priority comes first.
    pub rank: i64,
    pub queued_us: i64,
    pub id: WorkloadId,
}

impl Job {
    pub fn new(fact: &proto::WorkloadQueued) -> Self {
        let pod_sets: Vec<PodSet> = fact.pod_sets.iter().map(Into::into).collect();
        Self {
            namespace: fact.namespace.clone(),
            local_queue: fact.local_queue.clone(),
            priority: fact.priority,
            queued_us: fact.submitted_us,
            not_before_us: 0,
            held: false,
            exhausted: 0,
            shape: shape(&pod_sets),
            pod_sets,
        }
    }

    pub fn place(&self, id: WorkloadId) -> Place {
        Place { rank: -i64::from(self.priority), queued_us: self.queued_us, id }
    }

    pub fn pod_set(&self, name: &str) -> Option<&PodSet> {
        self.pod_sets.iter().find(|set| set.name == name)
    }

    /// (namespace, name) of its LocalQueue.
    pub fn local_queue(&self) -> (String, String) {
        (self.namespace.clone(), self.local_queue.clone())
    }
}

/// The first 16 bytes of the SHA-256 of the pod sets: users choose them, so nothing weaker.
fn shape(pod_sets: &[PodSet]) -> u128 {
    let bytes = borsh::to_vec(pod_sets).unwrap_or_default();
    muster_core::sha256(&bytes).iter().take(16).fold(0, |shape, byte| (shape << 8) | u128::from(*byte))
}
