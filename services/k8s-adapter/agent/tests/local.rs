//! Pods as real processes: their start, their end, and that nothing of them stays.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::{fs, time::Duration};

use muster_agent::{Backend, LogQuery, local::Local};
use muster_plan::{Binding, Done};
use muster_proto::Phase;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use support::{Cluster, bindings, carriers, job, job_of, key, until};

#[test]
fn shim_entry() {
    support::shim_entry();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_waits_for_its_start_and_runs_once_with_its_log_kept() {
    let c = Cluster::new();
    let spec = job(
        1,
        "echo $MUSTER_WORKLOAD $MUSTER_POD $MUSTER_NODE $MUSTER_CLUSTER $JOB_COMPLETION_INDEX; pwd >&2",
    );
    let uid = c.create(key(1), &spec).await;
    assert_eq!(c.object(key(1)).await.unwrap().phase, Phase::Stopped);

    // Another uid starts nothing, a second create makes nothing new.
    assert!(matches!(c.local.start(key(1), "another".into()).await, Done::Failed(_)));
    let again = bindings(&spec, &mut c.config.nodes.clone());
    assert_eq!(c.local.create(key(1), spec.clone(), again).await, Done::Ok);
    let object = c.object(key(1)).await.unwrap();
    assert_eq!((object.uid.as_str(), object.phase), (uid.as_str(), Phase::Stopped));

    assert_eq!(c.local.start(key(1), uid.clone()).await, Done::Ok);
    let over = c.reach(key(1), Phase::Succeeded, 30).await;
    assert_eq!((over.exit_code, over.reason.as_str()), (Some(0), ""));
    let log = c.log(key(1), "").await;
    assert!(log.starts_with("w000000ab-1-0 main-0 n1 here 0\n/"), "{log}");

    // Removal needs the uid, frees the name and keeps the log.
    assert_eq!(c.local.remove(key(1), Some("another".into())).await, Done::Ok);
    assert!(c.object(key(1)).await.is_some());
    c.remove(key(1), Some(&uid)).await;
    let query = LogQuery { workload: key(1).workload_id(), from: 5, limit: 4, ..LogQuery::default() };
    let chunk = c.local.logs(query.clone()).await.unwrap();
    assert_eq!((chunk.data.as_slice(), chunk.next, chunk.attempt, chunk.ended), (&b"00ab"[..], 9, 1, false));
    let end = c.local.logs(LogQuery { from: log.len() as u64, ..query }).await.unwrap();
    assert!(end.ended && end.pods == ["main-0"]);
    let outside = LogQuery { workload: "../../..".into(), ..LogQuery::default() };
    assert!(c.local.logs(outside).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_run_ends_as_the_users_failure_with_its_cause() {
    let c = Cluster::with(|config| config.path = "/usr/bin:/bin".into());
    c.start(key(1), &job_of(1, 1, &["no-such-program", "x"])).await;
    let over = c.reach(key(1), Phase::Failed, 30).await;
    assert_eq!(over.exit_code, Some(127));
    assert_eq!(over.reason, "pod main-0: CommandNotFound: no-such-program (PATH=/usr/bin:/bin)");

    c.start(key(2), &job_of(1, 1, &[])).await;
    let over = c.reach(key(2), Phase::Failed, 30).await;
    assert!(over.reason.contains("NoCommand"), "{}", over.reason);

    let mut broken = job(1, "true");
    broken.manifest = b"kind: Job\nspec: 3".to_vec().into();
    let done = c.local.create(key(3), broken, Vec::new()).await;
    assert!(matches!(&done, Done::Refused(reason) if reason.contains("manifest")), "{done:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_failure_stops_the_rest() {
    let c = Cluster::new();
    let uid = c.start(key(1), &job(3, "[ $JOB_COMPLETION_INDEX = 1 ] && exit 3; sleep 1000")).await;
    let over = c.reach(key(1), Phase::Failed, 30).await;
    assert_eq!((over.exit_code, over.reason.as_str()), (Some(3), "pod main-1 exited with code 3"));
    assert_eq!(carriers(key(1), &uid), 0);
    // What it held is free again, though the object still stands.
    assert_eq!(c.local.observe().await.unwrap().nodes[0].free["cpu"], 64_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_reaches_grandchildren_that_left_the_session_and_ignore_sigterm() {
    let c = Cluster::new();
    let marks = c.file("marks");
    let script = format!(
        "trap '' TERM; setsid sh -c 'trap \"\" TERM; echo x >> {0}; while :; do sleep 1; done' & \
         echo x >> {0}; while :; do sleep 1; done",
        marks.display()
    );
    let uid = c.start(key(1), &job(2, &script)).await;
    until("all four shells run", || fs::read_to_string(&marks).is_ok_and(|marks| marks.len() == 8)).await;
    assert!(carriers(key(1), &uid) >= 4);
    c.remove(key(1), None).await;
    assert_eq!(carriers(key(1), &uid), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pods_of_a_cluster_carry_its_folder() {
    let c = Cluster::new();
    c.start(key(1), &job(1, "exec sleep 1000")).await;
    c.start(key(2), &job(1, "exec sleep 1000")).await;
    let mark = format!("MUSTER_CLUSTER_DIR={}", c.file("clusters/here").display());
    let all = || muster_agent::proc::carrying(std::slice::from_ref(&mark)).unwrap().len();
    until("two shims and two sleeps run", || all() == 4).await;
    muster_agent::proc::kill_all(std::slice::from_ref(&mark), 0, Duration::from_secs(10)).unwrap();
    c.reach(key(2), Phase::Lost, 30).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_command_leaves_behind_ends_with_it() {
    let c = Cluster::new();
    let uid = c.start(key(1), &job(1, "setsid sleep 1000 & exit 0")).await;
    c.reach(key(1), Phase::Succeeded, 30).await;
    assert_eq!(carriers(key(1), &uid), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_vanishes_without_an_exit_code_is_lost() {
    let c = Cluster::new();
    let uid = c.start(key(1), &job(1, "echo $$ > /dev/null; sleep 1000")).await;
    let token = format!("MUSTER_ATTEMPT={}-{uid}", key(1));
    until("shim, shell and sleep run", || carriers(key(1), &uid) >= 2).await;
    c.reach(key(1), Phase::Running, 30).await;
    for process in muster_agent::proc::carrying(&[token]).unwrap() {
        let _ = kill(Pid::from_raw(process.pid), Signal::SIGKILL);
    }
    let over = c.reach(key(1), Phase::Lost, 30).await;
    assert_eq!((over.exit_code, over.reason.contains("main-0")), (None, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_agents_on_one_folder_start_each_of_twenty_pods_once() {
    let c = Cluster::new();
    let other = Local::open(c.config.clone()).unwrap();
    let (runs, gate) = (c.file("runs"), c.file("gate"));
    let script = format!(
        "echo $JOB_COMPLETION_INDEX >> {}; while [ ! -e {} ]; do sleep 0.1; done",
        runs.display(),
        gate.display()
    );
    let uid = c.create(key(1), &job(20, &script)).await;
    let (a, b) = tokio::join!(c.local.start(key(1), uid.clone()), other.start(key(1), uid.clone()));
    assert_eq!((a, b), (Done::Ok, Done::Ok));
    let count = || fs::read_to_string(&runs).map_or(0, |runs| runs.lines().count());
    until("all twenty run at once", || count() >= 20).await;
    fs::write(&gate, "").unwrap();
    c.reach(key(1), Phase::Succeeded, 60).await;
    let runs = fs::read_to_string(&runs).unwrap();
    let mut runs: Vec<u32> = runs.lines().map(|line| line.parse().unwrap()).collect();
    runs.sort_unstable();
    assert_eq!(runs, (0..20).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn more_completions_than_pods_run_a_few_at_a_time() {
    let c = Cluster::new();
    let runs = c.file("runs");
    let script = format!("echo + >> {0}; sleep 0.3; echo - >> {0}", runs.display());
    c.start(key(1), &job_of(2, 5, &["/bin/sh", "-c", &script])).await;
    c.reach(key(1), Phase::Succeeded, 60).await;
    let (mut now, mut most, mut all) = (0, 0, 0);
    for line in fs::read_to_string(&runs).unwrap().lines() {
        now += if line == "+" { 1 } else { -1 };
        most = most.max(now);
        all += i32::from(line == "+");
    }
    assert_eq!((all, most), (5, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_creates_for_one_place_only_one_is_made() {
    let c = Cluster::with(|config| config.nodes = vec![support::node("n1", 1000)]);
    let place = || vec![Binding { pod_set: "main".into(), index: 0, node: "n1".into() }];
    let (spec, other) = (job(1, "true"), Local::open(c.config.clone()).unwrap());
    let (a, b) = tokio::join!(
        c.local.create(key(1), spec.clone(), place()),
        other.create(key(2), spec.clone(), place())
    );
    assert_eq!([a, b].iter().filter(|done| **done == Done::Ok).count(), 1);
    assert_eq!(c.local.observe().await.unwrap().objects.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_taken_one_after_the_other() {
    let c = Cluster::new();
    let other = Local::open(c.config.clone()).unwrap();
    assert_eq!(c.local.take_lease("a".into(), 1, None).await.unwrap().epoch, 1);
    assert_eq!(other.take_lease("b".into(), 1, None).await.unwrap().epoch, 2);
    let kept = c.local.take_lease("a".into(), 9, Some(1)).await.unwrap();
    assert_eq!((kept.epoch, kept.agent.as_str()), (2, "b"));
    assert_eq!(other.take_lease("b".into(), 9, Some(2)).await.unwrap().epoch, 9);
    tokio::time::timeout(Duration::from_secs(5), c.local.observe()).await.unwrap().unwrap();
}
