//! The one fold that judges every fact about a workload (LIFECYCLE.md).
//!
//! The fence guards one subject; between the sequence that a decision knew and its own the world
//! may have moved. So each fact is judged at its own sequence, by this fold, in every service,
//! desk and the ledger: it takes effect only if it still holds, else it is void for all alike.
//!
//! Two things are derived by the fold itself, so that nobody has to remember them: an
//! uncommitted attempt is over when a barrier (cancel, preemption, end) stands, and the
//! reservation goes back when a barrier stands and no attempt is live.

mod cluster;
mod judge;
mod legs;
mod members;
mod placements;
mod requests;
mod workload;

pub use cluster::Cluster;
pub use judge::{Touched, Verdict, owner};
pub use workload::{Attempt, Leg, LegState, Refusal, Terminal, Workload};

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Seq, Table, WorkloadId};

/// How far the queue has taken requests: every command of messages up to `seq`, and the first
/// `index` commands of message `seq + 1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct Cursor {
    pub seq: u64,
    pub index: u32,
}

/// What the fold keeps of the cell as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Cell {
    pub generation: u32,
    pub cursor: Cursor,
    /// The sum of all clusters' capacity versions: grows whenever something may fit that did not.
    pub capacity_version: u64,
}

/// The lifecycle of every workload and cluster. Part of the state of each service.
#[derive(Clone, Debug)]
pub struct Lifecycle {
    cell: Table<(), Cell>,
    workloads: Table<WorkloadId, Workload>,
    clusters: Table<String, Cluster>,
    /// Which workloads have a leg in a cluster that is not over.
    legs_in: Table<(String, WorkloadId), ()>,
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            cell: Table::stored("lifecycle.cell"),
            workloads: Table::stored("lifecycle.workloads"),
            clusters: Table::stored("lifecycle.clusters"),
            legs_in: Table::index("lifecycle.legs_in"),
        }
    }
}

impl Lifecycle {
    pub fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.cell);
        visit(&mut self.workloads);
        visit(&mut self.clusters);
        visit(&mut self.legs_in);
    }

    /// Rebuilds the index after the tables were loaded.
    pub fn reindex(&mut self) {
        let legs: Vec<_> = self
            .workloads
            .iter()
            .flat_map(|(id, row)| row.open_clusters().map(|cluster| (cluster.to_owned(), *id)))
            .collect();
        for leg in legs {
            self.legs_in.put(leg, ());
        }
    }

    #[must_use]
    pub fn workload(&self, id: &WorkloadId) -> Option<&Workload> {
        self.workloads.get(id)
    }

    /// All workloads, in the order of their requests.
    pub fn workloads(&self) -> impl DoubleEndedIterator<Item = (&WorkloadId, &Workload)> {
        self.workloads.iter()
    }

    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.get(&name.to_owned())
    }

    pub fn clusters(&self) -> impl Iterator<Item = (&String, &Cluster)> {
        self.clusters.iter()
    }

    /// Workloads with a leg in this cluster that is not over.
    pub fn legs_in(&self, cluster: &str) -> impl Iterator<Item = &WorkloadId> {
        let first = WorkloadId { generation: 0, request: 0, index: 0 };
        self.legs_in
            .range((cluster.to_owned(), first)..)
            .take_while(move |((name, _), ())| name == cluster)
            .map(|((_, id), ())| id)
    }

    /// The generation of the log; 0 before its first message.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.cell.get(&()).map_or(0, |cell| cell.generation)
    }

    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.cell.get(&()).map(|cell| cell.cursor).unwrap_or_default()
    }

    #[must_use]
    pub fn capacity_version(&self) -> u64 {
        self.cell.get(&()).map_or(0, |cell| cell.capacity_version)
    }

    fn cell_mut<R>(&mut self, change: impl FnOnce(&mut Cell) -> R) -> R {
        let mut cell = self.cell.get(&()).cloned().unwrap_or_default();
        let result = change(&mut cell);
        self.cell.put((), cell);
        result
    }

    /// Changes a workload and keeps the index of its legs true.
    fn change(&mut self, id: &WorkloadId, change: impl FnOnce(&mut Workload)) {
        let Some(row) = self.workloads.get(id) else { return };
        let before: Vec<String> = row.open_clusters().map(str::to_owned).collect();
        self.workloads.update(id, change);
        let Some(row) = self.workloads.get(id) else { return };
        if row.open_clusters().eq(before.iter().map(String::as_str)) {
            return;
        }
        let after: Vec<String> = row.open_clusters().map(str::to_owned).collect();
        for cluster in before.iter().filter(|cluster| !after.contains(cluster)) {
            self.legs_in.remove(&(cluster.clone(), *id));
        }
        for cluster in after {
            self.legs_in.put((cluster, *id), ());
        }
    }

    /// Something may fit in this cluster that did not.
    fn grow_capacity_version(&mut self, cluster: &str) {
        self.clusters.update(&cluster.to_owned(), |row| row.capacity_version += 1);
        self.cell_mut(|cell| cell.capacity_version += 1);
    }
}

/// Whether a reservation's id is that of a fact at this sequence.
fn is_reservation(row: &Workload, reservation: Seq) -> bool {
    reservation != 0 && row.reservation == Some(reservation)
}
