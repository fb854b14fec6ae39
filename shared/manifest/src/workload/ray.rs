//! RayJob and RayCluster: KubeRay's rules, Kueue's pod sets.

use k8s_openapi::api::core::v1::ResourceRequirements;
use muster_proto::PodSet;

use super::{Body, MAX_PODS, seconds};
use crate::document;
use crate::names;
use crate::node::Node;
use crate::pod;
use crate::requests::{self, Amounts};

const JOB_FIELDS: [&str; 20] = [
    "activeDeadlineSeconds",
    "backoffLimit",
    "rayClusterSpec",
    "clusterSelector",
    "submissionMode",
    "submitterPodTemplate",
    "submitterConfig",
    "managedBy",
    "deletionStrategy",
    "entrypoint",
    "runtimeEnvYAML",
    "jobId",
    "metadata",
    "entrypointNumCpus",
    "entrypointNumGpus",
    "entrypointResources",
    "ttlSecondsAfterFinished",
    "preRunningDeadlineSeconds",
    "shutdownAfterJobFinishes",
    "suspend",
];
const CLUSTER_FIELDS: [&str; 14] = [
    "suspend",
    "managedBy",
    "enableInTreeAutoscaling",
    "autoscalerOptions",
    "gcsFaultToleranceOptions",
    "authOptions",
    "tlsOptions",
    "networkPolicy",
    "upgradeStrategy",
    "historyServerOptions",
    "headServiceAnnotations",
    "rayVersion",
    "headGroupSpec",
    "workerGroupSpecs",
];
const HEAD_FIELDS: [&str; 8] = [
    "template",
    "headService",
    "enableIngress",
    "ingressOptions",
    "resources",
    "labels",
    "rayStartParams",
    "serviceType",
];
const GROUP_FIELDS: [&str; 13] = [
    "groupName",
    "replicas",
    "minReplicas",
    "maxReplicas",
    "numOfHosts",
    "suspend",
    "idleTimeoutSeconds",
    "priority",
    "resources",
    "labels",
    "rayStartParams",
    "template",
    "scaleStrategy",
];
const MODES: [&str; 4] = ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"];
/// What Kueue adds for the sidecar of the in-tree autoscaler, unless autoscalerOptions say otherwise.
const AUTOSCALER: [(&str, i64); 2] = [("cpu", 500), ("memory", 512 << 20)];
/// What KubeRay's default submitter asks for.
const SUBMITTER: [(&str, i64); 2] = [("cpu", 500), ("memory", 200 << 20)];
/// What the clean-up of Redis takes in the head's place.
const REDIS_CLEANUP: [(&str, i64); 2] = [("cpu", 200), ("memory", 256 << 20)];

/// The name of the pod set that submits the entrypoint in K8sJobMode.
pub(crate) const SUBMITTER_SET: &str = "submitter";
/// The name of the head's pod set.
pub(crate) const HEAD_SET: &str = "head";

pub(super) fn cluster(spec: &Node<'_>) -> Body {
    Body { pod_sets: cluster_sets(spec), ..Body::default() }
}

pub(super) fn job(spec: &Node<'_>) -> Body {
    job_fields(spec);
    let mode = mode(spec);
    let retries = spec.field("backoffLimit");
    let max_retries = retries.count(1000).unwrap_or(0);
    if max_retries > 0 && mode == "InteractiveMode" {
        retries.fault("cannot be used with submissionMode InteractiveMode");
    }
    let mut pod_sets = cluster_sets(&spec.field("rayClusterSpec"));
    if mode == "SidecarMode"
        && let Some(head) = pod_sets.first_mut()
    {
        requests::add(&mut head.requests, &amounts(SUBMITTER));
    }
    if mode == "K8sJobMode" {
        pod_sets.push(submitter(&spec.field("submitterPodTemplate")));
    }
    Body { pod_sets, max_retries, active_deadline_us: seconds(&spec.field("activeDeadlineSeconds")) }
}

