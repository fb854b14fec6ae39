//! ClusterQueue.

use muster_proto::{ClusterQueue, FlavorFungibility, Preemption};

use super::{STOP, Version, choice, quota, reference};
use crate::node::Node;
use crate::selector;

const KNOWN: [&str; 9] = [
    "cohort",
    "cohortName",
    "queueingStrategy",
    "resourceGroups",
    "stopPolicy",
    "namespaceSelector",
    "preemption",
    "flavorFungibility",
    "fairSharing",
];
const UNSUPPORTED: [&str; 4] =
    ["admissionChecks", "admissionChecksStrategy", "admissionScope", "concurrentAdmissionPolicy"];
const TRY_NEXT: &str = "TryNextFlavor";
const MAY_STOP: &str = "MayStopSearch";

pub(super) fn read(root: &Node<'_>, version: Version) -> ClusterQueue {
    let spec = root.field("spec");
    super::unsupported(&spec, &UNSUPPORTED);
    spec.field("resources").refuse("is the form of v1alpha1; quotas stand in resourceGroups now");
    let cohort = cohort(&spec, version);
    spec.only(&KNOWN);
    ClusterQueue {
        name: super::name(root),
        queueing_strategy: choice(
            &spec.field("queueingStrategy"),
            &["BestEffortFIFO", "StrictFIFO"],
            "BestEffortFIFO",
        ),
        resource_groups: quota::groups(
            &spec.field("resourceGroups"),
            quota::Owner::ClusterQueue { cohort: cohort.exists() },
        ),
        cohort: reference(&cohort),
        stop_policy: choice(&spec.field("stopPolicy"), &STOP, "None"),
        namespaces_match: selector::read(&spec.field("namespaceSelector")),
        preemption: Some(preemption(&spec.field("preemption"))),
        fungibility: Some(fungibility(&spec.field("flavorFungibility"), version)),
        fair_weight_milli: super::fair_weight(&spec),
    }
}

fn cohort<'a>(spec: &Node<'a>, version: Version) -> Node<'a> {
    let (old, new) = (spec.field("cohort"), spec.field("cohortName"));
    match version {
        Version::V1Beta1 => {
            new.refuse("is the form of v1beta2; in v1beta1 it is called cohort");
            old
        }
        Version::V1Beta2 => {
            old.refuse("is the form of v1beta1; in v1beta2 it is called cohortName");
            new
        }
    }
}

fn preemption(node: &Node<'_>) -> Preemption {
    node.only(&["withinClusterQueue", "reclaimWithinCohort", "borrowWithinCohort"]);
    let within = ["Never", "LowerPriority", "LowerOrNewerEqualPriority"];
    let borrow = node.field("borrowWithinCohort");
    borrow.only(&["policy", "maxPriorityThreshold"]);
    let threshold = borrow.field("maxPriorityThreshold").int(i64::from(i32::MIN), i64::from(i32::MAX));
    let preemption = Preemption {
        within_cluster_queue: choice(&node.field("withinClusterQueue"), &within, "Never"),
        reclaim_within_cohort: choice(
            &node.field("reclaimWithinCohort"),
            &["Never", "LowerPriority", "Any"],
            "Never",
        ),
        borrow_within_cohort: choice(&borrow.field("policy"), &["Never", "LowerPriority"], "Never"),
        borrow_max_priority: threshold.and_then(|threshold| i32::try_from(threshold).ok()),
    };
    if preemption.reclaim_within_cohort == "Never" && preemption.borrow_within_cohort != "Never" {
        borrow.field("policy").fault("must be Never while reclaimWithinCohort is Never");
    }
    preemption
}

fn fungibility(node: &Node<'_>, version: Version) -> FlavorFungibility {
    node.only(&["whenCanBorrow", "whenCanPreempt", "preference"]);
    let preference = node.field("preference");
    let fungibility = FlavorFungibility {
        when_can_borrow: search(&node.field("whenCanBorrow"), "Borrow", MAY_STOP, version),
        when_can_preempt: search(&node.field("whenCanPreempt"), "Preempt", TRY_NEXT, version),
        preference: choice(
            &preference,
            &["BorrowingOverPreemption", "PreemptionOverBorrowing"],
            "BorrowingOverPreemption",
        ),
    };
    let all_tried = fungibility.when_can_borrow == TRY_NEXT && fungibility.when_can_preempt == TRY_NEXT;
    if preference.exists() && !all_tried {
        preference.fault("needs whenCanBorrow and whenCanPreempt to be TryNextFlavor");
    }
    fungibility
}

/// `MayStopSearch` was called by what stops the search.
fn search(node: &Node<'_>, old: &str, default: &'static str, version: Version) -> String {
    if node.raw().and_then(|value| value.as_str()) == Some(old) {
        if version == Version::V1Beta2 {
            node.fault(format!("is the form of v1beta1; in v1beta2 it is called {MAY_STOP}"));
        }
        return MAY_STOP.into();
    }
    choice(node, &[MAY_STOP, TRY_NEXT], default)
}
