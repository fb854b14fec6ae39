//! Flavors for one gang: per pod set and resource group the first flavor that agrees with the
//! pods and has room, or nothing at all.

use std::collections::BTreeMap;

use muster_model::{PodSet, repelled_by};
use muster_proto::PodSetAssignment;

use crate::{
    job::Job,
    policy::{ClusterQueue, Group, Policies},
    quota::{Amount, Level, Room},
};

/// A legal name among covered resources: then every pod counts as one.
const PODS: &str = "pods";

/// What a whole gang would take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    pub sets: Vec<PodSetAssignment>,
    pub amounts: Vec<Amount>,
}

/// Why a gang can't be assigned: its first pod set for which nothing was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFit {
    pub pod_set: String,
    pub why: Miss,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// No group of the ClusterQueue covers this resource.
    NotCovered(String),
    /// What every flavor of the group said.
    Flavors(Vec<(String, FlavorMiss)>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FlavorMiss {
    /// A taint that is not tolerated.
    Taint(String),
    /// The pods' node selector or affinity asks for other nodes.
    Labels,
    /// `need` counts the gang's pod sets before this one too.
    Short { resource: String, need: i128, level: Level },
}

/// Finds flavors for every pod set.
///
/// # Errors
/// [`NoFit`] for the first pod set without; then nothing is taken.
pub fn assign(
    policies: &Policies,
    queue: &ClusterQueue,
    room: &Room<'_>,
    job: &Job,
) -> Result<Assignment, NoFit> {
    let mut planned: BTreeMap<(String, String), i128> = BTreeMap::new();
    let mut sets = Vec::with_capacity(job.pod_sets.len());
    for set in &job.pod_sets {
        let flavors = assign_set(policies, queue, room, set, &mut planned)
            .map_err(|why| NoFit { pod_set: set.name.clone(), why })?;
        sets.push(PodSetAssignment { pod_set: set.name.clone(), count: set.count, flavors });
    }
    let amounts =
        planned.into_iter().map(|((flavor, resource), amount)| Amount { flavor, resource, amount }).collect();
    Ok(Assignment { sets, amounts })
}

fn assign_set(
    policies: &Policies,
    queue: &ClusterQueue,
    room: &Room<'_>,
    set: &PodSet,
    planned: &mut BTreeMap<(String, String), i128>,
) -> Result<BTreeMap<String, String>, Miss> {
    let mut flavors = BTreeMap::new();
    for (resource, amount) in set.requests.iter() {
        let covered = queue.groups.iter().any(|group| covers(group, resource));
        if amount > 0 && !covered {
            return Err(Miss::NotCovered(resource.to_owned()));
        }
    }
    for group in &queue.groups {
        let needs: Vec<(&str, i128)> = group
            .resources
            .iter()
            .map(|name| (name.as_str(), needed(set, name)))
            .filter(|(_, n)| *n > 0)
            .collect();
        if needs.is_empty() {
            continue;
        }
        let flavor = choose(policies, group, room, set, &needs, planned)?;
        for (resource, need) in needs {
            *planned.entry((flavor.to_owned(), resource.to_owned())).or_default() += need;
            flavors.insert(resource.to_owned(), flavor.to_owned());
        }
    }
    Ok(flavors)
}

fn choose<'a>(
    policies: &Policies,
    group: &'a Group,
    room: &Room<'_>,
    set: &PodSet,
    needs: &[(&str, i128)],
    planned: &BTreeMap<(String, String), i128>,
) -> Result<&'a str, Miss> {
    let mut misses = Vec::new();
    for name in &group.flavors {
        match try_flavor(policies, name, room, set, needs, planned) {
            None => return Ok(name),
            Some(miss) => misses.push((name.clone(), miss)),
        }
    }
    Err(Miss::Flavors(misses))
}

fn try_flavor(
    policies: &Policies,
    name: &String,
    room: &Room<'_>,
    set: &PodSet,
    needs: &[(&str, i128)],
    planned: &BTreeMap<(String, String), i128>,
) -> Option<FlavorMiss> {
    let flavor = policies.flavors.get(name)?;
    if let Some(taint) = repelled_by(&flavor.taints, set.tolerations.iter().chain(&flavor.tolerations)) {
        return Some(FlavorMiss::Taint(format!("{}={}:{}", taint.key, taint.value, taint.effect)));
    }
    if !set.agrees_with_flavor(&flavor.labels) {
        return Some(FlavorMiss::Labels);
    }
    needs.iter().find_map(|(resource, need)| {
        let before = planned.get(&(name.clone(), (*resource).to_owned())).copied().unwrap_or(0);
        let need = before + need;
        let level = room.level(name, resource);
        let short = level.used + need > level.nominal;
        short.then(|| FlavorMiss::Short { resource: (*resource).to_owned(), need, level })
    })
}

fn covers(group: &Group, resource: &str) -> bool {
    group.resources.iter().any(|name| name == resource)
}

/// What all pods of a set need of a resource.
pub fn needed(set: &PodSet, resource: &str) -> i128 {
    let count = i128::from(set.count);
    if resource == PODS { count } else { count * i128::from(set.requests.of(resource)) }
}

/// What an assignment on the log holds of each flavor and resource.
pub fn amounts(job: &Job, sets: &[PodSetAssignment]) -> Vec<Amount> {
    let mut sums: BTreeMap<(&String, &String), i128> = BTreeMap::new();
    for assigned in sets {
        let Some(set) = job.pod_set(&assigned.pod_set) else { continue };
        for (resource, flavor) in &assigned.flavors {
            let counted = PodSet { count: assigned.count, ..set.clone() };
            *sums.entry((flavor, resource)).or_default() += needed(&counted, resource);
        }
    }
    sums.into_iter()
        .map(|((flavor, resource), amount)| Amount {
            flavor: flavor.clone(),
            resource: resource.clone(),
            amount,
        })
        .collect()
}
