//! Job manifests: what users write, and the pod sets that come of it.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;

use muster_manifest::workload::{self, Defaults, JobSpec};
use muster_manifest::{Fault, document};

const RAY_JOB: &str = include_str!("manifests/rayjob.yaml");
const JOB: &str = include_str!("manifests/job.yaml");

fn defaults() -> Defaults {
    Defaults { name_suffix: "7-0".into(), ..Defaults::default() }
}

fn read(text: &str) -> Result<JobSpec, Vec<Fault>> {
    workload::read(&document::parse(text.as_bytes())?, &defaults())
}

fn requests<const N: usize>(pairs: [(&str, i64); N]) -> BTreeMap<String, i64> {
    pairs.into_iter().map(|(resource, amount)| (resource.into(), amount)).collect()
}

/// The job's text with `from` replaced must give exactly one fault, at `field`, that says `mend`.
fn refused(text: &str, from: &str, to: &str, field: &str, mend: &str) {
    assert!(text.contains(from), "{from:?} does not stand in the manifest");
    let faults = read(&text.replacen(from, to, 1)).expect_err(to);
    let found: Vec<(&str, &str)> = faults.iter().map(|f| (f.field.as_str(), f.message.as_str())).collect();
    assert!(found.len() == 1 && found[0].0 == field && found[0].1.contains(mend), "{to:?} gave {found:#?}");
}

#[test]
fn a_ray_job_becomes_kueues_pod_sets() {
    let job = read(RAY_JOB).unwrap();
    assert_eq!(
        (job.kind.as_str(), job.namespace.as_str(), job.name.as_str()),
        ("RayJob", "research", "train-bert")
    );
    assert_eq!((job.queue.as_str(), job.priority_class.as_str()), ("gpu-queue", "high"));
    assert_eq!((job.max_retries, job.active_deadline_us), (2, 3_600_000_000));
    assert_eq!(job.labels["team"], "nlp");
    let sets: Vec<(&str, u32)> = job.pod_sets.iter().map(|set| (set.name.as_str(), set.count)).collect();
    assert_eq!(sets, [("head", 1), ("gpu-group", 8), ("spare", 0), ("submitter", 1)]);
    assert_eq!(job.pod_sets[0].requests, requests([("cpu", 500), ("memory", 2 << 30)]));
    let gpu = &job.pod_sets[1];
    assert_eq!(gpu.requests, requests([("cpu", 8000), ("memory", 192_000_000_000), ("nvidia.com/gpu", 8)]));
    assert_eq!(gpu.node_selector["accelerator"], "h100");
    assert_eq!(
        (gpu.tolerations[0].operator.as_str(), gpu.tolerations[0].effect.as_str()),
        ("Exists", "NoSchedule")
    );
    assert_eq!(gpu.affinity[0].requirements[0].values, ["a", "b"]);
    assert_eq!(gpu.affinity[0].requirements[1].operator, "Gt");
    assert_eq!(job.pod_sets[2].requests, requests([("cpu", 1500), ("memory", 3 << 29)]));
    assert_eq!(job.pod_sets[3].requests, requests([("cpu", 500), ("memory", 200 << 20)]));
}

#[test]
fn modes_of_submission_follow_kueue() {
    let with = |mode: &str| {
        let job = read(&RAY_JOB.replace("  backoffLimit: 2", &format!("  submissionMode: {mode}"))).unwrap();
        let names: Vec<String> = job.pod_sets.iter().map(|set| set.name.clone()).collect();
        (names, job.pod_sets[0].requests["cpu"])
    };
    let bare = ["head", "gpu-group", "spare"].map(str::to_owned).to_vec();
    assert_eq!(with("HTTPMode"), (bare.clone(), 500));
    assert_eq!(with("InteractiveMode"), (bare.clone(), 500));
    assert_eq!(with("SidecarMode"), (bare, 1000));
}