/// How the entrypoint is submitted; K8sJobMode where the file does not say, or says nonsense.
pub(crate) fn mode(spec: &Node<'_>) -> &'static str {
    let node = spec.field("submissionMode");
    if node.exists() { node.one_of(&MODES).unwrap_or("K8sJobMode") } else { "K8sJobMode" }
}

fn job_fields(spec: &Node<'_>) {
    spec.field("rayClusterSelector").refuse("is called clusterSelector, with the key ray.io/cluster");
    spec.field("runtimeEnv").refuse("is runtimeEnvYAML: a string of YAML (`runtimeEnvYAML: |`), not a map");
    spec.only(&JOB_FIELDS);
    managed_by(&spec.field("managedBy"));
    let selector = spec.field("clusterSelector");
    if selector.exists() {
        selector.fault("is not supported: the job would run in a RayCluster that has its quota already; give a rayClusterSpec");
    } else {
        let _ = spec.field("rayClusterSpec").require();
    }
    runtime_env(&spec.field("runtimeEnvYAML"));
    entrypoint(spec);
    let shutdown = spec.field("shutdownAfterJobFinishes").flag().unwrap_or(false);
    let suspend = spec.field("suspend");
    if suspend.flag() == Some(true) && !shutdown {
        suspend.fault("needs shutdownAfterJobFinishes: true; KubeRay refuses it otherwise");
    }
    let ttl = spec.field("ttlSecondsAfterFinished");
    if ttl.int(0, i64::from(i32::MAX)).unwrap_or(0) > 0 && !shutdown {
        ttl.fault("needs shutdownAfterJobFinishes: true; KubeRay refuses it otherwise");
    }
    let rules = spec.field("deletionStrategy").field("deletionRules");
    if rules.exists() && shutdown {
        rules.fault("cannot be used with shutdownAfterJobFinishes: true");
    }
}

fn entrypoint(spec: &Node<'_>) {
    let node = spec.field("entrypoint");
    let given = node.text().is_some_and(|text| !text.trim().is_empty());
    let elsewhere = mode(spec) == "InteractiveMode" || spec.field("submitterPodTemplate").exists();
    if !given && !elsewhere {
        node.fault("is missing: the command that the job runs");
    }
}

/// KubeRay hands this text to Ray; a mistake would show only when quota is already held.
fn runtime_env(node: &Node<'_>) {
    if node.raw().is_some_and(serde_json::Value::is_object) {
        node.fault("must be a string of YAML: write `runtimeEnvYAML: |` and indent the lines below it");
        return;
    }
    let Some(text) = node.text().filter(|text| !text.trim().is_empty()) else { return };
    match document::parse(text.as_bytes()) {
        Ok(value) if value.is_object() => {}
        Ok(_) => node.fault("must be a map in YAML, like `pip: [requests]`"),
        // The reason may quote the text, and the text may hold secrets.
        Err(_) => node.fault("is no YAML that can be read, or holds a key twice"),
    }
}

fn managed_by(node: &Node<'_>) {
    if node.exists() {
        node.one_of(&["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]);
    }
}

/// Head, then one pod set a worker group, as Kueue orders them.
fn cluster_sets(spec: &Node<'_>) -> Vec<PodSet> {
    if spec.object().is_none() {
        return Vec::new();
    }
    spec.only(&CLUSTER_FIELDS);
    managed_by(&spec.field("managedBy"));
    let _ = spec.field("suspend").flag();
    let _ = spec.field("rayVersion").text();
    let autoscaling = spec.field("enableInTreeAutoscaling").flag().unwrap_or(false);
    let mut sets = vec![head(spec, autoscaling)];
    let mut names = vec![HEAD_SET.to_owned(), SUBMITTER_SET.to_owned()];
    for group in spec.field("workerGroupSpecs").items() {
        sets.push(worker_group(&group, autoscaling, &mut names));
    }
    sets
}

fn head(spec: &Node<'_>, autoscaling: bool) -> PodSet {
    let group = spec.field("headGroupSpec").require();
    if group.object().is_none() {
        return PodSet::default();
    }
    group.only(&HEAD_FIELDS);
    start_params(&group);
    let node = group.field("template").require();
    let Some(template) = pod::template(&node) else { return PodSet::default() };
    let mut set = pod::pod_set(HEAD_SET, 1, &template, &node);
    if autoscaling {
        requests::add(&mut set.requests, &autoscaler(&spec.field("autoscalerOptions").field("resources")));
    }
    let fault_tolerance = spec.field("gcsFaultToleranceOptions");
    if fault_tolerance.exists() && fault_tolerance.field("backend").text() != Some("rocksdb") {
        requests::raise(&mut set.requests, &amounts(REDIS_CLEANUP));
    }
    set
}

fn autoscaler(resources: &Node<'_>) -> Amounts {
    if !resources.exists() {
        return amounts(AUTOSCALER);
    }
    let own: Option<ResourceRequirements> = pod::decode(resources);
    own.map_or_else(Amounts::new, |own| requests::requested(&own, resources.path(), resources.faults()))
}

fn worker_group(group: &Node<'_>, autoscaling: bool, names: &mut Vec<String>) -> PodSet {
    if group.object().is_none() {
        group.clone().require();
        return PodSet::default();
    }
    group.only(&GROUP_FIELDS);
    start_params(group);
    let name = group_name(&group.field("groupName").require(), names);
    let count = replicas(group, autoscaling);
    let node = group.field("template").require();
    match pod::template(&node) {
        Some(template) => pod::pod_set(&name, count, &template, &node),
        None => PodSet::default(),
    }
}

/// Kueue names the pod set by the group's name in lower case.
fn group_name(node: &Node<'_>, names: &mut Vec<String>) -> String {
    let Some(text) = node.text() else { return String::new() };
    let name = text.to_ascii_lowercase();
    if let Some(message) = names::wrong_dns(&name, 63, false) {
        node.fault(message);
    } else if name == HEAD_SET || name == SUBMITTER_SET {
        node.fault(format!("is the name of muster's own pod set {name}: choose another"));
    } else if names.contains(&name) {
        node.fault("is the name of another worker group (upper and lower case count as equal)");
    }
    names.push(name.clone());
    name
}

/// Pods of a group: replicas (0 where the file says nothing), never below minReplicas as KubeRay
/// does it, times hosts.
fn replicas(group: &Node<'_>, autoscaling: bool) -> u32 {
    let count = |field: &str| group.field(field).count(i32::MAX.unsigned_abs());
    let least = count("minReplicas").unwrap_or(0);
    let most = count("maxReplicas").unwrap_or(i32::MAX.unsigned_abs());
    let wanted = count("replicas");
    if least > most {
        group.field("minReplicas").fault(format!("is above maxReplicas ({most})"));
    } else if wanted.is_some_and(|wanted| wanted > most) {
        group.field("replicas").fault(format!("is above maxReplicas ({most})"));
    }
    let hosts = group.field("numOfHosts");
    let hosts_count = if hosts.exists() { hosts.int(1, i64::from(MAX_PODS)).unwrap_or(1) } else { 1 };
    let suspend = group.field("suspend");
    if suspend.flag() == Some(true) {
        if autoscaling {
            suspend.fault("cannot be used with enableInTreeAutoscaling");
        }
        return 0;
    }
    let pods = i64::from(wanted.unwrap_or(0).max(least)).saturating_mul(hosts_count);
    match u32::try_from(pods) {
        Ok(pods) if pods <= MAX_PODS => pods,
        _ => {
            group
                .field("replicas")
                .fault(format!("times numOfHosts is {pods} pods; at most {MAX_PODS} are allowed"));
            0
        }
    }
}

/// Flags of `ray start`: strings, as KubeRay's schema has them.
fn start_params(group: &Node<'_>) {
    let params = group.field("rayStartParams");
    let strings = params.strings();
    if strings.contains_key("labels") {
        params.field("labels").fault("is refused by KubeRay: use the labels of the group");
    }
    let _ = group.field("resources").strings();
    let _ = group.field("labels").strings();
}

fn submitter(node: &Node<'_>) -> PodSet {
    if !node.exists() {
        return PodSet {
            name: SUBMITTER_SET.into(),
            count: 1,
            requests: amounts(SUBMITTER),
            ..PodSet::default()
        };
    }
    pod::template(node)
        .map_or_else(PodSet::default, |template| pod::pod_set(SUBMITTER_SET, 1, &template, node))
}

fn amounts<const N: usize>(pairs: [(&str, i64); N]) -> Amounts {
    pairs.into_iter().map(|(resource, amount)| (resource.to_owned(), amount)).collect()
}
