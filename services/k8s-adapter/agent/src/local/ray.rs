//! RayJob and RayCluster: a real Ray, all of it on this machine.
//!
//! Head, then workers, then the entrypoint when all have joined, as KubeRay does. The entrypoint runs as a process of
//! its own with RAY_ADDRESS, so its output, its exit code and its end are ours and need no dashboard; only a runtime
//! environment needs Ray's job server, and then `ray job submit` runs it. When a worker of a running job is lost, the
//! attempt is: the gang was placed whole.
//!
//! Many Ray nodes share one address here, so every port is named, and each node has a temporary folder of its own
//! (two workers that start at once in one folder take each other's sockets), a short one for the 107 bytes of a
//! socket's path.

use std::{
    collections::BTreeMap,
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    time::Duration,
};

use muster_manifest::execution::Execution;
use muster_proto::LegSpec;
use serde::{Deserialize, Serialize};

use super::{
    attempt::{Attempt, Next, failed, lost, succeeded},
    files,
    object::{Object, Outcome, Pod, State},
    ports,
};
use crate::shim::Run;

const HEAD: &str = "head";
const SUBMITTER: &str = "submitter";
/// What `ray start` says once its node stands in the head's list of nodes.
const JOINED: &str = "Ray runtime started.";
/// `ray start` gives up after 30 s, which a busy machine may need; nothing sets that. `$0` is the pod's log. How long
/// this goes on is bounded by the patience of whoever waits for the node.
const PERSEVERE: &str = r#"while :; do "$@"; code=$?; tail -n 2 "$0" | grep -q "timed out during startup" || exit $code;
echo "muster: the machine is busy, starting this Ray node once more"; done"#;
/// Of the object store, where the pod's memory does not say more. Ray takes no less than 75 MB.
const STORE: i64 = 100_000_000;
/// Flags that are the backend's to choose.
const OURS: [&str; 10] = [
    "head",
    "address",
    "block",
    "port",
    "temp-dir",
    "include-dashboard",
    "dashboard-host",
    "node-ip-address",
    "min-worker-port",
    "max-worker-port",
];

/// Ports of one Ray node, chosen once.
#[derive(Debug, Serialize, Deserialize)]
struct Ports {
    gcs: u16,
    client: u16,
    dashboard: u16,
    /// For every node: agent's two, runtime environments, node manager, object manager, metrics.
    node: [u16; 6],
}

pub fn check(execution: &Execution, spec: &LegSpec) -> Result<(), String> {
    if !spec.pods.iter().any(|range| range.pod_set == HEAD && range.count > 0) {
        return Err(
            "this leg has no Ray head, and the local backend can't join one of another cluster".into()
        );
    }
    let runs = execution.kind == "RayJob" && execution.entrypoint.is_some();
    if execution.runtime_env_yaml.is_some() && !runs {
        return Err("a runtimeEnvYAML needs an entrypoint".into());
    }
    Ok(())
}

pub fn next(attempt: &Attempt) -> io::Result<Next> {
    let Some(ray) = find_ray(attempt) else { return Ok(Next::ends(ray_not_found(attempt))) };
    let Some(head) = attempt.pods.iter().find(|pod| pod.set == HEAD) else {
        return Ok(Next::ends(lost("the object has no head".into())));
    };
    let ports = ports_of(&attempt.object, &head.name())?;
    let mut next = Next::default();
    if !head_answers(attempt, &ray, head, &ports, &mut next)?
        || !workers_joined(attempt, &ray, &ports, &mut next)?
    {
        return Ok(next);
    }
    match &attempt.execution.entrypoint {
        Some(entrypoint) => entry(attempt, &ray, entrypoint, &ports, next),
        None => Ok(next),
    }
}

