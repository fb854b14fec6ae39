//! Looks after started objects: starts what is due, notices ends, stops the rest. Any number of agents may do it at
//! once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{info, warn};

use super::{
    Shared,
    attempt::{Attempt, Next},
    files, kill, object,
    object::Object,
    ports, ray,
};
use crate::{
    proc::{ATTEMPT, POD},
    shim::{Run, work_dir},
};

const PAUSE: Duration = Duration::from_millis(100);

/// Spares work; nothing here is needed to be right.
#[derive(Default)]
pub struct Memory {
    attempts: BTreeMap<String, Arc<Attempt>>,
    /// Shims that were started but may not have claimed their pod yet.
    spawned: BTreeMap<(String, String), Instant>,
    progress: BTreeMap<String, String>,
    killing: BTreeSet<String>,
    /// Shims to take off the kernel's hands when they end.
    shims: Vec<Child>,
}

pub async fn forever(shared: Arc<Shared>) {
    loop {
        let once = shared.clone();
        let passed = tokio::task::spawn_blocking(move || pass(&once)).await;
        if let Ok(Err(cause)) = passed {
            warn!(%cause, "the cluster's folder can't be read");
        }
        drop(tokio::time::timeout(PAUSE, shared.woken.notified()).await);
    }
}

fn pass(shared: &Arc<Shared>) -> io::Result<()> {
    let objects = Object::all(shared)?;
    for object in &objects {
        if object.has("started") && !object.has("over") && !object.is_removing() {
            if let Err(cause) = step(shared, object) {
                warn!(object = %object.key, %cause, "this attempt can't be looked after");
            }
        }
    }
    let tokens: BTreeSet<_> = objects.iter().map(Object::token).collect();
    let mut memory = shared.memory();
    memory.shims.retain_mut(|shim| matches!(shim.try_wait(), Ok(None)));
    memory.attempts.retain(|token, _| tokens.contains(token));
    memory.progress.retain(|token, _| tokens.contains(token));
    memory.spawned.retain(|_, at| at.elapsed() < object::CLAIM);
    Ok(())
}

fn step(shared: &Arc<Shared>, object: &Object) -> io::Result<()> {
    if object.outcome()?.is_some() {
        return finish(shared, object);
    }
    let attempt = attempt(shared, object)?;
    let Next { spawn, outcome, ready, progress } = attempt.next()?;
    if let Some(outcome) = outcome {
        if files::write_once(&object.dir.join("outcome.json"), &outcome)? {
            info!(object = %object.key, reason = %outcome.reason, succeeded = outcome.succeeded, "ended");
        }
        return finish(shared, object);
    }
    if !spawn.is_empty() {
        spawn_all(shared, &attempt, &spawn)?;
    }
    tell(shared, object, ready, progress)
}

fn attempt(shared: &Shared, object: &Object) -> io::Result<Arc<Attempt>> {
    if let Some(known) = shared.memory().attempts.get(&object.token()) {
        return Ok(known.clone());
    }
    let loaded = Arc::new(Attempt::load(&shared.config, object)?);
    shared.memory().attempts.insert(object.token(), loaded.clone());
    Ok(loaded)
}

fn tell(shared: &Shared, object: &Object, ready: Option<String>, progress: String) -> io::Result<()> {
    let mut changed = match ready {
        Some(address) => files::write_once(&object.dir.join("ready"), &address)?,
        None => false,
    };
    if shared.memory().progress.get(&object.token()) != Some(&progress) {
        files::replace(&object.dir.join("progress"), progress.as_bytes())?;
        shared.memory().progress.insert(object.token(), progress);
        changed = true;
    }
    if changed {
        shared.changed.notify_one();
    }
    Ok(())
}

/// Under the lock, so that a removal either sees these processes or keeps them from starting. A spawned program
/// carries the attempt's token from the moment that `spawn` returns.
fn spawn_all(shared: &Shared, attempt: &Attempt, runs: &[Run]) -> io::Result<()> {
    let object = &attempt.object;
    let _lock = shared.lock()?;
    let present = Object::find(shared, object.key, Some(&object.uid))?;
    if present.is_none_or(|object| object.is_removing() || object.has("outcome.json")) {
        return Ok(());
    }
    for run in runs {
        let name = (object.token(), run.pod.clone());
        let recent = shared.memory().spawned.get(&name).is_some_and(|at| at.elapsed() < object::CLAIM);
        if !recent {
            let shim = spawn(shared, object, run)?;
            let mut memory = shared.memory();
            memory.shims.push(shim);
            memory.spawned.insert(name, Instant::now());
        }
    }
    Ok(())
}

fn spawn(shared: &Shared, object: &Object, run: &Run) -> io::Result<Child> {
    let dir = object.pod_dir(&run.pod);
    work_dir(&dir)?;
    fs::create_dir_all(object.log_dir(&shared.config))?;
    files::write_once(&dir.join("run.json"), run)?;
    let (program, arguments) =
        shared.config.shim.split_first().ok_or_else(|| io::Error::other("no shim is configured"))?;
    let complaints = fs::OpenOptions::new().create(true).append(true).open(dir.join("shim.err"))?;
    let mut command = Command::new(program);
    command.args(arguments).arg(&dir).env_clear().env("PATH", &shared.config.path);
    command.env(ATTEMPT, &run.token).env(POD, &run.pod);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    command.spawn().map_err(|cause| io::Error::other(format!("shim {program}: {cause}")))
}

/// Stops what still runs, aside, as it takes a grace; then the object is over for everyone.
fn finish(shared: &Arc<Shared>, object: &Object) -> io::Result<()> {
    if !shared.memory().killing.insert(object.token()) {
        return Ok(());
    }
    let (shared, object) = (shared.clone(), object.clone());
    let name = format!("stop {}", object.key);
    std::thread::Builder::new().name(name).spawn(move || {
        let stopped = kill::attempt(&object, shared.config.grace).and_then(|()| {
            ports::release(&object.token());
            ray::tidy(&object);
            object.mark("over")
        });
        match stopped {
            Ok(_) => shared.changed.notify_one(),
            Err(cause) => warn!(object = %object.key, %cause, "could not be stopped; will try again"),
        }
        shared.memory().killing.remove(&object.token());
    })?;
    Ok(())
}
