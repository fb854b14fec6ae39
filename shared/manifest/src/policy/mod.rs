//! Kueue's objects (v1beta1 and v1beta2) and `muster.dev/v1 Tenant`, read into policies.
//!
//! Defaults of Kueue's API are filled in, old spellings of v1beta1 become those of v1beta2, and
//! the rules of Kueue's webhooks that concern these fields hold. A field of Kueue that muster does
//! not support is a fault: a quota that silently means less than it says would be worse.

mod cluster_queue;
mod flavor;
mod quota;

use muster_proto::policy::Object;
use muster_proto::{Cohort, LocalQueue, Policy, Tenant, WorkloadPriorityClass};
use serde_json::Value;

use crate::Fault;
use crate::names;
use crate::node::{Faults, Node};
use crate::workload;

/// The kinds that [`read`] reads.
pub const KINDS: [&str; 6] =
    ["ResourceFlavor", "ClusterQueue", "LocalQueue", "Cohort", "WorkloadPriorityClass", "Tenant"];
const STOP: [&str; 3] = ["None", "Hold", "HoldAndDrain"];

/// The spelling of a manifest: v1beta1 has some fields under other names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1Beta1,
    V1Beta2,
}

/// Reads one policy. `namespace`: of a LocalQueue that names none; empty means `default`.
/// Errors: every fault found.
pub fn read(value: &Value, namespace: &str) -> Result<Policy, Vec<Fault>> {
    let faults = Faults::default();
    let root = Node::root(value, &faults);
    let object = root.object().and_then(|_| read_kind(&root, namespace));
    faults.judge(object.map(|object| Policy { object: Some(object) }))
}

fn read_kind(root: &Node<'_>, namespace: &str) -> Option<Object> {
    let (kind, version) = policy_kind(root)?;
    workload::known_fields(&root.field("metadata"));
    if kind != "WorkloadPriorityClass" {
        root.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
        root.field("spec").object();
    }
    Some(match kind {
        "ResourceFlavor" => Object::ResourceFlavor(flavor::read(root)),
        "ClusterQueue" => Object::ClusterQueue(cluster_queue::read(root, version)),
        "LocalQueue" => Object::LocalQueue(local_queue(root, namespace)),
        "Cohort" => Object::Cohort(cohort(root)),
        "WorkloadPriorityClass" => Object::WorkloadPriorityClass(priority_class(root)),
        _ => Object::Tenant(tenant(root)),
    })
}

fn policy_kind(root: &Node<'_>) -> Option<(&'static str, Version)> {
    let (version, kind) = (root.field("apiVersion").require(), root.field("kind").require());
    let (version_text, kind_text) = (version.text()?, kind.text()?);
    let Some(known) = KINDS.iter().copied().find(|known| *known == kind_text) else {
        kind.fault(no_policy(kind_text));
        return None;
    };
    match (known == "Tenant", version_text) {
        (true, "muster.dev/v1") | (false, "kueue.x-k8s.io/v1beta2") => Some((known, Version::V1Beta2)),
        (false, "kueue.x-k8s.io/v1beta1") => Some((known, Version::V1Beta1)),
        (true, _) => {
            version.fault("a Tenant is read in version muster.dev/v1");
            None
        }
        (false, _) => {
            version.fault(format!(
                "{known} is read in versions kueue.x-k8s.io/v1beta2 and kueue.x-k8s.io/v1beta1"
            ));
            None
        }
    }
}

fn no_policy(kind: &str) -> String {
    if workload::KINDS.iter().any(|(_, known)| *known == kind) {
        return "is a job, not a policy: send it with `muster submit`".into();
    }
    match kind {
        "Queue" => "is no kind of Kueue: the queue of a namespace is a LocalQueue".into(),
        "Topology"
        | "AdmissionCheck"
        | "MultiKueueConfig"
        | "MultiKueueCluster"
        | "ProvisioningRequestConfig" => {
            format!("is a kind of Kueue that muster does not support; supported: {}", KINDS.join(", "))
        }
        _ => match names::nearest(kind, &KINDS) {
            Some(near) => format!("is not supported; did you mean {near}?"),
            None => format!("is not supported; supported: {}", KINDS.join(", ")),
        },
    }
}

