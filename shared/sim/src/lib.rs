//! The simulator: the real services, the real desk and the real agent's plan, in a world where
//! everything goes wrong, and judges who watch the processes.
//!
//! A seed draws a world ([`options`]): clusters, workloads, and how often each fault strikes. The
//! world is one queue of events ([`world`]); services are [`muster_core::Driver`]s, two replicas each
//! ([`replica`]), on a log in memory with the fence ([`log`]) and a disk each ([`disk`]). Agents run
//! the production plan over a simulated API server ([`agent`], [`cluster`]) whose calls land late,
//! twice, or without an answer. Faults strike for a minute of the world's time; then the world heals,
//! everything has to finish, and the log has to come to rest ([`run`]).
//!
//! The judges ([`oracle`]) know no service's tables: they read the log as it is stored and watch the
//! processes as they start and end. [`campaign`] runs many seeds and counts what occurred ([`stats`]):
//! a fault that never struck proves nothing. Defects built into the services on purpose, and switched
//! on one at a time, show that the judges would see them.

pub mod agent;
pub mod campaign;
mod chaos;
mod clients;
pub mod cluster;
pub mod dice;
pub mod disk;
pub mod host;
pub mod log;
pub mod options;
pub mod oracle;
pub mod replica;
pub mod run;
pub mod stats;
pub mod world;

pub use campaign::{DEFECTS, Outcome, campaign};
pub use run::{Verdict, run};
