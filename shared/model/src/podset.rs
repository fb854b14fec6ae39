//! Pod sets as rows keep them.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_proto as proto;

use crate::{Amounts, Overflow};

/// Replicas of one shape.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct PodSet {
    pub name: String,
    pub count: u32,
    /// 0: not elastic.
    pub min_count: u32,
    /// Of one pod.
    pub requests: Amounts,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<Toleration>,
    /// Any one term of these, each with all of its requirements.
    pub affinity: Vec<Vec<Requirement>>,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Toleration {
    pub key: String,
    pub operator: String,
    pub value: String,
    pub effect: String,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Requirement {
    pub key: String,
    pub operator: String,
    pub values: Vec<String>,
}

impl From<&proto::Toleration> for Toleration {
    fn from(wire: &proto::Toleration) -> Self {
        let proto::Toleration { key, operator, value, effect } = wire.clone();
        Self { key, operator, value, effect }
    }
}

impl From<&proto::PodSet> for PodSet {
    fn from(wire: &proto::PodSet) -> Self {
        let requirement = |wire: &proto::NodeRequirement| Requirement {
            key: wire.key.clone(),
            operator: wire.operator.clone(),
            values: wire.values.clone(),
        };
        Self {
            name: wire.name.clone(),
            count: wire.count,
            min_count: wire.min_count,
            requests: wire.requests.clone().into(),
            node_selector: wire.node_selector.clone(),
            tolerations: wire.tolerations.iter().map(Into::into).collect(),
            affinity: wire
                .affinity
                .iter()
                .map(|term| term.requirements.iter().map(requirement).collect())
                .collect(),
        }
    }
}

/// What all pods of all sets request together.
///
/// # Errors
/// [`Overflow`] when the sum is beyond an i64.
pub fn total_requests<'a>(pod_sets: impl IntoIterator<Item = &'a PodSet>) -> Result<Amounts, Overflow> {
    let mut total = Amounts::default();
    for set in pod_sets {
        total.add(&set.requests, i64::from(set.count))?;
    }
    Ok(total)
}
