//! Where a service runs, and as whom.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use muster_core::Timestamp;
use muster_observe::Http;

/// Everything about a process that is not about its service.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// How to reach NATS.
    pub bus: muster_bus::Options,
    /// Which partition of the service: a number, or for the desk its cluster.
    pub partition: String,
    /// Which replica of the partition: chooses the durables, so no two processes may share it.
    pub slot: u8,
    /// Who this process is in its envelopes, e.g. host and process id.
    pub instance: String,
    /// Which build, likewise.
    pub build: String,
    /// Folder of the image; of this replica alone.
    pub image: PathBuf,
    /// Throw the image away and fold the log from its beginning.
    pub rebuild: bool,
    /// Whether the service reads what clusters report (its durable on CLUSTERS says of which).
    pub reports: bool,
    /// Where to serve health and metrics; none: nowhere.
    pub http: Option<Http>,
    /// This machine's wall clock. It is only compared with the server's; tests give another.
    pub wall: fn() -> Timestamp,
}

impl HostConfig {
    /// Partition 0, slot 0, no reports, no HTTP.
    #[must_use]
    pub fn new(bus: muster_bus::Options, image: impl Into<PathBuf>) -> Self {
        Self {
            bus,
            partition: "0".to_owned(),
            slot: 0,
            instance: format!("pid-{}", std::process::id()),
            build: env!("CARGO_PKG_VERSION").to_owned(),
            image: image.into(),
            rebuild: false,
            reports: false,
            http: None,
            wall: wall_clock,
        }
    }
}

fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
