//! Kueue's objects as policies.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use muster_manifest::{Fault, document, policy, selector};
use muster_proto::policy::Object;
use muster_proto::{ClusterQueue, Policy};

const QUEUE: &str = include_str!("manifests/cluster-queue.yaml");

fn read(text: &str) -> Result<Object, Vec<Fault>> {
    let Policy { object } = policy::read(&document::parse(text.as_bytes())?, "")?;
    Ok(object.unwrap())
}

fn queue(text: &str) -> ClusterQueue {
    match read(text).unwrap() {
        Object::ClusterQueue(queue) => queue,
        other => panic!("{other:?}"),
    }
}

fn refused(text: &str, from: &str, to: &str, field: &str, mend: &str) {
    assert!(text.contains(from), "{from:?} does not stand in the manifest");
    let faults = read(&text.replacen(from, to, 1)).expect_err(to);
    let found: Vec<(&str, &str)> = faults.iter().map(|f| (f.field.as_str(), f.message.as_str())).collect();
    assert!(found.len() == 1 && found[0].0 == field && found[0].1.contains(mend), "{to:?} gave {found:#?}");
}

#[test]
fn a_cluster_queue_with_everything() {
    let queue = queue(QUEUE);
    assert_eq!((queue.name.as_str(), queue.cohort.as_str()), ("research", "all"));
    assert_eq!((queue.queueing_strategy.as_str(), queue.stop_policy.as_str()), ("StrictFIFO", "None"));
    assert_eq!(queue.fair_weight_milli, Some(500));
    let preemption = queue.preemption.unwrap();
    assert_eq!(
        (preemption.reclaim_within_cohort.as_str(), preemption.borrow_max_priority),
        ("Any", Some(-5))
    );
    assert_eq!(queue.fungibility.unwrap().preference, "PreemptionOverBorrowing");
    let quotas: Vec<(String, i64, Option<i64>, Option<i64>)> = queue
        .resource_groups
        .iter()
        .flat_map(|group| &group.flavors)
        .flat_map(|flavor| &flavor.resources)
        .map(|quota| (quota.name.clone(), quota.nominal, quota.borrowing_limit, quota.lending_limit))
        .collect();
    let wanted = [
        ("cpu", 9000, Some(500), None),
        ("memory", 36 << 30, None, Some(0)),
        ("pods", 50, None, None),
        ("nvidia.com/gpu", 8, Some(4), Some(8)),
        ("nvidia.com/gpu", 0, None, None),
    ];
    assert_eq!(quotas, wanted.map(|(name, nominal, borrow, lend)| (name.to_owned(), nominal, borrow, lend)));
    assert_eq!(queue.resource_groups[0].covered_resources, ["cpu", "memory", "pods"]);
    let labels =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    assert!(selector::matches(&queue.namespaces_match, &labels(&[("team", "nlp")])));
    assert!(!selector::matches(&queue.namespaces_match, &labels(&[("team", "nlp"), ("env", "prod")])));
    assert!(!selector::matches(&queue.namespaces_match, &labels(&[("env", "dev")])));
}

/// In Kueue 0 is a weight of its own (it always loses), not the default.
#[test]
fn a_fair_weight_of_nothing_is_not_an_absent_one() {
    assert_eq!(queue(&QUEUE.replace("weight: 500m", "weight: 0")).fair_weight_milli, Some(0));
    assert_eq!(queue(&QUEUE.replace("{weight: 500m}", "{}")).fair_weight_milli, None);
    let cohort = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: left}\nspec: {fairSharing: {weight: 0}}";
    assert!(matches!(read(cohort), Ok(Object::Cohort(cohort)) if cohort.fair_weight_milli == Some(0)));
}

#[test]
fn both_versions_give_one_policy() {
    let new = QUEUE
        .replace("preference: PreemptionOverBorrowing", "")
        .replace("whenCanBorrow: TryNextFlavor", "whenCanBorrow: MayStopSearch");
    let old =
        new.replace("v1beta2", "v1beta1").replace("cohortName", "cohort").replace("MayStopSearch", "Borrow");
    assert_eq!(queue(&new), queue(&old));
}

