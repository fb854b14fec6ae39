//! The states in which two writers may decide at once: each by the facts that lead there.

use muster_core::WorkloadId;
use muster_proto::{ClusterJoined, Kind};

use crate::cases::{Case, Case::*, offer_to};
use crate::log::Log;

/// A step of the way to a state.
#[derive(Clone, Copy)]
pub enum Step {
    /// A fact about the workload and cluster c1.
    Is(Case),
    /// The same, about c2.
    Also(Case),
    /// An offer to c1 and c2.
    OfferBoth,
    /// An offer to c1 that the grant commits.
    OfferCommitOnGrant,
}

use Step::*;

const RESERVED: &[Step] = &[Is(WorkloadQueued), Is(QuotaReserved)];
const ASKED: &[Step] = &[Is(PlacementOffered)];
const GRANTED: &[Step] = &[Is(PlacementOffered), Is(LegGranted)];
const RUNS: &[Step] = &[Is(PlacementOffered), Is(LegGranted), Is(PlacementCommitted)];
const BOTH_GRANTED: &[Step] = &[OfferBoth, Is(LegGranted), Also(LegGranted)];
const BOTH_RUN: &[Step] = &[OfferBoth, Is(LegGranted), Also(LegGranted), Is(PlacementCommitted)];
const OATH: &[Step] = &[Is(ClusterSuspected), Is(DeclareDeadAccepted)];

/// Every state by name, with the steps after RESERVED (QUEUED alone has none of them).
pub const STATES: &[(&str, &[&[Step]])] = &[
    ("reserved", &[]),
    ("reserved, suspected", &[&[Is(ClusterSuspected)]]),
    ("reserved, dead", &[OATH, &[Is(ClusterDeclaredDead)]]),
    ("exhausted", &[&[Is(PlacementExhausted)]]),
    ("given back", &[&[Is(PlacementExhausted), Is(QuotaReleased)]]),
    ("asked", &[ASKED]),
    ("asked, commits on grant", &[&[OfferCommitOnGrant]]),
    ("asked, suspected", &[ASKED, &[Is(ClusterSuspected)]]),
    ("asked, oath", &[ASKED, OATH]),
    ("refused", &[ASKED, &[Is(LegRefused)]]),
    ("withdrawn", &[ASKED, &[Is(LegRefused), Is(PlacementWithdrawn)]]),
    ("granted", &[GRANTED]),
    ("granted, oath", &[GRANTED, OATH]),
    ("both asked", &[&[OfferBoth]]),
    ("both granted", &[BOTH_GRANTED]),
    ("runs", &[RUNS]),
    ("runs, oath", &[RUNS, OATH]),
    ("runs, planned", &[RUNS, &[Is(RecoveryPlanned)]]),
    ("runs, planned, oath", &[RUNS, &[Is(RecoveryPlanned)], OATH]),
    ("runs, preempted", &[RUNS, &[Is(WorkloadPreempted)]]),
    ("runs, preempted, oath", &[RUNS, &[Is(WorkloadPreempted)], OATH]),
    ("runs, cancelled", &[RUNS, &[Is(WorkloadCancelled)]]),
    ("runs, cancelled, oath", &[RUNS, OATH, &[Is(WorkloadCancelled)]]),
    ("both run", &[BOTH_RUN]),
    ("both run, oath", &[BOTH_RUN, OATH]),
    ("both run, other failed", &[BOTH_RUN, &[Also(EndedGone)]]),
    ("both run, other failed, oath", &[BOTH_RUN, &[Also(EndedGone)], OATH]),
    ("both run, other succeeded", &[BOTH_RUN, &[Also(EndedSucceeded)]]),
    ("both run, other user-failed", &[BOTH_RUN, &[Also(EndedUserFailed)]]),
    ("won", &[RUNS, &[Is(EndedSucceeded)]]),
    ("won, cancelled", &[RUNS, &[Is(WorkloadCancelled), Is(EndedSucceeded)]]),
    ("won, preempted", &[RUNS, &[Is(WorkloadPreempted), Is(EndedSucceeded)]]),
    ("user-failed", &[RUNS, &[Is(EndedUserFailed)]]),
    ("gone", &[RUNS, &[Is(EndedGone)]]),
    ("gone, planned", &[RUNS, &[Is(EndedGone), Is(RecoveryPlanned)]]),
    ("gone, declined", &[RUNS, &[Is(EndedGone), Is(RecoveryDeclined)]]),
    ("died", &[RUNS, OATH, &[Is(ClusterDeclaredDead)]]),
    ("preempted", &[&[Is(WorkloadPreempted)]]),
    ("preempted, failed", &[RUNS, &[Is(EndedUserFailed), Is(WorkloadPreempted)]]),
    ("cancelled", &[&[Is(WorkloadCancelled)]]),
    ("cancelled, failed", &[RUNS, &[Is(EndedUserFailed), Is(WorkloadCancelled)]]),
    ("second round", &[RUNS, &[Is(EndedUserFailed), Is(WorkloadRequeued)]]),
    ("second round, reserved", &[RUNS, &[Is(EndedUserFailed), Is(WorkloadRequeued), Is(QuotaReserved)]]),
    ("finished", &[RUNS, &[Is(EndedSucceeded), Is(FinishedSucceeded)]]),
];

pub const CLUSTERS: [&str; 2] = ["c1", "c2"];

/// A log in which both clusters are open.
pub fn with_clusters() -> Log {
    let mut log = Log::new();
    for cluster in CLUSTERS {
        let joined = ClusterJoined { cluster: cluster.to_owned(), backend: String::new() };
        log.must((cluster.to_owned(), Kind::ClusterJoined(joined)));
        log.must(AgentJoined.fact(&log.clone(), &log.next_id(), cluster));
    }
    log
}

fn walk(log: &mut Log, id: &WorkloadId, steps: &[Step]) {
    for step in steps {
        let fact = match step {
            Is(case) => case.fact(log, id, "c1"),
            Also(case) => case.fact(log, id, "c2"),
            OfferBoth => offer_to(log, id, &["c1", "c2"], false),
            OfferCommitOnGrant => offer_to(log, id, &["c1"], true),
        };
        log.must(fact);
    }
}

/// Every state: its name, its log, and the workload in question.
pub fn states() -> Vec<(&'static str, Log, WorkloadId)> {
    let start = with_clusters();
    let id = start.next_id();
    let mut queued = start.clone();
    walk(&mut queued, &id, &[Is(WorkloadQueued)]);
    let mut states = vec![("queued", queued, id)];
    for (name, ways) in STATES {
        let mut log = start.clone();
        walk(&mut log, &id, RESERVED);
        for steps in *ways {
            walk(&mut log, &id, steps);
        }
        states.push((name, log, id));
    }
    states
}
