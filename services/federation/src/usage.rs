//! What live legs occupy in each cluster, per flavor and resource.
//!
//! Flavors may mean the same nodes (one without labels means them all). So every amount counts
//! twice: for its flavor, and for the cluster as a whole, which stands under the empty flavor.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Broken, Seq, Table, WorkloadId};

use crate::cluster::Nodes;

/// The flavor under which a cluster's sum over all flavors stands.
pub const ALL: &str = "";

/// (flavor, resource).
pub type AmountKey = (String, String);
/// (cluster, flavor, resource).
pub type UsedKey = (String, String, String);

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Amount {
    pub flavor: String,
    pub resource: String,
    pub amount: i128,
}

/// What one leg occupies.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Holding {
    pub committed: bool,
    pub amounts: Vec<Amount>,
}

/// The sum over holdings; offered ones may yet come to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Used {
    pub committed: i128,
    pub offered: i128,
}

impl Used {
    pub const fn total(self) -> i128 {
        self.committed + self.offered
    }
}

/// Holdings by (cluster, workload), and their sums.
#[derive(Clone, Debug)]
pub struct Usage {
    pub holdings: Table<(String, WorkloadId), Holding>,
    pub used: Table<UsedKey, Used>,
    /// Sums that the facts of one sequence changed, and whether one of them added to it.
    touched: Table<UsedKey, (Seq, bool)>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            holdings: Table::stored("federation.holdings"),
            used: Table::index("federation.used"),
            touched: Table::index("federation.touched"),
        }
    }
}

/// The keys under which an amount counts.
fn keys(cluster: &str, part: &Amount) -> impl Iterator<Item = UsedKey> {
    let key = |flavor: &str| (cluster.to_owned(), flavor.to_owned(), part.resource.clone());
    let own = (part.flavor != ALL).then(|| key(&part.flavor));
    own.into_iter().chain([key(ALL)])
}

impl Usage {
    pub fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.holdings);
        visit(&mut self.used);
        visit(&mut self.touched);
    }

    pub fn reindex(&mut self) {
        let rows: Vec<_> = self.holdings.iter().map(|(key, row)| (key.0.clone(), row.clone())).collect();
        for (cluster, row) in rows {
            self.add(&cluster, &row, 1);
        }
    }

    pub fn of(&self, key: &UsedKey) -> Used {
        self.used.get(key).copied().unwrap_or_default()
    }

    /// Sets what a workload occupies in a cluster; none: nothing any more.
    pub fn set(&mut self, at: Seq, cluster: &str, id: WorkloadId, row: Option<Holding>) {
        let key = (cluster.to_owned(), id);
        let old = self.holdings.get(&key).cloned();
        if old == row {
            return;
        }
        if let Some(old) = &old {
            self.add(cluster, old, -1);
            self.touch(at, cluster, old, false);
            self.holdings.remove(&key);
        }
        if let Some(row) = row {
            self.add(cluster, &row, 1);
            self.touch(at, cluster, &row, old.is_none());
            self.holdings.put(key, row);
        }
    }

    fn add(&mut self, cluster: &str, row: &Holding, times: i128) {
        for part in &row.amounts {
            for key in keys(cluster, part) {
                let mut used = self.of(&key);
                let sum = if row.committed { &mut used.committed } else { &mut used.offered };
                *sum += part.amount * times;
                if used == Used::default() {
                    self.used.remove(&key);
                } else {
                    self.used.put(key, used);
                }
            }
        }
    }

    /// A message begins: what an earlier one touched was checked with it.
    pub fn begin(&mut self, at: Seq) {
        let stale = self.touched.iter().next().is_some_and(|(_, (seq, _))| *seq != at);
        if stale {
            let keys: Vec<UsedKey> = self.touched.iter().map(|(key, _)| key.clone()).collect();
            for key in &keys {
                self.touched.remove(key);
            }
        }
    }

    fn touch(&mut self, at: Seq, cluster: &str, row: &Holding, added: bool) {
        for key in row.amounts.iter().flat_map(|part| keys(cluster, part)) {
            let before = self.touched.get(&key).is_some_and(|(_, added)| *added);
            self.touched.put(key, (at, added || before));
        }
    }

    fn holdings_in(&self, cluster: &str) -> impl Iterator<Item = &Holding> {
        let first = WorkloadId { generation: 0, request: 0, index: 0 };
        self.holdings
            .range((cluster.to_owned(), first)..)
            .take_while(move |((name, _), _)| name == cluster)
            .map(|(_, row)| row)
    }

    /// What the facts of the last sequence touched is the sum of what live legs hold, and what
    /// they offered was there. A cluster that shrinks below its usage breaks nothing.
    pub fn check(&self, nodes: &Nodes) -> Result<(), Broken> {
        let mut clusters: Vec<&String> = self.touched.iter().map(|(key, _)| &key.0).collect();
        clusters.dedup();
        let mut sums: BTreeMap<UsedKey, i128> = BTreeMap::new();
        for cluster in clusters {
            for part in self.holdings_in(cluster).flat_map(|row| &row.amounts) {
                for key in keys(cluster, part) {
                    *sums.entry(key).or_default() += part.amount;
                }
            }
        }
        for (key, (_, added)) in self.touched.iter() {
            let (cluster, flavor, resource) = key;
            let (used, sum) = (self.of(key).total(), sums.get(key).copied().unwrap_or(0));
            if used != sum {
                let detail = format!(
                    "{resource} of flavor {flavor:?} in {cluster}: {used} counted, {sum} held by live legs"
                );
                return Err(Broken { invariant: "UsageIsTheSumOfLiveLegs", detail });
            }
            let flavor = (flavor != ALL).then_some(flavor.as_str());
            let capacity = nodes.capacity(cluster, flavor, resource);
            if *added && used > capacity {
                let detail = format!("{resource} of flavor {flavor:?} in {cluster}: {used} of {capacity}");
                return Err(Broken { invariant: "CapacityIsNeverOfferedTwice", detail });
            }
        }
        Ok(())
    }
}
