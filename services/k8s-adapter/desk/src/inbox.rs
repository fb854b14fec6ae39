//! What reached the desk from outside the log: the latest report, bodies, and how far it has sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use muster_core::{Incoming, Seq, Timestamp, WorkloadId, sha256};
use muster_model::lifecycle::LegState;
use muster_proto::{NodeGroup, ObservedLeg, Report};

use crate::{
    DeskState, SpecRow,
    ghosts::{Name, ghosts, squatters},
    state::capacity_hash,
};

/// Legs for which bodies are kept at a time, and their bytes: a desired state stays below what one message holds.
const WINDOW_LEGS: usize = 64;
const WINDOW_BYTES: u64 = 512 * 1024;
/// After something outside failed, the next try waits this long.
const RETRY_US: i64 = 200_000;

/// The latest report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Heard {
    pub generation: u32,
    pub cluster: String,
    pub agent: String,
    pub epoch: u64,
    pub echo: Seq,
    pub backend: String,
    pub nodes: Vec<NodeGroup>,
    /// Hash of `nodes`.
    pub capacity: Vec<u8>,
    pub legs: BTreeMap<Name, ObservedLeg>,
    pub at: Timestamp,
}

/// The last desired state that went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub seq: Seq,
    pub at: Timestamp,
}

/// Volatile and bounded: one report, a window of bodies.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    pub(crate) heard: Option<Heard>,
    pub(crate) sent: Option<Sent>,
    /// Sends still needed because of what is not on the log. Two, when one may be under way that was made before.
    pub(crate) again: u8,
    /// Nothing is tried again before.
    pub(crate) not_before: Timestamp,
    /// Room came free and no fact will say so; the sequence of the last capacity reported before. The first
    /// report may hide such a case.
    pub(crate) freed: Option<Seq>,
    /// By sequence in BODIES, with their SHA-256; none: it is not there.
    bodies: BTreeMap<u64, Option<(Bytes, [u8; 32])>>,
    cluster: String,
}

/// Whether something that took room and that the log knows nothing of is gone.
fn is_freed(state: &DeskState, before: &Heard, after: &Heard) -> bool {
    let left: Vec<&Name> = squatters(state, after).collect();
    squatters(state, before).any(|name| !left.contains(&name))
}

/// Where a leg's manifest stands.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Body {
    Here(Bytes),
    Missing,
    /// It will never come, and why.
    Lost(&'static str),
}

impl Inbox {
    pub(crate) fn absorb(&mut self, state: &DeskState, now: Timestamp, incoming: Incoming) {
        match incoming {
            Incoming::Report { report, time } => self.hear(state, time, report),
            Incoming::BodyFetched { seq, body } if self.bodies.len() < 2 * WINDOW_LEGS => {
                let hashed = body.map(|body| {
                    let hash = sha256(&body);
                    (body, hash)
                });
                self.bodies.insert(seq, hashed);
                self.changed(state);
            }
            Incoming::DesiredSent { cluster, seq } => {
                let seq = self.sent.map_or(seq, |sent| sent.seq.max(seq));
                self.sent = Some(Sent { seq, at: now });
                self.again = self.again.saturating_sub(1);
                self.cluster = cluster;
            }
            Incoming::Failed { .. } => self.not_before = now.plus_us(RETRY_US),
            _ => {}
        }
    }

