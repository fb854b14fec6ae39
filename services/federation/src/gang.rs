//! What federation keeps of a workload besides its lifecycle, until its end.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::WorkloadId;
use muster_model::{PodSet, lifecycle::Refusal};
use muster_proto as proto;

use crate::usage::{Amount, AmountKey};

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Gang {
    pub priority: i32,
    pub commit_on_grant: bool,
    pub pod_sets: Vec<PodSet>,
    /// Of the reservation held: per pod set how many pods, and the flavor of each resource.
    pub assigned: Vec<Assigned>,
    /// Clusters that a recovery plan keeps away from, until the next offer or reservation.
    pub avoid: Vec<String>,
    /// Clusters that left an ask without answer in this round, with their capacity version then:
    /// they count as if they had refused.
    pub unanswered: Vec<Refusal>,
    /// When the last offer was recorded; server's time.
    pub offered_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Assigned {
    pub pod_set: String,
    pub count: u32,
    pub flavors: BTreeMap<String, String>,
}

/// In which order gangs are offered: higher priority first, then as their quota was reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
pub struct Turn {
    /// The priority's negative.
    pub rank: i64,
    pub reservation: u64,
    pub id: WorkloadId,
}

impl Gang {
    pub fn new(fact: &proto::WorkloadQueued) -> Self {
        Self {
            priority: fact.priority,
            commit_on_grant: fact.commit_on_grant,
            pod_sets: fact.pod_sets.iter().map(Into::into).collect(),
            assigned: Vec::new(),
            avoid: Vec::new(),
            unanswered: Vec::new(),
            offered_us: 0,
        }
    }

    pub fn assign(&mut self, assignments: &[proto::PodSetAssignment]) {
        let assigned = |wire: &proto::PodSetAssignment| Assigned {
            pod_set: wire.pod_set.clone(),
            count: wire.count,
            flavors: wire.flavors.clone(),
        };
        self.assigned = assignments.iter().map(assigned).collect();
    }

    pub fn pod_set(&self, name: &str) -> Option<&PodSet> {
        self.pod_sets.iter().find(|set| set.name == name)
    }

    /// The whole gang as one leg.
    pub fn whole(&self, cluster: &str) -> proto::Leg {
        let pods = |assigned: &Assigned| proto::PodRange {
            pod_set: assigned.pod_set.clone(),
            first: 0,
            count: assigned.count,
            flavors: assigned.flavors.clone(),
        };
        proto::Leg { cluster: cluster.to_owned(), pods: self.assigned.iter().map(pods).collect() }
    }

    /// What a leg occupies of each flavor and resource.
    pub fn amounts(&self, leg: &proto::Leg) -> Vec<Amount> {
        let mut sums: BTreeMap<AmountKey, i128> = BTreeMap::new();
        for range in leg.pods.iter().filter(|range| range.count > 0) {
            let Some(set) = self.pod_set(&range.pod_set) else { continue };
            for (resource, amount) in set.requests.iter().filter(|(_, amount)| *amount > 0) {
                // A resource without quota has no flavor; it lies on some node all the same.
                let flavor = range.flavors.get(resource).cloned().unwrap_or_default();
                *sums.entry((flavor, resource.to_owned())).or_default() +=
                    i128::from(amount) * i128::from(range.count);
            }
        }
        sums.into_iter().map(|((flavor, resource), amount)| Amount { flavor, resource, amount }).collect()
    }
}
