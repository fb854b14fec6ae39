//! Looks after started objects: starts what is due, notices ends, stops the rest. Any number of agents may do it at
//! once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::{info, warn};

use super::{
    Shared,
    attempt::{Attempt, Next},
    files, object,
    object::{Object, Pod},
};
use crate::{
    proc::{ATTEMPT, CLUSTER_DIR, POD},
    shim::{Run, work_dir},
};

const PAUSE: Duration = Duration::from_millis(100);

/// Spares work; nothing here is needed to be right.
#[derive(Default)]
pub struct Memory {
    /// By uid.
    pub pods: BTreeMap<String, Arc<[Pod]>>,
    attempts: BTreeMap<String, Arc<Attempt>>,
    /// Shims that were started but may not have claimed their pod yet.
    spawned: BTreeMap<(String, String), Instant>,
    progress: BTreeMap<String, String>,
    ending: BTreeSet<String>,
    complaints: BTreeMap<String, String>,
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
        let looked_after = if object.is_removing() {
            aside(shared, object, object::tear_down)
        } else if object.has("started") && !object.has("over") {
            step(shared, object)
        } else {
            continue;
        };
        if let Err(cause) = looked_after {
            complain(shared, object, &cause);
        }
    }
    let tokens: BTreeSet<_> = objects.iter().map(Object::token).collect();
    let uids: BTreeSet<_> = objects.iter().map(|object| &object.uid).collect();
    let mut memory = shared.memory();
    memory.pods.retain(|uid, _| uids.contains(uid));
    memory.shims.retain_mut(|shim| matches!(shim.try_wait(), Ok(None)));
    memory.attempts.retain(|token, _| tokens.contains(token));
    memory.progress.retain(|token, _| tokens.contains(token));
    memory.complaints.retain(|token, _| tokens.contains(token));
    memory.spawned.retain(|_, at| at.elapsed() < object::CLAIM);
    Ok(())
}

/// Once for each cause, as this comes ten times a second.
fn complain(shared: &Shared, object: &Object, cause: &io::Error) {
    let text = cause.to_string();
    let gone = !object.dir.exists(); // removed by another agent meanwhile
    if !gone && shared.memory().complaints.insert(object.token(), text.clone()) != Some(text) {
        warn!(object = %object.key, %cause, "this attempt can't be looked after");
    }
}

fn step(shared: &Arc<Shared>, object: &Object) -> io::Result<()> {
    if object.outcome()?.is_some() {
        return aside(shared, object, finish);
    }
    let attempt = attempt(shared, object)?;
    let Next { spawn, outcome, ready, progress } = attempt.next()?;
    if let Some(outcome) = outcome {
        if files::write_once(&object.dir.join("outcome.json"), &outcome)? {
            info!(object = %object.key, reason = %outcome.reason, succeeded = outcome.succeeded, "ended");
        }
        return aside(shared, object, finish);
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
            let shim = spawn(shared, attempt, run)?;
            let mut memory = shared.memory();
            memory.shims.push(shim);
            memory.spawned.insert(name, Instant::now());
        }
    }
    Ok(())
}

fn spawn(shared: &Shared, attempt: &Attempt, run: &Run) -> io::Result<Child> {
    let object = &attempt.object;
    let dir = object.pod_dir(&run.pod);
    work_dir(&dir)?;
    fs::create_dir_all(object.log_dir(&shared.config))?;
    if files::write_once(&dir.join("run.json"), run)? {
        note(attempt, run)?;
    }
    let (program, arguments) =
        shared.config.shim.split_first().ok_or_else(|| io::Error::other("no shim is configured"))?;
    let complaints = fs::OpenOptions::new().create(true).append(true).open(dir.join("shim.err"))?;
    let mut command = Command::new(program);
    command.args(arguments).arg(&dir).env_clear().env("PATH", &shared.config.path);
    command.env(ATTEMPT, &run.token).env(POD, &run.pod).env(CLUSTER_DIR, shared.config.folder());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
    command.spawn().map_err(|cause| io::Error::other(format!("shim {program}: {cause}")))
}

/// Tells the user, in the log, what of the manifest is not done here.
fn note(attempt: &Attempt, run: &Run) -> io::Result<()> {
    let notes = &attempt.notes;
    if notes.is_empty() {
        return Ok(());
    }
    let mut log = fs::OpenOptions::new().create(true).append(true).open(&run.log)?;
    let lines: String = notes.iter().map(|note| format!("muster: {note}\n")).collect();
    log.write_all(lines.as_bytes())
}

/// Stops what still runs; then the object is over for everyone.
fn finish(shared: &Shared, object: &Object) -> io::Result<()> {
    object::stop(shared, object)?;
    object.mark("over").map(drop)
}

/// Does it on a thread of its own, as it takes a grace; one at a time for an object.
fn aside(
    shared: &Arc<Shared>,
    object: &Object,
    work: fn(&Shared, &Object) -> io::Result<()>,
) -> io::Result<()> {
    if !shared.memory().ending.insert(object.token()) {
        return Ok(());
    }
    let (shared, object) = (shared.clone(), object.clone());
    std::thread::Builder::new().name(format!("end {}", object.key)).spawn(move || {
        match work(&shared, &object) {
            Ok(()) => shared.changed.notify_one(),
            Err(cause) => complain(&shared, &object, &cause),
        }
        shared.memory().ending.remove(&object.token());
    })?;
    Ok(())
}
