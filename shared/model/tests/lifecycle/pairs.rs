//! Two facts decided at once, against the same state: the first takes effect; does the second?
//!
//! The table is complete: it has a row and a column for every case, and a mark for every pair.
//! `1`: the second takes effect too. `0`: it is void. `-`: there is no state in which both hold,
//! so they are never concurrent. `?`: it depends on the state; [`VOID_IN`] says where it is void.

use std::collections::BTreeMap;

use muster_core::WorkloadId;

use crate::cases::{CASES, Case, Case::*, cases_of};
use crate::log::Log;
use crate::states::states;

/// First fact down, second across. Read a row as: after this, what still holds?
const TABLE: &str = "
    qu ca rq f+ f- fx de oa po rj re rl pr of co wi ex su dd gr rf ry e+ eu eg rc aj cr pl
qu   0  0  1  1  1  1  1  0  0  0  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1
ca   0  0  0  1  0  -  0  0  0  0  0  0  0  0  0  0  0  1  1  0  0  1  1  1  1  1  1  1  0
rq   1  1  0  -  0  -  0  1  1  1  -  -  0  -  -  -  -  1  -  -  -  -  -  -  -  1  1  1  0
f+   1  0  -  0  -  -  -  1  1  1  -  -  -  -  -  -  -  1  -  -  -  -  -  -  -  -  1  1  -
f-   1  0  0  -  0  -  -  1  1  1  -  -  0  -  -  -  -  1  -  -  -  -  -  -  -  -  1  1  -
fx   1  -  -  -  -  0  -  1  1  1  -  -  -  -  -  -  -  1  -  -  -  -  -  -  -  -  1  1  -
de   1  1  1  -  -  -  1  1  1  1  -  -  1  -  -  -  -  1  -  -  -  -  -  -  -  1  1  1  0
oa   0  0  1  1  1  1  1  0  0  0  1  1  1  1  1  1  1  1  0  1  1  1  1  1  1  1  1  1  1
po   0  0  1  1  1  1  1  0  0  0  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1
rj   0  0  1  1  1  1  1  0  0  0  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1
re   1  1  -  -  -  -  -  1  1  1  0  -  -  -  -  -  -  1  -  -  -  -  -  -  -  -  1  1  -
rl   1  1  -  -  -  -  -  1  1  1  -  0  0  -  -  -  -  1  -  -  -  -  -  -  -  -  1  1  -
pr   1  1  1  -  0  -  0  1  1  1  -  0  0  0  0  0  0  1  1  0  0  1  1  1  1  1  1  1  0
of   1  1  -  -  -  -  -  1  1  1  -  -  1  0  -  -  0  1  -  -  -  -  -  -  -  1  1  1  -
co   1  1  -  -  -  -  -  1  1  1  -  -  1  -  0  0  -  1  1  -  -  -  -  -  -  1  1  1  -
wi   1  1  -  -  -  -  -  1  1  1  -  -  1  -  0  0  -  1  1  0  0  -  -  -  -  1  1  1  -
ex   1  1  -  -  -  -  -  1  1  1  -  -  1  0  -  -  0  1  -  -  -  -  -  -  -  1  1  1  -
su   1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  0  -  1  1  1  1  1  1  -  1  1  1
dd   1  1  -  -  -  -  -  1  1  1  -  -  1  -  0  0  -  -  0  0  0  0  0  0  0  1  1  1  ?
gr   1  1  -  -  -  -  -  1  1  1  -  -  1  -  -  ?  -  1  1  0  0  -  -  -  -  1  1  1  -
rf   1  1  -  -  -  -  -  1  1  1  -  -  1  -  -  1  -  1  1  0  0  -  -  -  -  1  1  1  -
ry   1  1  -  -  -  -  -  1  1  1  -  -  1  -  -  -  -  1  1  -  -  1  1  1  1  1  1  1  1
e+   1  1  -  -  -  -  -  1  1  1  -  -  ?  -  -  -  -  1  1  -  -  0  0  0  0  1  1  1  ?
eu   1  1  -  -  -  -  -  1  1  1  -  -  1  -  -  -  -  1  1  -  -  0  0  0  0  1  1  1  0
eg   1  1  -  -  -  -  -  1  1  1  -  -  1  -  -  -  -  1  1  -  -  0  0  0  0  1  1  1  ?
rc   1  1  1  -  -  -  1  1  1  1  -  -  1  1  1  1  1  -  0  1  1  1  1  1  1  0  1  1  1
aj   1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  0  1  1
cr   1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1  1
pl   1  1  0  -  -  -  0  1  1  1  -  -  1  -  -  -  -  1  1  -  -  1  1  1  1  1  1  1  0
";

/// Where the second fact of a pair marked `?` is void; elsewhere it takes effect.
const VOID_IN: &[((Case, Case), &[&str])] = &[
    // Another leg runs on after a failure: no plan until it has stopped.
    ((ClusterDeclaredDead, RecoveryPlanned), &["both run, oath"]),
    // The grant was the commit.
    ((LegGranted, PlacementWithdrawn), &["asked, commits on grant"]),
    // The last leg's success is the workload's.
    (
        (EndedSucceeded, WorkloadPreempted),
        &["runs", "runs, oath", "runs, planned", "runs, planned, oath", "both run, other succeeded"],
    ),
    ((EndedSucceeded, RecoveryPlanned), &["runs", "runs, oath", "both run, other succeeded"]),
    ((EndedGone, RecoveryPlanned), &["both run", "both run, oath"]),
];

