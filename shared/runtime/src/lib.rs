//! Runs a service: the pure `Driver` of `muster-core`, with Tokio, NATS, RocksDB and a clock around it.
//!
//! ```text
//!   EVENTS ── LogSource ──┐                        ┌── Publisher ── EVENTS (fenced)
//!   REQUESTS, reports ────┼─▶ take … take, conclude ┼── ImageWriter ── RocksDB
//!   answers, asks, time ──┘        (Driver)         └── Outbox ── bodies, clusters, notices
//! ```
//!
//! One task owns the driver. It waits for anything to happen, takes all that has arrived by then, lets the
//! driver conclude once, and carries out the effects: the publish first, then the commit, which a thread of
//! its own writes. An idle service sleeps.
//!
//! - [`run`] runs a service until it is told to end; [`HostConfig`] says where and as whom.
//! - [`ask`] is how others ask a running service for its hash, or why a workload waits.
//! - [`Refold`] folds a log without a store and checks what was recorded in it; [`export`] writes a log into
//!   a file and reads it back.

mod answers;
mod asks;
mod clock;
mod config;
mod error;
pub mod export;
mod feed;
mod host;
mod image;
mod meters;
mod open;
mod outbox;
mod publish;
mod replay;
mod shutdown;
mod source;
mod status;
mod turn;

pub use answers::{Answerer, Reply};
pub use asks::{Answer, HaltedScope, Question, Reason, ask};
pub use config::HostConfig;
pub use error::RunError;
pub use host::{run, run_with};
pub use replay::{Mismatch, Refold, Refolded, ReplayError, replay, replay_file};
pub use shutdown::Shutdown;
