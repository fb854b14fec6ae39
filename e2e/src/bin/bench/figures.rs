//! Percentiles, and the table.

use std::time::Duration;

/// Durations of one kind.
#[derive(Debug, Default)]
pub struct Durations(Vec<Duration>);

impl Durations {
    pub fn add(&mut self, one: Duration) {
        self.0.push(one);
    }

    /// In milliseconds; `part` of 0 to 1, by the nearest rank.
    pub fn percentile_ms(&self, part: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let rank = (part * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).map_or(f64::NAN, |one| one.as_secs_f64() * 1000.0)
    }
}

/// A line of the table: what, how much, in which unit, and what was aimed at.
pub fn row(what: &str, figure: f64, unit: &str, aim: &str) {
    let digits = if figure < 100.0 { 2 } else { 0 };
    println!("{what:<44} {figure:>12.digits$} {unit:<8} {aim}");
}

/// For JSON: no more digits than were measured.
pub fn round(figure: f64) -> f64 {
    if figure < 100.0 { (figure * 1000.0).round() / 1000.0 } else { figure.round() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let mut durations = Durations::default();
        (1..=100).rev().for_each(|ms| durations.add(Duration::from_millis(ms)));
        assert!((durations.percentile_ms(0.5) - 50.0).abs() < 1e-9);
        assert!((durations.percentile_ms(0.99) - 99.0).abs() < 1e-9);
        assert!(Durations::default().percentile_ms(0.5).is_nan());
    }
}
