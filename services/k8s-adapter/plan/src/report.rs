//! What the agent tells the desk of one look at the cluster.

use std::collections::BTreeMap;

use muster_proto::{NodeGroup, ObservedLeg, Phase, Report};

use crate::{Key, Node, Object, Observed};

/// Differs on every node, and would keep alike nodes from being summed up.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The legs and nodes of a report; the caller adds who it is and the echo. An object that exists outweighs a refusal:
/// another agent, or a call that landed late, may have made it.
pub fn report(observed: &Observed, refused: &BTreeMap<Key, String>) -> Report {
    let mut legs: BTreeMap<Key, ObservedLeg> =
        refused.iter().map(|(key, reason)| (*key, refusal(key, reason))).collect();
    legs.extend(observed.objects.iter().map(|(key, object)| (*key, leg(key, object))));
    Report { legs: legs.into_values().collect(), nodes: groups(&observed.nodes), ..Report::default() }
}

fn refusal(key: &Key, reason: &str) -> ObservedLeg {
    ObservedLeg {
        workload: Some(key.workload()),
        attempt: key.attempt,
        phase: Phase::Refused.into(),
        reason: reason.into(),
        ..ObservedLeg::default()
    }
}

fn leg(key: &Key, object: &Object) -> ObservedLeg {
    ObservedLeg {
        workload: Some(key.workload()),
        attempt: key.attempt,
        uid: object.uid.clone(),
        phase: object.phase.into(),
        reason: object.reason.clone(),
        exit_code: object.exit_code,
        address: object.address.clone(),
    }
}

fn groups(nodes: &[Node]) -> Vec<NodeGroup> {
    let mut groups: Vec<NodeGroup> = Vec::new();
    for node in nodes {
        let mut labels = node.labels.clone();
        labels.remove(HOSTNAME);
        let alike = |group: &&mut NodeGroup| {
            group.labels == labels && group.taints == node.taints && group.allocatable == node.allocatable
        };
        match groups.iter_mut().find(alike) {
            Some(group) => group.nodes += 1,
            None => groups.push(NodeGroup {
                labels,
                taints: node.taints.clone(),
                nodes: 1,
                allocatable: node.allocatable.clone(),
            }),
        }
    }
    groups
}
