//! The fold: who waits where and who holds what, derived from the lifecycle after every fact.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, At, Broken, Event, Seq, Table, Timestamp, WorkloadId};
use muster_model::{Lifecycle, lifecycle::Workload};
use muster_proto::{Kind, command_accepted::Command};

use crate::{
    assign,
    job::{Job, Place},
    order::{Waiting, queues},
    policy::{Changed, Policies},
    quota::{Reservation, Usage},
    stir::Stirred,
};

/// What admission knows.
#[derive(Clone, Debug)]
pub struct State {
    pub lifecycle: Lifecycle,
    pub(crate) policies: Policies,
    pub(crate) jobs: Table<WorkloadId, Job>,
    pub(crate) usage: Usage,
    /// The sequence of the last change of a ResourceFlavor.
    flavors_changed: Table<(), Seq>,
    /// In which of the indexes below a workload is.
    standing: Table<WorkloadId, Standing>,
    pub(crate) waiting: Waiting,
    backing_off: Table<(i64, WorkloadId), ()>,
    blocked: Table<(u64, WorkloadId), ()>,
    /// Of a LocalQueue: everything that it would lead on.
    by_local_queue: Table<(String, String, WorkloadId), ()>,
    pub(crate) to_release: Table<WorkloadId, ()>,
    pub(crate) stirred: Stirred,
}

/// What a workload is waiting for, as far as admission is concerned.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) enum Standing {
    /// For quota of this ClusterQueue, which may be missing or inactive.
    Waiting {
        queue: String,
        shape: u128,
        place: Place,
    },
    /// For its LocalQueue: missing or stopped.
    Unrouted,
    /// For its owner to let it go.
    Held,
    BackingOff {
        until_us: i64,
    },
    /// For a capacity version greater than this: it had quota, but fitted nowhere.
    Blocked {
        version: u64,
    },
    /// Its quota is of no use and goes back.
    ToRelease,
}

impl Default for State {
    fn default() -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            policies: Policies::default(),
            jobs: Table::stored("admission.jobs"),
            usage: Usage::default(),
            flavors_changed: Table::stored("admission.flavors_changed"),
            standing: Table::index("admission.standing"),
            waiting: Table::index("admission.waiting"),
            backing_off: Table::index("admission.backing_off"),
            blocked: Table::index("admission.blocked"),
            by_local_queue: Table::index("admission.by_local_queue"),
            to_release: Table::index("admission.to_release"),
            stirred: Stirred::default(),
        }
    }
}

impl muster_core::State for State {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        self.lifecycle.tables(visit);
        self.policies.tables(visit);
        self.usage.tables(visit);
        visit(&mut self.jobs);
        visit(&mut self.flavors_changed);
        visit(&mut self.standing);
        visit(&mut self.waiting);
        visit(&mut self.backing_off);
        visit(&mut self.blocked);
        visit(&mut self.by_local_queue);
        visit(&mut self.to_release);
        self.stirred.tables(visit);
    }

    fn reindex(&mut self) {
        self.lifecycle.reindex();
        self.usage.reindex();
        let ids: Vec<WorkloadId> = self.jobs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            self.stand(id);
        }
    }
}

impl State {
    pub(crate) fn evolve(&mut self, at: At, event: &Event) {
        self.usage.begin(at.seq);
        self.end_backoffs(at.time);
        let before = Before::of(self, &event.fact);
        let verdict = self.lifecycle.apply(at, event);
        if !verdict.is_effective() {
            return;
        }
        match &event.fact {
            Kind::WorkloadQueued(fact) => {
                self.jobs.put(WorkloadId::of(fact.workload.as_ref()), Job::new(fact));
            }
            Kind::WorkloadRequeued(fact) => {
                self.jobs.update(&WorkloadId::of(fact.workload.as_ref()), |job| {
                    job.not_before_us = if fact.not_before_us > at.time.0 { fact.not_before_us } else { 0 };
                    if !before.preempted {
                        job.queued_us = at.time.0;
                    }
                });
            }
            Kind::QuotaReserved(fact) => self.reserved(at, fact),
            Kind::PlacementExhausted(fact) => {
                self.jobs.update(&WorkloadId::of(fact.workload.as_ref()), |job| job.exhausted = at.seq);
            }
            Kind::PolicyApplied(fact) => {
                let changed = self.policies.apply(fact);
                self.policy_changed(at.seq, changed);
            }
            Kind::CommandAccepted(fact) => self.commanded(fact.command.as_ref()),
            _ => {}
        }
        for id in verdict.touched() {
            self.refresh(at.seq, *id);
        }
        if self.lifecycle.capacity_version() > before.capacity_version {
            self.unblock();
        }
    }

