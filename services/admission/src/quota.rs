//! Usage: the sum over reservations that stand, and what one decision has taken on top.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Broken, Seq, Table, WorkloadId};

use crate::policy::{Policies, QuotaKey};

/// What a workload's reservation holds. Sums are i128: no sum of recorded amounts overflows.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Reservation {
    pub queue: String,
    /// The sequence of its QuotaReserved.
    pub seq: Seq,
    pub amounts: Vec<Amount>,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Amount {
    pub flavor: String,
    pub resource: String,
    pub amount: i128,
}

/// Every reservation that stands, and per ClusterQueue, flavor and resource their sum.
#[derive(Clone, Debug)]
pub struct Usage {
    pub reservations: Table<WorkloadId, Reservation>,
    pub holders: Table<(String, WorkloadId), ()>,
    pub used: Table<QuotaKey, i128>,
    /// Sums that the facts of one sequence changed, and whether one of them reserved.
    touched: Table<QuotaKey, (Seq, bool)>,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            reservations: Table::stored("admission.reservations"),
            holders: Table::index("admission.holders"),
            used: Table::index("admission.used"),
            touched: Table::index("admission.touched"),
        }
    }
}

impl Usage {
    pub fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.reservations);
        visit(&mut self.holders);
        visit(&mut self.used);
        visit(&mut self.touched);
    }

    pub fn reindex(&mut self) {
        let rows: Vec<_> = self.reservations.iter().map(|(id, row)| (*id, row.clone())).collect();
        for (id, row) in rows {
            self.holders.put((row.queue.clone(), id), ());
            for part in &row.amounts {
                self.add(&row.queue, part, 1);
            }
        }
    }

    pub fn of(&self, key: &QuotaKey) -> i128 {
        self.used.get(key).copied().unwrap_or(0)
    }

    /// Sets what a workload holds; none: nothing any more.
    pub fn set(&mut self, at: Seq, id: WorkloadId, row: Option<Reservation>) {
        let old = self.reservations.get(&id).cloned();
        if old == row {
            return;
        }
        if let Some(old) = old {
            self.holders.remove(&(old.queue.clone(), id));
            for part in &old.amounts {
                self.add(&old.queue, part, -1);
                self.touch(at, &old.queue, part, false);
            }
            self.reservations.remove(&id);
        }
        if let Some(row) = row {
            self.holders.put((row.queue.clone(), id), ());
            for part in &row.amounts {
                self.add(&row.queue, part, 1);
                self.touch(at, &row.queue, part, true);
            }
            self.reservations.put(id, row);
        }
    }

    fn add(&mut self, queue: &str, part: &Amount, times: i128) {
        let key = (queue.to_owned(), part.flavor.clone(), part.resource.clone());
        match self.of(&key) + part.amount * times {
            0 => _ = self.used.remove(&key),
            sum => self.used.put(key, sum),
        }
    }

    /// A message begins: what an earlier one touched was checked with it.
    pub fn begin(&mut self, at: Seq) {
        let stale = self.touched.iter().next().is_some_and(|(_, (seq, _))| *seq != at);
        if stale {
            let keys: Vec<QuotaKey> = self.touched.iter().map(|(key, _)| key.clone()).collect();
            for key in &keys {
                self.touched.remove(key);
            }
        }
    }

    fn touch(&mut self, at: Seq, queue: &str, part: &Amount, reserved: bool) {
        let key = (queue.to_owned(), part.flavor.clone(), part.resource.clone());
        let before = self.touched.get(&key).is_some_and(|(_, reserved)| *reserved);
        self.touched.put(key, (at, reserved || before));
    }

    /// Reservations of a ClusterQueue.
    pub fn held_in(&self, queue: &str) -> impl Iterator<Item = (&WorkloadId, &Reservation)> {
        let first = WorkloadId { generation: 0, request: 0, index: 0 };
        self.holders
            .range((queue.to_owned(), first)..)
            .take_while(move |((name, _), ())| name == queue)
            .filter_map(|((_, id), ())| self.reservations.get(id).map(|row| (id, row)))
    }

    /// Counted anew from the reservations.
    fn sum(&self, (queue, flavor, resource): &QuotaKey) -> i128 {
        let parts = self.held_in(queue).flat_map(|(_, row)| &row.amounts);
        parts
            .filter(|part| part.flavor == *flavor && part.resource == *resource)
            .map(|part| part.amount)
            .sum()
    }

    /// What the facts of the last sequence touched is the sum of what stands, and what they
    /// reserved is within the nominal quota. A quota cut below its usage breaks nothing.
    pub fn check(&self, policies: &Policies) -> Result<(), Broken> {
        for (key, (_, reserved)) in self.touched.iter() {
            let (used, sum) = (self.of(key), self.sum(key));
            let nominal = policies.nominal.get(key).copied().unwrap_or(0);
            let (queue, flavor, resource) = key;
            if used != sum {
                let detail =
                    format!("{resource} of {flavor} in {queue}: {used} counted, {sum} held by reservations");
                return Err(Broken { invariant: "UsageIsTheSumOfReservations", detail });
            }
            if *reserved && used > i128::from(nominal) {
                let detail = format!("{resource} of {flavor} in {queue}: used {used}, nominal {nominal}");
                return Err(Broken { invariant: "QuotaIsNeverExceeded", detail });
            }
        }
        Ok(())
    }
}

/// The quota of one ClusterQueue as a decision sees it: usage, and what it has taken itself.
pub struct Room<'a> {
    policies: &'a Policies,
    usage: &'a Usage,
    queue: &'a str,
    taken: BTreeMap<(String, String), i128>,
}

/// Nominal quota and what is used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub nominal: i128,
    pub used: i128,
}

impl<'a> Room<'a> {
    pub fn new(policies: &'a Policies, usage: &'a Usage, queue: &'a str) -> Self {
        Self { policies, usage, queue, taken: BTreeMap::new() }
    }

    pub fn level(&self, flavor: &str, resource: &str) -> Level {
        let key = (self.queue.to_owned(), flavor.to_owned(), resource.to_owned());
        let nominal = self.policies.nominal.get(&key).copied().unwrap_or(0);
        let used = self.usage.of(&key);
        let (_, flavor, resource) = key;
        let taken = self.taken.get(&(flavor, resource)).copied().unwrap_or(0);
        Level { nominal: i128::from(nominal), used: used + taken }
    }

    pub fn take(&mut self, amounts: &[Amount]) {
        for part in amounts {
            *self.taken.entry((part.flavor.clone(), part.resource.clone())).or_default() += part.amount;
        }
    }
}
