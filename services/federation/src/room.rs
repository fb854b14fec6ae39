//! Where a gang fits: what clusters have, less what live legs and this decision's own offers
//! occupy.

use std::collections::BTreeMap;

use muster_model::lifecycle::Workload;
use muster_model::quantity::format;

use crate::{
    State,
    gang::Gang,
    usage::{ALL, AmountKey},
};

/// Free capacity as one decision sees it.
pub struct Room<'a> {
    state: &'a State,
    /// Capacity and usage by cluster, looked up once.
    levels: BTreeMap<&'a str, BTreeMap<AmountKey, Level>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    pub capacity: i128,
    pub committed: i128,
    pub offered: i128,
}

/// Why a cluster can't take a gang now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    Suspected,
    Dead,
    NoAgent,
    /// It refused, or did not answer, and nothing has changed there since.
    Refused,
    Avoided,
    /// The pods of a set can't be bound to nodes of their flavors: so many at most.
    Nodes {
        pod_set: String,
        count: u32,
        at_most: i128,
    },
    Short {
        flavor: String,
        resource: String,
        need: i128,
        level: Level,
    },
    /// It would fit if offers under way came to nothing.
    Offered {
        flavor: String,
        resource: String,
        need: i128,
        level: Level,
    },
}

impl Miss {
    /// A stable code and a sentence with its numbers.
    pub fn reason(&self) -> String {
        match self {
            Self::Suspected => "Suspected: it has fallen silent".to_owned(),
            Self::Dead => "Dead: it was declared dead".to_owned(),
            Self::NoAgent => "NoAgent: no agent has joined yet".to_owned(),
            Self::Refused => "Refused: it refused, and nothing has changed there since".to_owned(),
            Self::Avoided => "Avoided: the recovery plan keeps away from it".to_owned(),
            Self::Nodes { pod_set, count, at_most } => {
                format!("NodesTooSmall: {count} pods of {pod_set}, at most {at_most} fit on its nodes")
            }
            Self::Short { flavor, resource, need, level } => {
                format!("Insufficient: {}", numbers(flavor, resource, *need, *level))
            }
            Self::Offered { flavor, resource, need, level } => {
                let offered = level.offered;
                format!(
                    "Offered: {}, {offered} of it offered to others",
                    numbers(flavor, resource, *need, *level)
                )
            }
        }
    }
}

fn numbers(flavor: &str, resource: &str, need: i128, level: Level) -> String {
    let of = if flavor == ALL { String::new() } else { format!(" of flavor {flavor}") };
    let (capacity, used) = (level.capacity, level.committed + level.offered);
    let [need, capacity, used, short] =
        [need, capacity, used, used + need - capacity].map(|amount| format(resource, amount));
    format!("needs {need} {resource}{of}: capacity {capacity}, used {used} → short by {short}")
}

impl<'a> Room<'a> {
    pub fn new(state: &'a State) -> Self {
        Self { state, levels: BTreeMap::new() }
    }

    /// The cluster that would be left with the least of what the gang needs most urgently; the
    /// first by name among equals.
    ///
    /// # Errors
    /// Every cluster's reason, when none takes it.
    pub fn choose(&mut self, row: &Workload, gang: &Gang) -> Result<String, Vec<(String, Miss)>> {
        let needs = needs(gang);
        let mut best: Option<(i128, &str)> = None;
        let mut misses = Vec::new();
        for (cluster, _) in self.state.lifecycle.clusters() {
            let found = self.spare(cluster, row, gang, &needs).and_then(|spare| {
                // Nodes are looked at last, and only where it makes a difference.
                let better = best.is_none_or(|(least, _)| spare < least);
                if better {
                    self.nodes_fit(cluster, gang).map(|()| best = Some((spare, cluster)))
                } else {
                    Ok(())
                }
            });
            if let Err(miss) = found {
                misses.push((cluster.clone(), miss));
            }
        }
        best.map(|(_, cluster)| cluster.to_owned()).ok_or(misses)
    }

