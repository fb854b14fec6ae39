//! RayJob and RayCluster: the pod sets that Kueue makes of them.

use k8s_openapi::api::core::v1::ResourceRequirements;
use muster_proto::PodSet;

use super::{Body, MAX_PODS, kuberay, seconds};
use crate::names;
use crate::node::Node;
use crate::pod;
use crate::requests::{self, Amounts};

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
    let mode = mode(spec);
    kuberay::check_job(spec, mode);
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

/// Head, then one pod set a worker group, as Kueue orders them.
fn cluster_sets(spec: &Node<'_>) -> Vec<PodSet> {
    if spec.object().is_none() {
        return Vec::new();
    }
    kuberay::check_cluster(spec);
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
    kuberay::check_head(&group);
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
    kuberay::check_worker_group(group);
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
