//! The log, read as naively as possible: who was granted, who ended how.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::WorkloadId;
use muster_proto::{Kind, Result as Finish};

use super::Violation;

/// An attempt of a workload.
pub type Name = (WorkloadId, u32);

#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// Whose object a uid is, as desks wrote it.
    pub granted: BTreeMap<String, Name>,
    pub queued: BTreeSet<WorkloadId>,
    pub cancelled: BTreeSet<WorkloadId>,
    pub finished: BTreeMap<WorkloadId, Finish>,
    pub cluster_queue: BTreeMap<WorkloadId, String>,
    pub suspected: BTreeSet<String>,
    pub dead: BTreeSet<String>,
    pub generation: u32,
}

impl Ledger {
    /// # Errors
    /// A workload that comes into being or to its end twice.
    pub fn read(&mut self, fact: &Kind, effective: bool) -> Result<(), Violation> {
        match fact {
            Kind::LegGranted(fact) => {
                let name = (WorkloadId::of(fact.workload.as_ref()), fact.attempt);
                self.granted.insert(fact.uid.clone(), name);
            }
            Kind::QuotaReserved(fact) => {
                let id = WorkloadId::of(fact.workload.as_ref());
                self.cluster_queue.insert(id, fact.cluster_queue.clone());
            }
            _ if !effective => {}
            Kind::GenerationStarted(fact) => self.generation = fact.generation,
            Kind::ClusterSuspected(fact) => _ = self.suspected.insert(fact.cluster.clone()),
            Kind::ClusterDeclaredDead(fact) => _ = self.dead.insert(fact.cluster.clone()),
            Kind::ClusterReconciled(fact) => {
                self.suspected.remove(&fact.cluster);
                self.dead.remove(&fact.cluster);
            }
            Kind::WorkloadCancelled(fact) => {
                self.cancelled.insert(WorkloadId::of(fact.workload.as_ref()));
            }
            Kind::WorkloadQueued(fact) => {
                let id = WorkloadId::of(fact.workload.as_ref());
                if !self.queued.insert(id) {
                    return Err(Violation::new("a workload is queued once", format!("{id} again")));
                }
            }
            Kind::WorkloadFinished(fact) => {
                let id = WorkloadId::of(fact.workload.as_ref());
                if let Some(before) = self.finished.insert(id, fact.result()) {
                    let detail = format!("{id}: {before:?}, then {:?}", fact.result());
                    return Err(Violation::new("a workload ends once", detail));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Workloads that are not at their end.
    pub fn open(&self) -> impl Iterator<Item = &WorkloadId> {
        self.queued.iter().filter(|id| !self.finished.contains_key(id))
    }
}
