//! Why a workload with quota does not run yet, or where it runs.

use muster_core::{Timestamp, Why, WorkloadId};
use muster_model::lifecycle::{Attempt, LegState};

use crate::{
    Config, State,
    gang::Gang,
    room::{Miss, Room},
};

pub fn explain(config: &Config, state: &State, id: &WorkloadId, now: Timestamp) -> Option<Why> {
    let (row, gang) = (state.lifecycle.workload(id)?, state.gangs.get(id)?);
    if let Some(attempt) = row.live() {
        return Some(live(config, gang, attempt, now));
    }
    if row.may_offer() {
        return Some(match Room::new(state).choose(row, gang) {
            Ok(cluster) => Why {
                reason: "WaitingForTurn",
                message: format!("it fits into cluster {cluster} and is about to be offered there"),
                numbers: vec![("cluster".to_owned(), cluster)],
            },
            Err(misses) => nowhere(misses),
        });
    }
    // Also after its quota has gone back: that is why it waits.
    if row.exhausted && !row.barrier() {
        return Some(Room::new(state).choose(row, gang).map_or_else(nowhere, |cluster| Why {
            reason: "WaitingForQuota",
            message: format!("it fits into cluster {cluster} now; its quota is reserved anew first"),
            numbers: vec![("cluster".to_owned(), cluster)],
        }));
    }
    row.infra_failed().then(|| Why {
        reason: "WaitingForRecovery",
        message: format!("attempt {} was lost; a recovery plan or a new round follows", row.attempts),
        numbers: vec![("attempt".to_owned(), row.attempts.to_string())],
    })
}

fn live(config: &Config, gang: &Gang, attempt: &Attempt, now: Timestamp) -> Why {
    let names = |state: Option<LegState>| -> String {
        let legs = attempt.legs.iter().filter(|leg| state.is_none_or(|state| leg.state == state));
        legs.map(|leg| leg.cluster.as_str()).collect::<Vec<_>>().join(", ")
    };
    let number = |name: &str, value: String| (name.to_owned(), value);
    let mut numbers = vec![number("attempt", attempt.no.to_string()), number("clusters", names(None))];
    let (reason, message) = if attempt.committed {
        ("Placed", format!("attempt {} is committed to {}", attempt.no, names(None)))
    } else if attempt.all_granted() {
        ("WaitingForCommit", format!("{} granted it; the commit follows", names(None)))
    } else {
        let since = Timestamp(gang.offered_us);
        let seconds = now.since(since).max(0) / 1_000_000;
        numbers.push(number("since_us", since.0.to_string()));
        let silent = names(Some(LegState::Asked));
        let timeout = config.offer_timeout_us / 1_000_000;
        let message = format!(
            "cluster {silent} was asked {seconds} s ago and has not answered; after {timeout} s another one is \
             tried, if one has room"
        );
        ("WaitingForGrant", message)
    };
    Why { reason, message, numbers }
}

fn nowhere(misses: Vec<(String, Miss)>) -> Why {
    let waits = misses.iter().any(|(_, miss)| matches!(miss, Miss::Offered { .. }));
    let numbers: Vec<_> = misses.iter().map(|(cluster, miss)| (cluster.clone(), miss.reason())).collect();
    let each: Vec<String> = numbers.iter().map(|(cluster, reason)| format!("{cluster}: {reason}")).collect();
    let (reason, message) = if waits {
        ("WaitingForOffers", format!("it fits if offers to others come to nothing: {}", each.join("; ")))
    } else if each.is_empty() {
        ("NoClusterFits", "no cluster has joined".to_owned())
    } else {
        ("NoClusterFits", each.join("; "))
    };
    Why { reason, message, numbers }
}
