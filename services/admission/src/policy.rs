//! What the manifests of Kueue say, as rows.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Table};
use muster_model::{Labels, Taint, Toleration};
use muster_proto::{self as proto, policy::Object};

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Flavor {
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub tolerations: Vec<Toleration>,
}

/// Resources that are assigned together: all from one flavor.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Group {
    pub resources: Vec<String>,
    /// In order of preference.
    pub flavors: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ClusterQueue {
    pub groups: Vec<Group>,
    /// A head that does not fit blocks those behind it.
    pub strict: bool,
    pub held: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct LocalQueue {
    pub cluster_queue: String,
    pub held: bool,
}

/// (ClusterQueue, flavor, resource).
pub type QuotaKey = (String, String, String);

#[derive(Clone, Debug)]
pub struct Policies {
    pub flavors: Table<String, Flavor>,
    pub queues: Table<String, ClusterQueue>,
    /// Nominal quota, in the units of the pod sets' requests.
    pub nominal: Table<QuotaKey, i64>,
    /// By (namespace, name).
    pub local_queues: Table<(String, String), LocalQueue>,
}

impl Default for Policies {
    fn default() -> Self {
        Self {
            flavors: Table::stored("admission.flavors"),
            queues: Table::stored("admission.cluster_queues"),
            nominal: Table::stored("admission.nominal"),
            local_queues: Table::stored("admission.local_queues"),
        }
    }
}

/// What a policy changed for workloads that wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Where workloads of this LocalQueue, (namespace, name), go.
    Route((String, String)),
    /// Which nodes a flavor means: what fitted nowhere may fit now.
    Nodes,
    /// What a ClusterQueue may admit.
    Queue(String),
    /// Nothing that admission looks at.
    Rest,
}

/// Why a ClusterQueue admits nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inactive {
    Missing,
    Held,
    FlavorMissing(String),
}

impl Policies {
    pub fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.flavors);
        visit(&mut self.queues);
        visit(&mut self.nominal);
        visit(&mut self.local_queues);
    }

    pub fn apply(&mut self, fact: &proto::PolicyApplied) -> Changed {
        let Some(object) = fact.policy.as_ref().and_then(|policy| policy.object.as_ref()) else {
            return Changed::Rest;
        };
        match object {
            Object::ResourceFlavor(wire) => {
                set(&mut self.flavors, wire.name.clone(), (!fact.deleted).then(|| Flavor::from(wire)));
                Changed::Nodes
            }
            Object::ClusterQueue(wire) => {
                self.apply_queue(wire, fact.deleted);
                Changed::Queue(wire.name.clone())
            }
            Object::LocalQueue(wire) => {
                let key = (wire.namespace.clone(), wire.name.clone());
                let row =
                    LocalQueue { cluster_queue: wire.cluster_queue.clone(), held: held(&wire.stop_policy) };
                set(&mut self.local_queues, key.clone(), (!fact.deleted).then_some(row));
                Changed::Route(key)
            }
            Object::Cohort(_) | Object::WorkloadPriorityClass(_) | Object::Tenant(_) => Changed::Rest,
        }
    }

    fn apply_queue(&mut self, wire: &proto::ClusterQueue, deleted: bool) {
        let mut nominal = BTreeMap::new();
        if !deleted {
            for flavor in wire.resource_groups.iter().flat_map(|group| &group.flavors) {
                for quota in &flavor.resources {
                    let key = (wire.name.clone(), flavor.name.clone(), quota.name.clone());
                    nominal.insert(key, quota.nominal);
                }
            }
        }
        let gone: Vec<QuotaKey> = self
            .nominal
            .range((wire.name.clone(), String::new(), String::new())..)
            .map(|(key, _)| key)
            .take_while(|key| key.0 == wire.name)
            .filter(|key| !nominal.contains_key(*key))
            .cloned()
            .collect();
        for key in &gone {
            self.nominal.remove(key);
        }
        for (key, amount) in nominal {
            self.nominal.put(key, amount);
        }
        set(&mut self.queues, wire.name.clone(), (!deleted).then(|| ClusterQueue::from(wire)));
    }

    /// The ClusterQueue, if it may admit.
    pub fn active(&self, queue: &str) -> Result<&ClusterQueue, Inactive> {
        let row = self.queues.get(&queue.to_owned()).ok_or(Inactive::Missing)?;
        if row.held {
            return Err(Inactive::Held);
        }
        match row.groups.iter().flat_map(|group| &group.flavors).find(|name| !self.flavors.contains(name)) {
            Some(name) => Err(Inactive::FlavorMissing(name.clone())),
            None => Ok(row),
        }
    }
}

fn set<K: muster_core::Key, V: muster_core::Row>(table: &mut Table<K, V>, key: K, row: Option<V>) {
    match row {
        Some(row) => table.put(key, row),
        None => _ = table.remove(&key),
    }
}

fn held(stop_policy: &str) -> bool {
    stop_policy == "Hold" || stop_policy == "HoldAndDrain"
}

impl From<&proto::ResourceFlavor> for Flavor {
    fn from(wire: &proto::ResourceFlavor) -> Self {
        Self {
            labels: wire.node_labels.clone(),
            taints: wire.node_taints.iter().map(Into::into).collect(),
            tolerations: wire.tolerations.iter().map(Into::into).collect(),
        }
    }
}

impl From<&proto::ClusterQueue> for ClusterQueue {
    fn from(wire: &proto::ClusterQueue) -> Self {
        let group = |group: &proto::ResourceGroup| Group {
            resources: group.covered_resources.clone(),
            flavors: group.flavors.iter().map(|flavor| flavor.name.clone()).collect(),
        };
        Self {
            groups: wire.resource_groups.iter().map(group).collect(),
            strict: wire.queueing_strategy == "StrictFIFO",
            held: held(&wire.stop_policy),
        }
    }
}
