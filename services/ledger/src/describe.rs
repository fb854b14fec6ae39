//! A fact in words: its name, the workload it is about, and what it says.

use muster_core::WorkloadId;
use muster_proto::{self as proto, Kind, Result as Finish, WorkloadRef, command_accepted, policy};

use crate::phase::outcome_name;

/// A fact in words.
pub struct Described {
    pub name: &'static str,
    pub workload: Option<WorkloadId>,
    pub detail: String,
}

fn words(name: &'static str, workload: Option<&WorkloadRef>, detail: String) -> Described {
    Described { name, workload: workload.map(Into::into), detail }
}

pub fn describe(fact: &Kind) -> Described {
    match fact {
        Kind::GenerationStarted(f) => {
            words("GenerationStarted", None, format!("generation {:08x} {}", f.generation, f.reason))
        }
        Kind::SnapshotTaken(f) => words("SnapshotTaken", None, format!("{} up to {}", f.service, f.up_to)),
        Kind::SubjectCarried(f) => words("SubjectCarried", None, format!("{} last {}", f.subject, f.last)),
        Kind::WorkloadQueued(f) => words("WorkloadQueued", f.workload.as_ref(), queued(f)),
        Kind::CommandAccepted(f) => command(f),
        Kind::PolicyApplied(f) => words("PolicyApplied", None, policy_applied(f)),
        Kind::RequestsRejected(f) => words(
            "RequestsRejected",
            None,
            format!("{} of tenant {}: {}", f.count, f.tenant, f.reasons.join("; ")),
        ),
        Kind::WorkloadRequeued(f) => {
            words("WorkloadRequeued", f.workload.as_ref(), format!("round {} {}", f.round, f.reason))
        }
        Kind::WorkloadCancelled(f) => {
            words("WorkloadCancelled", f.workload.as_ref(), format!("by {} {}", f.principal, f.reason))
        }
        Kind::WorkloadFinished(f) => words("WorkloadFinished", f.workload.as_ref(), finished(f)),
        Kind::RecoveryDeclined(f) => {
            words("RecoveryDeclined", f.workload.as_ref(), format!("attempt {} {}", f.attempt, f.reason))
        }
        Kind::BodyErased(f) => words("BodyErased", f.workload.as_ref(), format!("body {}", f.body)),
        Kind::RulesActivated(f) => words("RulesActivated", None, format!("{} rules {}", f.service, f.rules)),
        Kind::FactVoided(f) => words("FactVoided", None, format!("{} {}", f.seq, f.reason)),
        Kind::ScopeResumed(f) => {
            words("ScopeResumed", None, format!("{} {} {}", f.service, f.scope, f.reason))
        }
        Kind::WorkloadsForgotten(f) => words("WorkloadsForgotten", None, format!("{:?}", f.up_to)),
        Kind::QuotaReserved(f) => words("QuotaReserved", f.workload.as_ref(), reserved(f)),
        Kind::QuotaReleased(f) => words("QuotaReleased", f.workload.as_ref(), f.reason.clone()),
        Kind::WorkloadPreempted(f) => words("WorkloadPreempted", f.workload.as_ref(), f.reason.clone()),
        Kind::ReplicasGranted(f) => words("ReplicasGranted", f.workload.as_ref(), format!("ask {}", f.ask)),
        Kind::ReplicasDenied(f) => words("ReplicasDenied", f.workload.as_ref(), f.reason.clone()),
        Kind::TreeReleased(f) => words("TreeReleased", None, format!("{} to {}", f.root, f.to_partition)),
        Kind::PlacementOffered(f) => words("PlacementOffered", f.workload.as_ref(), offered(f)),
        Kind::PlacementCommitted(f) => {
            words("PlacementCommitted", f.workload.as_ref(), format!("attempt {}", f.attempt))
        }
        Kind::PlacementWithdrawn(f) => {
            words("PlacementWithdrawn", f.workload.as_ref(), format!("attempt {} {}", f.attempt, f.reason))
        }
        Kind::PlacementExhausted(f) => words("PlacementExhausted", f.workload.as_ref(), exhausted(f)),
        Kind::ClusterSuspected(f) => words("ClusterSuspected", None, f.cluster.clone()),
        Kind::ClusterDeclaredDead(f) => words("ClusterDeclaredDead", None, f.cluster.clone()),
        Kind::ClusterJoined(f) => words("ClusterJoined", None, format!("{} ({})", f.cluster, f.backend)),
        Kind::CapacityReported(f) => words("CapacityReported", None, capacity(f)),
        Kind::AgentJoined(f) => {
            words("AgentJoined", None, format!("{} epoch {} {}", f.cluster, f.epoch, f.agent))
        }
        Kind::LegGranted(f) => words(
            "LegGranted",
            f.workload.as_ref(),
            format!("attempt {} {} uid {}", f.attempt, f.cluster, f.uid),
        ),
        Kind::LegRefused(f) => words(
            "LegRefused",
            f.workload.as_ref(),
            format!("attempt {} {}: {}", f.attempt, f.cluster, f.reason),
        ),
        Kind::LegReady(f) => words(
            "LegReady",
            f.workload.as_ref(),
            format!("attempt {} {} {}", f.attempt, f.cluster, f.address),
        ),
        Kind::LegEnded(f) => words("LegEnded", f.workload.as_ref(), ended(f)),
        Kind::ClusterReconciled(f) => words("ClusterReconciled", None, f.cluster.clone()),
        Kind::ScaleRequested(f) => words("ScaleRequested", f.workload.as_ref(), f.reason.clone()),
        Kind::ReplicaMoveRequested(f) => {
            words("ReplicaMoveRequested", f.workload.as_ref(), f.away_from.clone())
        }
        Kind::JobMoveRequested(f) => words("JobMoveRequested", f.workload.as_ref(), f.away_from.join(",")),
        Kind::TargetUnreachable(f) => words("TargetUnreachable", f.workload.as_ref(), f.reason.clone()),
        Kind::FaultMarked(f) => words("FaultMarked", None, format!("{}/{} {}", f.cluster, f.node, f.reason)),
        Kind::FaultCleared(f) => {
            words("FaultCleared", None, format!("{}/{} {}", f.cluster, f.node, f.reason))
        }
        Kind::RecoveryPlanned(f) => {
            words("RecoveryPlanned", f.workload.as_ref(), format!("attempt {} {}", f.attempt, f.reason))
        }
        Kind::RecoveryCompleted(f) => {
            words("RecoveryCompleted", f.workload.as_ref(), format!("attempt {}", f.attempt))
        }
    }
}

