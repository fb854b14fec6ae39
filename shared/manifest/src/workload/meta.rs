//! `metadata`: names, labels, and where the job queues.

use std::collections::BTreeMap;

use super::Defaults;
use crate::names;
use crate::node::Node;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";
const PRIORITY: &str = "kueue.x-k8s.io/priority-class";
const POD_GROUP: &str = "kueue.x-k8s.io/pod-group-name";
const MAX_EXEC: &str = "kueue.x-k8s.io/max-exec-time-seconds";

pub(super) struct Meta {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) queue: String,
    pub(super) priority_class: String,
    pub(super) labels: BTreeMap<String, String>,
    /// 0: no limit.
    pub(super) max_exec_us: i64,
}

pub(super) fn read(root: &Node<'_>, kind: &str, defaults: &Defaults) -> Meta {
    let meta = root.field("metadata").require();
    known_fields(&meta);
    let labels_node = meta.field("labels");
    let labels = names::labels(&labels_node);
    let _ = meta.field("annotations").strings();
    labels_node
        .entry(POD_GROUP)
        .refuse("pod groups are not supported by muster: write a Job, its pods are a gang");
    misplaced_queue(root, &meta, kind, labels.contains_key(QUEUE) || !defaults.queue.is_empty());
    Meta {
        namespace: namespace(&meta, defaults),
        name: name(&meta, kind, defaults),
        queue: queue(&labels_node, defaults),
        priority_class: priority_class(&labels_node, defaults),
        max_exec_us: max_exec(&labels_node),
        labels,
    }
}

/// Refuses fields of `metadata` that Kubernetes does not have.
pub(crate) fn known_fields(meta: &Node<'_>) {
    meta.only(&[
        "name",
        "generateName",
        "namespace",
        "labels",
        "annotations",
        "finalizers",
        "ownerReferences",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "selfLink",
    ]);
}

/// An override (of `Submit`), checked, or nothing when it is empty.
fn overridden(root: &Node<'_>, field: &str, text: &str, most: usize, dots: bool) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if let Some(message) = names::wrong_dns(text, most, dots) {
        root.faults().push(field, text, message);
    }
    Some(text.to_owned())
}

fn namespace(meta: &Node<'_>, defaults: &Defaults) -> String {
    let own = meta.field("namespace");
    let own = own.exists().then(|| names::label(&own).unwrap_or_default());
    let fallback =
        if defaults.fallback_namespace.is_empty() { "default" } else { &defaults.fallback_namespace };
    overridden(meta, "namespace", &defaults.namespace, 63, false)
        .or(own)
        .unwrap_or_else(|| fallback.to_owned())
}

/// KubeRay builds names of pods and services from these, so they are shorter than Kubernetes allows.
fn longest_name(kind: &str) -> (usize, bool) {
    match kind {
        "RayJob" => (47, false),
        "RayCluster" => (53, false),
        "Job" => (63, true),
        _ => (253, true),
    }
}

fn name(meta: &Node<'_>, kind: &str, defaults: &Defaults) -> String {
    let (most, dots) = longest_name(kind);
    let own = meta.field("name");
    let generated = meta.field("generateName");
    let (field, name) = if let Some(name) = overridden(meta, "name", &defaults.name, most, dots) {
        ("name", name)
    } else if own.exists() {
        let Some(name) = own.text() else { return String::new() };
        if let Some(message) = names::wrong_dns(name, most, dots) {
            own.fault(format!("{message} (the name of a {kind})"));
        }
        ("metadata.name", name.to_owned())
    } else if generated.exists() && !defaults.name_suffix.is_empty() {
        let Some(start) = generated.text() else { return String::new() };
        let name = format!("{start}{}", defaults.name_suffix);
        if let Some(message) = names::wrong_dns(&name, most, dots) {
            generated.fault(format!("{message}: it becomes {name}"));
        }
        ("metadata.generateName", name)
    } else {
        own.fault("is missing");
        return String::new();
    };
    let digit_first = name.starts_with(|c: char| c.is_ascii_digit());
    if digit_first && matches!(kind, "RayJob" | "RayCluster") {
        meta.faults().push(field, &name, "must start with a letter: it becomes the name of a Service");
    }
    name
}

fn queue(labels: &Node<'_>, defaults: &Defaults) -> String {
    let own = labels.entry(QUEUE);
    let text = own.text().filter(|text| !text.is_empty());
    if let Some(queue) = overridden(labels, "queue", &defaults.queue, 253, true) {
        return queue;
    }
    match text {
        Some(_) => names::subdomain(&own).unwrap_or_default(),
        None if !defaults.fallback_queue.is_empty() => defaults.fallback_queue.clone(),
        None => {
            own.fault("is missing: the label names the LocalQueue in which the job waits");
            String::new()
        }
    }
}

fn priority_class(labels: &Node<'_>, defaults: &Defaults) -> String {
    let own = labels.entry(PRIORITY);
    let own = own.exists().then(|| names::subdomain(&own).unwrap_or_default());
    overridden(labels, "priority_class", &defaults.priority_class, 253, true).or(own).unwrap_or_default()
}

fn max_exec(labels: &Node<'_>) -> i64 {
    let node = labels.entry(MAX_EXEC);
    let Some(text) = node.raw().and_then(|value| value.as_str()) else { return 0 };
    match text.parse::<u32>() {
        Ok(seconds) if seconds > 0 => i64::from(seconds).saturating_mul(1_000_000),
        _ => {
            node.fault("must be a number of seconds above 0");
            0
        }
    }
}

/// The queue stands on the object, as a label. Elsewhere nobody would read it.
fn misplaced_queue(root: &Node<'_>, meta: &Node<'_>, kind: &str, named: bool) {
    let mut templates = vec![meta.clone()];
    let spec = root.field("spec");
    match kind {
        "RayJob" | "RayCluster" => {
            let cluster = if kind == "RayJob" { spec.field("rayClusterSpec") } else { spec };
            templates.push(cluster.field("headGroupSpec").field("template").field("metadata"));
            if cluster.field("workerGroupSpecs").raw().is_some_and(serde_json::Value::is_array) {
                let groups = cluster.field("workerGroupSpecs").items();
                templates.extend(groups.iter().map(|group| group.field("template").field("metadata")));
            }
        }
        "Job" => templates.push(spec.field("template").field("metadata")),
        _ => {}
    }
    for (index, template) in templates.iter().enumerate() {
        let annotation = template.field("annotations").entry(QUEUE);
        if annotation.exists() {
            annotation
                .fault(format!("is a label of the {kind}, not an annotation: move it to metadata.labels"));
        }
        let label = template.field("labels").entry(QUEUE);
        if index > 0 && !named && label.exists() {
            label.fault(format!("belongs to the labels of the {kind} itself: move it to metadata.labels"));
        }
    }
}
