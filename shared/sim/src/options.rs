//! What a seed draws: how large the world is, and which faults strike how often.

use crate::dice::Dice;

pub const MS: i64 = 1_000;
pub const SECOND: i64 = 1_000_000;
/// Faults strike for so long; then the world heals.
pub const FAULTS_US: i64 = 60 * SECOND;
/// After that everything must have finished within this time.
pub const BUDGET_US: i64 = 7_200 * SECOND;
/// And then the log must not grow for so long.
pub const QUIET_US: i64 = 60 * SECOND;

/// Probabilities are per occasion, rates per second.
#[derive(Clone, Debug)]
pub struct Options {
    pub clusters: u64,
    pub workloads: u64,
    pub commit_on_grant: bool,
    /// Clusters that fall silent are suspected after this time; 0: never.
    pub suspect_after_us: i64,
    pub fails: f64,
    pub cancels: f64,
    pub bad_requests: f64,
    /// Before any one effect of a step.
    pub crash: f64,
    pub crashes_per_s: f64,
    pub pauses_per_s: f64,
    pub lost_publish: f64,
    pub lost_ack: f64,
    pub double_publish: f64,
    pub late_publish: f64,
    pub in_flight: f64,
    pub slow_read: f64,
    pub old_image: f64,
    pub no_image: f64,
    pub wrong_clock: f64,
    pub lost_mail: f64,
    pub double_mail: f64,
    pub late_mail: f64,
    pub failed_wish: f64,
    pub late_call: f64,
    pub double_call: f64,
    pub lost_reply: f64,
    pub agent_crashes_per_s: f64,
    pub second_agents_per_s: f64,
    pub node_losses_per_s: f64,
    pub process_losses_per_s: f64,
    pub darks_per_s: f64,
    /// When the log is restored to an earlier sequence, if at all; the like for clusters.
    pub restore_at: Option<i64>,
    pub rebuild_at: Option<i64>,
    pub destroy_at: Option<i64>,
}

impl Options {
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Self {
        let at = |dice: &mut Dice, one_in: u64| {
            (dice.below(one_in) == 0).then(|| dice.between(8 * SECOND, FAULTS_US - 20 * SECOND))
        };
        let clusters = dice.between(1, 2).unsigned_abs();
        let suspect = clusters > 1 && dice.below(2) == 0;
        Self {
            clusters,
            workloads: dice.between(12, 26).unsigned_abs(),
            commit_on_grant: dice.below(3) == 0,
            suspect_after_us: if suspect { 8 * SECOND } else { 0 },
            fails: dice.rate(0.4),
            cancels: dice.rate(0.5),
            bad_requests: dice.rate(0.3),
            crash: dice.rate(0.004),
            crashes_per_s: dice.rate(0.05),
            pauses_per_s: dice.rate(0.05),
            lost_publish: dice.rate(0.05),
            lost_ack: dice.rate(0.05),
            double_publish: dice.rate(0.05),
            late_publish: dice.rate(0.05),
            in_flight: dice.rate(0.05),
            slow_read: dice.rate(0.1),
            old_image: dice.rate(0.4),
            no_image: dice.rate(0.3),
            wrong_clock: dice.rate(0.2),
            lost_mail: dice.rate(0.2),
            double_mail: dice.rate(0.2),
            late_mail: dice.rate(0.2),
            failed_wish: dice.rate(0.1),
            late_call: dice.rate(0.1),
            double_call: dice.rate(0.1),
            lost_reply: dice.rate(0.1),
            agent_crashes_per_s: dice.rate(0.05),
            second_agents_per_s: dice.rate(0.05),
            node_losses_per_s: dice.rate(0.03),
            process_losses_per_s: dice.rate(0.03),
            darks_per_s: dice.rate(0.01),
            restore_at: at(dice, 5),
            rebuild_at: at(dice, 5),
            destroy_at: at(dice, 5).filter(|_| suspect),
        }
    }

    /// All faults stop.
    pub fn heal(&mut self) {
        *self = Self {
            clusters: self.clusters,
            workloads: self.workloads,
            commit_on_grant: self.commit_on_grant,
            suspect_after_us: self.suspect_after_us,
            fails: self.fails,
            ..Self::none()
        };
    }

    /// No faults at all.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            clusters: 1,
            workloads: 12,
            commit_on_grant: false,
            suspect_after_us: 0,
            fails: 0.0,
            cancels: 0.0,
            bad_requests: 0.0,
            crash: 0.0,
            crashes_per_s: 0.0,
            pauses_per_s: 0.0,
            lost_publish: 0.0,
            lost_ack: 0.0,
            double_publish: 0.0,
            late_publish: 0.0,
            in_flight: 0.0,
            slow_read: 0.0,
            old_image: 0.0,
            no_image: 0.0,
            wrong_clock: 0.0,
            lost_mail: 0.0,
            double_mail: 0.0,
            late_mail: 0.0,
            failed_wish: 0.0,
            late_call: 0.0,
            double_call: 0.0,
            lost_reply: 0.0,
            agent_crashes_per_s: 0.0,
            second_agents_per_s: 0.0,
            node_losses_per_s: 0.0,
            process_losses_per_s: 0.0,
            darks_per_s: 0.0,
            restore_at: None,
            rebuild_at: None,
            destroy_at: None,
        }
    }
}
