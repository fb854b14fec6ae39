//! Facts of the queue: requests, rounds and ends.

use muster_core::{WorkloadId, defect, defect::Defect};
use muster_proto::{self as proto, RequestRef, Result as Finish};

use super::{
    Cursor, Lifecycle, Terminal, Workload,
    judge::{Effect, Held, Touched, hold},
};

impl Lifecycle {
    /// A request takes effect exactly once: only the one that is next.
    pub(super) fn take_request(&mut self, first: Option<&RequestRef>, through: Option<&RequestRef>) -> Held {
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

    pub(super) fn queued(&mut self, fact: &proto::WorkloadQueued) -> Effect {
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

    pub(super) fn cancelled(&mut self, fact: &proto::WorkloadCancelled) -> Effect {
        self.take_request(fact.request.as_ref(), fact.request.as_ref())?;
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(row.terminal.is_none() && !row.cancel, "over or cancelled already")?;
        self.change(&id, |row| {
            row.cancel = true;
            row.settle();
        });
        Ok(Touched::One(id))
    }

    pub(super) fn requeued(&mut self, fact: &proto::WorkloadRequeued) -> Effect {
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

    pub(super) fn finished(&mut self, fact: &proto::WorkloadFinished) -> Effect {
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

    pub(super) fn recovery_declined(&mut self, fact: &proto::RecoveryDeclined) -> Effect {
        let (id, row) = self.row(fact.workload.as_ref())?;
        hold(!row.barrier() && row.infra_failed() && row.plan.is_none(), "no recovery to decline")?;
        hold(row.attempts == fact.attempt, "not the last attempt")?;
        self.change(&id, |row| row.declined = true);
        Ok(Touched::One(id))
    }
}