#[test]
fn the_head_pays_for_what_is_injected() {
    let head = |extra: &str| {
        let text = RAY_JOB.replace("    rayVersion: 2.52.0", &format!("    rayVersion: 2.52.0\n{extra}"));
        read(&text).unwrap().pod_sets[0].requests.clone()
    };
    let scaled = head("    enableInTreeAutoscaling: true");
    assert_eq!(scaled, requests([("cpu", 1000), ("memory", (2 << 30) + (512 << 20))]));
    let own = "    enableInTreeAutoscaling: true\n    autoscalerOptions: {resources: {limits: {cpu: 1}}}";
    assert_eq!(head(own), requests([("cpu", 1500), ("memory", 2 << 30)]));
    let redis = "    gcsFaultToleranceOptions: {redisAddress: redis}";
    assert_eq!(head(redis), requests([("cpu", 500), ("memory", 2 << 30)]));
}

#[test]
fn a_job_counts_init_containers_sidecars_and_overhead() {
    let job = read(JOB).unwrap();
    assert_eq!((job.name.as_str(), job.namespace.as_str()), ("sweep-7-0", "default"));
    assert_eq!((job.max_retries, job.active_deadline_us), (0, 60_000_000));
    let main = &job.pod_sets[0];
    assert_eq!((main.name.as_str(), main.count, main.min_count), ("main", 4, 2));
    // cpu: max(1000 + 250 + sidecar 200, fetch 2000 + sidecar 200) + overhead 100; memory: 128 + 64 Mi.
    assert_eq!(main.requests, requests([("cpu", 2300), ("memory", 192 << 20)]));
}

#[test]
fn a_pod_and_a_head_only_cluster() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: one, labels: {kueue.x-k8s.io/queue-name: q}}\nspec: {containers: [{name: a, command: [ls]}]}";
    let spec = read(pod).unwrap();
    assert_eq!((spec.pod_sets[0].name.as_str(), spec.pod_sets[0].count, spec.max_retries), ("main", 1, 0));
    let cluster = "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {name: one, labels: {kueue.x-k8s.io/queue-name: q}}\nspec: {headGroupSpec: {template: {spec: {containers: [{name: a, resources: {limits: {nvidia.com/gpu: 8}}}]}}}}";
    let spec = read(cluster).unwrap();
    assert_eq!(spec.pod_sets.len(), 1);
    assert_eq!(spec.pod_sets[0].requests, requests([("nvidia.com/gpu", 8)]));
}

#[test]
fn what_submit_says_wins() {
    let said = Defaults {
        namespace: "ns".into(),
        queue: "q".into(),
        name: "n".into(),
        priority_class: "low".into(),
        max_retries: Some(9),
        ..Defaults::default()
    };
    let job = workload::read(&document::parse(RAY_JOB.as_bytes()).unwrap(), &said).unwrap();
    assert_eq!((job.namespace.as_str(), job.queue.as_str(), job.name.as_str()), ("ns", "q", "n"));
    assert_eq!((job.priority_class.as_str(), job.max_retries), ("low", 9));
    let wrong = Defaults { namespace: "No".into(), name: "x".repeat(48), ..Defaults::default() };
    let faults = workload::read(&document::parse(RAY_JOB.as_bytes()).unwrap(), &wrong).unwrap_err();
    let fields: Vec<&str> = faults.iter().map(|fault| fault.field.as_str()).collect();
    assert_eq!(fields, ["namespace", "name"]);
}

