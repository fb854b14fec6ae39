//! The host's `now`: the server's time, learnt from what it stored, carried on by a clock that
//! can't be set.
//!
//! The offset between the server's and the monotonic clock is at least `stored - received` of
//! any message; the largest seen is the best known. It never goes back behind a recorded `now`.

use crate::Timestamp;

/// How far wall, monotonic and server time may differ before the host stops deciding.
pub const MAX_SKEW_US: i64 = 2_000_000;

/// The clocks disagree: no decision is taken until they agree again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this machine's clock is {skew_ms} ms off the NATS server's (more than 2000 ms): nothing is decided until \
     they agree. Check NTP on both machines"
)]
pub struct Skewed {
    pub skew_ms: i64,
}

/// Derives `now` from a monotonic clock and the server's timestamps. Pure: all times are given.
#[derive(Clone, Debug, Default)]
pub struct HostClock {
    offset_us: Option<i64>,
    floor: Timestamp,
}

impl HostClock {
    /// A message stored at `server` was in hand at `mono_us`.
    pub fn learn(&mut self, server: Timestamp, mono_us: i64) {
        let offset = server.0 - mono_us;
        self.offset_us = Some(self.offset_us.map_or(offset, |known| known.max(offset)));
    }

    /// No later `now` may lie before this one.
    pub fn not_before(&mut self, recorded: Timestamp) {
        self.floor = self.floor.max(recorded);
    }

    /// The time to decide with; none before the server's time is known.
    ///
    /// # Errors
    /// [`Skewed`] when the wall clock disagrees with the server's.
    pub fn now(&self, mono_us: i64, wall: Timestamp) -> Result<Option<Timestamp>, Skewed> {
        let Some(offset) = self.offset_us else { return Ok(None) };
        let server = Timestamp(mono_us.saturating_add(offset));
        let skew = wall.since(server);
        if skew.abs() > MAX_SKEW_US {
            return Err(Skewed { skew_ms: skew / 1000 });
        }
        Ok(Some(server.max(self.floor)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn now_is_the_servers_time() {
        let mut clock = HostClock::default();
        assert_eq!(clock.now(5, Timestamp(0)), Ok(None));
        clock.learn(Timestamp(1_000_000), 100);
        clock.learn(Timestamp(1_000_050), 200); // delivered late: teaches nothing
        assert_eq!(clock.now(1_100, Timestamp(1_001_000)), Ok(Some(Timestamp(1_001_000))));
    }

    #[test]
    fn now_never_goes_back_behind_what_was_recorded() {
        let mut clock = HostClock::default();
        clock.learn(Timestamp(1_000), 0);
        clock.not_before(Timestamp(5_000));
        assert_eq!(clock.now(0, Timestamp(1_000)), Ok(Some(Timestamp(5_000))));
    }

    #[test]
    fn a_clock_an_hour_off_stops_deciding() {
        let mut clock = HostClock::default();
        clock.learn(Timestamp(0), 0);
        assert_eq!(clock.now(0, Timestamp(3_600_000_000)), Err(Skewed { skew_ms: 3_600_000 }));
    }
}
