//! What is counted. Labels: service and partition.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use muster_core::Outcome;

pub(crate) struct Meters {
    pub messages: Counter,
    pub requests: Counter,
    pub reports: Counter,
    pub dropped: Counter,
    pub position: Gauge,
    pub head: Gauge,
    pub image: Gauge,
    pub step: Histogram,
    publish: Histogram,
    outcomes: [Counter; 5],
}

impl Meters {
    pub fn new(service: &'static str, partition: &str) -> Self {
        let labels = [("service", service.to_owned()), ("partition", partition.to_owned())];
        let outcome = |outcome: &'static str| {
            let mut labels = labels.to_vec();
            labels.push(("outcome", outcome.to_owned()));
            counter!("muster_publishes_total", &labels)
        };
        Self {
            messages: counter!("muster_messages_folded_total", &labels),
            requests: counter!("muster_requests_read_total", &labels),
            reports: counter!("muster_reports_read_total", &labels),
            dropped: counter!("muster_undecodable_total", &labels),
            position: gauge!("muster_position", &labels),
            head: gauge!("muster_log_head", &labels),
            image: gauge!("muster_image_position", &labels),
            step: histogram!("muster_step_seconds", &labels),
            publish: histogram!("muster_publish_seconds", &labels),
            outcomes: ["stored", "conflict", "in_flight", "unknown", "stale"].map(outcome),
        }
    }

    pub fn published(&self, outcome: Outcome, took: Duration) {
        let index = match outcome {
            Outcome::Stored(_) => 0,
            Outcome::Conflict => 1,
            Outcome::InFlight => 2,
            Outcome::Unknown => 3,
            Outcome::Stale => 4,
        };
        self.outcomes[index].increment(1);
        self.publish.record(took);
    }
}