#[test]
fn wrong_forms_are_refused_by_their_names() {
    let job = |from: &str, to: &str, field: &str, mend: &str| refused(RAY_JOB, from, to, field, mend);
    job(
        "  backoffLimit: 2",
        "  rayClusterSelector: {ray.io/cluster: a}",
        "spec.rayClusterSelector",
        "clusterSelector",
    );
    job(
        "  backoffLimit: 2",
        "  clusterSelector: {ray.io/cluster: a}",
        "spec.clusterSelector",
        "rayClusterSpec",
    );
    job("  backoffLimit: 2", "  runtimeEnv: {pip: [a]}", "spec.runtimeEnv", "runtimeEnvYAML");
    job("  backoffLimit: 2", "  backofLimit: 2", "spec.backofLimit", "did you mean backoffLimit?");
    job(
        "  labels:",
        "  annotations: {kueue.x-k8s.io/queue-name: a}\n  labels:",
        "metadata.annotations[\"kueue.x-k8s.io/queue-name\"]",
        "is a label",
    );
    job("ray.io/v1\n", "ray.io/v1alpha1\n", "apiVersion", "ray.io/v1");
    job("kind: RayJob", "kind: Queue", "kind", "LocalQueue");
    job("kind: RayJob", "kind: ClusterQueue", "kind", "muster apply");
    job("kind: RayJob", "kind: RayService", "kind", "RayJob (ray.io/v1)");
    job("spec:\n  entrypoint", "stauts: 1\nspec:\n  entrypoint", "stauts", "status");
    job(
        "    kueue.x-k8s.io/queue-name: gpu-queue\n",
        "",
        "metadata.labels[\"kueue.x-k8s.io/queue-name\"]",
        "LocalQueue",
    );
}

#[test]
fn values_that_kuberay_or_kubernetes_would_refuse_later() {
    let job = |from: &str, to: &str, field: &str, mend: &str| refused(RAY_JOB, from, to, field, mend);
    let group = "spec.rayClusterSpec.workerGroupSpecs[0]";
    job("name: train-bert", &format!("name: {}", "x".repeat(49)), "metadata.name", "at most 47");
    job("name: train-bert", "name: 1train", "metadata.name", "letter");
    job("namespace: research", "namespace: Research", "metadata.namespace", "lower-case");
    job("replicas: 2", "replicas: -1", &format!("{group}.replicas"), "at least 0");
    job("replicas: 2", "replicas: \"2\"", &format!("{group}.replicas"), "without quotes");
    job("replicas: 2", "replicas: 2.5", &format!("{group}.replicas"), "whole number");
    job("replicas: 2", "replicas: 99999999999999999999", &format!("{group}.replicas"), "at most");
    job("replicas: 2", "replicas: 5", &format!("{group}.replicas"), "maxReplicas");
    job("minReplicas: 1", "minReplicas: 5", &format!("{group}.minReplicas"), "maxReplicas");
    job("numOfHosts: 4", "numOfHosts: 0", &format!("{group}.numOfHosts"), "at least 1");
    job("numOfHosts: 4", "numOfHosts: 900000", &format!("{group}.replicas"), "pods");
    job(
        "groupName: spare",
        "groupName: gpu-group",
        "spec.rayClusterSpec.workerGroupSpecs[1].groupName",
        "another worker group",
    );
    job(
        "groupName: spare",
        "groupName: head",
        "spec.rayClusterSpec.workerGroupSpecs[1].groupName",
        "choose another",
    );
    job(
        "num-cpus: \"0\"",
        "num-cpus: 0",
        "spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus",
        "quotes",
    );
    job(
        "num-cpus: \"0\"",
        "labels: a",
        "spec.rayClusterSpec.headGroupSpec.rayStartParams.labels",
        "labels of the group",
    );
    job("  backoffLimit: 2", "  suspend: yes\n  shutdownAfterJobFinishes: false", "", "stands twice");
    job("  shutdownAfterJobFinishes: true", "  suspend: true", "spec.suspend", "shutdownAfterJobFinishes");
    job(
        "  shutdownAfterJobFinishes: true",
        "  submissionMode: InteractiveMode",
        "spec.backoffLimit",
        "InteractiveMode",
    );
    job(
        "activeDeadlineSeconds: 3600",
        "activeDeadlineSeconds: 0",
        "spec.activeDeadlineSeconds",
        "at least 1",
    );
    job("  entrypoint: python train.py --epochs 3\n", "", "spec.entrypoint", "is missing");
    job("    pip: [torch]", "    pip: [torch", "spec.runtimeEnvYAML", "YAML");
    let limits = format!("{group}.template.spec.containers[0].resources.limits");
    job("nvidia.com/gpu: 8", "nvidia.com/gpu: 1.5", &format!("{limits}[\"nvidia.com/gpu\"]"), "whole number");
    job("nvidia.com/gpu: 8", "nvidia.com/gpu: -8", &format!("{limits}[\"nvidia.com/gpu\"]"), "negative");
    job("nvidia.com/gpu: 8", "gpu: 8", &format!("{limits}[\"gpu\"]"), "nvidia.com/gpu");
    job("memory: 192G", "memory: 192GB", &format!("{limits}[\"memory\"]"), "is no quantity");
    job("memory: 192G", "memory: 9Pi", &format!("{limits}[\"memory\"]"), "largest amount");
    job(
        "requests: {cpu: 500m}",
        "requests: {cpu: 2}",
        "spec.rayClusterSpec.headGroupSpec.template.spec.containers[0].resources.requests[\"cpu\"]",
        "above its limit 1",
    );
    job(
        "operator: Exists",
        "operator: Exist",
        &format!("{group}.template.spec.tolerations[0].operator"),
        "Exists or Equal",
    );
    job(
        "operator: Gt, values: [\"3\"]",
        "operator: Gt, values: [x]",
        &format!(
            "{group}.template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1]"
        ),
        "whole number",
    );
    refused(
        JOB,
        "restartPolicy: Never",
        "restartPolicy: Always",
        "spec.template.spec.restartPolicy",
        "OnFailure",
    );
    refused(JOB, "completions: 4", "completions: 9", "spec.completions", "parallelism");
    refused(JOB, "name: log", "name: main", "spec.template.spec.containers[1].name", "another container");
    refused(
        JOB,
        "min-parallelism: \"2\"",
        "min-parallelism: \"4\"",
        "metadata.annotations[\"kueue.x-k8s.io/job-min-parallelism\"]",
        "1 to 3",
    );
}

