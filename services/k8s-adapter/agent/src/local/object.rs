//! An object's folder: made whole, started by a marker, removed when nothing of it runs.

use std::{collections::BTreeMap, fs, io, path::PathBuf, time::Duration};

use std::sync::Arc;

use muster_manifest::execution::{self, Execution};
use muster_plan::{Binding, Done, Key, Node, Object as Seen, Observed};
use muster_proto::{LegSpec, Phase};
use prost::Message;
use serde::{Deserialize, Serialize};

use super::{Config, Shared, attempt, files, kill, ports, ray};
use crate::shim::{Claim, Exit};

/// One pod of a leg.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pod {
    pub set: String,
    pub index: u32,
    pub node: String,
    pub requests: BTreeMap<String, i64>,
}

impl Pod {
    pub fn name(&self) -> String {
        format!("{}-{}", self.set, self.index)
    }
}

/// How the attempt ended; decided once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub succeeded: bool,
    /// Node or process vanished: not the user's doing.
    pub lost: bool,
    pub exit_code: Option<i32>,
    pub reason: String,
}

/// How far a pod has come.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Absent,
    Running {
        since_us: u64,
    },
    Exited(Exit),
    /// Shim and process are gone, and no exit code was written.
    Lost,
}

/// The folder of an object.
#[derive(Clone, Debug)]
pub struct Object {
    pub key: Key,
    pub uid: String,
    pub dir: PathBuf,
}

impl Object {
    /// The object of this name, if it bears this uid. Its folder bears both, so whatever is written late, for an
    /// object that is gone, finds no folder.
    pub fn find(shared: &Shared, key: Key, uid: Option<&str>) -> io::Result<Option<Self>> {
        Ok(Self::all(shared)?
            .into_iter()
            .find(|object| object.key == key && uid.is_none_or(|uid| uid == object.uid)))
    }

    pub fn all(shared: &Shared) -> io::Result<Vec<Self>> {
        let mut objects = Vec::new();
        for entry in fs::read_dir(shared.config.folder().join("objects"))? {
            let entry = entry?;
            let name = entry.file_name();
            let Some((key, uid)) = name.to_str().and_then(|name| name.split_once('.')) else { continue };
            let Some(key) = Key::parse(key) else { continue };
            objects.push(Self { key, uid: uid.into(), dir: entry.path() });
        }
        Ok(objects)
    }

    /// In the environment of every process of this attempt, and of no other.
    pub fn token(&self) -> String {
        format!("{}-{}", self.key, self.uid)
    }

    pub fn has(&self, marker: &str) -> bool {
        self.dir.join(marker).exists()
    }

    pub fn mark(&self, marker: &str) -> io::Result<bool> {
        files::write_once(&self.dir.join(marker), &files::now_us())
    }

    pub fn is_removing(&self) -> bool {
        self.has("removing")
    }

    pub fn mark_started(&self) -> io::Result<()> {
        self.mark("started").map(drop)
    }

    pub fn outcome(&self) -> io::Result<Option<Outcome>> {
        files::read_json(&self.dir.join("outcome.json"))
    }

    pub fn pods(&self) -> io::Result<Vec<Pod>> {
        Ok(files::read_json(&self.dir.join("pods.json"))?.unwrap_or_default())
    }

    pub fn spec(&self) -> io::Result<LegSpec> {
        let bytes = files::read(&self.dir.join("spec.pb"))?.unwrap_or_default();
        LegSpec::decode(bytes.as_slice()).map_err(io::Error::other)
    }

    pub fn pod_dir(&self, pod: &str) -> PathBuf {
        self.dir.join("pods").join(pod)
    }

    pub fn log_dir(&self, config: &Config) -> PathBuf {
        let logs = config.folder().join("logs");
        logs.join(self.key.workload_id()).join(format!("a{}", self.key.attempt))
    }

    pub fn state(&self, pod: &str) -> io::Result<State> {
        let dir = self.pod_dir(pod);
        let Some(claim) = files::read_json::<Claim>(&dir.join("shim.json"))? else {
            return Ok(State::Absent);
        };
        let child = files::read_json::<crate::proc::Process>(&dir.join("child.json"))?;
        let alive = claim.process.alive() || child.is_some_and(|child| child.alive());
        // Read after the look at the processes: a shim writes the exit before it goes.
        Ok(match files::read_json(&dir.join("exit.json"))? {
            Some(exit) => State::Exited(exit),
            None if alive => State::Running { since_us: claim.claimed_us },
            None => State::Lost,
        })
    }
}

/// Reads the manifest into what this backend can run.
pub fn executable(spec: &LegSpec) -> Result<Execution, String> {
    let execution = execution::read(&spec.manifest).map_err(|faults| {
        let faults: Vec<_> =
            faults.iter().map(|fault| format!("{} {}", fault.field, fault.message)).collect();
        format!("the manifest can't be run: {}", faults.join("; "))
    })?;
    attempt::check(&execution, spec)?;
    Ok(execution)
}

