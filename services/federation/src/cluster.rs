//! What member clusters have: groups of alike nodes, and which of them a flavor means.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Table};
use muster_model::{Amounts, Labels, PodSet, Taint, Toleration, repelled_by};
use muster_proto as proto;

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct NodeGroup {
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub nodes: u32,
    /// Of one node.
    pub allocatable: Amounts,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Flavor {
    /// Without labels it means every node.
    pub labels: Labels,
    pub tolerations: Vec<Toleration>,
}

/// Node groups by (cluster, number), and flavors by name.
#[derive(Clone, Debug)]
pub struct Nodes {
    pub groups: Table<(String, u32), NodeGroup>,
    pub flavors: Table<String, Flavor>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self { groups: Table::stored("federation.node_groups"), flavors: Table::stored("federation.flavors") }
    }
}

impl Nodes {
    pub fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.groups);
        visit(&mut self.flavors);
    }

    pub fn groups(&self, cluster: &str) -> impl Iterator<Item = &NodeGroup> {
        self.groups
            .range((cluster.to_owned(), 0)..)
            .take_while(move |((name, _), _)| name == cluster)
            .map(|(_, group)| group)
    }

    /// A report of capacity is always the whole of it.
    pub fn report(&mut self, fact: &proto::CapacityReported) {
        let known = self.groups(&fact.cluster).count();
        for gone in fact.groups.len()..known {
            self.groups.remove(&(fact.cluster.clone(), gone as u32));
        }
        for (number, group) in fact.groups.iter().enumerate() {
            self.groups.put((fact.cluster.clone(), number as u32), NodeGroup::from(group));
        }
    }

    pub fn apply_policy(&mut self, fact: &proto::PolicyApplied) {
        let object = fact.policy.as_ref().and_then(|policy| policy.object.as_ref());
        if let Some(proto::policy::Object::ResourceFlavor(wire)) = object {
            if fact.deleted {
                self.flavors.remove(&wire.name);
            } else {
                self.flavors.put(wire.name.clone(), Flavor::from(wire));
            }
        }
    }

    /// How much a cluster has of a resource on the nodes that a flavor means; of all nodes when
    /// no flavor is named.
    pub fn capacity(&self, cluster: &str, flavor: Option<&str>, resource: &str) -> i128 {
        let labels = match flavor.map(|name| self.flavors.get(&name.to_owned())) {
            Some(None) => return 0,
            Some(Some(flavor)) => Some(&flavor.labels),
            None => None,
        };
        self.groups(cluster)
            .filter(|group| labels.is_none_or(|labels| group.bears(labels)))
            .map(|group| i128::from(group.nodes) * i128::from(group.allocatable.of(resource)))
            .sum()
    }

    /// How many pods of a set fit on empty nodes of its flavors: an upper bound, as pods are
    /// counted node by node, but sets one by one.
    pub fn pods_at_most(&self, cluster: &str, set: &PodSet, flavors: &[&str]) -> i128 {
        let Some(flavors) =
            flavors.iter().map(|name| self.flavors.get(&(*name).to_owned())).collect::<Option<Vec<_>>>()
        else {
            return 0;
        };
        let usable = |group: &&NodeGroup| {
            let tolerations =
                set.tolerations.iter().chain(flavors.iter().flat_map(|flavor| &flavor.tolerations));
            flavors.iter().all(|flavor| group.bears(&flavor.labels))
                && set.selects_node(&group.labels)
                && repelled_by(&group.taints, tolerations).is_none()
        };
        self.groups(cluster)
            .filter(usable)
            .map(|group| i128::from(group.nodes) * i128::from(group.pods_per_node(&set.requests)))
            .sum()
    }
}

impl NodeGroup {
    fn bears(&self, labels: &Labels) -> bool {
        labels.iter().all(|(key, value)| self.labels.get(key) == Some(value))
    }

    /// How many pods with these requests fit on one empty node.
    fn pods_per_node(&self, requests: &Amounts) -> i64 {
        let pods = self.allocatable.0.get("pods").copied();
        let by_resource = requests
            .iter()
            .filter(|(_, amount)| *amount > 0)
            .map(|(resource, amount)| self.allocatable.of(resource).max(0) / amount);
        // A pod without requests fits as often as there are pods: at most an i32's worth.
        by_resource.chain(pods).min().unwrap_or(i64::from(i32::MAX)).clamp(0, i64::from(i32::MAX))
    }
}

impl From<&proto::NodeGroup> for NodeGroup {
    fn from(wire: &proto::NodeGroup) -> Self {
        Self {
            labels: wire.labels.clone(),
            taints: wire.taints.iter().map(Into::into).collect(),
            nodes: wire.nodes,
            allocatable: wire.allocatable.clone().into(),
        }
    }
}

impl From<&proto::ResourceFlavor> for Flavor {
    fn from(wire: &proto::ResourceFlavor) -> Self {
        Self {
            labels: wire.node_labels.clone(),
            tolerations: wire.tolerations.iter().map(Into::into).collect(),
        }
    }
}
