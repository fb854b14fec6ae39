//! The member-cluster process: carries out the plan on a backend.
//!
//! [`run()`] drives the pure [`muster_plan::Agent`] with what arrives over a [`Link`] (the bus is wired by the
//! binary) and with what a [`Backend`] answers. It decides nothing: what to create, start and remove is the desk's
//! word, what follows from it the plan's.
//!
//! [`local`] is a cluster on this machine: declared nodes, and pods that are real processes. Its folder plays the API
//! server, so that any number of agent processes may share it, die and come back; each pod runs under a [`shim`] in a
//! session of its own, which outlives the agent and keeps the exit code. Images are not used: a pod's command must be
//! on this machine's PATH. A RayJob or RayCluster runs real Ray.

mod backend;
pub mod local;
pub mod proc;
mod run;
pub mod shim;

pub use backend::{Backend, LogChunk, LogQuery};
pub use run::{Config, Error, Link, Remote, run};