    fn hear(&mut self, state: &DeskState, at: Timestamp, report: Report) {
        let generation = state.lifecycle.generation();
        self.cluster.clone_from(&report.cluster);
        if report.generation != generation {
            // An agent learns the generation from the desired state. Of another one it stays deaf.
            if report.generation == 0 {
                self.changed(state);
            }
            return;
        }
        let known = state.lifecycle.cluster(&report.cluster).map_or(0, |row| row.epoch);
        let newest = self.heard.as_ref().filter(|heard| heard.generation == generation);
        let newest = newest.map_or((known, 0), |heard| (heard.epoch, heard.echo).max((known, 0)));
        if (report.epoch, report.echo) < newest {
            return;
        }
        let key = |leg: &ObservedLeg| (WorkloadId::of(leg.workload.as_ref()), leg.attempt);
        let heard = Heard {
            generation,
            cluster: report.cluster,
            agent: report.agent,
            epoch: report.epoch,
            echo: report.echo,
            backend: report.backend,
            capacity: capacity_hash(&report.nodes),
            nodes: report.nodes,
            legs: report.legs.into_iter().map(|leg| (key(&leg), leg)).collect(),
            at,
        };
        let before = self.heard.as_ref().map(|heard| ghosts(state, heard));
        let after = ghosts(state, &heard);
        if self.heard.as_ref().is_none_or(|before| is_freed(state, before, &heard)) {
            self.freed = Some(state.cluster(&heard.cluster).reported);
        }
        self.heard = Some(heard);
        if !after.is_empty() && before.as_ref() != Some(&after) {
            self.changed(state);
        }
    }

    /// The desired state changed by something that is not on the log.
    fn changed(&mut self, state: &DeskState) {
        let rests = self.again == 0 && self.sent.is_some_and(|s| s.seq >= state.cluster(&self.cluster).seq);
        self.again = if rests { 1 } else { 2 };
    }

    /// The report, if it is of this cluster and of the agent that the log knows.
    pub(crate) fn report(&self, state: &DeskState, cluster: &str) -> Option<&Heard> {
        let known = state.lifecycle.cluster(cluster).map_or(0, |row| row.epoch);
        let generation = state.lifecycle.generation();
        self.heard.as_ref().filter(|heard| {
            heard.cluster == cluster
                && heard.generation == generation
                && heard.epoch >= known
                && heard.epoch > 0
        })
    }

    pub(crate) fn body(&self, spec: &SpecRow) -> Body {
        match (spec.body, self.bodies.get(&spec.body)) {
            _ if spec.erased => Body::Lost("its manifest was erased"),
            (0, _) => Body::Here(Bytes::new()),
            (_, None) => Body::Missing,
            (_, Some(None)) => Body::Lost("its manifest was erased"),
            (_, Some(Some((body, hash)))) if hash[..] == spec.body_sha256[..] => Body::Here(body.clone()),
            _ => Body::Lost("its manifest is not the one that was submitted"),
        }
    }

    /// Legs that the agent is asked to create now: the oldest ones, as many as one message holds.
    pub(crate) fn window<'a>(
        &'a self,
        state: &'a DeskState,
        cluster: &'a str,
    ) -> impl Iterator<Item = (Name, &'a SpecRow)> {
        let mut bytes = 0u64;
        let heard = self.report(state, cluster);
        let asked = state.lifecycle.legs_in(cluster).filter_map(move |id| {
            let row = state.lifecycle.workload(id)?;
            let attempt = row.live()?;
            let is_asked = attempt.leg(cluster)?.state == LegState::Asked && !row.stopping();
            let is_there = heard.is_some_and(|heard| {
                heard.legs.get(&(*id, attempt.no)).is_some_and(|object| !object.uid.is_empty())
            });
            let spec = state.specs.get(id)?;
            (is_asked && !is_there).then_some(((*id, attempt.no), spec))
        });
        asked.take(WINDOW_LEGS).take_while(move |(_, spec)| {
            let first = bytes == 0;
            bytes += u64::from(spec.body_bytes).max(1);
            first || bytes <= WINDOW_BYTES
        })
    }

    /// Keeps only bodies that are asked for.
    pub(crate) fn forget_bodies(&mut self, state: &DeskState) {
        if self.bodies.is_empty() {
            return;
        }
        let cluster = self.cluster.clone();
        let needed: Vec<u64> = self.window(state, &cluster).map(|(_, spec)| spec.body).collect();
        self.bodies.retain(|seq, _| needed.contains(seq));
    }

    /// Bodies to fetch.
    pub(crate) fn missing(&self, state: &DeskState, cluster: &str) -> Vec<u64> {
        let missing = |spec: &SpecRow| self.body(spec) == Body::Missing;
        self.window(state, cluster).filter(|(_, spec)| missing(spec)).map(|(_, spec)| spec.body).collect()
    }
}
