//! What operators tune. `decide` alone reads it; what matters later is recorded in the facts.

use borsh::BorshSerialize;

const SECOND_US: i64 = 1_000_000;

/// Spans are in microseconds.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize)]
pub struct Config {
    /// How long the queue waits for a recovery plan after an infrastructure failure before it
    /// requeues. Recorded in each WorkloadQueued: a change holds for workloads queued after it.
    pub recovery_deadline_us: i64,
    /// The first wait after a failure; it doubles with each further one.
    pub backoff_us: i64,
    /// The longest wait after a failure.
    pub backoff_max_us: i64,
    /// A single leg's grant starts the workload, without a PlacementCommitted.
    pub commit_on_grant: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            recovery_deadline_us: 10 * SECOND_US,
            backoff_us: SECOND_US,
            backoff_max_us: 600 * SECOND_US,
            commit_on_grant: false,
        }
    }
}

impl Config {
    /// The wait after the `failures`-th failure in a row (1: the first).
    pub(crate) fn backoff(&self, failures: u32) -> i64 {
        let doublings = failures.saturating_sub(1).min(62);
        self.backoff_us.saturating_mul(1 << doublings).min(self.backoff_max_us)
    }
}

#[cfg(test)]
mod tests {
    use super::Config;

    #[test]
    fn the_wait_doubles_from_a_second_to_ten_minutes() {
        let config = Config::default();
        let seconds: Vec<i64> = [1, 2, 3, 10, 11, u32::MAX].map(|n| config.backoff(n) / 1_000_000).into();
        assert_eq!(seconds, [1, 2, 4, 512, 600, 600]);
    }
}
