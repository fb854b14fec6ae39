//! Facts of admission, federation and failover: quota, attempts and plans.

use muster_core::Seq;
use muster_proto as proto;

use super::{
    Attempt, Leg, LegState, Lifecycle, is_reservation,
    judge::{Effect, Touched, hold},
    legs::commit,
};

impl Lifecycle {
    pub(super) fn quota_reserved(&mut self, at: Seq, fact: &proto::QuotaReserved) -> Effect {
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

    pub(super) fn quota_released(&mut self, fact: &proto::QuotaReleased) -> Effect {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(row.exhausted && row.live().is_none(), "still of use")?;
        self.change(&id, |row| row.reservation = None);
        Ok(Touched::One(id))
    }

    pub(super) fn preempted(&mut self, fact: &proto::WorkloadPreempted) -> Effect {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(!row.barrier() && !row.won(), "over, cancelled or preempted already")?;
        self.change(&id, |row| {
            row.preempted = true;
            row.settle();
        });
        Ok(Touched::One(id))
    }

    pub(super) fn offered(&mut self, at: Seq, fact: &proto::PlacementOffered) -> Effect {
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

    pub(super) fn committed(&mut self, at: Seq, fact: &proto::PlacementCommitted) -> Effect {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(!row.barrier(), "cancelled, preempted or over")?;
        let attempt =
            row.last.as_ref().filter(|last| last.no == fact.attempt).ok_or("not the last attempt")?;
        hold(!attempt.over && !attempt.committed, "committed or over already")?;
        hold(attempt.all_granted(), "not every leg is granted")?;
        self.change(&id, |row| commit(row, at));
        Ok(Touched::One(id))
    }

    pub(super) fn withdrawn(&mut self, fact: &proto::PlacementWithdrawn) -> Effect {
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

    pub(super) fn exhausted(&mut self, fact: &proto::PlacementExhausted) -> Effect {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(is_reservation(row, fact.reservation), "not the reservation held")?;
        hold(row.may_offer(), "nothing may be offered")?;
        self.change(&id, |row| {
            row.exhausted = true;
            row.blocked = Some(fact.capacity_version);
        });
        Ok(Touched::One(id))
    }

    pub(super) fn recovery_planned(&mut self, fact: &proto::RecoveryPlanned) -> Effect {
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
}
