//! Why a workload has no quota, or what it has.

use muster_core::{Timestamp, Why, WorkloadId};
use muster_model::quantity::format;

use crate::{
    State,
    assign::{FlavorMiss, Miss, NoFit, assign},
    job::{Job, Place},
    order::ahead,
    policy::Inactive,
    quota::{Level, Reservation, Room},
    state::Standing,
};

/// Holders named in an explanation.
const TOP_HOLDERS: usize = 5;

pub fn explain(state: &State, id: &WorkloadId, now: Timestamp) -> Option<Why> {
    let job = state.jobs.get(id)?;
    let standing = state.standing_now(id);
    let why = match standing {
        Some(Standing::Waiting { queue, place, .. }) => waiting(state, &queue, job, place),
        Some(Standing::BackingOff { until_us }) if until_us > now.0 => {
            let seconds = (until_us - now.0).div_euclid(1_000_000) + 1;
            Say::new("BackingOff", format!("waits {seconds} s more before it tries again"))
                .number("not_before_us", until_us)
        }
        Some(Standing::BackingOff { .. }) => match state.place_after_backoff(id) {
            Some((queue, _, place)) => waiting(state, &queue, job, place),
            None => unrouted(state, job),
        },
        Some(Standing::Blocked { version }) => blocked(state, version),
        Some(Standing::Unrouted) => unrouted(state, job),
        Some(Standing::Held) => {
            Say::new("Held", "its owner holds it back; release it to let it go on".to_owned())
        }
        Some(Standing::ToRelease) => Say::new(
            "WaitingForCapacity",
            "it has quota, but fits into no cluster; its quota goes back until capacity changes".to_owned(),
        ),
        None => reserved(state.usage.reservations.get(id)?),
    };
    Some(why.0)
}

/// A [`Why`] in the making.
struct Say(Why);

impl Say {
    fn new(reason: &'static str, message: String) -> Self {
        Self(Why { reason, message, numbers: Vec::new() })
    }

    fn number(mut self, name: &str, value: impl ToString) -> Self {
        self.0.numbers.push((name.to_owned(), value.to_string()));
        self
    }
}

fn unrouted(state: &State, job: &Job) -> Say {
    let (namespace, name) = job.local_queue();
    let (reason, message) = match state.policies.local_queues.get(&job.local_queue()) {
        None => (
            "InvalidLocalQueue",
            format!("there is no LocalQueue {name} in namespace {namespace}: create it, or name another"),
        ),
        Some(_) => {
            ("StoppedLocalQueue", format!("LocalQueue {namespace}/{name} is stopped by its stopPolicy"))
        }
    };
    Say::new(reason, message)
}

fn blocked(state: &State, version: u64) -> Say {
    let message = "it had quota, but fitted into no cluster; it is tried again as soon as capacity changes \
                   (an attempt ends, a cluster or agent joins, nodes or flavors change)";
    Say::new("WaitingForCapacity", message.to_owned())
        .number("blocked_at_version", version)
        .number("capacity_version", state.lifecycle.capacity_version())
}

fn reserved(row: &Reservation) -> Say {
    let amounts: Vec<String> = row
        .amounts
        .iter()
        .map(|part| {
            format!("{} {} of flavor {}", format(&part.resource, part.amount), part.resource, part.flavor)
        })
        .collect();
    let message = format!("holds {} in ClusterQueue {}", amounts.join(", "), row.queue);
    Say::new("QuotaReserved", message).number("reservation", row.seq)
}

