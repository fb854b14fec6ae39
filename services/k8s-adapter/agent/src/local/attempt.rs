//! One attempt on this machine: what runs next, from what has become of its pods.

use std::{collections::BTreeMap, io, path::PathBuf};

use muster_manifest::execution::{Execution, Process, Role};
use muster_proto::LegSpec;

use super::{
    Config, job,
    object::{self, Object, Outcome, Pod, State},
    ray,
};
use crate::{
    proc::{ATTEMPT, CLUSTER_DIR, POD},
    shim::{Exit, Run},
};

/// Of the agent's own environment, what a pod may see.
const INHERITED: [&str; 6] = ["HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"];

pub struct Attempt {
    pub config: Config,
    pub object: Object,
    pub spec: LegSpec,
    pub execution: Execution,
    pub pods: Vec<Pod>,
    /// What of the manifest is not done here, for the user.
    pub notes: Vec<String>,
}

/// What to do now; empty while there is nothing but to wait.
#[derive(Debug, Default)]
pub struct Next {
    pub spawn: Vec<Run>,
    /// Once set, it stays: the rest is stopped.
    pub outcome: Option<Outcome>,
    /// The address of a Ray head that answers.
    pub ready: Option<String>,
    /// What it waits for, for users.
    pub progress: String,
}

impl Next {
    pub fn ends(outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..Self::default() }
    }
}

/// Whether this backend can run it at all.
pub fn check(execution: &Execution, spec: &LegSpec) -> Result<(), String> {
    for range in &spec.pods {
        let Some(role) = execution.roles.iter().find(|role| role.name == range.pod_set) else {
            return Err(format!("the manifest has no pods {:?}", range.pod_set));
        };
        let several = role.containers.len() > 1 || !role.init.is_empty();
        if several && !execution.kind.starts_with("Ray") {
            let names: Vec<_> = role.init.iter().chain(&role.containers).map(|c| c.name.as_str()).collect();
            return Err(format!("the local backend runs one container a pod, not {}", names.join(", ")));
        }
    }
    if execution.kind.starts_with("Ray") { ray::check(execution, spec) } else { Ok(()) }
}

impl Attempt {
    pub fn load(config: &Config, object: &Object) -> io::Result<Self> {
        let spec = object.spec()?;
        let execution = object::executable(&spec).map_err(io::Error::other)?;
        let (config, object, pods) = (config.clone(), object.clone(), object.pods()?);
        let notes = notes(&execution);
        Ok(Self { config, object, spec, execution, pods, notes })
    }

    pub fn next(&self) -> io::Result<Next> {
        if self.execution.kind.starts_with("Ray") { ray::next(self) } else { job::next(self) }
    }

    pub fn role(&self, name: &str) -> Option<&Role> {
        self.execution.roles.iter().find(|role| role.name == name)
    }

    pub fn state(&self, pod: &str) -> io::Result<State> {
        self.object.state(pod)
    }

    /// A pod's process. `process`: the container it stands for; `more`: outweighs the container's environment.
    pub fn run(
        &self,
        pod: &str,
        node: &str,
        process: Option<&Process>,
        argv: Vec<String>,
        more: &BTreeMap<String, String>,
    ) -> Run {
        let given = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok()?));
        let mut env: BTreeMap<_, _> = INHERITED.iter().filter_map(given).collect();
        env.insert("PATH".into(), self.config.path.clone());
        env.extend(process.iter().flat_map(|process| process.env.clone()));
        env.extend(more.clone());
        let (token, workload) = (self.object.token(), self.object.key.workload_id());
        let folder = self.config.folder().display().to_string();
        for (name, value) in [
            ("MUSTER_WORKLOAD", workload.as_str()),
            (ATTEMPT, &token),
            (POD, pod),
            ("MUSTER_CLUSTER", &self.config.cluster),
            (CLUSTER_DIR, &folder),
            ("MUSTER_NODE", node),
        ] {
            env.insert(name.into(), value.into());
        }
        let own = self.object.pod_dir(pod).join("work");
        Run {
            token,
            pod: pod.into(),
            argv,
            env,
            cwd: process.and_then(|process| process.working_dir.clone()).map_or(own, PathBuf::from),
            log: self.object.log_dir(&self.config).join(format!("{pod}.log")),
            grace_ms: u64::try_from(self.config.grace.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

fn notes(execution: &Execution) -> Vec<String> {
    let left_out = execution.notes.iter().map(|fault| format!("{} {}", fault.field, fault.message));
    let others = execution.roles.iter().flat_map(|role| {
        let others = role.init.iter().chain(role.containers.iter().skip(1));
        others.map(|one| format!("container {} of {} does not run on the local backend", one.name, role.name))
    });
    left_out.chain(others).collect()
}

/// The user's program failed.
pub fn failed(pod: &str, exit: &Exit) -> Outcome {
    let reason = if exit.reason.is_empty() {
        format!("pod {pod} exited with code {}", exit.code)
    } else {
        format!("pod {pod}: {}", exit.reason)
    };
    Outcome { succeeded: false, lost: false, exit_code: Some(exit.code), reason }
}

pub fn lost(reason: String) -> Outcome {
    Outcome { succeeded: false, lost: true, exit_code: None, reason }
}

pub fn succeeded() -> Outcome {
    Outcome { succeeded: true, lost: false, exit_code: Some(0), reason: String::new() }
}