fn queued(fact: &proto::WorkloadQueued) -> String {
    let pods: u64 = fact.pod_sets.iter().map(|set| u64::from(set.count)).sum();
    format!(
        "{} {}/{} queue {} priority {} pods {pods}",
        fact.kind, fact.namespace, fact.name, fact.local_queue, fact.priority
    )
}

fn command(fact: &proto::CommandAccepted) -> Described {
    use command_accepted::Command;
    let (workload, what) = match &fact.command {
        Some(Command::EraseBody(c)) => (c.workload.as_ref(), "erase body".to_owned()),
        Some(Command::DeclareDead(c)) => (None, format!("declare dead {}", c.cluster)),
        Some(Command::Hold(c)) => (c.workload.as_ref(), "hold".to_owned()),
        Some(Command::Release(c)) => (c.workload.as_ref(), "release".to_owned()),
        Some(Command::Retry(c)) => (c.workload.as_ref(), "retry".to_owned()),
        Some(Command::Priority(c)) => (c.workload.as_ref(), format!("priority {}", c.priority)),
        Some(Command::Cordon(c)) => (None, format!("cordon {} {}", c.cluster, c.cordoned)),
        None => (None, "nothing".to_owned()),
    };
    words("CommandAccepted", workload, format!("{what} by {}", fact.principal))
}

/// Kind and name of a policy object.
pub fn policy_name(policy: Option<&proto::Policy>) -> (&'static str, String) {
    match policy.and_then(|policy| policy.object.as_ref()) {
        Some(policy::Object::ResourceFlavor(o)) => ("ResourceFlavor", o.name.clone()),
        Some(policy::Object::ClusterQueue(o)) => ("ClusterQueue", o.name.clone()),
        Some(policy::Object::LocalQueue(o)) => ("LocalQueue", format!("{}/{}", o.namespace, o.name)),
        Some(policy::Object::Cohort(o)) => ("Cohort", o.name.clone()),
        Some(policy::Object::WorkloadPriorityClass(o)) => ("WorkloadPriorityClass", o.name.clone()),
        Some(policy::Object::Tenant(o)) => ("Tenant", o.name.clone()),
        None => ("Nothing", String::new()),
    }
}

fn policy_applied(fact: &proto::PolicyApplied) -> String {
    let (kind, name) = policy_name(fact.policy.as_ref());
    let verb = if fact.deleted { "deleted" } else { "applied" };
    format!("{kind} {name} {verb} by {} from {}", fact.principal, fact.source)
}

fn finished(fact: &proto::WorkloadFinished) -> String {
    let result = match fact.result() {
        Finish::Unspecified => "Unspecified",
        Finish::Succeeded => "Succeeded",
        Finish::Failed => "Failed",
        Finish::Cancelled => "Cancelled",
    };
    let code = fact.exit_code.map(|code| format!(" exit code {code}")).unwrap_or_default();
    format!("{result}{code} {}", fact.reason)
}

fn reserved(fact: &proto::QuotaReserved) -> String {
    let flavors: Vec<String> = fact
        .assignments
        .iter()
        .flat_map(|a| a.flavors.iter().map(|(resource, flavor)| format!("{}:{resource}={flavor}", a.pod_set)))
        .collect();
    format!("round {} queue {} {}", fact.round, fact.cluster_queue, flavors.join(" "))
}

fn offered(fact: &proto::PlacementOffered) -> String {
    let legs: Vec<&str> = fact.legs.iter().map(|leg| leg.cluster.as_str()).collect();
    format!("attempt {} to {}", fact.attempt, legs.join(", "))
}

fn exhausted(fact: &proto::PlacementExhausted) -> String {
    let reasons: Vec<String> = fact.reasons.iter().map(|r| format!("{}: {}", r.cluster, r.reason)).collect();
    format!("capacity version {} {}", fact.capacity_version, reasons.join("; "))
}

fn capacity(fact: &proto::CapacityReported) -> String {
    let nodes: u64 = fact.groups.iter().map(|group| u64::from(group.nodes)).sum();
    format!("{} {nodes} nodes", fact.cluster)
}

fn ended(fact: &proto::LegEnded) -> String {
    let code = fact.exit_code.map(|code| format!(" exit code {code}")).unwrap_or_default();
    format!(
        "attempt {} {} {}{code} {}",
        fact.attempt,
        fact.cluster,
        outcome_name(fact.outcome()),
        fact.reason
    )
}
