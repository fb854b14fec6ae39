//! Time as the log knows it: the server's, in microseconds since 1970.

use borsh::{BorshDeserialize, BorshSerialize};

/// Microseconds since 1970-01-01 UTC.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize,
)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// This time plus a span of microseconds (negative: earlier). Saturates.
    #[must_use]
    pub const fn plus_us(self, span_us: i64) -> Self {
        Self(self.0.saturating_add(span_us))
    }

    /// Microseconds from `earlier` to this time; negative when it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}
