//! Randomness from a seed: the same on every machine, in every version.

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `n` - 1; 0 for an `n` of 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.roll() % n }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        low + i64::try_from(self.below(high.abs_diff(low) + 1)).unwrap_or(0)
    }

    /// True with this probability.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && ((self.roll() >> 11) as f64) < probability * ((1u64 << 53) as f64)
    }

    /// One of these, or none of none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }

    /// Zero in a third of the seeds, else up to `most`: a run without a fault shows what the others hide.
    pub fn rate(&mut self, most: f64) -> f64 {
        if self.below(3) == 0 { 0.0 } else { most * (self.below(1000) as f64 + 1.0) / 1000.0 }
    }
}
