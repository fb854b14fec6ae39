//! The fold: what each cluster has and what live legs occupy, and which workloads need a word.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, At, Broken, Event, Seq, Table, Timestamp, WorkloadId};
use muster_model::{
    Lifecycle,
    lifecycle::{Attempt, LegState, Refusal},
};
use muster_proto::{self as proto, Kind, command_accepted::Command};

use crate::{
    cluster::Nodes,
    gang::{Gang, Turn},
    usage::{Holding, Usage},
};

/// What federation knows.
#[derive(Clone, Debug)]
pub struct State {
    pub lifecycle: Lifecycle,
    pub(crate) nodes: Nodes,
    pub(crate) gangs: Table<WorkloadId, Gang>,
    pub(crate) usage: Usage,
    /// In which of the indexes below a workload is.
    standing: Table<WorkloadId, Standing>,
    pub(crate) to_offer: Table<Turn, ()>,
    pub(crate) answered: Table<WorkloadId, ()>,
    asked: Table<(i64, WorkloadId), ()>,
}

/// What federation has to do about a workload.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
enum Standing {
    ToOffer(Turn),
    /// All legs are granted, or one never will be.
    Answered,
    /// Since this time.
    Asked(i64),
}

impl Default for State {
    fn default() -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            nodes: Nodes::default(),
            gangs: Table::stored("federation.gangs"),
            usage: Usage::default(),
            standing: Table::index("federation.standing"),
            to_offer: Table::index("federation.to_offer"),
            answered: Table::index("federation.answered"),
            asked: Table::index("federation.asked"),
        }
    }
}

impl muster_core::State for State {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        self.lifecycle.tables(visit);
        self.nodes.tables(visit);
        self.usage.tables(visit);
        visit(&mut self.gangs);
        visit(&mut self.standing);
        visit(&mut self.to_offer);
        visit(&mut self.answered);
        visit(&mut self.asked);
    }

    fn reindex(&mut self) {
        self.lifecycle.reindex();
        self.usage.reindex();
        let ids: Vec<WorkloadId> = self.gangs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            self.stand(id);
        }
    }
}

impl State {
    pub(crate) fn evolve(&mut self, at: At, event: &Event) {
        self.usage.begin(at.seq);
        let verdict = self.lifecycle.apply(at, event);
        if !verdict.is_effective() {
            return;
        }
        match &event.fact {
            Kind::WorkloadQueued(fact) => {
                self.gangs.put(WorkloadId::of(fact.workload.as_ref()), Gang::new(fact));
            }
            Kind::WorkloadRequeued(fact) => {
                self.update(fact.workload.as_ref(), |gang| {
                    gang.unanswered.clear();
                    gang.avoid.clear();
                });
            }
            Kind::QuotaReserved(fact) => self.update(fact.workload.as_ref(), |gang| {
                gang.assign(&fact.assignments);
                gang.avoid.clear();
            }),
            Kind::RecoveryPlanned(fact) => {
                self.update(fact.workload.as_ref(), |gang| gang.avoid.clone_from(&fact.avoid));
            }
            Kind::PlacementOffered(fact) => self.offered(at, fact),
            Kind::PlacementWithdrawn(fact) => self.withdrawn(fact),
            Kind::CapacityReported(fact) => self.nodes.report(fact),
            Kind::PolicyApplied(fact) => self.nodes.apply_policy(fact),
            Kind::CommandAccepted(fact) => self.commanded(fact.command.as_ref()),
            _ => {}
        }
        for id in verdict.touched() {
            self.refresh(at.seq, *id);
        }
    }

    fn update(&mut self, workload: Option<&proto::WorkloadRef>, change: impl FnOnce(&mut Gang)) {
        self.gangs.update(&WorkloadId::of(workload), change);
    }

    fn offered(&mut self, at: At, fact: &proto::PlacementOffered) {
        let id = WorkloadId::of(fact.workload.as_ref());
        let Some(gang) = self.gangs.get(&id) else { return };
        let holdings: Vec<_> = fact.legs.iter().map(|leg| (leg.cluster.clone(), gang.amounts(leg))).collect();
        for (cluster, amounts) in holdings {
            self.usage.set(at.seq, &cluster, id, Some(Holding { committed: false, amounts }));
        }
        self.gangs.update(&id, |gang| {
            gang.offered_us = at.time.0;
            gang.avoid.clear();
        });
    }

    /// What was never answered counts as refused, else it would be asked again forever.
    fn withdrawn(&mut self, fact: &proto::PlacementWithdrawn) {
        let id = WorkloadId::of(fact.workload.as_ref());
        let last = self.lifecycle.workload(&id).and_then(|row| row.last.as_ref());
        let unanswered: Vec<Refusal> = last
            .into_iter()
            .flat_map(|attempt| &attempt.legs)
            .filter(|leg| leg.state == LegState::Asked)
            .map(|leg| Refusal {
                cluster: leg.cluster.clone(),
                capacity_version: self.lifecycle.cluster(&leg.cluster).map_or(0, |row| row.capacity_version),
            })
            .collect();
        self.gangs.update(&id, |gang| {
            for refusal in unanswered {
                gang.unanswered.retain(|known| known.cluster != refusal.cluster);
                gang.unanswered.push(refusal);
            }
        });
    }