/// The name of a cluster-scoped object.
fn name(root: &Node<'_>) -> String {
    let meta = root.field("metadata").require();
    let _ = names::labels(&meta.field("labels"));
    if !meta.exists() {
        return String::new();
    }
    names::subdomain(&meta.field("name").require()).unwrap_or_default()
}

/// A reference to another object by name; empty when it is absent.
fn reference(node: &Node<'_>) -> String {
    names::subdomain(node).unwrap_or_default()
}

/// A choice, or the default where the file says nothing.
fn choice(node: &Node<'_>, choices: &[&'static str], default: &'static str) -> String {
    if node.exists() { node.one_of(choices).unwrap_or(default).into() } else { default.into() }
}

fn unsupported(spec: &Node<'_>, fields: &[&str]) {
    for field in fields {
        spec.field(field).refuse("is not supported by muster yet; leave it out");
    }
}

/// In thousandths; nothing where the file says nothing, which means 1000. As in Kueue 0 is a weight: it
/// always loses.
fn fair_weight(spec: &Node<'_>) -> Option<u64> {
    let sharing = spec.field("fairSharing");
    sharing.only(&["weight"]);
    let node = sharing.field("weight");
    let text = node.quantity()?;
    match crate::quantity::parse_milli(&text, 1_000_000_000) {
        Ok(milli) => Some(milli.unsigned_abs()),
        Err(wrong) => {
            node.fault(wrong.to_string());
            None
        }
    }
}

fn local_queue(root: &Node<'_>, namespace: &str) -> LocalQueue {
    let spec = root.field("spec").require();
    unsupported(&spec, &["fairSharing"]);
    spec.only(&["clusterQueue", "stopPolicy"]);
    let own = root.field("metadata").field("namespace");
    let fallback = if namespace.is_empty() { "default" } else { namespace };
    LocalQueue {
        namespace: if own.exists() { names::label(&own).unwrap_or_default() } else { fallback.into() },
        name: name(root),
        cluster_queue: if spec.exists() {
            reference(&spec.field("clusterQueue").require())
        } else {
            String::new()
        },
        stop_policy: choice(&spec.field("stopPolicy"), &STOP, "None"),
    }
}

fn cohort(root: &Node<'_>) -> Cohort {
    let spec = root.field("spec");
    spec.field("parent").refuse("is called parentName");
    spec.only(&["parentName", "resourceGroups", "fairSharing"]);
    let parent = spec.field("parentName");
    let cohort = Cohort {
        name: name(root),
        parent: reference(&parent),
        resource_groups: quota::groups(
            &spec.field("resourceGroups"),
            quota::Owner::Cohort { parent: parent.exists() },
        ),
        fair_weight_milli: fair_weight(&spec),
    };
    if !cohort.parent.is_empty() && cohort.parent == cohort.name {
        parent.fault("a cohort cannot be its own parent");
    }
    cohort
}

fn priority_class(root: &Node<'_>) -> WorkloadPriorityClass {
    root.field("spec").refuse("does not exist here: `value` stands beside metadata");
    root.only(&["apiVersion", "kind", "metadata", "value", "description", "status"]);
    let _ = root.field("description").text();
    let value = root.field("value").require().int(i64::from(i32::MIN), i64::from(i32::MAX));
    let value = value.and_then(|value| i32::try_from(value).ok()).unwrap_or(0);
    WorkloadPriorityClass { name: name(root), value }
}

fn tenant(root: &Node<'_>) -> Tenant {
    let spec = root.field("spec").require();
    spec.only(&["namespaces"]);
    let list = spec.field("namespaces");
    let mut namespaces: Vec<String> = Vec::new();
    for item in list.items() {
        let Some(namespace) = names::label(&item) else { continue };
        if namespaces.contains(&namespace) {
            item.fault("stands twice");
        }
        namespaces.push(namespace);
    }
    if spec.exists() && list.items().is_empty() {
        list.fault("must name at least one namespace");
    }
    let name = root.field("metadata").field("name").require();
    Tenant { name: names::label(&name).unwrap_or_default(), namespaces }
}
