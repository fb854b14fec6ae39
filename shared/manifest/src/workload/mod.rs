//! Job manifests, read into what the scheduler decides by: pod sets, queue, retries, deadline.
//!
//! Pod sets are those that Kueue makes of the same manifest, in its order, so that a quota means
//! the same here and there.

pub(crate) mod job;
mod kuberay;
mod meta;
pub(crate) mod ray;

use std::collections::BTreeMap;

pub(crate) use meta::known_fields;
use muster_proto::PodSet;
use serde_json::Value;

use crate::Fault;
use crate::node::{Faults, Node};
use crate::{names, quantity};

/// Kueue's limit; a role is a pod set.
pub const MAX_POD_SETS: usize = 18;
/// The most pods of one workload.
pub const MAX_PODS: u32 = 1_000_000;
/// The kinds that [`read`] reads, with their API versions.
pub const KINDS: [(&str, &str); 4] =
    [("ray.io/v1", "RayJob"), ("ray.io/v1", "RayCluster"), ("batch/v1", "Job"), ("v1", "Pod")];
/// What the pod sets and labels of a workload may weigh together, in bytes: they are copied into facts and rows.
const MAX_WEIGHT: usize = 32 * 1024;

/// What a `Submit` says beside its manifest, and what holds where neither says anything.
#[derive(Clone, Debug, Default)]
pub struct Defaults {
    /// Of `Submit`; wins over the manifest. Empty: the manifest's. The same for the next three.
    pub namespace: String,
    pub queue: String,
    pub name: String,
    pub priority_class: String,
    /// Of `Submit`; wins over the manifest's backoffLimit.
    pub max_retries: Option<u32>,
    /// Where neither names a namespace; empty means `default`.
    pub fallback_namespace: String,
    /// Where neither names a queue; empty means that naming none is a fault.
    pub fallback_queue: String,
    /// Completes `metadata.generateName`, for example `7-0`; empty: a generated name is a fault.
    pub name_suffix: String,
}

/// The scheduling fields of a job: what may enter EVENTS. Nothing of env, commands or images.
#[derive(Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// RayJob, RayCluster, Job or Pod.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    /// The LocalQueue.
    pub queue: String,
    /// A WorkloadPriorityClass; empty: none.
    pub priority_class: String,
    pub labels: BTreeMap<String, String>,
    /// Requests are per pod, in the units of `PodSet.requests`; none are zero. A worker group of no
    /// replicas is a pod set of count 0.
    pub pod_sets: Vec<PodSet>,
    /// Rounds after a failure of the user's program.
    pub max_retries: u32,
    /// How long the job may run, in microseconds; 0: no limit.
    pub active_deadline_us: i64,
}

/// Reads a job manifest. Errors: every fault found, at most 64 and a note that there are more.
pub fn read(value: &Value, defaults: &Defaults) -> Result<JobSpec, Vec<Fault>> {
    let faults = Faults::default();
    let root = Node::root(value, &faults);
    let spec = root.object().and_then(|_| read_kind(&root, defaults));
    if let Some(spec) = &spec {
        check_whole(spec, &faults);
    }
    faults.judge(spec)
}

fn read_kind(root: &Node<'_>, defaults: &Defaults) -> Option<JobSpec> {
    let kind = job_kind(root)?;
    root.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    let meta = meta::read(root, kind, defaults);
    let spec = root.field("spec").require();
    spec.object()?;
    let body = match kind {
        "RayJob" => ray::job(&spec),
        "RayCluster" => ray::cluster(&spec),
        "Job" => job::job(&spec, root),
        _ => job::pod(root),
    };
    Some(JobSpec {
        kind: kind.into(),
        namespace: meta.namespace,
        name: meta.name,
        queue: meta.queue,
        priority_class: meta.priority_class,
        labels: meta.labels,
        pod_sets: body.pod_sets,
        max_retries: defaults.max_retries.unwrap_or(body.max_retries),
        active_deadline_us: sooner(meta.max_exec_us, body.active_deadline_us),
    })
}

/// What a kind's `spec` says.
#[derive(Default)]
struct Body {
    pod_sets: Vec<PodSet>,
    max_retries: u32,
    active_deadline_us: i64,
}

/// The shorter of two spans of which 0 means none.
fn sooner(a: i64, b: i64) -> i64 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// A positive span in seconds, in microseconds; 0 when it is absent. At most 100 years.
fn seconds(node: &Node<'_>) -> i64 {
    node.int(1, 100 * 366 * 86_400).map_or(0, |seconds| seconds.saturating_mul(1_000_000))
}

/// The kind, if it is one of a job that [`read`] reads. Another version of it is a fault, but read
/// on: the other mistakes are most likely the same.
pub(crate) fn job_kind(root: &Node<'_>) -> Option<&'static str> {
    let version = root.field("apiVersion").require();
    let kind = root.field("kind").require();
    let (version_text, kind_text) = (version.text(), kind.text()?);
    if let Some((wanted, known)) = KINDS.iter().find(|(_, known)| *known == kind_text) {
        if version_text.is_some_and(|version| version != *wanted) {
            version.fault(format!("{known} is read in version {wanted}"));
        }
        return Some(known);
    }
    let supported: Vec<String> = KINDS.iter().map(|(version, kind)| format!("{kind} ({version})")).collect();
    let hint = if crate::policy::KINDS.contains(&kind_text) {
        "is a policy, not a job: apply it with `muster apply`".to_owned()
    } else if kind_text == "Queue" {
        "is no kind of Kueue: a queue is a LocalQueue, and is applied, not submitted".to_owned()
    } else {
        let known: Vec<&str> = KINDS.iter().map(|(_, kind)| *kind).collect();
        let near = names::nearest(kind_text, &known).map(|near| format!("; did you mean {near}?"));
        format!("is not supported; supported: {}{}", supported.join(", "), near.unwrap_or_default())
    };
    kind.fault(hint);
    None
}

/// What only the whole shows: number of pod sets and pods, totals, weight.
fn check_whole(spec: &JobSpec, faults: &Faults) {
    if spec.pod_sets.len() > MAX_POD_SETS {
        let shown = spec.pod_sets.len().to_string();
        faults.push(
            "spec",
            &shown,
            format!("makes more than {MAX_POD_SETS} pod sets (head, worker groups, submitter)"),
        );
    }
    let pods: u64 = spec.pod_sets.iter().map(|set| u64::from(set.count)).sum();
    if pods > u64::from(MAX_PODS) {
        faults.push("spec", &pods.to_string(), format!("asks for more than {MAX_PODS} pods"));
    }
    let mut totals: BTreeMap<&str, i128> = BTreeMap::new();
    for set in &spec.pod_sets {
        for (resource, amount) in &set.requests {
            *totals.entry(resource).or_default() += i128::from(*amount) * i128::from(set.count);
        }
    }
    for (resource, total) in totals {
        if total > i128::from(quantity::MAX_TOTAL) {
            let most = quantity::format(resource, quantity::MAX_TOTAL);
            faults.push(
                "spec",
                &total.to_string(),
                format!("asks for more than {most} of {resource} in total"),
            );
        }
    }
    let labels: usize = spec.labels.iter().map(|(key, value)| key.len() + value.len() + 6).sum();
    let weight = labels + spec.pod_sets.iter().map(prost::Message::encoded_len).sum::<usize>();
    if weight > MAX_WEIGHT {
        let message =
            format!("labels, node selectors, tolerations and affinities weigh more than {MAX_WEIGHT} bytes");
        faults.push("spec", &weight.to_string(), message);
    }
}
