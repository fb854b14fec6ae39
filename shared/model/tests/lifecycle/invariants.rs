//! Random logs of facts, each decided against the present or an earlier state.

use std::collections::BTreeSet;

use muster_core::{State, WorkloadId, WriteSet, hash_of};
use muster_model::lifecycle::{LegState, Workload};
use muster_proto::Kind;
use proptest::prelude::*;

use crate::cases::{CASES, Case, offer_to};
use crate::log::{Alone, Log};
use crate::states::{CLUSTERS, with_clusters};

/// A fact, as decided by a writer who is so many facts behind.
#[derive(Clone, Copy, Debug)]
struct Step {
    what: What,
    workload: usize,
    cluster: usize,
    behind: usize,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Is(Case),
    OfferBoth,
    OfferCommitOnGrant,
}

const WORKLOADS: usize = 3;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let likely = prop_oneof![
        Just(What::Is(Case::QuotaReserved)),
        Just(What::Is(Case::PlacementOffered)),
        Just(What::OfferBoth),
        Just(What::OfferCommitOnGrant),
        Just(What::Is(Case::LegGranted)),
        Just(What::Is(Case::PlacementCommitted)),
        Just(What::Is(Case::WorkloadRequeued)),
    ];
    let what = prop_oneof![
        2 => likely,
        1 => (0..CASES.len()).prop_map(|n| What::Is(CASES[n].1)),
    ];
    let behind = prop_oneof![3 => Just(0usize), 1 => 1usize..6];
    let step = (what, 0..WORKLOADS, 0..CLUSTERS.len(), behind)
        .prop_map(|(what, workload, cluster, behind)| Step { what, workload, cluster, behind });
    proptest::collection::vec(step, 1..120)
}

fn fact(step: Step, known: &Log, id: &WorkloadId) -> (String, Kind) {
    match step.what {
        What::Is(case) => case.fact(known, id, CLUSTERS[step.cluster]),
        What::OfferBoth => offer_to(known, id, &CLUSTERS, false),
        What::OfferCommitOnGrant => offer_to(known, id, &CLUSTERS[step.cluster..=step.cluster], true),
    }
}

/// What may never change back, and what must hold of every row.
fn check_row(before: &Workload, row: &Workload) -> Result<(), TestCaseError> {
    prop_assert!(row.round >= before.round);
    prop_assert!(row.attempts == before.attempts || row.attempts == before.attempts + 1);
    if row.attempts > before.attempts {
        prop_assert!(before.live().is_none(), "a second live attempt");
        prop_assert!(!before.barrier(), "an attempt behind a barrier");
        prop_assert_eq!(row.last.as_ref().map(|last| last.reservation), before.reservation);
    }
    if before.terminal.is_some() {
        prop_assert_eq!(row, before, "the end is the end");
    }
    if row.barrier() && row.live().is_none() {
        prop_assert_eq!(row.reservation, None, "quota held by nothing");
    }
    if let Some(attempt) = row.live() {
        prop_assert_eq!(row.reservation, Some(attempt.reservation), "a live attempt without its quota");
        prop_assert!(!row.barrier() || attempt.committed, "an offer behind a barrier");
    }
    if let Some(last) = &row.last {
        prop_assert_eq!(last.no, row.attempts);
        let newly = before.last.as_ref().is_none_or(|old| old.no != last.no || !old.committed);
        if last.committed && newly {
            prop_assert!(last.legs.iter().all(|leg| leg.state == LegState::Granted));
            prop_assert!(!before.barrier());
        }
    }
    Ok(())
}

/// The index, counted anew.
fn legs_in(log: &Log, cluster: &str) -> BTreeSet<WorkloadId> {
    let here = |row: &Workload| {
        let leg = row.live().and_then(|attempt| attempt.leg(cluster));
        leg.is_some_and(|leg| !leg.is_over())
    };
    log.lifecycle.workloads().filter(|(_, row)| here(row)).map(|(id, _)| *id).collect()
}

fn check_log(log: &Log) -> Result<(), TestCaseError> {
    let mut versions = 0;
    for (name, row) in log.lifecycle.clusters() {
        versions += row.capacity_version;
        let indexed: BTreeSet<WorkloadId> = log.lifecycle.legs_in(name).copied().collect();
        prop_assert_eq!(indexed, legs_in(log, name));
        prop_assert!(!row.dead || row.suspected.is_none());
        prop_assert!(row.oath.is_none() || row.suspected.is_some(), "an oath outlives its suspicion");
    }
    prop_assert_eq!(versions, log.lifecycle.capacity_version());
    Ok(())
}

fn restored(log: &Log) -> Log {
    let mut writes = WriteSet::default();
    log.lifecycle.clone().tables(&mut |table| {
        if table.is_stored() {
            table.drain(&mut writes);
        }
    });
    let mut loaded = Alone::default();
    loaded.tables(&mut |table| {
        for (name, key, row) in &writes.rows {
            if let (true, Some(row)) = (*name == table.name(), row) {
                table.load(key, row).unwrap();
            }
        }
    });
    loaded.reindex();
    Log { lifecycle: loaded.0, seq: log.seq }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..Default::default() })]

    #[test]
    fn the_fold_keeps_its_promises(steps in steps()) {
        let mut log = with_clusters();
        let mut ids = Vec::new();
        for _ in 0..WORKLOADS {
            ids.push(log.next_id());
            log.must(Case::WorkloadQueued.fact(&log.clone(), &log.next_id(), ""));
        }
        let mut history = vec![log.clone()];
        for step in steps {
            let known = &history[history.len().saturating_sub(1 + step.behind)];
            let (partition, fact) = fact(step, known, &ids[step.workload]);
            let before = log.clone();
            let verdict = log.apply(&partition, fact);
            if !verdict.is_effective() && log.lifecycle.cursor() == before.lifecycle.cursor() {
                prop_assert_eq!(log.hash(), before.hash(), "a void fact changed something");
            }
            for (id, row) in log.lifecycle.workloads() {
                let old = before.row(id);
                check_row(&old, row)?;
                let is_touched = verdict.touched().contains(id);
                prop_assert!(&old == row || is_touched, "{id} changed, but is not among the touched");
            }
            check_log(&log)?;
            history.push(log.clone());
        }
        let loaded = restored(&log);
        prop_assert_eq!(hash_of(&mut Alone(loaded.lifecycle.clone())), log.hash());
        check_log(&loaded)?;
    }
}