fn waiting(state: &State, queue: &str, job: &Job, place: Place) -> Say {
    let row = match state.policies.active(queue) {
        Ok(row) => row,
        Err(Inactive::Held) => {
            return Say::new(
                "StoppedClusterQueue",
                format!("ClusterQueue {queue} is stopped by its stopPolicy"),
            );
        }
        Err(inactive) => {
            let message = match inactive {
                Inactive::FlavorMissing(flavor) => {
                    format!("ClusterQueue {queue} names ResourceFlavor {flavor}, which does not exist")
                }
                _ => format!("there is no ClusterQueue {queue}, which the LocalQueue names"),
            };
            return Say::new("InactiveClusterQueue", message);
        }
    };
    let in_front = ahead(&state.waiting, queue, place);
    let room = Room::new(&state.policies, &state.usage, queue);
    let say = match assign(&state.policies, row, &room, job) {
        Err(no_fit) => say_no_fit(state, queue, &no_fit),
        Ok(_) if row.strict && in_front > 0 => Say::new(
            "BehindHead",
            format!("it fits, but ClusterQueue {queue} is StrictFIFO and {in_front} wait in front of it"),
        ),
        Ok(_) => Say::new(
            "WaitingForTurn",
            format!("it fits into ClusterQueue {queue} and is about to be admitted"),
        ),
    };
    say.number("cluster_queue", queue).number("ahead", in_front)
}

fn say_no_fit(state: &State, queue: &str, no_fit: &NoFit) -> Say {
    let set = &no_fit.pod_set;
    let misses = match &no_fit.why {
        Miss::NotCovered(resource) => {
            let message = format!(
                "pod set {set} requests {resource}, which no resource group of ClusterQueue {queue} covers"
            );
            return Say::new("ResourceNotCovered", message)
                .number("pod_set", set)
                .number("resource", resource);
        }
        Miss::Flavors(misses) => misses,
    };
    let sentences: Vec<String> = misses.iter().map(|(flavor, miss)| sentence(queue, flavor, miss)).collect();
    let message = format!("pod set {set} {}", sentences.join("; "));
    let shorts: Vec<_> = misses.iter().filter_map(|(flavor, miss)| short(flavor, miss)).collect();
    let Some((flavor, resource, need, level)) = shorts.first() else {
        return Say::new("NoMatchingFlavor", message).number("pod_set", set);
    };
    let never = shorts.iter().all(|(_, _, need, level)| *need > level.nominal);
    let say = if never {
        Say::new("NeverFits", format!("{message}: more than the whole quota, so it will never fit"))
    } else {
        let holders = holders(state, queue, flavor, resource);
        let held =
            if holders.is_empty() { String::new() } else { format!(". Held by {}", holders.join(", ")) };
        Say::new("QuotaExceeded", format!("{message}{held}"))
    };
    say.number("pod_set", set)
        .number("flavor", flavor)
        .number("resource", resource)
        .number("need", need)
        .number("nominal", level.nominal)
        .number("used", level.used)
        .number("short_by", level.used + need - level.nominal)
}

fn short<'a>(flavor: &'a str, miss: &'a FlavorMiss) -> Option<(&'a str, &'a str, i128, Level)> {
    match miss {
        FlavorMiss::Short { resource, need, level } => Some((flavor, resource, *need, *level)),
        FlavorMiss::Taint(_) | FlavorMiss::Labels => None,
    }
}

fn sentence(queue: &str, flavor: &str, miss: &FlavorMiss) -> String {
    match miss {
        FlavorMiss::Taint(taint) => format!("does not tolerate the taint {taint} of flavor {flavor}"),
        FlavorMiss::Labels => format!("selects other nodes than those of flavor {flavor}"),
        FlavorMiss::Short { resource, need, level: Level { nominal, used } } => format!(
            "needs {} {resource} of flavor {flavor} in ClusterQueue {queue}: nominal {}, used {} → short by {}",
            format(resource, *need),
            format(resource, *nominal),
            format(resource, *used),
            format(resource, used + need - nominal)
        ),
    }
}

/// Who holds most of it.
fn holders(state: &State, queue: &str, flavor: &str, resource: &str) -> Vec<String> {
    let mut holders: Vec<(i128, WorkloadId)> = state
        .usage
        .held_in(queue)
        .map(|(id, row)| {
            let parts = row.amounts.iter().filter(|part| part.flavor == flavor && part.resource == resource);
            (parts.map(|part| part.amount).sum(), *id)
        })
        .filter(|(amount, _)| *amount > 0)
        .collect();
    holders.sort_by_key(|(amount, id)| (std::cmp::Reverse(*amount), *id));
    holders
        .into_iter()
        .take(TOP_HOLDERS)
        .map(|(amount, id)| format!("{id} ({})", format(resource, amount)))
        .collect()
}
