//! A whole cell on this machine: `muster up`, `down`, `status`, `doctor`.
//!
//! ```text
//! <data>/nats/             nats.conf, users/*.json (owner only), streams
//! <data>/services/<name>/  RocksDB image of each service
//! <data>/clusters/<name>/  the local cluster: what its API server would hold
//! <data>/run/              supervisor.pid, state.json (what runs), cell.json (how it was started)
//! <data>/log/<name>.log    JSON logs of each process
//! ```

mod cell;
mod doctor;
mod down;
mod nats;
mod status;
mod supervisor;
mod up;

pub use doctor::doctor;
pub use down::{down, find};
pub use nats::generation_message;
pub use status::status;
pub use supervisor::supervise;
pub use up::up;
