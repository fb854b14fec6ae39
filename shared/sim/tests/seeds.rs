//! A few seeds on every run of the tests; thousands with `cargo xtask sim`.

use muster_sim::{DEFECTS, campaign, run};

#[test]
fn the_same_seed_twice_gives_the_same_trace() {
    for seed in [0, 3, 12, 71] {
        let (once, again) = (run(seed, None, true), run(seed, None, true));
        assert_eq!(once.lines, again.lines);
        assert_eq!(once.trace, again.trace);
        assert!(once.lines.len() > 100 && once.violation.is_none(), "{:?}", once.violation);
    }
    assert_ne!(run(1, None, false).trace, run(2, None, false).trace);
}

#[test]
fn a_few_dozen_seeds_break_nothing() {
    let outcome = campaign(0, 48, None);
    assert!(
        outcome.failure.is_none(),
        "{:?}",
        outcome.failure.map(|failure| (failure.seed, failure.violation))
    );
    for fault in ["effective: WorkloadFinished", "publish: conflict", "restart: from an older image"] {
        assert!(outcome.stats.of(fault) > 0, "{fault}");
    }
}

#[test]
fn every_defect_is_found() {
    for (name, defect) in DEFECTS {
        assert!(campaign(0, 500, Some(defect)).failure.is_some(), "{name} was not found");
    }
}
