//! Facts of desks about legs.

use muster_core::{Event, Seq, WorkloadId};
use muster_proto::{self as proto, Outcome, WorkloadRef};

use super::{
    Attempt, Leg, LegState, Lifecycle, Refusal, Workload,
    judge::{Effect, Touched, hold},
};

impl Lifecycle {
    /// The workload, its last attempt and that attempt's leg in the writer's own cluster.
    pub(super) fn leg(
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

    pub(super) fn leg_granted(&mut self, at: Seq, event: &Event, fact: &proto::LegGranted) -> Effect {
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

    pub(super) fn leg_refused(&mut self, at: Seq, event: &Event, fact: &proto::LegRefused) -> Effect {
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

    pub(super) fn leg_ready(&mut self, event: &Event, fact: &proto::LegReady) -> Effect {
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

    pub(super) fn leg_ended(&mut self, at: Seq, event: &Event, fact: &proto::LegEnded) -> Effect {
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

    pub(super) fn end_leg(&mut self, id: &WorkloadId, cluster: &str, outcome: Outcome, at: Seq) {
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
}

/// Every leg may start from here on; reports older than this prove nothing.
pub(super) fn commit(row: &mut Workload, at: Seq) {
    if let Some(attempt) = &mut row.last {
        attempt.committed = true;
        for leg in &mut attempt.legs {
            leg.last = at;
        }
    }
}
