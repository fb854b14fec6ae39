//! Objects in the cluster that are not the one that a live leg was granted.

use std::collections::BTreeMap;

use muster_core::WorkloadId;
use muster_proto::{ObservedLeg, Phase};

use crate::DeskState;

/// One attempt of a workload: the name of its object.
pub(crate) type Name = (WorkloadId, u32);

/// Objects to remove, with the uid that is meant.
///
/// A ghost is an object of an attempt that the log knows and that is over or was granted another
/// object. One that is not running is a create that landed late, or what is left of an end already
/// written down. One that runs is removed only when the log granted it and then declared its cluster
/// dead; any other belongs to a history that the log lost, and is held.
pub(crate) fn ghosts(
    state: &DeskState,
    cluster: &str,
    seen: &BTreeMap<Name, ObservedLeg>,
) -> BTreeMap<Name, String> {
    let is_ghost = |(id, no): &Name, object: &ObservedLeg| {
        let Some(row) = state.lifecycle.workload(id) else { return false };
        if *no > row.attempts || object.uid.is_empty() {
            return false;
        }
        let leg = row.live().filter(|attempt| attempt.no == *no).and_then(|attempt| attempt.leg(cluster));
        let granted = match leg {
            // Not granted yet: this object may become the one.
            Some(leg) if leg.uid.is_empty() => !leg.is_over(),
            Some(leg) => leg.uid == object.uid && !leg.is_over(),
            None => false,
        };
        !granted && (!is_running(object) || is_known(state, cluster, (*id, *no), &object.uid))
    };
    let ghosts = seen.iter().filter(|(name, object)| is_ghost(name, object));
    ghosts.map(|(name, object)| (*name, object.uid.clone())).collect()
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
