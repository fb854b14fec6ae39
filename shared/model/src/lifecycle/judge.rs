//! The table of LIFECYCLE.md: when a fact takes effect, and what it then does.

use muster_core::{At, Event, WorkloadId, defect, defect::Defect};
use muster_proto::{Kind, WorkloadRef, command_accepted};

use super::{Lifecycle, Workload};

/// What became of a fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It took effect, on these workloads.
    Effective(Touched),
    /// It no longer held at its own sequence: it changes nothing, for no reader.
    Void(&'static str),
}

/// The workloads that a fact changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Touched {
    None,
    One(WorkloadId),
    Many(Vec<WorkloadId>),
}

impl Verdict {
    #[must_use]
    pub const fn is_effective(&self) -> bool {
        matches!(self, Self::Effective(_))
    }

    /// The workloads that changed; none when the fact is void.
    #[must_use]
    pub fn touched(&self) -> &[WorkloadId] {
        match self {
            Self::Effective(Touched::One(id)) => std::slice::from_ref(id),
            Self::Effective(Touched::Many(ids)) => ids,
            _ => &[],
        }
    }
}

/// The service that alone may write a fact; a fact from another subject is void.
#[must_use]
pub const fn owner(fact: &Kind) -> &'static str {
    match fact {
        Kind::GenerationStarted(_) | Kind::SnapshotTaken(_) | Kind::SubjectCarried(_) => "cell",
        Kind::WorkloadQueued(_)
        | Kind::CommandAccepted(_)
        | Kind::PolicyApplied(_)
        | Kind::RequestsRejected(_)
        | Kind::WorkloadRequeued(_)
        | Kind::WorkloadCancelled(_)
        | Kind::WorkloadFinished(_)
        | Kind::RecoveryDeclined(_)
        | Kind::BodyErased(_)
        | Kind::RulesActivated(_)
        | Kind::FactVoided(_)
        | Kind::ScopeResumed(_)
        | Kind::WorkloadsForgotten(_) => "queue",
        Kind::QuotaReserved(_)
        | Kind::QuotaReleased(_)
        | Kind::WorkloadPreempted(_)
        | Kind::ReplicasGranted(_)
        | Kind::ReplicasDenied(_)
        | Kind::TreeReleased(_) => "admission",
        Kind::PlacementOffered(_)
        | Kind::PlacementCommitted(_)
        | Kind::PlacementWithdrawn(_)
        | Kind::PlacementExhausted(_)
        | Kind::ClusterSuspected(_)
        | Kind::ClusterDeclaredDead(_) => "federation",
        Kind::ClusterJoined(_)
        | Kind::CapacityReported(_)
        | Kind::AgentJoined(_)
        | Kind::LegGranted(_)
        | Kind::LegRefused(_)
        | Kind::LegReady(_)
        | Kind::LegEnded(_)
        | Kind::ClusterReconciled(_) => "desk",
        Kind::ScaleRequested(_)
        | Kind::ReplicaMoveRequested(_)
        | Kind::JobMoveRequested(_)
        | Kind::TargetUnreachable(_) => "autotune",
        Kind::FaultMarked(_)
        | Kind::FaultCleared(_)
        | Kind::RecoveryPlanned(_)
        | Kind::RecoveryCompleted(_) => "failover",
    }
}

/// What a fact changed, or the condition that does not hold.
pub(super) type Effect = Result<Touched, &'static str>;

/// A fact's condition: `Err` names the one that does not hold.
pub(super) type Held = Result<(), &'static str>;

/// `Err(why)` unless it holds. With the defect `LateFacts` everything holds.
pub(super) fn hold(condition: bool, why: &'static str) -> Held {
    if condition || defect::on(Defect::LateFacts) { Ok(()) } else { Err(why) }
}

impl Lifecycle {
    /// Judges a fact at its own sequence and, if it holds, lets it take effect. Facts that are
    /// not about workloads or clusters are effective and touch nothing here.
    pub fn apply(&mut self, at: At, event: &Event) -> Verdict {
        if owner(&event.fact) != event.service {
            return Verdict::Void("written by a service that does not own this fact");
        }
        match self.effect(at, event) {
            Ok(touched) => Verdict::Effective(touched),
            Err(why) => Verdict::Void(why),
        }
    }

    fn effect(&mut self, at: At, event: &Event) -> Effect {
        match &event.fact {
            Kind::GenerationStarted(fact) => self.cell_mut(|cell| cell.generation = fact.generation),
            Kind::WorkloadQueued(fact) => return self.queued(fact),
            Kind::WorkloadCancelled(fact) => return self.cancelled(fact),
            Kind::CommandAccepted(fact) => {
                self.take_request(fact.request.as_ref(), fact.request.as_ref())?;
                if let Some(command_accepted::Command::DeclareDead(command)) = &fact.command {
                    self.oath(&command.cluster, at.seq);
                }
            }
            Kind::PolicyApplied(fact) => self.take_request(fact.request.as_ref(), fact.request.as_ref())?,
            Kind::RequestsRejected(fact) => self.take_request(fact.first.as_ref(), fact.through.as_ref())?,
            Kind::WorkloadRequeued(fact) => return self.requeued(fact),
            Kind::WorkloadFinished(fact) => return self.finished(fact),
            Kind::RecoveryDeclined(fact) => return self.recovery_declined(fact),
            Kind::QuotaReserved(fact) => return self.quota_reserved(at.seq, fact),
            Kind::QuotaReleased(fact) => return self.quota_released(fact),
            Kind::WorkloadPreempted(fact) => return self.preempted(fact),
            Kind::PlacementOffered(fact) => return self.offered(at.seq, fact),
            Kind::PlacementCommitted(fact) => return self.committed(at.seq, fact),
            Kind::PlacementWithdrawn(fact) => return self.withdrawn(fact),
            Kind::PlacementExhausted(fact) => return self.exhausted(fact),
            Kind::LegGranted(fact) => return self.leg_granted(at.seq, event, fact),
            Kind::LegRefused(fact) => return self.leg_refused(at.seq, event, fact),
            Kind::LegReady(fact) => return self.leg_ready(event, fact),
            Kind::LegEnded(fact) => return self.leg_ended(at.seq, event, fact),
            Kind::RecoveryPlanned(fact) => return self.recovery_planned(fact),
            Kind::ClusterJoined(_)
            | Kind::CapacityReported(_)
            | Kind::AgentJoined(_)
            | Kind::ClusterReconciled(_) => {
                self.desk_fact(event)?;
            }
            Kind::ClusterSuspected(fact) => self.suspected(at.seq, &fact.cluster)?,
            Kind::ClusterDeclaredDead(fact) => return self.declared_dead(at.seq, fact),
            _ => {}
        }
        Ok(Touched::None)
    }

    pub(super) fn row(
        &self,
        workload: Option<&WorkloadRef>,
    ) -> Result<(WorkloadId, &Workload), &'static str> {
        let id = WorkloadId::of(workload);
        self.workloads.get(&id).map(|row| (id, row)).ok_or("no such workload")
    }
}
