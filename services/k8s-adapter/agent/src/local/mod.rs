//! A member cluster on this machine.
//!
//! `<data>/clusters/<name>/` plays the API server; all agents of the cluster work on it:
//!
//! ```text
//! lock                     held for every change of what exists
//! lease                    which agent acts (JSON)
//! objects/<key>.<uid>/     one leg: spec.pb, pods.json; markers started, removing, over; outcome.json
//! objects/…/pods/<pod>/    run.json, shim.json, child.json, exit.json, work/
//! logs/<workload>/a<n>/    <pod>.log, kept when the object is removed
//! ```
//!
//! Everything that an agent must remember stands there, and what must happen once happens by a file that can be made
//! once. So the agents' memory is worth nothing, and any of them carries on where another was killed.

mod attempt;
pub mod files;
mod job;
mod kill;
mod logs;
mod nodes;
mod object;
mod ports;
mod ray;
mod supervise;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use muster_plan::{Binding, Done, Key, Lease, Node, Observed};
use muster_proto::LegSpec;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::{Backend, LogChunk, LogQuery};
use object::Object;

pub use nodes::{parse as parse_nodes, read as read_nodes};

/// A cluster on this machine, as an agent sees it.
#[derive(Clone, Debug)]
pub struct Config {
    /// muster's data folder; the cluster has its own below it.
    pub data: PathBuf,
    pub cluster: String,
    pub nodes: Vec<Node>,
    /// The command that runs a pod's shim; the pod's folder is added to it.
    pub shim: Vec<String>,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// Where pods find their commands.
    pub path: String,
    /// A Python virtual environment with `ray[default]`; else `ray` is looked for on `path`.
    pub ray_venv: Option<PathBuf>,
    /// For a Ray head to answer, and again for all its workers to join.
    pub ray_patience: Duration,
}

impl Config {
    /// Pods get this process's PATH; Ray comes from MUSTER_RAY_VENV; the shim is this program's subcommand `shim`.
    pub fn new(data: PathBuf, cluster: &str, nodes: Vec<Node>) -> Self {
        let program = std::env::current_exe().unwrap_or_else(|_| "muster".into());
        Self {
            data,
            cluster: cluster.into(),
            nodes,
            shim: vec![program.to_string_lossy().into_owned(), "shim".into()],
            grace: Duration::from_secs(5),
            path: std::env::var("PATH").unwrap_or_else(|_| "/usr/local/bin:/usr/bin:/bin".into()),
            ray_venv: std::env::var_os("MUSTER_RAY_VENV").map(PathBuf::from),
            ray_patience: Duration::from_secs(300),
        }
    }

    fn folder(&self) -> PathBuf {
        self.data.join("clusters").join(&self.cluster)
    }
}

/// The backend `local`. Its pods are looked after from its first call on until it is dropped.
pub struct Local {
    shared: Arc<Shared>,
    supervisor: tokio::task::JoinHandle<()>,
}

/// What calls and the supervisor work on.
pub(crate) struct Shared {
    config: Config,
    changed: Notify,
    /// Brings the supervisor's next pass forward.
    woken: Notify,
    memory: Mutex<supervise::Memory>,
}

#[derive(Default, Serialize, Deserialize)]
struct LeaseFile {
    epoch: u64,
    agent: String,
}

impl Local {
    /// Makes the cluster's folder if need be; must be called within a Tokio runtime.
    ///
    /// # Errors
    /// The folder can't be made.
    pub fn open(config: Config) -> io::Result<Self> {
        use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
        let folder = config.folder();
        // Manifests and environments hold secrets: nobody else looks inside.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for part in ["objects", "logs", "aside"] {
            fs::create_dir_all(folder.join(part))?;
        }
        sweep(&folder.join("aside"));
        let shared = Arc::new(Shared {
            config,
            changed: Notify::new(),
            woken: Notify::new(),
            memory: Mutex::default(),
        });
        let supervisor = tokio::spawn(supervise::forever(shared.clone()));
        Ok(Self { shared, supervisor })
    }

    async fn call<T, F>(&self, work: F) -> io::Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Arc<Shared>) -> io::Result<T> + Send + 'static,
    {
        let shared = self.shared.clone();
        tokio::task::spawn_blocking(move || work(&shared)).await.map_err(io::Error::other)?
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

impl Backend for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn create(&self, key: Key, spec: LegSpec, bindings: Vec<Binding>) -> Done {
        let made = self.call(move |shared| object::create(shared, key, &spec, &bindings)).await;
        self.shared.changed.notify_one();
        made.unwrap_or_else(failed)
    }

    async fn start(&self, key: Key, uid: String) -> Done {
        let started = self.call(move |shared| {
            let _lock = shared.lock()?;
            let object = Object::find(shared, key, Some(&uid))?;
            match object {
                Some(object) if !object.is_removing() => object.mark_started().map(|()| Done::Ok),
                Some(_) => Ok(Done::Failed("it is being removed".into())),
                None => Ok(Done::Failed(format!("there is no object {key} of uid {uid}"))),
            }
        });
        let started = started.await;
        self.shared.wake();
        started.unwrap_or_else(failed)
    }

    async fn remove(&self, key: Key, uid: Option<String>) -> Done {
        let removed = self.call(move |shared| object::remove(shared, key, uid.as_deref())).await;
        self.shared.wake();
        removed.map_or_else(failed, |()| Done::Ok)
    }

    async fn observe(&self) -> Result<Observed, String> {
        self.call(|shared| object::observe(shared)).await.map_err(|cause| cause.to_string())
    }

    async fn take_lease(&self, agent: String, at_least: u64, held: Option<u64>) -> Result<Lease, String> {
        let taken = self.call(move |shared| shared.take_lease(&agent, at_least, held));
        taken.await.map_err(|cause| cause.to_string())
    }

    async fn changed(&self) {
        self.shared.changed.notified().await;
    }

    async fn logs(&self, query: LogQuery) -> io::Result<LogChunk> {
        self.call(move |shared| logs::read(shared, &query)).await
    }
}

impl Shared {
    fn lock(&self) -> io::Result<impl Drop + use<>> {
        files::lock(&self.config.folder().join("lock"))
    }

    fn lease(&self) -> io::Result<Lease> {
        let file: LeaseFile = files::read_json(&self.config.folder().join("lease"))?.unwrap_or_default();
        Ok(Lease { epoch: file.epoch, agent: file.agent })
    }

    fn take_lease(&self, agent: &str, at_least: u64, held: Option<u64>) -> io::Result<Lease> {
        let _lock = self.lock()?;
        let lease = self.lease()?;
        if held.is_some_and(|epoch| lease.agent != agent || lease.epoch != epoch) {
            return Ok(lease);
        }
        let file = LeaseFile { epoch: at_least.max(lease.epoch + 1), agent: agent.into() };
        files::replace(&self.config.folder().join("lease"), &serde_json::to_vec(&file)?)?;
        Ok(Lease { epoch: file.epoch, agent: file.agent })
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, supervise::Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.woken.notify_one();
        self.changed.notify_one();
    }
}

/// What a killed agent was making or unmaking an hour ago.
fn sweep(aside: &Path) {
    let entries = fs::read_dir(aside).into_iter().flatten().flatten();
    let old = entries.filter(|entry| {
        let changed = entry.metadata().and_then(|found| found.modified());
        changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(3600)))
    });
    old.for_each(|entry| drop(fs::remove_dir_all(entry.path())));
}

fn failed(cause: io::Error) -> Done {
    Done::Failed(cause.to_string())
}
