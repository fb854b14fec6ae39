//! Job and Pod: one pod set, `main`.

use super::{Body, MAX_PODS, seconds};
use crate::node::Node;
use crate::pod;

const JOB_FIELDS: [&str; 16] = [
    "activeDeadlineSeconds",
    "backoffLimit",
    "backoffLimitPerIndex",
    "completionMode",
    "completions",
    "managedBy",
    "manualSelector",
    "maxFailedIndexes",
    "parallelism",
    "podFailurePolicy",
    "podReplacementPolicy",
    "selector",
    "successPolicy",
    "suspend",
    "template",
    "ttlSecondsAfterFinished",
];
/// Kueue's annotation for partial admission.
const MIN_PARALLELISM: &str = "kueue.x-k8s.io/job-min-parallelism";
/// Kubernetes' default.
const BACKOFF_LIMIT: u32 = 6;

/// The name of the one pod set of a Job or a Pod.
pub(crate) const MAIN_SET: &str = "main";

pub(super) fn job(spec: &Node<'_>, root: &Node<'_>) -> Body {
    spec.only(&JOB_FIELDS);
    let _ = spec.field("suspend").flag();
    let count = parallelism(spec);
    let node = spec.field("template").require();
    let mut pod_sets = Vec::new();
    if let Some(template) = pod::template(&node) {
        let policy = node.field("spec").field("restartPolicy");
        if !matches!(
            template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref()),
            Some("Never" | "OnFailure")
        ) {
            policy.fault("must be Never or OnFailure in a Job");
        }
        let mut set = pod::pod_set(MAIN_SET, count, &template, &node);
        set.min_count = min_parallelism(root, count);
        pod_sets.push(set);
    }
    let backoff = spec.field("backoffLimit").count(i32::MAX.unsigned_abs()).unwrap_or(BACKOFF_LIMIT);
    Body { pod_sets, max_retries: backoff, active_deadline_us: seconds(&spec.field("activeDeadlineSeconds")) }
}

pub(super) fn pod(root: &Node<'_>) -> Body {
    let Some(template) = pod::template(root) else { return Body::default() };
    let spec = root.field("spec");
    Body {
        pod_sets: vec![pod::pod_set(MAIN_SET, 1, &template, root)],
        max_retries: 0,
        active_deadline_us: seconds(&spec.field("activeDeadlineSeconds")),
    }
}

/// All pods of a Job run at the same time here: a gang.
fn parallelism(spec: &Node<'_>) -> u32 {
    let parallel = spec.field("parallelism");
    let count = parallel.count(MAX_PODS).unwrap_or(1);
    if parallel.exists() && count == 0 {
        parallel.fault("must be at least 1: a Job without pods never ends");
    }
    let completions = spec.field("completions");
    match completions.count(MAX_PODS) {
        Some(0) => {
            completions.fault("must be at least 1");
            count
        }
        Some(wanted) if wanted > count => {
            completions.fault(format!(
                "is above parallelism ({count}): muster starts all pods of a Job at once; make them equal"
            ));
            count
        }
        Some(wanted) => wanted,
        None => count,
    }
}

fn min_parallelism(root: &Node<'_>, count: u32) -> u32 {
    let node = root.field("metadata").field("annotations").entry(MIN_PARALLELISM);
    let Some(text) = node.raw().and_then(|value| value.as_str()) else { return 0 };
    match text.parse::<u32>() {
        Ok(least) if least > 0 && least < count => least,
        _ => {
            node.fault(format!("must be a number from 1 to {}", count.saturating_sub(1)));
            0
        }
    }
}
