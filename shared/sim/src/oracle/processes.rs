//! What runs: at most one attempt of a workload, only what was granted, and never more than the quota.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::WorkloadId;
use muster_proto::LegSpec;

use super::{Ledger, Name, Violation};

/// (ClusterQueue, flavor, resource) → amount.
pub type Quota = BTreeMap<(String, String, String), i64>;

#[derive(Clone, Debug)]
struct Running {
    name: Name,
    amounts: Quota,
    /// Of a history that the log lost: held, and no part of any count.
    stray: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Processes {
    pub quota: Quota,
    running: BTreeMap<String, Running>,
    /// Objects that a restored log knows nothing of.
    pub strays: BTreeSet<String>,
    /// How often a workload's program came to a good end.
    pub successes: BTreeMap<WorkloadId, u32>,
    /// Workloads of which an end was lost with its cluster or with a part of the log: they may run twice.
    pub excused: BTreeSet<WorkloadId>,
}

impl Processes {
    /// # Errors
    /// A process that should not be.
    pub fn started(
        &mut self,
        uid: &str,
        name: Name,
        spec: &LegSpec,
        ledger: &Ledger,
    ) -> Result<(), Violation> {
        let (id, attempt) = name;
        let granted = ledger.granted.get(uid) == Some(&name);
        let stray = !granted && self.strays.contains(uid);
        if !granted && !stray {
            let detail = format!("{uid} of {id} attempt {attempt} runs");
            return Err(Violation::new("only a granted object starts", detail));
        }
        let queue = ledger.cluster_queue.get(&id).cloned().unwrap_or_default();
        // An object of a lost history may be granted anew under the same name; what it was made for counts no more.
        let amounts = if self.strays.contains(uid) { Quota::new() } else { amounts(&queue, spec) };
        let running = Running { name, amounts, stray };
        self.running.insert(uid.to_owned(), running);
        self.one_attempt(uid, name)?;
        self.within_quota()
    }

    fn one_attempt(&self, uid: &str, (id, attempt): Name) -> Result<(), Violation> {
        let twin = self.running.iter().find(|(other, running)| {
            *other != uid && running.name.0 == id && !running.stray && !self.strays.contains(uid)
        });
        twin.map_or(Ok(()), |(other, running)| {
            let detail =
                format!("{id}: attempt {attempt} ({uid}) beside attempt {} ({other})", running.name.1);
            Err(Violation::new("one attempt runs", detail))
        })
    }

    fn within_quota(&self) -> Result<(), Violation> {
        let mut used = Quota::new();
        for running in self.running.values().filter(|running| !running.stray) {
            for (key, amount) in &running.amounts {
                *used.entry(key.clone()).or_default() += amount;
            }
        }
        for (key, used) in used {
            let nominal = self.quota.get(&key).copied().unwrap_or(0);
            if used > nominal {
                let detail = format!("{key:?}: {used} run, {nominal} may");
                return Err(Violation::new("processes stay within the quota", detail));
            }
        }
        Ok(())
    }

    /// The process is gone, by itself or not.
    pub fn ended(&mut self, uid: &str, success: bool) -> Result<(), Violation> {
        let Some(running) = self.running.remove(uid) else { return Ok(()) };
        if success && !running.stray {
            let id = running.name.0;
            let count = self.successes.entry(id).or_default();
            *count += 1;
            if *count > 1 && !self.excused.contains(&id) {
                return Err(Violation::new("a job succeeds once", format!("{id} did {count} times")));
            }
        }
        Ok(())
    }

    pub fn is_stray(&self, uid: &str) -> bool {
        self.strays.contains(uid)
    }

    /// The log was restored to an earlier sequence: what it did not grant is of another history.
    pub fn disown(&mut self, uids: impl Iterator<Item = String>, ledger: &Ledger) {
        self.strays.extend(uids.filter(|uid| !ledger.granted.contains_key(uid)));
        for (uid, running) in &mut self.running {
            running.stray = self.strays.contains(uid) && !ledger.granted.contains_key(uid);
        }
    }
}

fn amounts(queue: &str, spec: &LegSpec) -> Quota {
    let mut amounts = Quota::new();
    for pods in &spec.pods {
        let set = spec.pod_sets.iter().find(|set| set.name == pods.pod_set);
        for (resource, amount) in set.into_iter().flat_map(|set| &set.requests) {
            let flavor = pods.flavors.get(resource).cloned().unwrap_or_default();
            *amounts.entry((queue.to_owned(), flavor, resource.clone())).or_default() +=
                amount * i64::from(pods.count);
        }
    }
    amounts
}
