//! The contract of a service, and the pure host that drives it.
//!
//! A [`Service`] is a pure decider: [`Service::evolve`] folds facts of the log into its
//! [`State`], [`Service::decide`] looks at that state and says which facts should come next.
//! Neither has IO, a clock or randomness. The [`Driver`] is the host's brain, equally pure:
//! `step(now, Input) -> Vec<Effect>`. Tokio carries out its effects in production
//! (`muster-runtime`), the simulator in tests (`muster-sim`), so what is tested is what runs.
//!
//! ```text
//!            records                       Effect::Publish (fenced)
//!  EVENTS ───────────▶ evolve ─▶ State ─▶ decide ─▶ overlay + check ───────────▶ EVENTS
//!  requests, reports ▶ absorb ─▶ Inbox ──┘   └─▶ outbox: what is to be done outside the log
//! ```
//!
//! State lives in [`Table`]s: ordered maps that know their dirty rows and their hash, and
//! can be rolled back. `state(seq)` is a fold of the log up to `seq`, so every replica,
//! restart and replay has the same hash at the same sequence.

pub mod clock;
pub mod defect;
mod driver;
mod event;
pub mod harness;
mod id;
mod image;
mod service;
mod state;
mod table;
mod time;

pub use driver::{Driver, Effect, Identity, Input, Outcome, Position, Stop};
pub use event::{At, Event, Record, Undecodable, decode};
pub use id::{BadId, Seq, WorkloadId};
pub use image::{Change, Image, ImageMeta, Refused, WriteSet, verify};
pub use service::{Broken, Decision, Incoming, Outgoing, RequestMessage, Service, Why};
pub use state::{State, hash_of};
pub use table::{AnyTable, CorruptRow, Key, Row, Table};
pub use time::Timestamp;

/// SHA-256 of a message's payload: the link of the chain in the envelope.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).into()
}