#[test]
fn defaults_of_kueue_are_filled_in() {
    let bare = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: a}\nspec: {}";
    let none = queue(bare);
    assert_eq!((none.queueing_strategy.as_str(), none.fair_weight_milli), ("BestEffortFIFO", None));
    assert_eq!(none.namespaces_match, selector::NOTHING);
    assert!(!selector::matches(&none.namespaces_match, &Default::default()));
    let fungibility = none.fungibility.unwrap();
    assert_eq!(
        (fungibility.when_can_borrow.as_str(), fungibility.when_can_preempt.as_str()),
        ("MayStopSearch", "TryNextFlavor")
    );
    assert_eq!(none.preemption.unwrap().within_cluster_queue, "Never");
    let all = queue(&bare.replace("{}", "{namespaceSelector: {}}"));
    assert_eq!(all.namespaces_match, "");
    assert!(selector::matches("", &Default::default()));
}

#[test]
fn the_other_kinds() {
    let flavor = read("apiVersion: kueue.x-k8s.io/v1beta1\nkind: ResourceFlavor\nmetadata: {name: spot}\nspec:\n  nodeLabels: {pool: spot}\n  nodeTaints: [{key: spot, value: \"true\", effect: NoSchedule}]\n  tolerations: [{key: spot, operator: Exists}]").unwrap();
    let Object::ResourceFlavor(flavor) = flavor else { panic!("{flavor:?}") };
    assert_eq!((flavor.node_labels["pool"].as_str(), flavor.node_taints[0].value.as_str()), ("spot", "true"));
    assert_eq!(flavor.tolerations[0].operator, "Exists");
    assert!(
        read("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: plain}").is_ok()
    );
    let local = read("apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q}\nspec: {clusterQueue: c, stopPolicy: Hold}").unwrap();
    let Object::LocalQueue(local) = local else { panic!("{local:?}") };
    assert_eq!(
        (local.namespace.as_str(), local.cluster_queue.as_str(), local.stop_policy.as_str()),
        ("default", "c", "Hold")
    );
    let cohort = read("apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: left}\nspec:\n  parentName: root\n  fairSharing: {weight: 2}\n  resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: 1, lendingLimit: 5}]}]}]").unwrap();
    let Object::Cohort(cohort) = cohort else { panic!("{cohort:?}") };
    assert_eq!((cohort.parent.as_str(), cohort.fair_weight_milli), ("root", Some(2000)));
    let class = read("apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: -7\ndescription: x").unwrap();
    assert!(matches!(class, Object::WorkloadPriorityClass(class) if class.value == -7));
    let tenant =
        read("apiVersion: muster.dev/v1\nkind: Tenant\nmetadata: {name: a}\nspec: {namespaces: [a, b]}")
            .unwrap();
    assert!(matches!(tenant, Object::Tenant(tenant) if tenant.namespaces == ["a", "b"]));
}

