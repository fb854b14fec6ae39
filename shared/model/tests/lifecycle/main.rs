//! The lifecycle fold against its page (LIFECYCLE.md): every ordered pair of concurrent facts,
//! and invariants of random logs.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod cases;
mod invariants;
mod log;
mod pairs;
mod states;
