//! What the fold keeps of a workload, and what follows from it.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{Seq, defect};
use muster_proto::Outcome;

/// A workload's life, as all services agree on it at a sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Workload {
    /// Counts admissions: 1 from the start, + 1 at each requeue.
    pub round: u32,
    pub cancel: bool,
    pub preempted: bool,
    pub terminal: Option<Terminal>,
    /// The quota held: the sequence of its QuotaReserved.
    pub reservation: Option<Seq>,
    /// The capacity version at which nothing fitted; tried again when the present one is greater.
    pub blocked: Option<u64>,
    /// Under this reservation nothing fits.
    pub exhausted: bool,
    /// How many attempts there have been. Federation alone numbers them.
    pub attempts: u32,
    /// A recovery is planned for this attempt.
    pub plan: Option<u32>,
    pub declined: bool,
    /// How many attempts the user's program has failed.
    pub fails: u32,
    /// Clusters that refused in this round, and their capacity versions then.
    pub refusals: Vec<Refusal>,
    pub last: Option<Attempt>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum Terminal {
    Succeeded,
    Failed,
    Cancelled,
}

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Refusal {
    pub cluster: String,
    pub capacity_version: u64,
}

/// One try to run the whole gang.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Attempt {
    pub no: u32,
    pub reservation: Seq,
    pub committed: bool,
    pub commit_on_grant: bool,
    pub over: bool,
    /// Desks stop it: a recovery is planned.
    pub stop: bool,
    /// The first outcome of a leg that was not success, as [`Outcome`]'s number.
    pub fail: Option<i32>,
    pub legs: Vec<Leg>,
}

/// What one cluster runs of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Leg {
    pub cluster: String,
    pub state: LegState,
    /// The object that was granted; only that one may start.
    pub uid: String,
    pub ready: bool,
    pub address: String,
    /// The sequence of the last fact about this leg: reports made before it prove nothing.
    pub last: Seq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub enum LegState {
    Asked,
    Granted,
    Refused,
    /// With its [`Outcome`]'s number.
    Over(i32),
}

impl Leg {
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, LegState::Over(_))
    }
}

impl Attempt {
    #[must_use]
    pub fn leg(&self, cluster: &str) -> Option<&Leg> {
        self.legs.iter().find(|leg| leg.cluster == cluster)
    }

    pub(super) fn leg_mut(&mut self, cluster: &str) -> Option<&mut Leg> {
        self.legs.iter_mut().find(|leg| leg.cluster == cluster)
    }

    #[must_use]
    pub fn is_won(&self) -> bool {
        !self.legs.is_empty()
            && self.legs.iter().all(|leg| leg.state == LegState::Over(Outcome::Succeeded as i32))
    }

    #[must_use]
    pub fn all_granted(&self) -> bool {
        !self.legs.is_empty() && self.legs.iter().all(|leg| leg.state == LegState::Granted)
    }

    /// A leg ends; the first one without success is the attempt's failure.
    pub(super) fn end_leg(&mut self, cluster: &str, outcome: Outcome, at: Seq) {
        if let Some(leg) = self.leg_mut(cluster) {
            leg.state = LegState::Over(outcome as i32);
            leg.last = at;
        }
        if outcome != Outcome::Succeeded && self.fail.is_none() {
            self.fail = Some(outcome as i32);
        }
        self.over = self.legs.iter().all(Leg::is_over);
    }
}

impl Workload {
    /// Cancelled, preempted or at its end: nothing new may begin.
    #[must_use]
    pub const fn barrier(&self) -> bool {
        self.cancel || self.preempted || self.terminal.is_some()
    }

    /// The attempt that is not over.
    #[must_use]
    pub fn live(&self) -> Option<&Attempt> {
        self.last.as_ref().filter(|attempt| !attempt.over)
    }

    #[must_use]
    pub fn won(&self) -> bool {
        self.last.as_ref().is_some_and(Attempt::is_won)
    }

    /// The last attempt, when it ran under the reservation held and is over.
    fn ended(&self) -> Option<&Attempt> {
        self.last.as_ref().filter(|a| a.over && a.committed && Some(a.reservation) == self.reservation)
    }

    /// The last attempt ended by the user's failure.
    #[must_use]
    pub fn user_failed(&self) -> bool {
        self.ended().is_some_and(|a| a.fail == Some(Outcome::UserFailed as i32))
    }

    /// The last attempt ended neither in success nor by the user's failure.
    #[must_use]
    pub fn infra_failed(&self) -> bool {
        self.ended().is_some_and(|a| !a.is_won() && a.fail != Some(Outcome::UserFailed as i32))
    }

    /// Desks stop what runs of the last attempt.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.barrier() || self.last.as_ref().is_some_and(|a| a.stop || a.fail.is_some())
    }

    /// Federation may offer a new attempt.
    #[must_use]
    pub fn may_offer(&self) -> bool {
        let Some(reservation) = self.reservation else { return false };
        if self.barrier() || self.live().is_some() || self.exhausted {
            return false;
        }
        self.last.as_ref().is_none_or(|attempt| {
            attempt.reservation != reservation
                || !attempt.committed
                || (self.infra_failed() && self.plan == Some(attempt.no))
        })
    }

    /// Clusters in which a leg of the last attempt is not over.
    pub(super) fn open_clusters(&self) -> impl Iterator<Item = &str> {
        self.live()
            .into_iter()
            .flat_map(|a| a.legs.iter())
            .filter(|l| !l.is_over())
            .map(|l| l.cluster.as_str())
    }

    /// After each barrier and each leg's end: what follows by itself.
    pub(super) fn settle(&mut self) {
        if !self.barrier() {
            return;
        }
        if let Some(attempt) = self.last.as_mut().filter(|attempt| !attempt.committed) {
            attempt.over = true;
        }
        if self.live().is_none() || defect::on(defect::Defect::ReleaseAtBarrier) {
            self.reservation = None;
        }
    }
}