fn case_of(letters: &str) -> Case {
    CASES.iter().find(|(known, _)| *known == letters).unwrap_or_else(|| panic!("no case {letters}")).1
}

fn table() -> BTreeMap<(Case, Case), char> {
    let mut lines = TABLE.lines().filter(|line| !line.is_empty());
    let columns: Vec<Case> = lines.next().unwrap().split_whitespace().map(case_of).collect();
    let mut table = BTreeMap::new();
    for line in lines {
        let mut words = line.split_whitespace();
        let first = case_of(words.next().unwrap());
        let marks: Vec<char> = words.map(|word| word.chars().next().unwrap()).collect();
        assert_eq!(marks.len(), columns.len(), "{first:?}");
        for (second, mark) in columns.iter().zip(marks) {
            assert!(table.insert((first, *second), mark).is_none(), "{first:?} has two rows");
        }
    }
    table
}

/// Whether each state lets both hold, and if so, whether the second still does after the first.
fn tried(log: &Log, id: &WorkloadId, first: (Case, &str), second: (Case, &str)) -> Option<bool> {
    let holds = |(case, cluster): (Case, &str)| {
        let (partition, fact) = case.fact(log, id, cluster);
        log.clone().apply(&partition, fact).is_effective()
    };
    if !holds(first) || !holds(second) {
        return None;
    }
    let mut both = log.clone();
    both.must(first.0.fact(log, id, first.1));
    let before = both.hash();
    let (partition, fact) = second.0.fact(log, id, second.1);
    let verdict = both.apply(&partition, fact);
    // A void command still takes its request, but only if that was the next one.
    let moves_cursor = second.0 == WorkloadCancelled && both.lifecycle.cursor() != log.lifecycle.cursor();
    if !verdict.is_effective() && !moves_cursor {
        assert_eq!(both.hash(), before, "void {second:?} after {first:?} changed something");
    }
    Some(verdict.is_effective())
}

#[test]
fn the_table_has_every_pair() {
    for (n, (_, case)) in CASES.iter().enumerate() {
        assert_eq!(*case as usize, n, "CASES lists every case in order");
    }
    let table = table();
    for (_, first) in CASES {
        for (_, second) in CASES {
            assert!(table.contains_key(&(first, second)), "{first:?} then {second:?} is missing");
        }
    }
    assert_eq!(table.len(), CASES.len() * CASES.len());
    let depends = table.iter().filter(|(_, mark)| **mark == '?').map(|(pair, _)| *pair);
    let mut listed: Vec<_> = VOID_IN.iter().map(|(pair, _)| *pair).collect();
    listed.sort();
    assert_eq!(depends.collect::<Vec<_>>(), listed);
}

#[test]
fn every_case_is_a_case_of_its_fact() {
    let (_, log, id) = states().remove(0);
    for (_, case) in CASES {
        let (_, fact) = case.fact(&log, &id, "c1");
        assert!(cases_of(&fact).contains(&case), "{case:?}");
    }
}

#[test]
fn the_second_of_two_concurrent_facts_is_judged_as_the_table_says() {
    let (table, states) = (table(), states());
    let mut wrong = Vec::new();
    for (pair @ (first, second), mark) in table {
        let void_in = VOID_IN.iter().find(|(listed, _)| *listed == pair).map_or(&[][..], |(_, names)| names);
        let mut met = Vec::new();
        for (name, log, id) in &states {
            let Some(effective) = tried(log, id, (first, "c1"), (second, "c1")) else { continue };
            met.push(*name);
            let expected = match mark {
                '0' => Some(false),
                '1' => Some(true),
                '?' => Some(!void_in.contains(name)),
                _ => None,
            };
            if expected != Some(effective) {
                wrong
                    .push(format!("{first:?} then {second:?} in {name}: {effective}, the table says {mark}"));
            }
        }
        if met.is_empty() != (mark == '-') {
            wrong.push(format!("{first:?} then {second:?}: concurrent in {met:?}, the table says {mark}"));
        }
        if let Some(name) = void_in.iter().find(|name| !met.contains(name)) {
            wrong.push(format!("{first:?} then {second:?} are not concurrent in {name}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn facts_about_two_clusters_never_void_each_other() {
    let of_clusters = [
        ClusterSuspected,
        ClusterDeclaredDead,
        LegGranted,
        LegRefused,
        LegReady,
        EndedSucceeded,
        EndedUserFailed,
        EndedGone,
        ClusterReconciled,
        AgentJoined,
        CapacityReported,
    ];
    let mut met = 0;
    for (name, log, id) in states() {
        for first in of_clusters {
            for second in of_clusters {
                for (one, other) in [("c1", "c2"), ("c2", "c1")] {
                    if let Some(effective) = tried(&log, &id, (first, one), (second, other)) {
                        assert!(effective, "{first:?} in {one}, then {second:?} in {other}, in {name}");
                        met += 1;
                    }
                }
            }
        }
    }
    assert!(met > 500, "{met} pairs met");
}