#[test]
fn rules_of_kuberay_that_would_hold_quota_for_nothing() {
    let instead = |to: &str, field: &str, mend: &str| refused(RAY_JOB, "  backoffLimit: 2", to, field, mend);
    let cluster = |to: &str, field: &str, mend: &str| {
        refused(RAY_JOB, "    rayVersion: 2.52.0", &format!("    rayVersion: 2.51.0\n{to}"), field, mend);
    };
    instead("  submissionMode: Sidecar", "spec.submissionMode", "SidecarMode");
    instead(
        "  submissionMode: SidecarMode\n  submitterConfig: {backoffLimit: 1}",
        "spec.submitterConfig",
        "SidecarMode",
    );
    instead("  preRunningDeadlineSeconds: 0", "spec.preRunningDeadlineSeconds", "at least 1");
    instead("  managedBy: me", "spec.managedBy", "ray.io/kuberay-operator");
    instead(
        "  deletionStrategy: {deletionRules: []}",
        "spec.deletionStrategy.deletionRules",
        "shutdownAfterJobFinishes",
    );
    cluster("    authOptions: {mode: token}", "spec.rayClusterSpec.rayVersion", "2.52.0");
    cluster("    upgradeStrategy: {type: Recreate}", "spec.rayClusterSpec.upgradeStrategy.type", "RayJob");
    cluster("    suspended: true", "spec.rayClusterSpec.suspended", "did you mean suspend?");
    let head = "spec.rayClusterSpec.headGroupSpec";
    refused(
        RAY_JOB,
        "    headGroupSpec:",
        "    headGroupSpec:\n      resources: {CPU: \"1\"}",
        &format!("{head}.resources"),
        "num-cpus",
    );
    refused(
        RAY_JOB,
        "    headGroupSpec:",
        "    headGroupSpec:\n      labels: {a: b c}",
        &format!("{head}.labels.a"),
        "label",
    );
}

