//! Objects in the cluster that are not the one that a live leg was granted.

use std::collections::BTreeMap;

use muster_core::WorkloadId;
use muster_proto::{ObservedLeg, Phase};

use crate::{DeskState, inbox::Heard};

/// One attempt of a workload: the name of its object.
pub(crate) type Name = (WorkloadId, u32);

/// Objects to remove, with the uid that is meant.
///
/// A ghost is an object that no live leg waits for or was granted. One that is not running is a create
/// that landed late, or what is left of an end already written down. One that runs is removed only
/// when the log granted it and then declared its cluster dead; any other belongs to a history that
/// the log lost, and is held. Of attempts unknown to this desk only what never ran is removed, and only
/// when the agent has not carried out more than this desk knows: then no other desk asked for it.
pub(crate) fn ghosts(state: &DeskState, heard: &Heard) -> BTreeMap<Name, String> {
    let cluster = &heard.cluster;
    let row = state.cluster(cluster);
    let is_ahead = heard.echo > row.seq.max(row.away);
    let is_ghost = |name: &Name, object: &ObservedLeg| {
        if object.uid.is_empty() || is_expected(state, cluster, name, object) {
            return false;
        }
        if !is_attempt(state, name) {
            return object.phase() == Phase::Stopped && !is_ahead;
        }
        !is_running(object) || is_known(state, cluster, *name, &object.uid)
    };
    let ghosts = heard.legs.iter().filter(|(name, object)| is_ghost(name, object));
    ghosts.map(|(name, object)| (*name, object.uid.clone())).collect()
}

/// Objects that take room of which the log knows nothing any more: when they go, no fact says so.
pub(crate) fn squatters<'a>(state: &'a DeskState, heard: &'a Heard) -> impl Iterator<Item = &'a Name> {
    let takes_room = |object: &ObservedLeg| is_running(object) || object.phase() == Phase::Stopped;
    heard.legs.iter().filter_map(move |(name, object)| {
        (takes_room(object) && !is_expected(state, &heard.cluster, name, object)).then_some(name)
    })
}

fn is_attempt(state: &DeskState, (id, no): &Name) -> bool {
    state.lifecycle.workload(id).is_some_and(|row| *no <= row.attempts)
}

/// Whether a live leg was granted this object, or may still be.
fn is_expected(state: &DeskState, cluster: &str, (id, no): &Name, object: &ObservedLeg) -> bool {
    let live = state.lifecycle.workload(id).and_then(|row| row.live());
    let leg = live.filter(|attempt| attempt.no == *no).and_then(|attempt| attempt.leg(cluster));
    leg.is_some_and(|leg| !leg.is_over() && (leg.uid.is_empty() || leg.uid == object.uid))
}

/// Whether the log once granted this object.
fn is_known(state: &DeskState, cluster: &str, (id, no): Name, uid: &str) -> bool {
    let last = state.lifecycle.workload(&id).and_then(|row| row.last.as_ref());
    last.filter(|last| last.no == no).and_then(|last| last.leg(cluster)).is_some_and(|leg| leg.uid == uid)
        || state.dead.get(&(cluster.to_owned(), id, no)).is_some_and(|dead| dead == uid)
}

pub(crate) fn is_running(object: &ObservedLeg) -> bool {
    matches!(object.phase(), Phase::Running | Phase::Ready)
}
