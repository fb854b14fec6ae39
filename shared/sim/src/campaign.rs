//! Many seeds, on all cores.

use std::{
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use muster_core::defect::Defect;

use crate::{
    run::{Verdict, run},
    stats::Stats,
};

/// Every defect that the simulator must find, by its name on the command line.
pub const DEFECTS: [(&str, Defect); 7] = [
    ("no-fence", Defect::NoFence),
    ("late-facts", Defect::LateFacts),
    ("position-outside-batch", Defect::PositionOutsideBatch),
    ("release-at-barrier", Defect::ReleaseAtBarrier),
    ("no-request-cursor", Defect::NoRequestCursor),
    ("start-without-uid", Defect::StartWithoutUid),
    ("reports-without-echo", Defect::ReportsWithoutEcho),
];

/// What a campaign found.
#[derive(Debug)]
pub struct Outcome {
    pub seeds: u64,
    pub messages: u64,
    pub stats: Stats,
    /// The failing seed with the lowest number.
    pub failure: Option<Verdict>,
    pub took: Duration,
}

/// Runs seeds `from..from + seeds` and stops at the first failure.
#[must_use]
pub fn campaign(from: u64, seeds: u64, defect: Option<Defect>) -> Outcome {
    let began = Instant::now();
    let (next, done) = (AtomicU64::new(0), AtomicU64::new(0));
    let stop = AtomicBool::new(false);
    let sum = Mutex::new((Stats::default(), 0u64, None::<Verdict>));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= seeds {
                break;
            }
            let verdict = run(from + n, defect, false);
            done.fetch_add(1, Ordering::Relaxed);
            let Ok(mut sum) = sum.lock() else { break };
            sum.0.add(&verdict.stats);
            sum.1 += verdict.messages;
            if verdict.violation.is_some() {
                stop.store(true, Ordering::Relaxed);
                if sum.2.as_ref().is_none_or(|known| verdict.seed < known.seed) {
                    sum.2 = Some(verdict);
                }
            }
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        let mut told = Instant::now();
        while workers.iter().any(|worker| !worker.is_finished()) {
            thread::sleep(Duration::from_millis(20));
            if told.elapsed() >= Duration::from_secs(10) {
                told = Instant::now();
                let done = done.load(Ordering::Relaxed);
                eprintln!(
                    "{done} of {seeds} seeds, {:.1} seeds/s",
                    done as f64 / began.elapsed().as_secs_f64()
                );
            }
        }
    });
    let (stats, messages, failure) = sum.into_inner().unwrap_or_default();
    Outcome { seeds: done.load(Ordering::Relaxed), messages, stats, failure, took: began.elapsed() }
}