/// True once the head answers.
fn head_answers(
    attempt: &Attempt,
    ray: &Path,
    head: &Pod,
    ports: &Ports,
    next: &mut Next,
) -> io::Result<bool> {
    let name = head.name();
    let answered = attempt.object.has("head-answered");
    match attempt.state(&name)? {
        State::Absent => next.spawn.push(head_run(attempt, ray, head, ports)),
        State::Exited(exit) if answered => {
            next.outcome = Some(lost(format!("the Ray head ended with code {}", exit.code)));
        }
        State::Exited(exit) => next.outcome = Some(failed(&name, &exit)),
        State::Lost => next.outcome = Some(lost("the Ray head vanished without an exit code".into())),
        State::Running { .. } if answered => {}
        State::Running { since_us } => {
            let mut listening = vec![ports.gcs];
            listening.extend(needs_dashboard(attempt).then_some(ports.dashboard));
            if said_joined(attempt, &name)? && listening.into_iter().all(answers) {
                attempt.object.mark("head-answered")?;
            } else if overdue(attempt, since_us) {
                next.outcome =
                    Some(lost(format!("RayHeadTimeout: it did not answer in {}", patience(attempt))));
            }
        }
    }
    next.progress = "waiting for the Ray head".into();
    let answered = attempt.object.has("head-answered") && next.outcome.is_none();
    if answered && attempt.execution.entrypoint.is_none() {
        next.ready = Some(format!("127.0.0.1:{}", ports.gcs));
    }
    Ok(answered)
}

/// True once every worker has joined.
fn workers_joined(attempt: &Attempt, ray: &Path, head: &Ports, next: &mut Next) -> io::Result<bool> {
    let workers: Vec<_> = attempt.pods.iter().filter(|pod| pod.set != HEAD && pod.set != SUBMITTER).collect();
    let mut joined = 0;
    for worker in &workers {
        let name = worker.name();
        match attempt.state(&name)? {
            State::Absent => next.spawn.push(worker_run(attempt, ray, worker, head)?),
            State::Exited(exit) => {
                next.outcome = Some(lost(format!("the Ray worker {name} ended with code {}", exit.code)));
            }
            State::Lost => {
                next.outcome = Some(lost(format!("the Ray worker {name} vanished without an exit code")));
            }
            State::Running { since_us } => {
                // The marker spares reading the log over and over.
                let mark = attempt.object.pod_dir(&name).join("joined");
                if mark.exists()
                    || (said_joined(attempt, &name)? && files::write_once(&mark, &files::now_us())?)
                {
                    joined += 1;
                } else if overdue(attempt, since_us) {
                    let reason = format!("RayWorkerTimeout: {name} did not join in {}", patience(attempt));
                    next.outcome = Some(lost(reason));
                }
            }
        }
    }
    next.progress = format!("{joined} of {} Ray workers have joined", workers.len());
    Ok(joined == workers.len() && next.outcome.is_none())
}

fn entry(attempt: &Attempt, ray: &Path, entrypoint: &str, ports: &Ports, mut next: Next) -> io::Result<Next> {
    let placed = attempt.pods.iter().find(|pod| pod.set == SUBMITTER);
    let name = placed.map_or("entrypoint-0".into(), Pod::name);
    match attempt.state(&name)? {
        State::Absent => {
            let node = placed.map_or("", |pod| pod.node.as_str());
            next.spawn.push(entry_run(attempt, ray, &name, node, entrypoint, ports)?);
        }
        State::Exited(exit) if exit.code == 0 => next.outcome = Some(succeeded()),
        State::Exited(exit) => next.outcome = Some(failed(&name, &exit)),
        State::Lost => next.outcome = Some(lost("the entrypoint vanished without an exit code".into())),
        State::Running { .. } => {}
    }
    next.progress = "the entrypoint runs".into();
    Ok(next)
}

fn entry_run(
    attempt: &Attempt,
    ray: &Path,
    name: &str,
    node: &str,
    entrypoint: &str,
    ports: &Ports,
) -> io::Result<Run> {
    let container = [SUBMITTER, HEAD].iter().find_map(|role| attempt.role(role)?.containers.first());
    let mut env = environment(attempt, ray);
    env.insert("RAY_ADDRESS".into(), format!("127.0.0.1:{}", ports.gcs));
    let shell = |script: String| vec!["/bin/sh".to_owned(), "-c".to_owned(), script];
    let argv = match &attempt.execution.runtime_env_yaml {
        None => shell(entrypoint.to_owned()),
        Some(runtime_env) => {
            let dir = attempt.object.pod_dir(name);
            fs::create_dir_all(&dir)?;
            // Files, as `ray job submit` takes quotes in its arguments apart.
            files::replace(&dir.join("entrypoint.sh"), entrypoint.as_bytes())?;
            files::replace(&dir.join("runtime-env.yaml"), runtime_env.as_bytes())?;
            env.insert("RAY_ADDRESS".into(), format!("http://127.0.0.1:{}", ports.dashboard));
            let text = |path: PathBuf| path.to_string_lossy().into_owned();
            let (runtime_env, script) = (text(dir.join("runtime-env.yaml")), text(dir.join("entrypoint.sh")));
            [
                ray.to_string_lossy().as_ref(),
                "job",
                "submit",
                "--runtime-env",
                &runtime_env,
                "--",
                "/bin/sh",
                &script,
            ]
            .map(str::to_owned)
            .to_vec()
        }
    };
    Ok(attempt.run(name, node, container, argv, &env))
}

