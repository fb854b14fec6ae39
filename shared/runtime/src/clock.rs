//! Time for deciding: [`HostClock`] with this machine's clocks, forgetting what it learnt long ago.
//!
//! What one message teaches holds as long as both clocks run evenly. So offsets are learnt anew in windows:
//! a server whose clock was set back is believed after one or two of them, not never.

use std::time::Instant;

use muster_core::Timestamp;
use muster_core::clock::{HostClock, Skewed};

const WINDOW_US: i64 = 30_000_000;

pub(crate) struct Clock {
    start: Instant,
    wall: fn() -> Timestamp,
    windows: Windows,
}

impl Clock {
    pub fn new(wall: fn() -> Timestamp) -> Self {
        Self { start: Instant::now(), wall, windows: Windows::default() }
    }

    /// Microseconds since this clock was made.
    fn mono(&self) -> i64 {
        i64::try_from(self.start.elapsed().as_micros()).unwrap_or(i64::MAX)
    }

    /// The server had this time a moment ago.
    pub fn learn(&mut self, server: Timestamp) {
        let mono = self.mono();
        self.windows.learn(server, mono);
    }

    pub fn not_before(&mut self, recorded: Timestamp) {
        self.windows.not_before(recorded);
    }

    pub fn now(&self) -> Result<Option<Timestamp>, Skewed> {
        self.windows.now(self.mono(), (self.wall)())
    }
}

/// Two clocks: one knows this window and the one before, the next one this window only.
#[derive(Default)]
struct Windows {
    clock: HostClock,
    next: HostClock,
    began: i64,
    floor: Timestamp,
}

impl Windows {
    fn learn(&mut self, server: Timestamp, mono: i64) {
        self.clock.learn(server, mono);
        self.next.learn(server, mono);
        if mono - self.began > WINDOW_US {
            self.clock = std::mem::take(&mut self.next);
            self.clock.not_before(self.floor);
            self.began = mono;
        }
    }

    fn not_before(&mut self, recorded: Timestamp) {
        self.floor = self.floor.max(recorded);
        self.clock.not_before(recorded);
    }

    fn now(&self, mono: i64, wall: Timestamp) -> Result<Option<Timestamp>, Skewed> {
        self.clock.now(mono, wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000;
    const SECOND: i64 = 1_000_000;

    #[test]
    fn a_server_that_was_set_back_is_believed_after_two_windows() {
        // given a server an hour ahead of this machine
        let mut windows = Windows::default();
        windows.learn(Timestamp(HOUR + HOUR), 0);
        assert!(windows.now(0, Timestamp(HOUR)).is_err());
        // when its clock is put right
        for second in 1..=62 {
            windows.learn(Timestamp(HOUR + second * SECOND), second * SECOND);
        }
        // then time goes on as the server has it
        let right = Timestamp(HOUR + 62 * SECOND);
        assert_eq!(windows.now(62 * SECOND, right), Ok(Some(right)));
    }

    #[test]
    fn a_window_with_one_message_still_knows_the_time_and_the_floor() {
        let mut windows = Windows::default();
        windows.not_before(Timestamp(5 * HOUR));
        windows.learn(Timestamp(HOUR), 0);
        windows.learn(Timestamp(HOUR + 40 * SECOND), 40 * SECOND);
        windows.learn(Timestamp(HOUR + 80 * SECOND), 80 * SECOND);
        let now = windows.now(80 * SECOND, Timestamp(HOUR + 80 * SECOND));
        assert_eq!(now, Ok(Some(Timestamp(5 * HOUR))));
    }
}
