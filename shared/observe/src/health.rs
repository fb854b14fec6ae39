//! Alive and ready.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An event loop that did not beat for so long is not alive.
pub const STALE: Duration = Duration::from_secs(10);

/// How a process is; cheap to clone, all clones are one.
#[derive(Clone, Debug)]
pub struct Health(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    start: Instant,
    /// Milliseconds from `start` to the last beat.
    beat: AtomicU64,
    problems: Mutex<BTreeMap<&'static str, String>>,
}

impl Health {
    /// Alive, and not ready because of this.
    #[must_use]
    pub fn starting(problem: &'static str, text: &str) -> Self {
        let health = Self(Arc::new(Inner {
            start: Instant::now(),
            beat: AtomicU64::new(0),
            problems: Mutex::default(),
        }));
        health.set(problem, Some(text.to_owned()));
        health
    }

    /// The event loop went round.
    pub fn beat(&self) {
        let now = u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.beat.store(now, Ordering::Relaxed);
    }

    /// How long ago the event loop went round.
    #[must_use]
    pub fn since_beat(&self) -> Duration {
        self.0.start.elapsed().saturating_sub(Duration::from_millis(self.0.beat.load(Ordering::Relaxed)))
    }

    /// Sets or clears the problem of a name.
    pub fn set(&self, problem: &'static str, text: Option<String>) {
        let mut problems = self.problems_held();
        match text {
            Some(text) => _ = problems.insert(problem, text),
            None => _ = problems.remove(problem),
        }
    }

    /// What stands in the way, by name; nothing when ready.
    #[must_use]
    pub fn problems(&self) -> BTreeMap<&'static str, String> {
        self.problems_held().clone()
    }

    fn problems_held(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        self.0.problems.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_no_problem_is_left() {
        let health = Health::starting("log", "nothing read yet");
        health.set("clock", Some("an hour off".to_owned()));
        health.set("log", None);
        assert_eq!(health.problems().into_iter().collect::<Vec<_>>(), [("clock", "an hour off".to_owned())]);
        health.clone().set("clock", None);
        assert!(health.problems().is_empty());
    }

    #[test]
    fn a_beat_counts_from_now() {
        let health = Health::starting("log", "");
        std::thread::sleep(Duration::from_millis(20));
        assert!(health.since_beat() >= Duration::from_millis(20));
        health.beat();
        assert!(health.since_beat() < Duration::from_millis(20));
    }
}