#[test]
fn what_muster_does_not_know_is_not_dropped_silently() {
    let spec = "    spec:\n      restartPolicy: Never\n";
    let job = |to: &str, field: &str, mend: &str| refused(JOB, spec, to, field, mend);
    let topology = "    metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: rack}}\n    spec:\n      restartPolicy: Never\n";
    job(
        topology,
        "spec.template.metadata.annotations[\"kueue.x-k8s.io/podset-required-topology\"]",
        "topologies",
    );
    job(&format!("{spec}      nodeName: n1\n"), "spec.template.spec.nodeName", "nodeSelector");
    job(
        &format!("{spec}      resourceClaims: [{{name: c}}]\n"),
        "spec.template.spec.resourceClaims",
        "not supported",
    );
    refused(
        JOB,
        "{kueue.x-k8s.io/queue-name: cpu}",
        "{kueue.x-k8s.io/queue-name: cpu, kueue.x-k8s.io/pod-group-name: g}",
        "metadata.labels[\"kueue.x-k8s.io/pod-group-name\"]",
        "write a Job",
    );
}

#[test]
fn every_fault_is_found_at_once() {
    let text = RAY_JOB
        .replace("name: train-bert", "name: Train")
        .replace("replicas: 2", "replicas: -2")
        .replace("memory: 192G", "memory: lots")
        .replace("  backoffLimit: 2", "  backoffLimit: -1\n  rayClusterSelector: {}");
    let fields: Vec<String> = read(&text).unwrap_err().into_iter().map(|fault| fault.field).collect();
    for wanted in [
        "metadata.name",
        "spec.rayClusterSelector",
        "spec.backoffLimit",
        "workerGroupSpecs[0].replicas",
        "[\"memory\"]",
    ] {
        assert!(fields.iter().any(|field| field.ends_with(wanted)), "{wanted} is not among {fields:#?}");
    }
    assert_eq!(fields.len(), 5);
}

#[test]
fn secrets_never_enter_a_fault() {
    let text = RAY_JOB
        .replace("{name: ROLE, value: head}", "{name: ROLE, value: 47114711}")
        .replace("  entrypoint: python train.py --epochs 3", "  entrypoint: [hunter2]")
        .replace("      TOKEN: abc", "      TOKEN: hunter2: x")
        .replace("num-cpus: \"0\"", "redis-password: 47114711");
    let faults = read(&text).unwrap_err();
    assert!(faults.iter().any(|fault| fault.field.contains(".env[0].value")), "{faults:#?}");
    let typo = read(&RAY_JOB.replace("  entrypoint: python", "  entryPoint: hunter2")).unwrap_err();
    let all = format!("{faults:?} {typo:?}");
    assert!(!all.contains("47114711") && !all.contains("hunter2"), "{all}");
}

#[test]
fn limits_of_the_whole() {
    let group = |index: usize| {
        format!("    - groupName: g{index}\n      template: {{spec: {{containers: [{{name: a}}]}}}}\n")
    };
    let cluster = |groups: usize| {
        let all: String = (0..groups).map(group).collect();
        format!(
            "apiVersion: ray.io/v1\nkind: RayCluster\nmetadata: {{name: c, labels: {{kueue.x-k8s.io/queue-name: q}}}}\nspec:\n  headGroupSpec: {{template: {{spec: {{containers: [{{name: a}}]}}}}}}\n  workerGroupSpecs:\n{all}"
        )
    };
    assert_eq!(read(&cluster(17)).unwrap().pod_sets.len(), 18);
    assert!(read(&cluster(18)).unwrap_err()[0].message.contains("18 pod sets"));
    refused(
        RAY_JOB,
        "replicas: 2\n        minReplicas: 1\n        maxReplicas: 4",
        "replicas: 200000",
        "spec",
        "192G".replace("192G", "memory").as_str(),
    );
    let heavy: String = (0..500).map(|index| format!("    l{index}: {}\n", "v".repeat(63))).collect();
    refused(RAY_JOB, "    team: nlp\n", &heavy, "spec", "weigh");
    let many: String = (0..100).map(|index| format!("  unknown{index}: 1\n")).collect();
    assert_eq!(read(&RAY_JOB.replace("  backoffLimit: 2\n", &many)).unwrap_err().len(), 65);
}
