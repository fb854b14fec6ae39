//! Which clusters were heard, and since when this inbox has been listening.

use std::collections::BTreeMap;

use muster_core::Timestamp;
use muster_model::Lifecycle;
use muster_proto::Report;

use crate::Config;

/// When no cluster at all is heard for longer than this, it was we who did not listen.
const DEAF_AFTER_US: i64 = 5_000_000;

/// The heartbeats. Volatile: after a restart a whole timeout passes before silence counts.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    /// Of clusters that have joined, so its size is bounded by the log.
    heard: BTreeMap<String, Timestamp>,
    /// Since when there has been no long silence of all.
    listening: Option<Timestamp>,
    last: Timestamp,
}

impl Inbox {
    pub fn heard(&mut self, lifecycle: &Lifecycle, report: &Report, time: Timestamp) {
        if report.generation != lifecycle.generation() || lifecycle.cluster(&report.cluster).is_none() {
            return;
        }
        if self.listening.is_none() || time.since(self.last) > DEAF_AFTER_US {
            self.listening = Some(time);
        }
        self.last = self.last.max(time);
        let last = self.heard.entry(report.cluster.clone()).or_default();
        *last = time.max(*last);
    }

    /// Open clusters with the time at which their silence will have counted for long enough, and
    /// when they were last heard.
    fn silences<'a>(
        &'a self,
        config: &Config,
        lifecycle: &'a Lifecycle,
    ) -> impl Iterator<Item = (&'a String, Timestamp, Timestamp)> {
        let after = config.suspect_after_us;
        let listening = self.listening.filter(|_| after > 0);
        lifecycle.clusters().filter(|(_, row)| row.is_open()).filter_map(move |(name, _)| {
            let heard = self.heard.get(name).copied().unwrap_or_default();
            Some((name, heard.max(listening?).plus_us(after), heard))
        })
    }

    /// Clusters to suspect: silent for a whole timeout in which others were heard. When all fall
    /// silent at once, that says nothing about any of them.
    pub fn silent(&self, config: &Config, lifecycle: &Lifecycle, now: Timestamp) -> Vec<(String, Timestamp)> {
        if now.since(self.last) > DEAF_AFTER_US {
            return Vec::new();
        }
        self.silences(config, lifecycle)
            .filter(|(name, due, _)| *due <= now && self.others_heard(name, config, now))
            .map(|(name, _, heard)| (name.clone(), heard))
            .collect()
    }

    fn others_heard(&self, cluster: &str, config: &Config, now: Timestamp) -> bool {
        self.heard.iter().any(|(name, heard)| name != cluster && now.since(*heard) < config.suspect_after_us)
    }

    /// When the next cluster may have to be suspected.
    pub fn next_suspicion(
        &self,
        config: &Config,
        lifecycle: &Lifecycle,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.silences(config, lifecycle).map(|(_, due, _)| due).filter(|due| *due > now).min()
    }
}
