//! Read models for CLI, HTTP and audits. The ledger decides nothing and writes no facts.
//!
//! It folds the same log with the same lifecycle fold as the services, so it shows exactly what
//! they agreed on, void facts included, and rebuilds from the log at any time.
//!
//! - [`Ledger`]: the [`muster_core::Service`] that folds and never decides.
//! - [`view`]: what it answers with, as serde types that the CLI shares.
//! - [`Questions`]: answers asks, and asks the services for their reasons (`muster why`).
//! - [`answer`]: pure: a question and a state give an answer. Questions are JSON over NATS
//!   request/reply on `muster.ask.ledger` (operators) and `muster.ask.ledger.<tenant>`.

mod answer;
mod describe;
mod phase;
mod serve;
mod service;
mod state;
pub mod view;

pub use answer::{Scope, answer};
pub use serve::Questions;
pub use service::Ledger;
pub use state::LedgerState;
