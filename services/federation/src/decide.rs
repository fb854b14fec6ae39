//! Offers, answers, timeouts, and the word about clusters.

use muster_core::{Timestamp, WorkloadId};
use muster_model::lifecycle::Attempt;
use muster_proto::{
    ClusterDeclaredDead, ClusterReason, ClusterSuspected, Fact, Kind, PlacementCommitted, PlacementExhausted,
    PlacementOffered, PlacementWithdrawn,
};
use prost::Message;

use crate::{
    Config, Inbox, State,
    room::{Miss, Room},
    state::never_granted,
};

/// A decision stays well below the 512 KiB of a message.
const MAX_BYTES: usize = 384 * 1024;
/// Workloads that a decision looks at, for each fact that it may hold: those that wait for
/// others' offers or for an overdue answer must not make every step long.
const LOOKS_PER_FACT: usize = 8;

/// Facts about clusters stand alone: they change what everything else is decided from.
pub fn decide(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Vec<Fact> {
    let clusters = clusters(config, state, inbox, now);
    if !clusters.is_empty() {
        return clusters;
    }
    let mut batch = Batch::new(config.batch as usize);
    answers(state, &mut batch);
    let mut room = Room::new(state);
    offers(state, &mut room, &mut batch);
    timeouts(config, state, &mut room, now, &mut batch);
    batch.facts
}

struct Batch {
    facts: Vec<Fact>,
    bytes: usize,
    size: usize,
}

impl Batch {
    const fn new(size: usize) -> Self {
        Self { facts: Vec::new(), bytes: 0, size }
    }

    fn is_full(&self) -> bool {
        self.facts.len() >= self.size || self.bytes >= MAX_BYTES
    }

    fn push(&mut self, kind: Kind) {
        let fact = Fact { kind: Some(kind) };
        self.bytes += fact.encoded_len();
        self.facts.push(fact);
    }
}

fn clusters(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Vec<Fact> {
    let dead = state.lifecycle.clusters().filter_map(|(name, row)| {
        let command = row.oath.filter(|_| row.suspected.is_some())?;
        Some(Kind::ClusterDeclaredDead(ClusterDeclaredDead { cluster: name.clone(), command }))
    });
    let suspected = inbox
        .silent(config, &state.lifecycle, now)
        .into_iter()
        .map(|(cluster, heard)| Kind::ClusterSuspected(ClusterSuspected { cluster, last_heard_us: heard.0 }));
    dead.chain(suspected).take(config.batch as usize).map(|kind| Fact { kind: Some(kind) }).collect()
}

/// Commits what is granted as a whole, withdraws what never will be.
fn answers(state: &State, batch: &mut Batch) {
    for (id, ()) in state.answered.iter().take(batch.size * LOOKS_PER_FACT) {
        if batch.is_full() {
            return;
        }
        let Some(attempt) = state.lifecycle.workload(id).and_then(|row| row.live()) else { continue };
        if never_granted(attempt) {
            batch.push(withdraw(id, attempt, "LegRefused: a cluster can't take its leg".to_owned()));
        } else if all_open(state, attempt) {
            let fact = PlacementCommitted { workload: Some((*id).into()), attempt: attempt.no };
            batch.push(Kind::PlacementCommitted(fact));
        }
    }
}

/// Nothing is started in a cluster that has fallen silent.
fn all_open(state: &State, attempt: &Attempt) -> bool {
    attempt.legs.iter().all(|leg| state.lifecycle.cluster(&leg.cluster).is_some_and(|row| row.is_open()))
}

fn withdraw(id: &WorkloadId, attempt: &Attempt, reason: String) -> Kind {
    Kind::PlacementWithdrawn(PlacementWithdrawn { workload: Some((*id).into()), attempt: attempt.no, reason })
}

fn offers(state: &State, room: &mut Room<'_>, batch: &mut Batch) {
    for (turn, ()) in state.to_offer.iter().take(batch.size * LOOKS_PER_FACT) {
        if batch.is_full() {
            return;
        }
        let id = &turn.id;
        let (Some(row), Some(gang)) = (state.lifecycle.workload(id), state.gangs.get(id)) else { continue };
        match room.choose(row, gang) {
            Ok(cluster) => {
                room.take(&cluster, gang);
                batch.push(Kind::PlacementOffered(PlacementOffered {
                    workload: Some((*id).into()),
                    reservation: turn.reservation,
                    attempt: row.attempts + 1,
                    legs: vec![gang.whole(&cluster)],
                    commit_on_grant: gang.commit_on_grant,
                }));
            }
            Err(misses) if misses.iter().any(|(_, miss)| matches!(miss, Miss::Offered { .. })) => {}
            Err(misses) => batch.push(Kind::PlacementExhausted(PlacementExhausted {
                workload: Some((*id).into()),
                reservation: turn.reservation,
                capacity_version: state.lifecycle.capacity_version(),
                reasons: misses
                    .into_iter()
                    .map(|(cluster, miss)| ClusterReason { cluster, reason: miss.reason() })
                    .collect(),
            })),
        }
    }
}

/// An overdue ask is withdrawn when another cluster can take the gang.
fn timeouts(config: &Config, state: &State, room: &mut Room<'_>, now: Timestamp, batch: &mut Batch) {
    let since = now.plus_us(-config.offer_timeout_us);
    for id in state.asked_before(since).take(batch.size * LOOKS_PER_FACT) {
        if batch.is_full() {
            return;
        }
        let (Some(row), Some(gang)) = (state.lifecycle.workload(id), state.gangs.get(id)) else { continue };
        let Some(attempt) = row.live() else { continue };
        let mut elsewhere = gang.clone();
        elsewhere.avoid.extend(attempt.legs.iter().map(|leg| leg.cluster.clone()));
        if let Ok(cluster) = room.choose(row, &elsewhere) {
            // Kept free for the offer that follows.
            room.take(&cluster, gang);
            let seconds = config.offer_timeout_us / 1_000_000;
            let reason = format!("OfferTimedOut: no answer for {seconds} s; {cluster} can take it");
            batch.push(withdraw(id, attempt, reason));
        }
    }
}
