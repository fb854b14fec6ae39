//! The pure half of the agent: desired against observed, into actions.
//!
//! A cluster's desk says what the cluster shall hold ([`muster_proto::Desired`]); the backend says what is there
//! ([`Observed`]). [`actions()`] compares the two and names the few calls that bring them together. [`Agent`] is the
//! state machine around it: it handles one `Desired` at a time, strictly in the order *perform its actions → observe
//! → report with `echo` = its sequence*, so that the desk can trust what a report does not show. It has no clock and
//! no IO; the agent process and the simulator drive the same code.
//!
//! What makes it safe is small:
//! - what is not listed is left alone: nothing is killed without a verdict;
//! - a start names the uid of the object that was granted, and nothing else is ever started;
//! - lost, doubled and late messages or calls change nothing, as every step looks at the state anew;
//! - an agent acts only while the cluster's own lease is its own ([`Lease`]).

mod actions;
mod agent;
#[cfg(feature = "defects")]
pub mod defect;
pub mod fit;
mod report;
mod world;

pub use actions::{Action, Plan, actions};
pub use agent::{Agent, Config, Done, Effect, Input};
pub use report::report;
pub use world::{Binding, Key, Lease, Node, Object, Observed};
