//! The table of LIFECYCLE.md: when a fact takes effect, and what it then does.

use muster_core::{At, Event, Seq, WorkloadId, defect, defect::Defect};
use muster_proto::{
    self as proto, Kind, Outcome, RequestRef, Result as Finish, WorkloadRef, command_accepted,
};

use super::{
    Attempt, Cluster, Cursor, Leg, LegState, Lifecycle, Refusal, Terminal, Workload, is_reservation,
};

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

/// A fact's condition: `Err` names the one that does not hold.
type Held = Result<(), &'static str>;

/// `Err(why)` unless it holds. With the defect `LateFacts` everything holds.
fn hold(condition: bool, why: &'static str) -> Held {
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

    fn effect(&mut self, at: At, event: &Event) -> Result<Touched, &'static str> {
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

    /// A request takes effect exactly once: only the one that is next.
    fn take_request(&mut self, first: Option<&RequestRef>, through: Option<&RequestRef>) -> Held {
        let (Some(first), Some(through)) = (first, through) else { return Err("answers no request") };
        let cursor = self.cursor();
        let is_next = first.seq == cursor.seq + 1 && first.index == cursor.index;
        if !is_next && !defect::on(Defect::NoRequestCursor) {
            return Err("not the next request");
        }
        let ends_message = through.index + 1 >= through.of;
        let after = if ends_message {
            Cursor { seq: through.seq, index: 0 }
        } else {
            Cursor { seq: through.seq.saturating_sub(1), index: through.index + 1 }
        };
        if after <= cursor && !defect::on(Defect::NoRequestCursor) {
            return Err("ends before it begins");
        }
        self.cell_mut(|cell| cell.cursor = after.max(cursor));
        Ok(())
    }

    fn row(&self, workload: Option<&WorkloadRef>) -> Result<(WorkloadId, &Workload), &'static str> {
        let id = WorkloadId::of(workload);
        self.workloads.get(&id).map(|row| (id, row)).ok_or("no such workload")
    }

    /// The workload, its last attempt and that attempt's leg in the writer's own cluster.
    fn leg(
        &self,
        event: &Event,
        workload: Option<&WorkloadRef>,
        attempt: u32,
        cluster: &str,
    ) -> Result<(WorkloadId, &Attempt, &Leg), &'static str> {
        if event.partition != cluster {
            return Err("written by another cluster's desk");
        }
        let (id, row) = self.row(workload)?;
        let last = row.last.as_ref().filter(|last| last.no == attempt).ok_or("not the last attempt")?;
        let leg = last.leg(cluster).ok_or("no leg in this cluster")?;
        Ok((id, last, leg))
    }

    fn queued(&mut self, fact: &proto::WorkloadQueued) -> Result<Touched, &'static str> {
        let id = WorkloadId::of(fact.workload.as_ref());
        let request = fact.request.unwrap_or_default();
        let named = WorkloadId { generation: self.generation(), request: request.seq, index: request.index };
        if id != named {
            return Err("its id is not that of its request");
        }
        self.take_request(fact.request.as_ref(), fact.request.as_ref())?;
        self.workloads.put(id, Workload { round: 1, ..Workload::default() });
        Ok(Touched::One(id))
    }

    fn cancelled(&mut self, fact: &proto::WorkloadCancelled) -> Result<Touched, &'static str> {
        self.take_request(fact.request.as_ref(), fact.request.as_ref())?;
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(row.terminal.is_none() && !row.cancel, "over or cancelled already")?;
        self.change(&id, |row| {
            row.cancel = true;
            row.settle();
        });
        Ok(Touched::One(id))
    }

    fn requeued(&mut self, fact: &proto::WorkloadRequeued) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(row.terminal.is_none() && !row.cancel, "over or cancelled")?;
        hold(fact.round == row.round + 1, "not the next round")?;
        hold(row.live().is_none(), "an attempt is live")?;
        hold(!row.won(), "it has succeeded")?;
        let infra = row.infra_failed() && row.plan.is_none();
        hold(row.preempted || row.user_failed() || infra, "nothing to start again for")?;
        self.change(&id, |row| {
            row.round = fact.round;
            row.reservation = None;
            row.plan = None;
            row.preempted = false;
            row.declined = false;
            row.exhausted = false;
            row.refusals.clear();
        });
        Ok(Touched::One(id))
    }

    fn finished(&mut self, fact: &proto::WorkloadFinished) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(row.terminal.is_none(), "over already")?;
        hold(row.live().is_none(), "an attempt is live")?;
        let (terminal, holds) = match fact.result() {
            Finish::Succeeded => (Terminal::Succeeded, row.won()),
            Finish::Cancelled => (Terminal::Cancelled, row.cancel && !row.won()),
            Finish::Failed => (Terminal::Failed, row.user_failed() && !row.cancel),
            Finish::Unspecified => return Err("says no result"),
        };
        hold(holds, "this is not how it ended")?;
        self.change(&id, |row| {
            row.terminal = Some(terminal);
            row.settle();
        });
        Ok(Touched::One(id))
    }

    fn recovery_declined(&mut self, fact: &proto::RecoveryDeclined) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(!row.barrier() && row.infra_failed() && row.plan.is_none(), "no recovery to decline")?;
        hold(row.attempts == fact.attempt, "not the last attempt")?;
        self.change(&id, |row| row.declined = true);
        Ok(Touched::One(id))
    }

    fn quota_reserved(&mut self, at: Seq, fact: &proto::QuotaReserved) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(!row.barrier(), "cancelled, preempted or over")?;
        hold(row.reservation.is_none(), "quota is held already")?;
        hold(row.round == fact.round, "another round")?;
        self.change(&id, |row| {
            row.reservation = Some(at);
            row.exhausted = false;
        });
        Ok(Touched::One(id))
    }

    fn quota_released(&mut self, fact: &proto::QuotaReleased) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(row.exhausted && row.live().is_none(), "still of use")?;
        self.change(&id, |row| row.reservation = None);
        Ok(Touched::One(id))
    }

    fn preempted(&mut self, fact: &proto::WorkloadPreempted) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(!row.barrier() && !row.won(), "over, cancelled or preempted already")?;
        self.change(&id, |row| {
            row.preempted = true;
            row.settle();
        });
        Ok(Touched::One(id))
    }

    fn offered(&mut self, at: Seq, fact: &proto::PlacementOffered) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(row.may_offer(), "nothing may be offered")?;
        hold(fact.attempt == row.attempts + 1, "not the next attempt")?;
        let leg = |leg: &proto::Leg| Leg {
            cluster: leg.cluster.clone(),
            state: LegState::Asked,
            uid: String::new(),
            ready: false,
            address: String::new(),
            last: at,
        };
        let attempt = Attempt {
            no: fact.attempt,
            reservation: fact.reservation,
            committed: false,
            commit_on_grant: fact.commit_on_grant && fact.legs.len() == 1,
            over: false,
            stop: false,
            fail: None,
            legs: fact.legs.iter().map(leg).collect(),
        };
        self.change(&id, |row| {
            row.attempts = fact.attempt;
            row.plan = None;
            row.declined = false;
            row.last = Some(attempt);
        });
        Ok(Touched::One(id))
    }

    fn committed(&mut self, at: Seq, fact: &proto::PlacementCommitted) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(!row.barrier(), "cancelled, preempted or over")?;
        let attempt =
            row.last.as_ref().filter(|last| last.no == fact.attempt).ok_or("not the last attempt")?;
        hold(!attempt.over && !attempt.committed, "committed or over already")?;
        hold(attempt.all_granted(), "not every leg is granted")?;
        self.change(&id, |row| commit(row, at));
        Ok(Touched::One(id))
    }

    fn withdrawn(&mut self, fact: &proto::PlacementWithdrawn) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        let attempt =
            row.last.as_ref().filter(|last| last.no == fact.attempt).ok_or("not the last attempt")?;
        hold(!attempt.over && !attempt.committed, "committed or over already")?;
        self.change(&id, |row| {
            if let Some(attempt) = &mut row.last {
                attempt.over = true;
            }
        });
        Ok(Touched::One(id))
    }

    fn exhausted(&mut self, fact: &proto::PlacementExhausted) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(row.may_offer(), "nothing may be offered")?;
        self.change(&id, |row| {
            row.exhausted = true;
            row.blocked = Some(fact.capacity_version);
        });
        Ok(Touched::One(id))
    }

    fn leg_granted(
        &mut self,
        at: Seq,
        event: &Event,
        fact: &proto::LegGranted,
    ) -> Result<Touched, &'static str> {
        let (id, attempt, leg) = self.leg(event, fact.workload.as_ref(), fact.attempt, &fact.cluster)?;
        hold(!attempt.over, "the attempt is over")?;
        hold(leg.state == LegState::Asked, "not asked")?;
        self.change(&id, |row| {
            if let Some(leg) = row.last.as_mut().and_then(|last| last.leg_mut(&fact.cluster)) {
                leg.state = LegState::Granted;
                leg.uid.clone_from(&fact.uid);
                leg.last = at;
            }
            if row.last.as_ref().is_some_and(|last| last.commit_on_grant) && !row.barrier() {
                commit(row, at);
            }
        });
        Ok(Touched::One(id))
    }

    fn leg_refused(
        &mut self,
        at: Seq,
        event: &Event,
        fact: &proto::LegRefused,
    ) -> Result<Touched, &'static str> {
        let (id, attempt, leg) = self.leg(event, fact.workload.as_ref(), fact.attempt, &fact.cluster)?;
        hold(!attempt.over, "the attempt is over")?;
        hold(leg.state == LegState::Asked, "not asked")?;
        let capacity_version = self.cluster(&fact.cluster).map_or(0, |row| row.capacity_version);
        self.change(&id, |row| {
            if let Some(leg) = row.last.as_mut().and_then(|last| last.leg_mut(&fact.cluster)) {
                leg.state = LegState::Refused;
                leg.last = at;
            }
            row.refusals.retain(|refusal| refusal.cluster != fact.cluster);
            row.refusals.push(Refusal { cluster: fact.cluster.clone(), capacity_version });
        });
        Ok(Touched::One(id))
    }

    fn leg_ready(&mut self, event: &Event, fact: &proto::LegReady) -> Result<Touched, &'static str> {
        let (id, attempt, leg) = self.leg(event, fact.workload.as_ref(), fact.attempt, &fact.cluster)?;
        hold(attempt.committed && !leg.is_over(), "not running")?;
        self.change(&id, |row| {
            if let Some(leg) = row.last.as_mut().and_then(|last| last.leg_mut(&fact.cluster)) {
                leg.ready = true;
                leg.address.clone_from(&fact.address);
            }
        });
        Ok(Touched::One(id))
    }

    fn leg_ended(&mut self, at: Seq, event: &Event, fact: &proto::LegEnded) -> Result<Touched, &'static str> {
        let (id, attempt, leg) = self.leg(event, fact.workload.as_ref(), fact.attempt, &fact.cluster)?;
        hold(attempt.committed, "never committed")?;
        hold(!leg.is_over(), "over already")?;
        if fact.outcome() == Outcome::Unspecified {
            return Err("says no outcome");
        }
        self.end_leg(&id, &fact.cluster, fact.outcome(), at);
        self.grow_capacity_version(&fact.cluster);
        Ok(Touched::One(id))
    }

    fn end_leg(&mut self, id: &WorkloadId, cluster: &str, outcome: Outcome, at: Seq) {
        self.change(id, |row| {
            let over_before = row.live().is_none();
            if let Some(attempt) = &mut row.last {
                attempt.end_leg(cluster, outcome, at);
            }
            if !over_before && row.live().is_none() && row.user_failed() {
                row.fails += 1;
            }
            row.settle();
        });
    }

    fn recovery_planned(&mut self, fact: &proto::RecoveryPlanned) -> Result<Touched, &'static str> {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(!row.barrier(), "cancelled, preempted or over")?;
        hold(row.plan.is_none() && !row.declined, "planned or declined already")?;
        let attempt =
            row.last.as_ref().filter(|last| last.no == fact.attempt).ok_or("not the last attempt")?;
        hold(attempt.committed && Some(attempt.reservation) == row.reservation, "not of this reservation")?;
        let live = !attempt.over && attempt.fail.is_none();
        hold(live || row.infra_failed(), "nothing to recover")?;
        self.change(&id, |row| {
            row.plan = Some(fact.attempt);
            if let Some(attempt) = &mut row.last {
                attempt.stop = true;
            }
        });
        Ok(Touched::One(id))
    }

    fn desk_fact(&mut self, event: &Event) -> Held {
        let (cluster, epoch) = match &event.fact {
            Kind::ClusterJoined(fact) => (&fact.cluster, None),
            Kind::CapacityReported(fact) => (&fact.cluster, None),
            Kind::AgentJoined(fact) => (&fact.cluster, Some(fact.epoch)),
            Kind::ClusterReconciled(fact) => (&fact.cluster, None),
            _ => return Ok(()),
        };
        if &event.partition != cluster {
            return Err("written by another cluster's desk");
        }
        let known = self.clusters.get(cluster);
        match &event.fact {
            Kind::ClusterJoined(_) => hold(known.is_none(), "joined already")?,
            _ if known.is_none() => return Err("no such cluster"),
            Kind::AgentJoined(_) => {
                hold(epoch > known.map(|row| row.epoch), "an agent of this epoch was here")?
            }
            Kind::ClusterReconciled(_) => {
                let away = known.is_some_and(|row| row.suspected.is_some() || row.dead);
                hold(away, "neither suspected nor dead")?;
            }
            _ => {}
        }
        let mut row: Cluster = known.cloned().unwrap_or_default();
        row.epoch = epoch.unwrap_or(row.epoch);
        if matches!(event.fact, Kind::ClusterReconciled(_)) {
            (row.suspected, row.dead, row.oath) = (None, false, None);
        }
        self.clusters.put(cluster.clone(), row);
        self.grow_capacity_version(cluster);
        Ok(())
    }

    fn suspected(&mut self, at: Seq, cluster: &str) -> Held {
        let row = self.cluster(cluster).ok_or("no such cluster")?;
        hold(row.suspected.is_none() && !row.dead, "suspected or dead already")?;
        self.clusters.update(&cluster.to_owned(), |row| row.suspected = Some(at));
        Ok(())
    }

    fn oath(&mut self, cluster: &str, at: Seq) {
        self.clusters.update(&cluster.to_owned(), |row| {
            if row.suspected.is_some() {
                row.oath = Some(at);
            }
        });
    }

    fn declared_dead(&mut self, at: Seq, fact: &proto::ClusterDeclaredDead) -> Result<Touched, &'static str> {
        let row = self.cluster(&fact.cluster).ok_or("no such cluster")?;
        hold(row.suspected.is_some(), "not suspected")?;
        hold(
            row.oath.is_some() && row.oath == Some(fact.command),
            "no operator's command in this suspicion",
        )?;
        self.clusters.update(&fact.cluster, |row| {
            (row.suspected, row.dead, row.oath) = (None, true, None);
        });
        let ids: Vec<WorkloadId> = self.legs_in(&fact.cluster).copied().collect();
        for id in &ids {
            self.end_leg(id, &fact.cluster, Outcome::Dead, at);
        }
        Ok(Touched::Many(ids))
    }
}

/// Every leg may start from here on; reports older than this prove nothing.
fn commit(row: &mut Workload, at: Seq) {
    if let Some(attempt) = &mut row.last {
        attempt.committed = true;
        for leg in &mut attempt.legs {
            leg.last = at;
        }
    }
}
