//! Every kind of fact that the lifecycle judges, and how its writer would decide it now.

use muster_core::WorkloadId;
use muster_proto::{self as proto, Kind, Outcome, Result as Finish, WorkloadRef, command_accepted::Command};

use crate::log::Log;

/// A kind of fact; facts whose condition depends on what they say are a kind per saying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Case {
    WorkloadQueued,
    WorkloadCancelled,
    WorkloadRequeued,
    FinishedSucceeded,
    FinishedFailed,
    FinishedCancelled,
    RecoveryDeclined,
    DeclareDeadAccepted,
    PolicyApplied,
    RequestsRejected,
    QuotaReserved,
    QuotaReleased,
    WorkloadPreempted,
    PlacementOffered,
    PlacementCommitted,
    PlacementWithdrawn,
    PlacementExhausted,
    ClusterSuspected,
    ClusterDeclaredDead,
    LegGranted,
    LegRefused,
    LegReady,
    EndedSucceeded,
    EndedUserFailed,
    EndedGone,
    ClusterReconciled,
    AgentJoined,
    CapacityReported,
    RecoveryPlanned,
}

use Case::*;

/// All of them, with the two letters that the table of pairs knows them by.
pub const CASES: [(&str, Case); 29] = [
    ("qu", WorkloadQueued),
    ("ca", WorkloadCancelled),
    ("rq", WorkloadRequeued),
    ("f+", FinishedSucceeded),
    ("f-", FinishedFailed),
    ("fx", FinishedCancelled),
    ("de", RecoveryDeclined),
    ("oa", DeclareDeadAccepted),
    ("po", PolicyApplied),
    ("rj", RequestsRejected),
    ("re", QuotaReserved),
    ("rl", QuotaReleased),
    ("pr", WorkloadPreempted),
    ("of", PlacementOffered),
    ("co", PlacementCommitted),
    ("wi", PlacementWithdrawn),
    ("ex", PlacementExhausted),
    ("su", ClusterSuspected),
    ("dd", ClusterDeclaredDead),
    ("gr", LegGranted),
    ("rf", LegRefused),
    ("ry", LegReady),
    ("e+", EndedSucceeded),
    ("eu", EndedUserFailed),
    ("eg", EndedGone),
    ("rc", ClusterReconciled),
    ("aj", AgentJoined),
    ("cr", CapacityReported),
    ("pl", RecoveryPlanned),
];

/// The cases of a fact on the wire; none: it says nothing about a workload's or cluster's life,
/// or (ClusterJoined) can't meet another fact about the same cluster. No wildcard: a new fact does not compile until it is placed here.
pub const fn cases_of(fact: &Kind) -> &'static [Case] {
    match fact {
        Kind::WorkloadQueued(_) => &[WorkloadQueued],
        Kind::WorkloadCancelled(_) => &[WorkloadCancelled],
        Kind::WorkloadRequeued(_) => &[WorkloadRequeued],
        Kind::WorkloadFinished(_) => &[FinishedSucceeded, FinishedFailed, FinishedCancelled],
        Kind::RecoveryDeclined(_) => &[RecoveryDeclined],
        Kind::CommandAccepted(_) => &[DeclareDeadAccepted],
        Kind::PolicyApplied(_) => &[PolicyApplied],
        Kind::RequestsRejected(_) => &[RequestsRejected],
        Kind::QuotaReserved(_) => &[QuotaReserved],
        Kind::QuotaReleased(_) => &[QuotaReleased],
        Kind::WorkloadPreempted(_) => &[WorkloadPreempted],
        Kind::PlacementOffered(_) => &[PlacementOffered],
        Kind::PlacementCommitted(_) => &[PlacementCommitted],
        Kind::PlacementWithdrawn(_) => &[PlacementWithdrawn],
        Kind::PlacementExhausted(_) => &[PlacementExhausted],
        Kind::ClusterSuspected(_) => &[ClusterSuspected],
        Kind::ClusterDeclaredDead(_) => &[ClusterDeclaredDead],
        Kind::LegGranted(_) => &[LegGranted],
        Kind::LegRefused(_) => &[LegRefused],
        Kind::LegReady(_) => &[LegReady],
        Kind::LegEnded(_) => &[EndedSucceeded, EndedUserFailed, EndedGone],
        Kind::ClusterReconciled(_) => &[ClusterReconciled],
        Kind::AgentJoined(_) => &[AgentJoined],
        Kind::CapacityReported(_) => &[CapacityReported],
        Kind::RecoveryPlanned(_) => &[RecoveryPlanned],
        Kind::GenerationStarted(_)
        | Kind::SnapshotTaken(_)
        | Kind::SubjectCarried(_)
        | Kind::BodyErased(_)
        | Kind::RulesActivated(_)
        | Kind::FactVoided(_)
        | Kind::ScopeResumed(_)
        | Kind::WorkloadsForgotten(_)
        | Kind::ReplicasGranted(_)
        | Kind::ReplicasDenied(_)
        | Kind::TreeReleased(_)
        | Kind::ClusterJoined(_)
        | Kind::ScaleRequested(_)
        | Kind::ReplicaMoveRequested(_)
        | Kind::JobMoveRequested(_)
        | Kind::TargetUnreachable(_)
        | Kind::FaultMarked(_)
        | Kind::FaultCleared(_)
        | Kind::RecoveryCompleted(_) => &[],
    }
}

