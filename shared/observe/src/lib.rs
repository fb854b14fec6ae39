//! What a process shows of itself: logs on stderr, and `/healthz`, `/readyz`, `/metrics` on loopback.
//!
//! *Alive* means that the event loop beat lately; *ready* that nothing stands in the way of doing its work:
//! each problem has a name and a sentence. Nothing that is decided depends on any of this.

mod health;
mod http;
mod logs;
mod meters;

pub use health::{Health, STALE};
pub use http::{Http, HttpError, Server, serve};
pub use logs::init_logs;
pub use meters::{Metrics, metrics};