    fn reserved(&mut self, at: At, fact: &muster_proto::QuotaReserved) {
        let id = WorkloadId::of(fact.workload.as_ref());
        let Some(job) = self.jobs.get(&id) else { return };
        let amounts = assign::amounts(job, &fact.assignments);
        let row = Reservation { queue: fact.cluster_queue.clone(), seq: at.seq, amounts };
        self.stirred.stir(&row.queue);
        self.usage.set(at.seq, id, Some(row));
    }

    fn commanded(&mut self, command: Option<&Command>) {
        let (workload, change): (_, &dyn Fn(&mut Job)) = match command {
            Some(Command::Hold(command)) => (&command.workload, &|job| job.held = true),
            Some(Command::Release(command)) => (&command.workload, &|job| job.held = false),
            Some(Command::Priority(command)) => (&command.workload, &|job| job.priority = command.priority),
            _ => return,
        };
        let id = WorkloadId::of(workload.as_ref());
        self.jobs.update(&id, change);
        self.stand(id);
    }

    fn policy_changed(&mut self, at: Seq, changed: Changed) {
        match changed {
            Changed::Route((namespace, name)) => {
                let first = WorkloadId { generation: 0, request: 0, index: 0 };
                let ids: Vec<WorkloadId> = self
                    .by_local_queue
                    .range((namespace.clone(), name.clone(), first)..)
                    .take_while(|((ns, lq, _), ())| *ns == namespace && *lq == name)
                    .map(|((_, _, id), ())| *id)
                    .collect();
                for id in ids {
                    self.stand(id);
                }
            }
            Changed::Nodes => {
                self.flavors_changed.put((), at);
                self.unblock();
                for queue in queues(&self.waiting) {
                    self.stirred.stir(&queue);
                }
            }
            Changed::Queue(name) => self.stirred.stir(&name),
            Changed::Rest => {}
        }
    }

    /// After a fact about a workload: what it holds, what it waits for.
    fn refresh(&mut self, at: Seq, id: WorkloadId) {
        let row = self.lifecycle.workload(&id);
        let held = row.and_then(|row| row.reservation);
        let holds = self.usage.reservations.get(&id);
        if let Some(gone) = holds.filter(|row| Some(row.seq) != held).map(|row| row.queue.clone()) {
            self.usage.set(at, id, None);
            self.stirred.stir(&gone);
        }
        let over = row.is_none_or(|row| row.terminal.is_some());
        self.stand(id);
        if over {
            self.jobs.remove(&id);
        }
    }

    /// Everything that waited for capacity takes its place in its queue again.
    fn unblock(&mut self) {
        let ids: Vec<WorkloadId> = self.blocked.iter().map(|((_, id), ())| *id).collect();
        for id in ids {
            self.stand(id);
        }
    }

    /// Backoffs that ended before this message was stored.
    fn end_backoffs(&mut self, time: Timestamp) {
        let over: Vec<WorkloadId> = self.backoff_over(time).copied().collect();
        for id in over {
            self.jobs.update(&id, |job| job.not_before_us = 0);
            self.stand(id);
        }
    }

    /// Puts a workload into the index that says what it waits for, and out of all others.
    fn stand(&mut self, id: WorkloadId) {
        let new = self.standing_now(&id);
        let old = self.standing.get(&id).cloned();
        if old == new {
            return;
        }
        match old {
            Some(Standing::Waiting { queue, shape, place }) => {
                self.stirred.stir(&queue);
                self.waiting.remove(&(queue, shape, place));
            }
            Some(Standing::BackingOff { until_us }) => _ = self.backing_off.remove(&(until_us, id)),
            Some(Standing::Blocked { version }) => _ = self.blocked.remove(&(version, id)),
            Some(Standing::ToRelease) => _ = self.to_release.remove(&id),
            Some(Standing::Unrouted | Standing::Held) | None => {}
        }
        self.list_under_local_queue(id, new.as_ref());
        match new.clone() {
            Some(Standing::Waiting { queue, shape, place }) => {
                self.stirred.stir(&queue);
                self.waiting.put((queue, shape, place), ());
            }
            Some(Standing::BackingOff { until_us }) => self.backing_off.put((until_us, id), ()),
            Some(Standing::Blocked { version }) => self.blocked.put((version, id), ()),
            Some(Standing::ToRelease) => self.to_release.put(id, ()),
            Some(Standing::Unrouted | Standing::Held) | None => {}
        }
        match new {
            Some(new) => self.standing.put(id, new),
            None => _ = self.standing.remove(&id),
        }
    }