fn head_run(attempt: &Attempt, ray: &Path, head: &Pod, ports: &Ports) -> Run {
    let mut flags = vec![
        "--head".to_owned(),
        format!("--port={}", ports.gcs),
        format!("--ray-client-server-port={}", ports.client),
        format!("--include-dashboard={}", needs_dashboard(attempt)),
        "--dashboard-host=127.0.0.1".to_owned(),
        format!("--dashboard-port={}", ports.dashboard),
    ];
    flags.extend(node_flags(attempt, head, ports));
    ray_run(attempt, ray, head, flags)
}

fn worker_run(attempt: &Attempt, ray: &Path, worker: &Pod, head: &Ports) -> io::Result<Run> {
    let ports = ports_of(&attempt.object, &worker.name())?;
    let mut flags = vec![format!("--address=127.0.0.1:{}", head.gcs)];
    flags.extend(node_flags(attempt, worker, &ports));
    Ok(ray_run(attempt, ray, worker, flags))
}

fn ray_run(attempt: &Attempt, ray: &Path, pod: &Pod, flags: Vec<String>) -> Run {
    let container = attempt.role(&pod.set).and_then(|role| role.containers.first());
    let mut env = environment(attempt, ray);
    env.insert("RAY_TMPDIR".into(), temp_dir(attempt, pod));
    env.insert("RAY_CLOUD_INSTANCE_ID".into(), pod.name());
    env.insert("RAY_NODE_TYPE_NAME".into(), pod.set.clone());
    let mut run = attempt.run(&pod.name(), &pod.node, container, Vec::new(), &env);
    let (log, ray) = (run.log.to_string_lossy(), ray.to_string_lossy());
    let argv = ["/bin/sh", "-c", PERSEVERE, &log, &ray, "start", "--block"].map(str::to_owned);
    run.argv = argv.into_iter().chain(flags).collect();
    run.cwd = attempt.object.pod_dir(&pod.name()).join("work"); // the image's folders are not here
    run
}

fn node_flags(attempt: &Attempt, pod: &Pod, ports: &Ports) -> Vec<String> {
    let mut flags = BTreeMap::from([
        ("num-cpus", (pod.requests.get("cpu").copied().unwrap_or_default() + 999) / 1000),
        (
            "num-gpus",
            pod.requests.iter().filter(|(name, _)| name.ends_with("gpu")).map(|(_, count)| count).sum(),
        ),
        ("object-store-memory", STORE),
    ])
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value.to_string()))
    .collect::<BTreeMap<_, _>>();
    if let Some(memory) = pod.requests.get("memory").filter(|memory| **memory > 0) {
        flags.insert("memory".into(), memory.to_string());
    }
    let given = attempt.role(&pod.set).map(|role| &role.ray_start_params).into_iter().flatten();
    for (name, value) in given {
        if !OURS.contains(&name.as_str()) && !name.ends_with("-port") {
            flags.insert(name.clone(), unquoted(value));
        }
    }
    let [listen, grpc, environments, manager, objects, metrics] = ports.node;
    for (name, port) in [
        ("dashboard-agent-listen-port", listen),
        ("dashboard-agent-grpc-port", grpc),
        ("runtime-env-agent-port", environments),
        ("node-manager-port", manager),
        ("object-manager-port", objects),
        ("metrics-export-port", metrics),
        ("min-worker-port", 0), // any free port, chosen as it is bound
        ("max-worker-port", 0),
    ] {
        flags.insert(name.into(), port.to_string());
    }
    flags.insert("temp-dir".into(), temp_dir(attempt, pod));
    let flag = |(name, value): (String, String)| match value.as_str() {
        "" => format!("--{name}"),
        value => format!("--{name}={value}"),
    };
    flags.into_iter().map(flag).chain(["--disable-usage-stats".to_owned()]).collect()
}

