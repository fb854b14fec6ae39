//! The ledger's tables.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Seq, State, Table, WorkloadId};
use muster_model::{Amounts, Lifecycle};

/// What is shown of a workload beyond its lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Spec {
    pub tenant: String,
    pub principal: String,
    pub namespace: String,
    pub name: String,
    pub kind: String,
    pub queue: String,
    pub cluster_queue: Option<String>,
    pub priority: i32,
    pub labels: BTreeMap<String, String>,
    pub pod_sets: Vec<PodSet>,
    pub reason: String,
    pub queued_us: i64,
    pub admitted_us: Option<i64>,
    pub started_us: Option<i64>,
    pub finished_us: Option<i64>,
    pub exit_code: Option<i32>,
    pub body_seq: u64,
    pub body_bytes: u32,
    pub body_erased: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct PodSet {
    pub name: String,
    pub count: u32,
    pub requests: Amounts,
    /// Resource → flavor, of the reservation held or last held.
    pub flavors: BTreeMap<String, String>,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ClusterQueue {
    pub cohort: String,
    pub strategy: String,
    pub stop_policy: String,
    /// (flavor, resource, nominal)
    pub quotas: Vec<(String, String, i64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Cluster {
    pub backend: String,
    pub nodes: u32,
    pub allocatable: Amounts,
}

/// One fact in words.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Entry {
    pub time_us: i64,
    pub service: String,
    pub partition: String,
    pub fact: String,
    pub workload: Option<WorkloadId>,
    pub detail: String,
    pub void: Option<String>,
}

/// A command: (sequence in REQUESTS, index in that message).
pub type Place = (u64, u32);

/// Everything the ledger knows.
#[derive(Debug)]
pub struct LedgerState {
    pub lifecycle: Lifecycle,
    pub specs: Table<WorkloadId, Spec>,
    pub cluster_queues: Table<String, ClusterQueue>,
    pub local_queues: Table<(String, String), String>,
    pub flavors: Table<String, BTreeMap<String, String>>,
    pub clusters: Table<String, Cluster>,
    /// Rejected commands, (first, through) → reasons.
    pub rejected: Table<(Place, Place), Vec<String>>,
    pub entries: Table<(Seq, u32), Entry>,
    /// Workloads that are not over.
    pub open: Table<WorkloadId, ()>,
    /// (namespace, name, id)
    pub names: Table<(String, String, WorkloadId), ()>,
    /// (workload, sequence, index in the message)
    pub timeline: Table<(WorkloadId, Seq, u32), ()>,
}

impl Default for LedgerState {
    fn default() -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            specs: Table::stored("ledger.specs"),
            cluster_queues: Table::stored("ledger.cluster_queues"),
            local_queues: Table::stored("ledger.local_queues"),
            flavors: Table::stored("ledger.flavors"),
            clusters: Table::stored("ledger.clusters"),
            rejected: Table::stored("ledger.rejected"),
            entries: Table::stored("ledger.entries"),
            open: Table::index("ledger.open"),
            names: Table::index("ledger.names"),
            timeline: Table::index("ledger.timeline"),
        }
    }
}

impl State for LedgerState {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        self.lifecycle.tables(visit);
        visit(&mut self.specs);
        visit(&mut self.cluster_queues);
        visit(&mut self.local_queues);
        visit(&mut self.flavors);
        visit(&mut self.clusters);
        visit(&mut self.rejected);
        visit(&mut self.entries);
        visit(&mut self.open);
        visit(&mut self.names);
        visit(&mut self.timeline);
    }

    fn reindex(&mut self) {
        self.lifecycle.reindex();
        for (id, spec) in self.specs.iter() {
            self.names.put((spec.namespace.clone(), spec.name.clone(), *id), ());
        }
        for (id, row) in self.lifecycle.workloads() {
            if row.terminal.is_none() {
                self.open.put(*id, ());
            }
        }
        for ((seq, index), entry) in self.entries.iter() {
            if let Some(id) = entry.workload {
                self.timeline.put((id, *seq, *index), ());
            }
        }
    }
}