    fn list_under_local_queue(&mut self, id: WorkloadId, new: Option<&Standing>) {
        let routed = matches!(new, Some(Standing::Waiting { .. } | Standing::Unrouted));
        let Some((namespace, name)) = self.jobs.get(&id).map(Job::local_queue) else { return };
        let key = (namespace, name, id);
        if routed {
            self.by_local_queue.put(key, ());
        } else {
            self.by_local_queue.remove(&key);
        }
    }

    pub(crate) fn standing_now(&self, id: &WorkloadId) -> Option<Standing> {
        let (row, job) = (self.lifecycle.workload(id)?, self.jobs.get(id)?);
        if row.barrier() {
            return None;
        }
        if row.reservation.is_some() {
            return (row.exhausted && row.live().is_none()).then_some(Standing::ToRelease);
        }
        if job.held {
            return Some(Standing::Held);
        }
        if job.not_before_us != 0 {
            return Some(Standing::BackingOff { until_us: job.not_before_us });
        }
        if let Some(version) = self.blocked_at(row, job) {
            return Some(Standing::Blocked { version });
        }
        Some(match self.route(job) {
            Some(queue) => Standing::Waiting { queue, shape: job.shape, place: job.place(*id) },
            None => Standing::Unrouted,
        })
    }

    /// The ClusterQueue that a workload's LocalQueue leads to.
    fn route(&self, job: &Job) -> Option<String> {
        let route = self.policies.local_queues.get(&job.local_queue())?;
        (!route.held).then(|| route.cluster_queue.clone())
    }

    /// Where a workload will wait whose backoff is over.
    pub(crate) fn place_after_backoff(&self, id: &WorkloadId) -> Option<(String, u128, Place)> {
        let (row, job) = (self.lifecycle.workload(id)?, self.jobs.get(id)?);
        if self.blocked_at(row, job).is_some() {
            return None;
        }
        self.route(job).map(|queue| (queue, job.shape, job.place(*id)))
    }

    /// The capacity version at which it fitted nowhere, while nothing has changed since.
    fn blocked_at(&self, row: &Workload, job: &Job) -> Option<u64> {
        let flavors_changed = self.flavors_changed.get(&()).copied().unwrap_or(0);
        row.blocked.filter(|version| {
            *version >= self.lifecycle.capacity_version() && job.exhausted > flavors_changed
        })
    }

    /// Workloads whose backoff ends by `now`, though no fact has said so yet.
    pub(crate) fn backoff_over(&self, now: Timestamp) -> impl Iterator<Item = &WorkloadId> {
        self.backing_off
            .iter()
            .take_while(move |((until_us, _), ())| *until_us <= now.0)
            .map(|((_, id), ())| id)
    }

    pub(crate) fn next_backoff_end(&self, now: Timestamp) -> Option<Timestamp> {
        let later = (now.0.saturating_add(1), WorkloadId { generation: 0, request: 0, index: 0 });
        self.backing_off.range(later..).next().map(|((until_us, _), ())| Timestamp(*until_us))
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        self.usage.check(&self.policies)
    }
}

/// What is asked after a fact about the time before it.
struct Before {
    capacity_version: u64,
    preempted: bool,
}

impl Before {
    fn of(state: &State, fact: &Kind) -> Self {
        let preempted = match fact {
            Kind::WorkloadRequeued(fact) => state
                .lifecycle
                .workload(&WorkloadId::of(fact.workload.as_ref()))
                .is_some_and(|row| row.preempted),
            _ => false,
        };
        Self { capacity_version: state.lifecycle.capacity_version(), preempted }
    }
}

#[cfg(test)]
impl State {
    /// All that `reindex` must rebuild.
    pub(crate) fn indexes(&self) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        rows.extend(self.standing.iter().map(|row| format!("standing {row:?}")));
        rows.extend(self.waiting.iter().map(|row| format!("waiting {row:?}")));
        rows.extend(self.backing_off.iter().map(|row| format!("backing off {row:?}")));
        rows.extend(self.blocked.iter().map(|row| format!("blocked {row:?}")));
        rows.extend(self.by_local_queue.iter().map(|row| format!("by local queue {row:?}")));
        rows.extend(self.to_release.iter().map(|row| format!("to release {row:?}")));
        rows.extend(self.usage.holders.iter().map(|row| format!("holder {row:?}")));
        rows.extend(self.usage.used.iter().map(|row| format!("used {row:?}")));
        rows
    }
}
