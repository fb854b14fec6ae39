//! What KubeRay refuses when it sees the object (`ValidationFailed`): by then the job would hold
//! quota, and nothing would run. So it is refused at once.

use crate::document;
use crate::names;
use crate::node::Node;

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
/// Flags that say what a Ray node has; `resources` of the group says it too.
const CAPACITY_FLAGS: [&str; 4] = ["num-cpus", "num-gpus", "memory", "resources"];
/// Ray reads tokens from this version on.
const TOKEN_VERSION: (u32, u32) = (2, 52);

pub(super) fn check_job(spec: &Node<'_>, mode: &str) {
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
    entrypoint(spec, mode);
    submission(spec, mode);
    let _ = super::seconds(&spec.field("preRunningDeadlineSeconds"));
    let cluster = spec.field("rayClusterSpec");
    cluster.field("upgradeStrategy").field("type").refuse("cannot be used in the cluster of a RayJob");
    let token = cluster.field("authOptions").field("enableK8sTokenAuth");
    if token.flag() == Some(true) {
        token.fault("cannot be used in the cluster of a RayJob");
    }
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

fn entrypoint(spec: &Node<'_>, mode: &str) {
    let node = spec.field("entrypoint");
    let given = node.text().is_some_and(|text| !text.trim().is_empty());
    let elsewhere = mode == "InteractiveMode" || spec.field("submitterPodTemplate").exists();
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

/// What goes with which submissionMode.
fn submission(spec: &Node<'_>, mode: &str) {
    if mode == "SidecarMode" {
        for field in ["submitterPodTemplate", "submitterConfig"] {
            spec.field(field).refuse("cannot be used with submissionMode SidecarMode");
        }
        let head = spec.field("rayClusterSpec").field("headGroupSpec").field("template").field("spec");
        let policy = head.field("restartPolicy");
        if policy.text().is_some_and(|policy| policy != "Never") {
            policy.fault("must be Never or left out with submissionMode SidecarMode");
        }
    }
}

pub(super) fn check_cluster(spec: &Node<'_>) {
    spec.only(&CLUSTER_FIELDS);
    managed_by(&spec.field("managedBy"));
    let _ = spec.field("suspend").flag();
    let upgrade = spec.field("upgradeStrategy").field("type");
    if upgrade.exists() {
        upgrade.one_of(&["Recreate", "None"]);
    }
    let version = spec.field("rayVersion");
    let text = version.text();
    let auth = spec.field("authOptions").field("mode");
    if auth.exists() && auth.one_of(&["disabled", "token"]) == Some("token") {
        match text.map(major_minor) {
            Some(Some(found)) if found >= TOKEN_VERSION => {}
            _ => version.fault("authOptions.mode token needs a rayVersion of 2.52.0 or later"),
        }
    }
}

fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

pub(super) fn check_head(group: &Node<'_>) {
    group.only(&HEAD_FIELDS);
    check_group(group);
}

pub(super) fn check_worker_group(group: &Node<'_>) {
    group.only(&GROUP_FIELDS);
    check_group(group);
}

/// Flags of `ray start`, Ray's resources and Ray's labels: maps of strings in KubeRay's schema.
fn check_group(group: &Node<'_>) {
    let flags_node = group.field("rayStartParams");
    let flags = flags_node.strings();
    flags_node.field("labels").refuse("is refused by KubeRay: use the labels of the group");
    let resources = group.field("resources");
    let twice = CAPACITY_FLAGS.iter().find(|flag| flags.get(**flag).is_some_and(|text| !text.is_empty()));
    if let (Some(flag), false) = (twice, resources.strings().is_empty()) {
        resources.fault(format!("cannot be used together with {flag} in rayStartParams: choose one"));
    }
    let _ = names::labels(&group.field("labels"));
}
