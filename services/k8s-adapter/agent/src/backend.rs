//! What the agent needs of a cluster.

use std::{future::Future, io};

use muster_plan::{Binding, Done, Key, Lease, Observed};
use muster_proto::LegSpec;

/// A cluster. Every call may be repeated, may land late, and may race with another agent's; the preconditions hold
/// all the same, as the cluster itself checks them.
pub trait Backend: Send + Sync + 'static {
    /// `local` or `kubernetes`.
    fn name(&self) -> &'static str;

    /// Makes the object, stopped. [`Done::Ok`] also when the name is taken.
    fn create(&self, key: Key, spec: LegSpec, bindings: Vec<Binding>) -> impl Future<Output = Done> + Send;

    /// Starts the object of this uid, once, and nothing else.
    fn start(&self, key: Key, uid: String) -> impl Future<Output = Done> + Send;

    /// Sees to it that the object of this uid, or whatever bears the name, is stopped and removed: it vanishes when
    /// nothing of it runs any more, and can't be started meanwhile. May answer before.
    fn remove(&self, key: Key, uid: Option<String>) -> impl Future<Output = Done> + Send;

    /// # Errors
    /// The cluster could not be read.
    fn observe(&self) -> impl Future<Output = Result<Observed, String>> + Send;

    /// As [`muster_plan::Effect::TakeLease`]; gives the lease as it stands after the call.
    ///
    /// # Errors
    /// The lease could not be read or written.
    fn take_lease(
        &self,
        agent: String,
        at_least: u64,
        held: Option<u64>,
    ) -> impl Future<Output = Result<Lease, String>> + Send;

    /// Returns when something may have changed since the last call.
    fn changed(&self) -> impl Future<Output = ()> + Send;

    /// # Errors
    /// No such log, or it could not be read.
    fn logs(&self, query: LogQuery) -> impl Future<Output = io::Result<LogChunk>> + Send;
}

/// Which part of which log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// As [`Key::workload_id`] writes it.
    pub workload: String,
    /// The last attempt that has logs when 0.
    pub attempt: u32,
    /// When empty: the entrypoint of a RayJob, else the first pod.
    pub pod: String,
    /// Byte to begin at.
    pub from: u64,
    /// At most so many bytes.
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogChunk {
    pub attempt: u32,
    pub pod: String,
    /// All pods of the attempt that have a log.
    pub pods: Vec<String>,
    pub data: Vec<u8>,
    /// Where to go on: `from` + the bytes given.
    pub next: u64,
    /// Nothing will be appended any more, as far as this cluster knows.
    pub ended: bool,
}
