//! What a backend shows of its cluster.

use std::{collections::BTreeMap, fmt};

use muster_proto::{Phase, Taint, WorkloadRef};

/// Names one attempt's leg in this cluster; the name of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub generation: u32,
    pub request: u64,
    pub index: u32,
    pub attempt: u32,
}

impl Key {
    pub fn new(workload: &WorkloadRef, attempt: u32) -> Self {
        Self { generation: workload.generation, request: workload.request, index: workload.index, attempt }
    }

    pub fn workload(&self) -> WorkloadRef {
        WorkloadRef { generation: self.generation, request: self.request, index: self.index }
    }

    /// `w<generation, 8 hex>-<request>-<index>`
    pub fn workload_id(&self) -> String {
        format!("w{:08x}-{}-{}", self.generation, self.request, self.index)
    }

    /// Reads what [`Key`]'s `Display` wrote; `None` for anything else.
    pub fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix('w')?.split('-');
        let generation = parts.next().filter(|hex| hex.len() == 8)?;
        let key = Self {
            generation: u32::from_str_radix(generation, 16).ok()?,
            request: parts.next()?.parse().ok()?,
            index: parts.next()?.parse().ok()?,
            attempt: parts.next()?.strip_prefix('a')?.parse().ok()?,
        };
        (parts.next().is_none() && key.to_string() == name).then_some(key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-a{}", self.workload_id(), self.attempt)
    }
}

/// An object that exists in the cluster under its [`Key`].
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Given by the cluster at creation; never used twice.
    pub uid: String,
    pub phase: Phase,
    pub reason: String,
    pub exit_code: Option<i32>,
    /// `host:port` of a Ray head that answers; else empty.
    pub address: String,
}

/// A node as declared or registered. Units as in `PodSet.requests`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub allocatable: BTreeMap<String, i64>,
    /// Allocatable less the requests of pods bound here that are not over.
    pub free: BTreeMap<String, i64>,
}

/// Which node a pod of an object goes to. The pod is `<pod set>-<index>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub pod_set: String,
    pub index: u32,
    pub node: String,
}

/// The cluster's own record of which agent acts. Epochs only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub epoch: u64,
    /// The agent process that took it; empty when nobody ever did.
    pub agent: String,
}

/// One consistent look at the cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub objects: BTreeMap<Key, Object>,
    pub nodes: Vec<Node>,
    pub lease: Lease,
}