impl Case {
    /// The fact as its writer, who has folded this log, would decide it about a workload and a
    /// cluster; with the partition it stands in. Whether it holds is the fold's to judge.
    pub fn fact(self, log: &Log, id: &WorkloadId, cluster: &str) -> (String, Kind) {
        let row = log.row(id);
        let about = About {
            workload: Some((*id).into()),
            reservation: row.reservation.unwrap_or(0),
            attempt: row.attempts,
            cluster: cluster.to_owned(),
        };
        let fact = match self {
            WorkloadRequeued => {
                let round = row.round + 1;
                let workload = about.workload;
                Kind::WorkloadRequeued(proto::WorkloadRequeued { workload, round, ..Default::default() })
            }
            QuotaReserved => {
                let (workload, round) = (about.workload, row.round);
                Kind::QuotaReserved(proto::QuotaReserved { workload, round, ..Default::default() })
            }
            PlacementOffered => offer(&about, &[cluster], false),
            _ => self.of_queue(log, &about).or_else(|| self.of_others(log, &about)).unwrap(),
        };
        let partition = if muster_model::lifecycle::owner(&fact) == "desk" { cluster } else { "0" };
        (partition.to_owned(), fact)
    }

    fn of_queue(self, log: &Log, about: &About) -> Option<Kind> {
        let (workload, request) = (about.workload, Some(log.next_request()));
        let finished = |result: Finish| {
            Kind::WorkloadFinished(proto::WorkloadFinished {
                workload,
                result: result as i32,
                ..Default::default()
            })
        };
        Some(match self {
            WorkloadQueued => Kind::WorkloadQueued(proto::WorkloadQueued {
                request,
                workload: Some(log.next_id().into()),
                ..Default::default()
            }),
            WorkloadCancelled => {
                Kind::WorkloadCancelled(proto::WorkloadCancelled { request, workload, ..Default::default() })
            }
            FinishedSucceeded => finished(Finish::Succeeded),
            FinishedFailed => finished(Finish::Failed),
            FinishedCancelled => finished(Finish::Cancelled),
            RecoveryDeclined => Kind::RecoveryDeclined(proto::RecoveryDeclined {
                workload,
                attempt: about.attempt,
                reason: String::new(),
            }),
            DeclareDeadAccepted => {
                let command = Command::DeclareDead(proto::DeclareDead { cluster: about.cluster.clone() });
                let command = Some(command);
                Kind::CommandAccepted(proto::CommandAccepted { request, command, ..Default::default() })
            }
            PolicyApplied => Kind::PolicyApplied(proto::PolicyApplied { request, ..Default::default() }),
            RequestsRejected => Kind::RequestsRejected(proto::RequestsRejected {
                first: request,
                through: request,
                ..Default::default()
            }),
            _ => return None,
        })
    }