    fn commanded(&mut self, command: Option<&Command>) {
        if let Some(Command::Priority(command)) = command {
            let id = WorkloadId::of(command.workload.as_ref());
            self.gangs.update(&id, |gang| gang.priority = command.priority);
            self.stand(id);
        }
    }

    /// After a fact about a workload: what it occupies, and what has to be said about it.
    fn refresh(&mut self, at: Seq, id: WorkloadId) {
        let row = self.lifecycle.workload(&id);
        let over = row.is_none_or(|row| row.terminal.is_some());
        let legs: Vec<(String, bool, bool)> = row
            .and_then(|row| row.last.as_ref())
            .map(|attempt| {
                let occupies = |leg: &muster_model::lifecycle::Leg| {
                    !attempt.over && !leg.is_over() && leg.state != LegState::Refused
                };
                attempt
                    .legs
                    .iter()
                    .map(|leg| (leg.cluster.clone(), occupies(leg), attempt.committed))
                    .collect()
            })
            .unwrap_or_default();
        for (cluster, occupies, committed) in legs {
            let held = self.usage.holdings.get(&(cluster.clone(), id)).cloned();
            let row = held.filter(|_| occupies).map(|row| Holding { committed, ..row });
            self.usage.set(at, &cluster, id, row);
        }
        self.stand(id);
        if over {
            self.gangs.remove(&id);
        }
    }

    /// Puts a workload into the index that says what is due, and out of all others.
    fn stand(&mut self, id: WorkloadId) {
        let new = self.standing_now(&id);
        let old = self.standing.get(&id).cloned();
        if old == new {
            return;
        }
        match old {
            Some(Standing::ToOffer(turn)) => _ = self.to_offer.remove(&turn),
            Some(Standing::Answered) => _ = self.answered.remove(&id),
            Some(Standing::Asked(since)) => _ = self.asked.remove(&(since, id)),
            None => {}
        }
        match new {
            Some(Standing::ToOffer(turn)) => self.to_offer.put(turn, ()),
            Some(Standing::Answered) => self.answered.put(id, ()),
            Some(Standing::Asked(since)) => self.asked.put((since, id), ()),
            None => {}
        }
        match new {
            Some(new) => self.standing.put(id, new),
            None => _ = self.standing.remove(&id),
        }
    }

    fn standing_now(&self, id: &WorkloadId) -> Option<Standing> {
        let (row, gang) = (self.lifecycle.workload(id)?, self.gangs.get(id)?);
        if row.may_offer() {
            let reservation = row.reservation?;
            return Some(Standing::ToOffer(Turn { rank: -i64::from(gang.priority), reservation, id: *id }));
        }
        let attempt = row.live().filter(|attempt| !attempt.committed)?;
        let answered = attempt.all_granted() || never_granted(attempt);
        Some(if answered { Standing::Answered } else { Standing::Asked(gang.offered_us) })
    }

    /// Asks without answer since `since` or longer, the oldest first.
    pub(crate) fn asked_before(&self, since: Timestamp) -> impl Iterator<Item = &WorkloadId> {
        self.asked.iter().take_while(move |((at, _), ())| *at <= since.0).map(|((_, id), ())| id)
    }

    pub(crate) fn next_timeout(&self, timeout_us: i64, now: Timestamp) -> Option<Timestamp> {
        let after = now.plus_us(-timeout_us).plus_us(1);
        let first = WorkloadId { generation: 0, request: 0, index: 0 };
        self.asked.range((after.0, first)..).next().map(|((at, _), ())| Timestamp(*at).plus_us(timeout_us))
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        self.usage.check(&self.nodes)
    }
}

/// A leg refused, or ended with its cluster, before the whole gang was granted.
pub(crate) fn never_granted(attempt: &Attempt) -> bool {
    attempt.legs.iter().any(|leg| leg.state == LegState::Refused || leg.is_over())
}

#[cfg(test)]
impl State {
    /// All that `reindex` must rebuild.
    pub(crate) fn indexes(&self) -> Vec<String> {
        let mut rows: Vec<String> = Vec::new();
        rows.extend(self.standing.iter().map(|row| format!("standing {row:?}")));
        rows.extend(self.to_offer.iter().map(|row| format!("to offer {row:?}")));
        rows.extend(self.answered.iter().map(|row| format!("answered {row:?}")));
        rows.extend(self.asked.iter().map(|row| format!("asked {row:?}")));
        rows.extend(self.usage.used.iter().map(|row| format!("used {row:?}")));
        rows
    }
}