#[test]
fn the_rules_of_kueues_webhooks() {
    let queue = |from: &str, to: &str, field: &str, mend: &str| refused(QUEUE, from, to, field, mend);
    let first = "spec.resourceGroups[0].flavors[0].resources";
    queue("kind: ClusterQueue", "kind: Queue", "kind", "LocalQueue");
    queue("kind: ClusterQueue", "kind: ClusterQueues", "kind", "did you mean ClusterQueue?");
    queue("kind: ClusterQueue", "kind: Topology", "kind", "does not support");
    queue("kind: ClusterQueue", "kind: RayJob", "kind", "muster submit");
    queue("v1beta2", "v1alpha1", "apiVersion", "v1beta2");
    queue("cohortName: all", "cohort: all\n  cohortName: all", "spec.cohort", "cohortName");
    queue(
        "  fairSharing",
        "  admissionChecks: [a]\n  fairSharing",
        "spec.admissionChecks",
        "not supported by muster",
    );
    queue("StrictFIFO", "FIFO", "spec.queueingStrategy", "BestEffortFIFO, StrictFIFO");
    queue(
        "whenCanBorrow: TryNextFlavor",
        "whenCanBorrow: MayStopSearch",
        "spec.flavorFungibility.preference",
        "TryNextFlavor",
    );
    queue(
        "reclaimWithinCohort: Any",
        "reclaimWithinCohort: Never",
        "spec.preemption.borrowWithinCohort.policy",
        "reclaimWithinCohort",
    );
    queue("nominalQuota: 9,", "nominalQuota: -9,", &format!("{first}[0].nominalQuota"), "negative");
    queue("nominalQuota: 9,", "nominalQuota: 1e40,", &format!("{first}[0].nominalQuota"), "largest amount");
    queue("nominalQuota: 50", "nominalQuota: 1.5", &format!("{first}[2].nominalQuota"), "whole number");
    queue("nominalQuota: 50", "quota: 50, nominalQuota: 1", &format!("{first}[2].quota"), "nominalQuota");
    queue("lendingLimit: 0", "lendingLimit: 37Gi", &format!("{first}[1].lendingLimit"), "nominalQuota");
    queue(
        "lendingLimit: 0",
        "lendinglimit: 0",
        &format!("{first}[1].lendinglimit"),
        "did you mean lendingLimit?",
    );
    queue(
        "coveredResources: [cpu, memory, pods]",
        "coveredResources: [memory, cpu, pods]",
        first,
        "in their order",
    );
    queue("name: a100", "name: on-demand", "spec.resourceGroups[1].flavors[1].name", "once");
    queue("weight: 500m", "weight: -1", "spec.fairSharing.weight", "negative");
    queue("weight: 500m", "weight: 2M", "spec.fairSharing.weight", "largest amount");
    queue("operator: NotIn", "operator: Not", "spec.namespaceSelector.matchExpressions[0].operator", "NotIn");
    queue(
        "whenCanPreempt: TryNextFlavor, preference: PreemptionOverBorrowing",
        "whenCanPreempt: Preempt",
        "spec.flavorFungibility.whenCanPreempt",
        "MayStopSearch",
    );
    let alone = read(&QUEUE.replace("  cohortName: all\n", "")).unwrap_err();
    assert_eq!(alone.len(), 4, "{alone:#?}");
    assert!(alone.iter().all(|fault| fault.message.contains("no cohort")));
    let twice = read(&QUEUE.replace("[nvidia.com/gpu]", "[cpu]")).unwrap_err();
    assert!(twice.iter().any(|fault| fault.message.contains("one group only")), "{twice:#?}");
}

#[test]
fn rules_of_the_other_kinds() {
    let flavor = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: spot}\nspec:\n  nodeTaints: [{key: a, effect: NoSchedule}]\n  tolerations: [{key: a, operator: Exists}]";
    refused(
        flavor,
        "effect: NoSchedule}",
        "effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}",
        "spec.nodeTaints[1]",
        "another taint",
    );
    refused(
        flavor,
        "operator: Exists",
        "operator: Exists, value: a",
        "spec.tolerations[0].value",
        "left out",
    );
    refused(flavor, "  nodeTaints", "  topologyName: t\n  nodeTaints", "spec.topologyName", "not supported");
    refused(flavor, "effect: NoSchedule", "effect: Never", "spec.nodeTaints[0].effect", "NoExecute");
    let cohort =
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {name: c}\nspec: {parentName: p}";
    refused(cohort, "parentName: p", "parent: p", "spec.parent", "parentName");
    refused(cohort, "parentName: p", "parentName: c", "spec.parentName", "own parent");
    refused(
        cohort,
        "{parentName: p}",
        "{resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: 1, borrowingLimit: 1}]}]}]}",
        "spec.resourceGroups[0].flavors[0].resources[0].borrowingLimit",
        "no parent",
    );
    let local = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: q, namespace: ns}\nspec: {clusterQueue: c}";
    refused(local, "clusterQueue: c", "", "spec.clusterQueue", "is missing");
    refused(
        local,
        "clusterQueue: c",
        "clusterQueue: c, clusterqueue: c",
        "spec.clusterqueue",
        "did you mean clusterQueue?",
    );
    refused(local, "namespace: ns", "namespace: NS", "metadata.namespace", "lower-case");
    let class =
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 7";
    refused(class, "value: 7", "value: 3000000000", "value", "at most");
    refused(class, "value: 7", "value: 7\nspec: {value: 7}", "spec", "beside metadata");
    let tenant = "apiVersion: muster.dev/v1\nkind: Tenant\nmetadata: {name: a}\nspec: {namespaces: [x]}";
    refused(tenant, "[x]", "[x, x]", "spec.namespaces[1]", "twice");
    refused(tenant, "[x]", "[]", "spec.namespaces", "at least one");
    refused(tenant, "muster.dev/v1", "kueue.x-k8s.io/v1beta2", "apiVersion", "muster.dev/v1");
    refused(tenant, "name: a", "name: _ops", "metadata.name", "lower-case");
}