/// KubeRay pastes parameters into a shell line, so users quote JSON once more: `'"{\"a\": 1}"'`.
fn unquoted(value: &str) -> String {
    let quoted = value.len() > 1 && value.starts_with('"') && value.ends_with('"');
    let inner = quoted.then(|| serde_json::from_str::<String>(value).ok()).flatten();
    inner.unwrap_or_else(|| value.to_owned())
}

fn environment(attempt: &Attempt, ray: &Path) -> BTreeMap<String, String> {
    let bin = ray.parent().map(|bin| bin.to_string_lossy().into_owned()).unwrap_or_default();
    BTreeMap::from([
        ("PATH".to_owned(), format!("{bin}:{}", attempt.config.path)),
        ("RAY_USAGE_STATS_ENABLED".to_owned(), "0".to_owned()),
        // The machine is shared; its memory says nothing about this pod's.
        ("RAY_memory_monitor_refresh_ms".to_owned(), "0".to_owned()),
        ("PYTHONUNBUFFERED".to_owned(), "1".to_owned()),
    ])
}

fn find_ray(attempt: &Attempt) -> Option<PathBuf> {
    let config = &attempt.config;
    let folders =
        config.ray_venv.iter().map(|venv| venv.join("bin")).chain(std::env::split_paths(&config.path));
    folders.map(|folder| folder.join("ray")).find(|ray| ray.is_file())
}

fn ray_not_found(attempt: &Attempt) -> Outcome {
    let looked = attempt.config.ray_venv.as_ref().map(|venv| format!("{} and ", venv.display()));
    Outcome {
        succeeded: false,
        lost: false,
        exit_code: Some(127),
        reason: format!(
            "RayNotFound: no `ray` in {}PATH={}; install it with `python3 -m venv VENV && VENV/bin/pip install \
             'ray[default]==2.60.0'` and start the agent with MUSTER_RAY_VENV=VENV",
            looked.unwrap_or_default(),
            attempt.config.path
        ),
    }
}

fn needs_dashboard(attempt: &Attempt) -> bool {
    let asked = attempt.role(HEAD).and_then(|head| head.ray_start_params.get("include-dashboard"));
    attempt.execution.runtime_env_yaml.is_some() || asked.is_some_and(|asked| asked == "true")
}

fn ports_of(object: &Object, pod: &str) -> io::Result<Ports> {
    let path = object.dir.join(format!("ports-{pod}.json"));
    if let Some(ports) = files::read_json(&path)? {
        return Ok(ports);
    }
    let free = ports::reserve(9, &object.token())?;
    let [gcs, client, dashboard, node @ ..] = free.as_slice() else {
        return Err(io::Error::other("too few ports"));
    };
    let node = node.try_into().map_err(io::Error::other)?;
    let ports = Ports { gcs: *gcs, client: *client, dashboard: *dashboard, node };
    files::write_once(&path, &ports)?; // of two agents' choices the first holds
    files::read_json(&path)?.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn temp_root(object: &Object) -> PathBuf {
    let short = object.uid.get(..8).unwrap_or(&object.uid);
    Path::new("/tmp").join(format!("muster-ray-{short}"))
}

fn temp_dir(attempt: &Attempt, pod: &Pod) -> String {
    let number = attempt.pods.iter().position(|other| other.name() == pod.name()).unwrap_or_default();
    temp_root(&attempt.object).join(number.to_string()).to_string_lossy().into_owned()
}

/// Removes what Ray leaves in its temporary folders.
pub fn tidy(object: &Object) {
    drop(fs::remove_dir_all(temp_root(object))); // mostly it is not there
}

fn said_joined(attempt: &Attempt, pod: &str) -> io::Result<bool> {
    let log = files::read(&attempt.object.log_dir(&attempt.config).join(format!("{pod}.log")))?;
    Ok(log.is_some_and(|log| String::from_utf8_lossy(&log).contains(JOINED)))
}

fn answers(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

fn overdue(attempt: &Attempt, since_us: u64) -> bool {
    let waited = Duration::from_micros(files::now_us().saturating_sub(since_us));
    waited > attempt.config.ray_patience
}

fn patience(attempt: &Attempt) -> String {
    format!("{} s", attempt.config.ray_patience.as_secs())
}
