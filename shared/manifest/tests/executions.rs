//! What the local backend runs.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

use std::collections::BTreeMap;

use muster_manifest::workload::{self, Defaults};
use muster_manifest::{document, execution};

const RAY_JOB: &str = include_str!("manifests/rayjob.yaml");
const JOB: &str = include_str!("manifests/job.yaml");

#[test]
fn a_ray_job_gives_groups_environment_and_entrypoint() {
    let run = execution::read(RAY_JOB.as_bytes()).unwrap();
    assert_eq!(run.kind, "RayJob");
    assert_eq!(run.entrypoint.as_deref(), Some("python train.py --epochs 3"));
    assert!(run.runtime_env_yaml.unwrap().contains("TOKEN: abc"));
    let head = &run.roles[0];
    assert_eq!(head.ray_start_params["num-cpus"], "0");
    assert_eq!(head.containers[0].env["GREETING"], "hello head $(ROLE) $(NOBODY)");
    assert!(!head.containers[0].env.contains_key("PASSWORD"));
    assert_eq!(run.notes.len(), 1);
    assert!(run.notes[0].field.ends_with("containers[0].env[\"PASSWORD\"]"), "{:?}", run.notes);
    assert_eq!(run.roles[3].containers, []);
}

#[test]
fn a_job_gives_its_processes_in_order() {
    let run = execution::read(JOB.as_bytes()).unwrap();
    let main = &run.roles[0];
    let init: Vec<(&str, bool)> =
        main.init.iter().map(|process| (process.name.as_str(), process.sidecar)).collect();
    assert_eq!(init, [("sidecar", true), ("fetch", false)]);
    let process = &main.containers[0];
    assert_eq!(
        (process.command.clone(), process.args.clone()),
        (vec!["python".into(), "-c".into()], vec!["print('1')".into()])
    );
    assert_eq!(process.working_dir.as_deref(), Some("/tmp"));
    assert_eq!(process.env, BTreeMap::from([("X".to_owned(), "1".to_owned())]));
    assert_eq!((run.entrypoint, run.notes.len()), (None, 0));
}

#[test]
fn roles_are_the_pod_sets() {
    let defaults = Defaults { name_suffix: "1".into(), ..Defaults::default() };
    let modes = ["K8sJobMode", "HTTPMode", "SidecarMode"]
        .map(|mode| RAY_JOB.replace("  backoffLimit: 2", &format!("  submissionMode: {mode}")));
    for text in modes.iter().map(String::as_str).chain([RAY_JOB, JOB]) {
        let spec = workload::read(&document::parse(text.as_bytes()).unwrap(), &defaults).unwrap();
        let run = execution::read(text.as_bytes()).unwrap();
        let sets: Vec<&str> = spec.pod_sets.iter().map(|set| set.name.as_str()).collect();
        let roles: Vec<&str> = run.roles.iter().map(|role| role.name.as_str()).collect();
        assert_eq!(sets, roles);
    }
}

#[test]
fn variables_that_name_each_other_stay_small() {
    let doubling: String = (1..40)
        .map(|i| format!("            - {{name: V{i}, value: \"$(V{})$(V{})\"}}\n", i - 1, i - 1))
        .collect();
    let pod = format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec:\n  containers:\n    - name: a\n      command: [ls]\n      env:\n            - {{name: V0, value: 0123456789}}\n{doubling}").replace("0123456789", "\"0123456789\"");
    let run = execution::read(pod.as_bytes()).unwrap();
    let weight: usize = run.roles[0].containers[0].env.values().map(String::len).sum();
    assert!(weight < 4 << 20, "{weight}");
    assert!(run.notes.iter().any(|note| note.message.contains("not expanded")), "{:?}", run.notes);
}

#[test]
fn what_cannot_be_run_is_refused() {
    let refused = |text: &str| execution::read(text.as_bytes()).unwrap_err()[0].field.clone();
    assert_eq!(refused("kind: Job"), "apiVersion");
    assert_eq!(refused("apiVersion: apps/v1\nkind: Deployment"), "kind");
    assert_eq!(refused("apiVersion: batch/v1\nkind: Job\nspec: {}"), "spec.template");
    assert_eq!(
        refused(
            "apiVersion: batch/v1\nkind: Job\nspec: {template: {spec: {containers: [{name: a, args: 1}]}}}"
        ),
        "spec.template.spec.containers[0].args"
    );
}
