//! What the local backend runs: the processes of each role. None of this is seen by the scheduler,
//! and none of it may enter EVENTS.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};

use crate::Fault;
use crate::document;
use crate::node::{Faults, Node};
use crate::pod;
use crate::requests::is_sidecar;
use crate::workload::job::MAIN_SET;
use crate::workload::ray::{self, HEAD_SET, SUBMITTER_SET};
use crate::workload::{self};

/// The longest value after `$(NAME)` was expanded, in bytes: that of a whole manifest.
const MAX_EXPANDED: usize = document::MAX_BYTES;

/// How to run a job on processes instead of containers. Images are not used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Execution {
    /// RayJob, RayCluster, Job or Pod.
    pub kind: String,
    /// One a pod set of `workload::read`, of the same name and order: `head`, worker groups,
    /// `submitter` (K8sJobMode); or `main`.
    pub roles: Vec<Role>,
    /// What a RayJob runs, as one shell line. None for other kinds and InteractiveMode. Who runs it:
    /// role `submitter` if there is one, else the head.
    pub entrypoint: Option<String>,
    /// A RayJob's runtimeEnvYAML.
    pub runtime_env_yaml: Option<String>,
    /// What was left out because only a cluster could give it (an environment variable from a Secret,
    /// say): field and why. Worth a line in the job's log, not a failure.
    pub notes: Vec<Fault>,
}

/// The pods of one pod set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Role {
    pub name: String,
    /// To be run one after the other before `containers`; a sidecar among them goes on running.
    pub init: Vec<Process>,
    /// The first is the main one; in a Ray group it is Ray's container.
    pub containers: Vec<Process>,
    /// Flags of `ray start`, without the dashes.
    pub ray_start_params: BTreeMap<String, String>,
}

/// A container as a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    pub name: String,
    /// Program and its first arguments; empty where only the image knows it. `$(NAME)` of `env` is expanded
    /// here and in `args`.
    pub command: Vec<String>,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    /// None: the pod's own folder.
    pub working_dir: Option<String>,
    /// An init container with restartPolicy Always.
    pub sidecar: bool,
}

/// Reads what the local backend runs. Errors: those of [`document::parse`]; a kind that
/// `workload::read` does not read; templates of wrong types. A manifest that `workload::read`
/// accepted gives an execution.
pub fn read(manifest: &[u8]) -> Result<Execution, Vec<Fault>> {
    let value = document::parse(manifest)?;
    let faults = Faults::default();
    let notes = Faults::default();
    let execution = read_value(&Node::root(&value, &faults), &notes);
    let mut execution = faults.judge(execution)?;
    execution.notes = notes.into_vec();
    Ok(execution)
}

fn read_value(root: &Node<'_>, notes: &Faults) -> Option<Execution> {
    root.object()?;
    let kind = workload::job_kind(root)?;
    let spec = root.field("spec");
    let mut execution = Execution { kind: kind.into(), ..Execution::default() };
    match kind {
        "RayJob" => ray_job(&spec, notes, &mut execution),
        "RayCluster" => execution.roles = ray_roles(&spec, notes),
        "Job" => execution.roles.extend(role(MAIN_SET, &spec.field("template"), notes)),
        _ => execution.roles.extend(role(MAIN_SET, root, notes)),
    }
    Some(execution)
}

fn ray_job(spec: &Node<'_>, notes: &Faults, execution: &mut Execution) {
    let filled =
        |field: &str| spec.field(field).text().filter(|text| !text.trim().is_empty()).map(str::to_owned);
    execution.roles = ray_roles(&spec.field("rayClusterSpec"), notes);
    execution.entrypoint = filled("entrypoint");
    execution.runtime_env_yaml = filled("runtimeEnvYAML");
    if ray::mode(spec) == "K8sJobMode" {
        let template = spec.field("submitterPodTemplate");
        let submitter = match template.exists() {
            true => role(SUBMITTER_SET, &template, notes),
            false => Some(Role { name: SUBMITTER_SET.into(), ..Role::default() }),
        };
        execution.roles.extend(submitter);
    }
}

fn ray_roles(cluster: &Node<'_>, notes: &Faults) -> Vec<Role> {
    let head = cluster.field("headGroupSpec");
    let mut roles: Vec<Role> = ray_role(HEAD_SET, &head, notes).into_iter().collect();
    for group in cluster.field("workerGroupSpecs").items() {
        let name = group.field("groupName").text().unwrap_or_default().to_ascii_lowercase();
        roles.extend(ray_role(&name, &group, notes));
    }
    roles
}

fn ray_role(name: &str, group: &Node<'_>, notes: &Faults) -> Option<Role> {
    let role = role(name, &group.field("template").require(), notes)?;
    Some(Role { ray_start_params: group.field("rayStartParams").strings(), ..role })
}

fn role(name: &str, node: &Node<'_>, notes: &Faults) -> Option<Role> {
    let template: PodTemplateSpec = pod::template(&node.clone().require())?;
    let spec = template.spec?;
    let path = |field: &str, index: usize| format!("{}.{field}[{index}]", node.field("spec").path());
    let read = |field: &str, containers: &[Container]| -> Vec<Process> {
        let each = containers.iter().enumerate();
        each.map(|(index, container)| process(container, &path(field, index), notes)).collect()
    };
    Some(Role {
        name: name.into(),
        init: read("initContainers", spec.init_containers.as_deref().unwrap_or_default()),
        containers: read("containers", &spec.containers),
        ray_start_params: BTreeMap::new(),
    })
}

fn process(container: &Container, path: &str, notes: &Faults) -> Process {
    if container.env_from.as_ref().is_some_and(|sources| !sources.is_empty()) {
        notes.push(
            &format!("{path}.envFrom"),
            "",
            "is left out: the local backend has no ConfigMaps and Secrets",
        );
    }
    let mut env = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        let field = format!("{path}.env[{:?}]", variable.name);
        if variable.value_from.is_some() {
            notes.push(&field, "", "is left out: the local backend has nothing that it could come from");
        } else {
            let value = expand(variable.value.as_deref().unwrap_or_default(), &env, &field, notes);
            env.insert(variable.name.clone(), value);
        }
    }
    let all = |field: &str, texts: &Option<Vec<String>>| {
        let field = format!("{path}.{field}");
        texts.iter().flatten().map(|text| expand(text, &env, &field, notes)).collect()
    };
    Process {
        name: container.name.clone(),
        command: all("command", &container.command),
        args: all("args", &container.args),
        working_dir: container.working_dir.clone().filter(|folder| !folder.is_empty()),
        sidecar: is_sidecar(container),
        env,
    }
}

/// [`expanded`], or the text as it is where variables that name each other would make it huge.
fn expand(text: &str, env: &BTreeMap<String, String>, field: &str, notes: &Faults) -> String {
    expanded(text, env).unwrap_or_else(|| {
        notes.push(field, "", format!("is not expanded: it would have more than {MAX_EXPANDED} bytes"));
        text.to_owned()
    })
}

/// Kubernetes' own expansion: `$(NAME)` of a known variable is replaced, of an unknown one kept;
/// `$$` is a dollar.
fn expanded(text: &str, env: &BTreeMap<String, String>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        if out.len() > MAX_EXPANDED {
            return None;
        }
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let after = from.get(1..).unwrap_or_default();
        rest = if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            after
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&format!("$({name})")),
            }
            after
        } else {
            out.push('$');
            after
        };
    }
    out.push_str(rest);
    (out.len() <= MAX_EXPANDED).then_some(out)
}
