//! The lifecycle fold against its page (LIFECYCLE.md): every ordered pair of concurrent facts,
//! and invariants of random logs.

mod cases;
mod invariants;
mod log;
mod pairs;
mod states;
