//! What the ledger is asked and answers: JSON both ways, times in microseconds since 1970,
//! amounts in the units of a pod set's requests (cpu in thousandths, memory in bytes).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A question. Lists come in pages: ask again with `after` set to the answer's `next`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Question {
    Workloads(Select),
    /// One workload by id or by name; of several with this name, the newest.
    Workload {
        namespace: Option<String>,
        name: String,
    },
    /// As a workload, with the services' own explanations.
    Why {
        namespace: Option<String>,
        name: String,
    },
    LocalQueues {
        namespace: Option<String>,
    },
    ClusterQueues,
    ResourceFlavors,
    Clusters,
    /// Facts above a sequence, all or of one workload.
    Events {
        after: u64,
        limit: u32,
        workload: Option<String>,
    },
    /// What became of a command of a request.
    Request {
        seq: u64,
        index: u32,
    },
    /// How far the ledger has folded, once it has folded at least this far.
    Position {
        at_least: u64,
    },
}

/// Which workloads.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Select {
    pub namespace: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// Only those that are not over.
    pub open: bool,
    pub after: Option<String>,
    pub limit: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    Workloads {
        items: Vec<Workload>,
        next: Option<String>,
    },
    Workload(Box<Workload>),
    Why {
        workload: Box<Workload>,
        reasons: Vec<Reason>,
    },
    LocalQueues {
        items: Vec<LocalQueue>,
    },
    ClusterQueues {
        items: Vec<ClusterQueue>,
    },
    ResourceFlavors {
        items: Vec<ResourceFlavor>,
    },
    Clusters {
        items: Vec<Cluster>,
    },
    Events {
        items: Vec<Event>,
        next: Option<u64>,
    },
    /// Pending, Taken or Rejected.
    Request {
        state: String,
        reasons: Vec<String>,
    },
    Position {
        seq: u64,
        generation: String,
    },
    NotFound {
        what: String,
    },
    /// The question could not be read or answered.
    Refused {
        reason: String,
    },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Workload {
    pub id: String,
    pub tenant: String,
    pub principal: String,
    pub namespace: String,
    pub name: String,
    pub kind: String,
    pub queue: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster_queue: Option<String>,
    pub priority: i32,
    /// Queued, Admitted, Placing, Running, Stopping, Ending, Succeeded, Failed, Cancelled.
    pub phase: String,
    /// Why it ended or goes round again, as recorded.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub round: u32,
    pub attempts: u32,
    pub labels: BTreeMap<String, String>,
    pub pod_sets: Vec<PodSet>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub legs: Vec<Leg>,
    pub queued_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admitted_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub body_bytes: u32,
    pub body_seq: u64,
    pub body_erased: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSet {
    pub name: String,
    pub count: u32,
    /// Of one pod.
    pub requests: BTreeMap<String, i64>,
    /// Resource → flavor, once quota is reserved.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub flavors: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Leg {
    pub cluster: String,
    pub attempt: u32,
    /// Asked, Granted, Refused, Running, Ready, or how it ended.
    pub state: String,
    pub uid: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
}

/// One service's explanation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Reason {
    pub service: String,
    pub reason: String,
    pub message: String,
    pub numbers: Vec<(String, String)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalQueue {
    pub namespace: String,
    pub name: String,
    pub cluster_queue: String,
    pub pending: u32,
    pub admitted: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterQueue {
    pub name: String,
    pub cohort: String,
    pub strategy: String,
    pub stop_policy: String,
    pub pending: u32,
    pub admitted: u32,
    pub quotas: Vec<Quota>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Quota {
    pub flavor: String,
    pub resource: String,
    pub nominal: i64,
    pub used: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFlavor {
    pub name: String,
    pub node_labels: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cluster {
    pub name: String,
    pub backend: String,
    /// Joining, Ready, Suspected, Dead.
    pub state: String,
    pub epoch: u64,
    pub nodes: u32,
    pub legs: u32,
    /// Of all nodes together.
    pub allocatable: BTreeMap<String, i64>,
    /// By legs that are not over.
    pub used: BTreeMap<String, i64>,
}

/// One fact of the log, in words.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub seq: u64,
    pub index: u32,
    pub time_us: i64,
    pub service: String,
    pub partition: String,
    pub fact: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    pub detail: String,
    /// Why the fact took no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub void: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_when_empty_is_empty_when_read() {
        let workload = Workload {
            id: "w00000001-1-0".to_owned(),
            pod_sets: vec![PodSet::default()],
            legs: vec![Leg::default()],
            ..Workload::default()
        };
        for workload in [workload, Workload::default()] {
            let text = serde_json::to_string(&Answer::Workload(Box::new(workload))).unwrap();
            let read: Answer = serde_json::from_str(&text).unwrap();
            assert_eq!(serde_json::to_string(&read).unwrap(), text);
        }
    }
}
