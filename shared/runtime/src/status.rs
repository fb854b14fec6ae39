//! What a host says of itself: log lines at changes, readiness, gauges.

use muster_core::clock::Skewed;
use muster_core::{Driver, Seq, Service, Timestamp};
use muster_observe::Health;

use crate::meters::Meters;

pub(crate) struct Status {
    pub health: Health,
    pub meters: Meters,
    /// How far the log is known to reach.
    pub head: Seq,
    caught_up: bool,
    skewed: bool,
    connected: bool,
    halts: usize,
}

impl Status {
    pub fn new(health: Health, meters: Meters, head: Seq) -> Self {
        health.set("start", None);
        health.set("log", Some("the log is being folded".to_owned()));
        Self { health, meters, head, caught_up: false, skewed: false, connected: true, halts: 0 }
    }

    /// The time to decide with; none, and not ready, while the clocks disagree.
    pub fn trusted(&mut self, now: Result<Option<Timestamp>, Skewed>) -> Option<Timestamp> {
        match now {
            Ok(now) => {
                if std::mem::take(&mut self.skewed) {
                    tracing::info!("the clocks agree again: deciding");
                    self.health.set("clock", None);
                }
                now
            }
            Err(skewed) => {
                if !std::mem::replace(&mut self.skewed, true) {
                    tracing::error!("{skewed}");
                }
                self.health.set("clock", Some(skewed.to_string()));
                None
            }
        }
    }

    pub fn connected(&mut self, connected: bool) {
        if connected != self.connected {
            self.connected = connected;
            self.health.set("nats", (!connected).then(|| "the connection to NATS is lost".to_owned()));
        }
    }

    /// After each turn.
    pub fn folded<S: Service>(&mut self, driver: &Driver<S>) {
        let (position, caught_up) = (driver.meta().position, driver.is_caught_up());
        self.head = self.head.max(position);
        if caught_up != self.caught_up {
            self.caught_up = caught_up;
            if caught_up {
                tracing::info!(position, "caught up with the log");
            }
            let behind = || format!("the log is being folded: {position} of {}", self.head);
            self.health.set("log", (!caught_up).then(behind));
        }
        let halts = driver.halts().count();
        if halts != self.halts {
            self.halts = halts;
            let text = |(scope, (seq, reason)): (&String, &(Seq, String))| {
                format!("{scope} is halted by message {seq}: {reason}")
            };
            let texts: Vec<String> = driver.halts().map(text).collect();
            for text in &texts {
                tracing::error!("{text}");
            }
            self.health.set("halts", (!texts.is_empty()).then(|| texts.join("; ")));
        }
    }

    /// Now and then.
    pub fn gauge(&self, position: Seq, image: Seq) {
        self.meters.position.set(position as f64);
        self.meters.head.set(self.head as f64);
        self.meters.image.set(image as f64);
    }
}