    fn of_others(self, log: &Log, about: &About) -> Option<Kind> {
        let About { workload, reservation, attempt, cluster } = about.clone();
        let reason = String::new();
        let ended = |outcome: Outcome| {
            let (outcome, cluster) = (outcome as i32, cluster.clone());
            Kind::LegEnded(proto::LegEnded { workload, attempt, cluster, outcome, ..Default::default() })
        };
        let known = log.lifecycle.cluster(&cluster).cloned().unwrap_or_default();
        Some(match self {
            QuotaReleased => Kind::QuotaReleased(proto::QuotaReleased { workload, reservation, reason }),
            WorkloadPreempted => {
                Kind::WorkloadPreempted(proto::WorkloadPreempted { workload, reservation, reason, by: None })
            }
            PlacementCommitted => Kind::PlacementCommitted(proto::PlacementCommitted { workload, attempt }),
            PlacementWithdrawn => {
                Kind::PlacementWithdrawn(proto::PlacementWithdrawn { workload, attempt, reason })
            }
            PlacementExhausted => Kind::PlacementExhausted(proto::PlacementExhausted {
                workload,
                reservation,
                capacity_version: log.lifecycle.capacity_version(),
                reasons: vec![],
            }),
            ClusterSuspected => Kind::ClusterSuspected(proto::ClusterSuspected { cluster, last_heard_us: 0 }),
            ClusterDeclaredDead => {
                let command = known.oath.unwrap_or(0);
                Kind::ClusterDeclaredDead(proto::ClusterDeclaredDead { cluster, command })
            }
            LegGranted => {
                let uid = format!("uid-{attempt}");
                Kind::LegGranted(proto::LegGranted { workload, attempt, cluster, uid })
            }
            LegRefused => Kind::LegRefused(proto::LegRefused { workload, attempt, cluster, reason }),
            LegReady => {
                Kind::LegReady(proto::LegReady { workload, attempt, cluster, address: String::new() })
            }
            EndedSucceeded => ended(Outcome::Succeeded),
            EndedUserFailed => ended(Outcome::UserFailed),
            EndedGone => ended(Outcome::Gone),
            ClusterReconciled => Kind::ClusterReconciled(proto::ClusterReconciled { cluster }),
            AgentJoined => {
                let epoch = known.epoch + 1;
                Kind::AgentJoined(proto::AgentJoined { cluster, epoch, agent: String::new() })
            }
            CapacityReported => Kind::CapacityReported(proto::CapacityReported { cluster, groups: vec![] }),
            RecoveryPlanned => {
                Kind::RecoveryPlanned(proto::RecoveryPlanned { workload, attempt, ..Default::default() })
            }
            _ => return None,
        })
    }
}

/// What a fact is about.
#[derive(Clone)]
struct About {
    workload: Option<WorkloadRef>,
    reservation: u64,
    attempt: u32,
    cluster: String,
}

fn offer(about: &About, clusters: &[&str], commit_on_grant: bool) -> Kind {
    let leg = |cluster: &&str| proto::Leg { cluster: (*cluster).to_owned(), pods: vec![] };
    Kind::PlacementOffered(proto::PlacementOffered {
        workload: about.workload,
        reservation: about.reservation,
        attempt: about.attempt + 1,
        legs: clusters.iter().map(leg).collect(),
        commit_on_grant,
    })
}

/// An offer to these clusters.
pub fn offer_to(log: &Log, id: &WorkloadId, clusters: &[&str], commit_on_grant: bool) -> (String, Kind) {
    let row = log.row(id);
    let about = About {
        workload: Some((*id).into()),
        reservation: row.reservation.unwrap_or(0),
        attempt: row.attempts,
        cluster: String::new(),
    };
    ("0".to_owned(), offer(&about, clusters, commit_on_grant))
}