pub fn create(shared: &Shared, key: Key, spec: &LegSpec, bindings: &[Binding]) -> io::Result<Done> {
    if let Err(reason) = executable(spec) {
        return Ok(Done::Refused(reason));
    }
    let pods: Vec<Pod> = bindings.iter().map(|binding| pod(spec, binding)).collect();
    let folder = shared.config.folder();
    let uid = format!("{:016x}", rand::random::<u64>());
    let aside = folder.join("aside").join(&uid);
    fs::create_dir(&aside)?;
    fs::create_dir(aside.join("pods"))?;
    fs::write(aside.join("spec.pb"), spec.encode_to_vec())?;
    fs::write(aside.join("pods.json"), serde_json::to_vec(&pods)?)?;

    let _lock = shared.lock()?;
    let (objects, mut nodes) = survey(shared)?;
    let done = if objects.contains_key(&key) {
        Done::Ok
    } else if fits(&mut nodes, &pods) {
        fs::rename(&aside, folder.join("objects").join(format!("{key}.{uid}")))?;
        return Ok(Done::Ok);
    } else {
        Done::Failed("the nodes were taken in between".into())
    };
    fs::remove_dir_all(&aside)?;
    Ok(done)
}

fn pod(spec: &LegSpec, binding: &Binding) -> Pod {
    let set = spec.pod_sets.iter().find(|set| set.name == binding.pod_set);
    Pod {
        set: binding.pod_set.clone(),
        index: binding.index,
        node: binding.node.clone(),
        requests: set.map(|set| set.requests.clone()).unwrap_or_default(),
    }
}

fn fits(nodes: &mut [Node], pods: &[Pod]) -> bool {
    take(nodes, pods);
    let named = |pod: &Pod| nodes.iter().any(|node| node.name == pod.node);
    pods.iter().all(named) && nodes.iter().all(|node| node.free.values().all(|free| *free >= 0))
}

fn take(nodes: &mut [Node], pods: &[Pod]) {
    for pod in pods {
        let Some(node) = nodes.iter_mut().find(|node| node.name == pod.node) else { continue };
        for (resource, amount) in &pod.requests {
            *node.free.entry(resource.clone()).or_default() -= amount;
        }
    }
}

pub fn observe(shared: &Shared) -> io::Result<Observed> {
    let (objects, nodes) = survey(shared)?;
    Ok(Observed { objects, nodes, lease: shared.lease()? })
}

/// What exists, and the declared nodes less what objects hold that are not over.
fn survey(shared: &Shared) -> io::Result<(BTreeMap<Key, Seen>, Vec<Node>)> {
    let (mut objects, mut nodes) = (BTreeMap::new(), shared.config.nodes.clone());
    for object in Object::all(shared)? {
        let looked = seen(&object).and_then(|seen| Ok((seen, pods_of(shared, &object)?)));
        let (seen, pods) = match looked {
            Err(_) if !object.dir.exists() => continue, // removed meanwhile
            looked => looked?,
        };
        if !is_over(seen.phase) {
            take(&mut nodes, &pods);
        }
        objects.insert(object.key, seen);
    }
    Ok((objects, nodes))
}

/// They never change, and a look must be quick.
fn pods_of(shared: &Shared, object: &Object) -> io::Result<Arc<[Pod]>> {
    if let Some(pods) = shared.memory().pods.get(&object.uid) {
        return Ok(pods.clone());
    }
    let pods: Arc<[Pod]> = object.pods()?.into();
    shared.memory().pods.insert(object.uid.clone(), pods.clone());
    Ok(pods)
}

fn is_over(phase: Phase) -> bool {
    matches!(phase, Phase::Succeeded | Phase::Failed | Phase::Lost)
}

fn seen(object: &Object) -> io::Result<Seen> {
    let mut seen = Seen {
        uid: object.uid.clone(),
        phase: Phase::Stopped,
        reason: String::new(),
        exit_code: None,
        address: String::new(),
    };
    if let (true, Some(outcome)) = (object.has("over"), object.outcome()?) {
        seen.phase = match outcome {
            Outcome { succeeded: true, .. } => Phase::Succeeded,
            Outcome { lost: true, .. } => Phase::Lost,
            _ => Phase::Failed,
        };
        (seen.reason, seen.exit_code) = (outcome.reason, outcome.exit_code);
    } else if let Some(address) = files::read_json::<String>(&object.dir.join("ready"))? {
        (seen.phase, seen.address) = (Phase::Ready, address);
    } else if object.has("started") {
        seen.phase = Phase::Running;
        let progress = files::read(&object.dir.join("progress"))?.unwrap_or_default();
        seen.reason = String::from_utf8_lossy(&progress).into_owned();
    }
    Ok(seen)
}

/// Marks it. No start can come after the mark, so what the removal does not find will never be there.
pub fn remove(shared: &Shared, key: Key, uid: Option<&str>) -> io::Result<()> {
    let _lock = shared.lock()?;
    match Object::find(shared, key, uid)? {
        Some(object) => object.mark("removing").map(drop),
        None => Ok(()),
    }
}

/// Stops all that runs of it, then makes the object vanish.
pub fn tear_down(shared: &Shared, object: &Object) -> io::Result<()> {
    stop(shared, object)?;
    let aside = shared.config.folder().join("aside").join(&object.uid);
    for (from, to) in [(&object.dir, Some(&aside)), (&aside, None)] {
        let done = to.map_or_else(|| fs::remove_dir_all(from), |to| fs::rename(from, to));
        if let Err(cause) = done
            && cause.kind() != io::ErrorKind::NotFound
        // another agent was faster
        {
            return Err(cause);
        }
    }
    Ok(())
}

/// Nothing of it runs afterwards, and nothing is left outside its folder but its logs.
pub fn stop(shared: &Shared, object: &Object) -> io::Result<()> {
    kill::attempt(object, shared.config.grace)?;
    ports::release(&object.token());
    ray::tidy(object);
    Ok(())
}

/// How long a shim may take from its start to its claim before another one is started.
pub const CLAIM: Duration = Duration::from_secs(5);
