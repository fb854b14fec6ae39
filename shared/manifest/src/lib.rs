//! Users' files, read into scheduling fields: in one place, so that the queue (which
//! validates), the agent (which runs) and the CLI (which tries a file before sending it)
//! read a file alike.
//!
//! A file's way:
//!
//! 1. [`document`] turns bytes (YAML as Kubernetes reads it, or JSON) into a JSON value,
//!    within limits of size, depth and aliases.
//! 2. [`workload::read`] makes a [`workload::JobSpec`] of a RayJob, RayCluster, Job or Pod:
//!    the pod sets that Kueue would make of it, with requests as Kubernetes computes them
//!    ([`quantity`]). [`policy::read`] makes a [`muster_proto::Policy`] of Kueue's objects.
//! 3. [`execution::read`] takes from the same file what the scheduler must not see and the
//!    local backend needs: commands, arguments, environment, Ray's start parameters.
//!
//! Every reader goes on after a mistake and returns every [`muster_proto::Fault`] it found:
//! the path of the field, its value, and what would mend it. What muster does not support is a
//! fault too; nothing that a user wrote is dropped silently. Values of fields that may hold
//! secrets (environment, commands) never enter a fault.
//!
//! The crate is pure: no IO, no clock, no randomness; nothing in a file makes it panic.

pub mod document;
pub mod execution;
mod names;
mod node;
mod pod;
pub mod policy;
pub mod quantity;
mod requests;
pub mod selector;
pub mod workload;

pub use muster_proto::Fault;
