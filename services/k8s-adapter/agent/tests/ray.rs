//! Real Ray: head, workers and entrypoint as processes of this machine.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::{fs, path::PathBuf};

use muster_proto::{LegSpec, Phase};
use support::{Cluster, carriers, key, pod_set, spec, until};

/// Ray takes its time on a busy machine.
const PATIENT: u64 = 400;
/// One test at a time, or two cores start a dozen Ray nodes at once.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

#[test]
fn shim_entry() {
    support::shim_entry();
}

fn venv() -> PathBuf {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache/muster/venv-ray");
    let venv = std::env::var_os("MUSTER_RAY_VENV").map_or(home, PathBuf::from);
    assert!(
        venv.join("bin/ray").is_file(),
        "no Ray in {0}: python3 -m venv {0} && {0}/bin/pip install 'ray[default]==2.60.0', or set MUSTER_RAY_VENV",
        venv.display()
    );
    venv
}

fn cluster() -> Cluster {
    Cluster::with(|config| config.ray_venv = Some(venv()))
}

/// A RayJob or the RayCluster within, of a head and two workers with four virtual GPUs each.
fn ray(kind: &str, fields: &str) -> LegSpec {
    let group = |name: &str, more: &str| {
        format!(
            r#"{{{more} "rayStartParams": {{}}, "template": {{"spec": {{"containers": [
                {{"name": "{name}", "image": "rayproject/ray:2.60.0",
                  "env": [{{"name": "FROM_THE_MANIFEST", "value": "yes"}}]}}]}}}}}}"#
        )
    };
    let head = group("head", "");
    let workers = group("w", r#""groupName": "w", "replicas": 2, "minReplicas": 2, "maxReplicas": 2,"#);
    let cluster = format!(r#"{{"headGroupSpec": {head}, "workerGroupSpecs": [{workers}]}}"#);
    let spec_field = match kind {
        "RayJob" => format!(r#"{{{fields}, "submissionMode": "HTTPMode", "rayClusterSpec": {cluster}}}"#),
        _ => cluster,
    };
    let manifest = format!(
        r#"{{"apiVersion": "ray.io/v1", "kind": "{kind}", "metadata": {{"name": "r"}}, "spec": {spec_field}}}"#
    );
    spec(&manifest, vec![pod_set("head", 1, 1000, 0), pod_set("w", 2, 1000, 4)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ray_job_runs_on_all_its_nodes_and_leaves_nothing() {
    let _turn = TURN.lock().await;
    let c = cluster();
    let script = c.file("job.py");
    fs::write(
        &script,
        r#"
import os, ray
ray.init()

@ray.remote(num_gpus=4, num_cpus=1)
class Actor:
    def where(self):
        return ray.get_runtime_context().get_node_id()

actors = [Actor.remote() for _ in range(2)]
nodes = {ray.get(actor.where.remote()) for actor in actors}
print("nodes", len(nodes), "gpus", ray.cluster_resources()["GPU"], os.environ["FROM_THE_MANIFEST"])
"#,
    )
    .unwrap();
    let spec = ray("RayJob", &format!(r#""entrypoint": "python {}""#, script.display()));
    let uid = c.start(key(1), &spec).await;
    let over = c.reach(key(1), Phase::Succeeded, PATIENT).await;
    assert_eq!(over.exit_code, Some(0));
    let log = c.log(key(1), "").await;
    assert!(log.contains("nodes 2 gpus 8.0 yes"), "{log}");
    assert_eq!(carriers(key(1), &uid), 0);
    assert!(!PathBuf::from(format!("/tmp/muster-ray-{}", &uid[..8])).exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_jobs_exit_code_is_the_legs_and_two_rays_live_side_by_side() {
    let _turn = TURN.lock().await;
    let c = cluster();
    c.start(key(1), &ray("RayCluster", "")).await;
    let uid = c.start(key(2), &ray("RayJob", r#""entrypoint": "echo to stderr >&2; exit 7""#)).await;
    let over = c.reach(key(2), Phase::Failed, PATIENT).await;
    assert_eq!((over.exit_code, over.reason.as_str()), (Some(7), "pod entrypoint-0 exited with code 7"));
    assert_eq!(c.log(key(2), "").await, "to stderr\n");
    assert_eq!(carriers(key(2), &uid), 0);

    let ready = c.reach(key(1), Phase::Ready, PATIENT).await;
    assert!(ready.address.starts_with("127.0.0.1:"), "{ready:?}");
    std::net::TcpStream::connect(&ready.address).unwrap();
    c.remove(key(1), Some(&ready.uid)).await;
    assert_eq!(carriers(key(1), &ready.uid), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_environment_is_rays_to_make() {
    let _turn = TURN.lock().await;
    let c = cluster();
    let fields = r#""entrypoint": "echo $FOR_THE_JOB 'two  \"words\"'; exit 0",
        "runtimeEnvYAML": "env_vars:\n  FOR_THE_JOB: from-yaml\n""#;
    c.start(key(1), &ray("RayJob", fields)).await;
    c.reach(key(1), Phase::Succeeded, PATIENT).await;
    let log = c.log(key(1), "").await;
    assert!(log.contains("from-yaml two  \"words\""), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_dies_under_a_running_job_ends_the_attempt_as_lost() {
    let _turn = TURN.lock().await;
    let c = cluster();
    let uid = c.start(key(1), &ray("RayJob", r#""entrypoint": "echo runs; sleep 1000""#)).await;
    until("the entrypoint runs", || c.all_logs(key(1)).contains("runs\n")).await;
    let marks = [format!("MUSTER_ATTEMPT={}-{uid}", key(1)), "MUSTER_POD=w-1".to_owned()];
    muster_agent::proc::kill_all(&marks, 0, std::time::Duration::from_secs(10)).unwrap();
    let over = c.reach(key(1), Phase::Lost, PATIENT).await;
    assert!(over.reason.contains("w-1"), "{}", over.reason);
    assert_eq!(carriers(key(1), &uid), 0);
}

/// Ray's own limit of 30 s for a node's start can't be set, and a busy machine may need more.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_gave_up_its_start_is_started_again() {
    let fake = r#"#!/usr/bin/env python3
import os, socket, sys, time
once = os.environ["MUSTER_POD"] + ".tried"
if not os.path.exists(once):
    open(once, "w")
    sys.exit("Exception: The current node timed out during startup. This could happen because")
for flag in sys.argv:
    if flag.startswith("--port="):
        listener = socket.create_server(("127.0.0.1", int(flag[7:])))
print("Ray runtime started.", flush=True)
time.sleep(1000)
"#;
    let folder = tempfile::tempdir().unwrap();
    let (bin, ray_file) = (folder.path().join("bin"), folder.path().join("bin/ray"));
    fs::create_dir(&bin).unwrap();
    fs::write(&ray_file, fake).unwrap();
    fs::set_permissions(&ray_file, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let c = Cluster::with(|config| config.ray_venv = Some(folder.path().into()));
    c.start(key(1), &ray("RayJob", r#""entrypoint": "echo $RAY_ADDRESS""#)).await;
    c.reach(key(1), Phase::Succeeded, 60).await;
    assert!(c.log(key(1), "").await.starts_with("127.0.0.1:"));
    assert!(c.log(key(1), "w-1").await.contains("once more"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_ray_the_reason_says_how_to_install_it() {
    let c = Cluster::with(|config| {
        config.ray_venv = None;
        config.path = "/usr/bin:/bin".into();
    });
    c.start(key(1), &ray("RayJob", r#""entrypoint": "true""#)).await;
    let over = c.reach(key(1), Phase::Failed, 30).await;
    assert_eq!(over.exit_code, Some(127));
    assert!(over.reason.starts_with("RayNotFound") && over.reason.contains("pip install"), "{}", over.reason);
}