    /// How often the gang would fit once more, in thousandths.
    fn spare(
        &mut self,
        cluster: &'a str,
        row: &Workload,
        gang: &Gang,
        needs: &[(AmountKey, i128)],
    ) -> Result<i128, Miss> {
        self.closed(cluster, row, gang)?;
        let mut spare = i128::MAX;
        let mut waits = None;
        for (key, need) in needs {
            let (need, level) = (*need, self.level(cluster, key));
            let free = level.capacity - level.committed - level.offered;
            if need > level.capacity - level.committed {
                let (flavor, resource) = key.clone();
                return Err(Miss::Short { flavor, resource, need, level });
            }
            if need > free {
                let (flavor, resource) = key.clone();
                waits.get_or_insert(Miss::Offered { flavor, resource, need, level });
            } else {
                spare = spare.min((free - need).saturating_mul(1000) / need);
            }
        }
        match waits {
            Some(waits) => self.nodes_fit(cluster, gang).and(Err(waits)),
            None => Ok(spare),
        }
    }

    fn nodes_fit(&self, cluster: &str, gang: &Gang) -> Result<(), Miss> {
        for assigned in &gang.assigned {
            let Some(set) = gang.pod_set(&assigned.pod_set) else { continue };
            let flavors: Vec<&str> = assigned.flavors.values().map(String::as_str).collect();
            let at_most = self.state.nodes.pods_at_most(cluster, set, &flavors);
            if at_most < i128::from(assigned.count) {
                let (pod_set, count) = (assigned.pod_set.clone(), assigned.count);
                return Err(Miss::Nodes { pod_set, count, at_most });
            }
        }
        Ok(())
    }

    fn closed(&self, cluster: &str, row: &Workload, gang: &Gang) -> Result<(), Miss> {
        let Some(known) = self.state.lifecycle.cluster(cluster) else { return Err(Miss::NoAgent) };
        if known.dead {
            return Err(Miss::Dead);
        }
        if known.suspected.is_some() {
            return Err(Miss::Suspected);
        }
        if !known.is_open() {
            return Err(Miss::NoAgent);
        }
        if gang.avoid.iter().any(|avoid| avoid == cluster) {
            return Err(Miss::Avoided);
        }
        let stands =
            row.refusals.iter().chain(&gang.unanswered).any(|refusal| {
                refusal.cluster == cluster && refusal.capacity_version == known.capacity_version
            });
        if stands { Err(Miss::Refused) } else { Ok(()) }
    }

    fn level(&mut self, cluster: &'a str, key: &AmountKey) -> Level {
        let levels = self.levels.entry(cluster).or_default();
        if let Some(level) = levels.get(key) {
            return *level;
        }
        let (flavor, resource) = key;
        let named = (flavor != ALL).then_some(flavor.as_str());
        let used = self.state.usage.of(&(cluster.to_owned(), flavor.clone(), resource.clone()));
        let level = Level {
            capacity: self.state.nodes.capacity(cluster, named, resource),
            committed: used.committed,
            offered: used.offered,
        };
        levels.insert(key.clone(), level);
        level
    }

    /// This decision offers the gang to this cluster.
    pub fn take(&mut self, cluster: &str, gang: &Gang) {
        let Some(levels) = self.levels.get_mut(cluster) else { return };
        for (key, need) in needs(gang) {
            if let Some(level) = levels.get_mut(&key) {
                level.offered += need;
            }
        }
    }
}

/// What a gang needs of each flavor, and of the cluster as a whole.
fn needs(gang: &Gang) -> Vec<(AmountKey, i128)> {
    let mut own: BTreeMap<AmountKey, i128> = BTreeMap::new();
    let mut all: BTreeMap<AmountKey, i128> = BTreeMap::new();
    for part in gang.amounts(&gang.whole("")) {
        *all.entry((ALL.to_owned(), part.resource.clone())).or_default() += part.amount;
        if part.flavor != ALL {
            *own.entry((part.flavor, part.resource)).or_default() += part.amount;
        }
    }
    // The cluster's sum last: a shortage is better named by its flavor.
    own.into_iter().chain(all).collect()
}
