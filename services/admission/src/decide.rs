//! What to reserve, and what to give back.

use std::collections::BTreeMap;

use muster_core::{Timestamp, WorkloadId};
use muster_proto::{Fact, Kind, QuotaReleased, QuotaReserved};
use prost::Message;

use crate::{
    Config, Inbox, State, assign::assign, job::Place, order::Walk, policy::ClusterQueue, quota::Room,
};

/// A decision stays well below the 512 KiB of a message.
const MAX_BYTES: usize = 384 * 1024;

/// Gives back first, in a decision of its own: a decision never reserves quota that the same
/// decision frees.
pub fn decide(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Vec<Fact> {
    let releases = releases(config, state);
    if releases.is_empty() { reservations(config, state, inbox, now) } else { releases }
}

fn releases(config: &Config, state: &State) -> Vec<Fact> {
    let release = |id: &WorkloadId| {
        let reservation = state.lifecycle.workload(id)?.reservation?;
        let reason = "NoClusterFits: tried again when capacity changes".to_owned();
        let fact = QuotaReleased { workload: Some((*id).into()), reservation, reason };
        Some(Fact { kind: Some(Kind::QuotaReleased(fact)) })
    };
    let ids = state.to_release.iter().map(|(id, ())| id);
    ids.filter_map(release).take(config.batch as usize).collect()
}

/// ClusterQueues take turns, so that a long one does not keep the others waiting.
fn reservations(config: &Config, state: &State, inbox: &Inbox, now: Timestamp) -> Vec<Fact> {
    let early = early(state, now);
    let mut names = inbox.candidates(&state.stirred);
    names.extend(early.keys().cloned());
    let mut turns: Vec<Turn<'_>> = names.iter().filter_map(|name| Turn::new(state, name, &early)).collect();
    let (mut facts, mut bytes) = (Vec::new(), 0);
    while !turns.is_empty() {
        turns.retain_mut(|turn| {
            if facts.len() >= config.batch as usize || bytes >= MAX_BYTES {
                return false;
            }
            let Some(fact) = turn.next() else { return false };
            bytes += fact.encoded_len();
            facts.push(Fact { kind: Some(Kind::QuotaReserved(fact)) });
            true
        });
    }
    facts
}

/// Whether anything that waits in this ClusterQueue would be admitted.
pub fn something_fits(state: &State, queue: &str) -> bool {
    Turn::new(state, queue, &Early::new()).is_some_and(|mut turn| turn.next().is_some())
}

/// Workloads whose backoff is over, though no message has been stored since: by ClusterQueue.
type Early = BTreeMap<String, Vec<(u128, Place)>>;

fn early(state: &State, now: Timestamp) -> Early {
    let mut early = Early::new();
    for id in state.backoff_over(now) {
        if let Some((queue, shape, place)) = state.place_after_backoff(id) {
            early.entry(queue).or_default().push((shape, place));
        }
    }
    early
}

/// One ClusterQueue's part of a decision.
struct Turn<'a> {
    state: &'a State,
    name: &'a str,
    queue: &'a ClusterQueue,
    room: Room<'a>,
    walk: Walk<'a>,
}

impl<'a> Turn<'a> {
    /// None when the queue may not admit.
    fn new(state: &'a State, name: &'a str, early: &Early) -> Option<Self> {
        let queue = state.policies.active(name).ok()?;
        let mut walk = Walk::new(&state.waiting, name);
        for (shape, place) in early.get(name).into_iter().flatten() {
            walk.also(*shape, *place);
        }
        Some(Self { state, name, queue, room: Room::new(&state.policies, &state.usage, name), walk })
    }

    /// The next reservation, if anything that waits fits.
    fn next(&mut self) -> Option<QuotaReserved> {
        loop {
            let id = self.walk.head()?;
            let (Some(job), Some(row)) = (self.state.jobs.get(&id), self.state.lifecycle.workload(&id))
            else {
                self.walk.drop_shape();
                continue;
            };
            match assign(&self.state.policies, self.queue, &self.room, job) {
                Ok(assignment) => {
                    self.walk.took();
                    self.room.take(&assignment.amounts);
                    return Some(QuotaReserved {
                        workload: Some(id.into()),
                        round: row.round,
                        cluster_queue: self.name.to_owned(),
                        assignments: assignment.sets,
                    });
                }
                Err(_) if self.queue.strict => return None,
                Err(_) => self.walk.drop_shape(),
            }
        }
    }
}
