//! The whole agent as a process of its own: killed with -9, started again, stopped with SIGTERM.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::Duration,
};

use muster_agent::{Config, Link, local::Local, proc::Process, run};
use muster_proto::{Desired, DesiredLeg, ObservedLeg, Phase, Report, Verb};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use prost::Message;
use support::{carriers, config, job, key, until};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

const AGENT: &str = "MUSTER_TEST_AGENT";

#[test]
fn shim_entry() {
    support::shim_entry();
}

/// Plays the agent when this process was started as one: `desired` and `report` are files in the data folder.
#[test]
fn agent_entry() {
    let Some(data) = std::env::var_os(AGENT).map(PathBuf::from) else { return };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let backend = Arc::new(Local::open(config(&data)).unwrap());
        let (link, mut remote) = Link::new();
        let from = data.clone();
        tokio::spawn(async move {
            loop {
                if let Ok(bytes) = fs::read(from.join("desired")) {
                    remote.desired.send(bytes).await.unwrap();
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        });
        tokio::spawn(async move {
            while remote.reports.changed().await.is_ok() {
                fs::write(data.join("aside"), remote.reports.borrow_and_update().as_slice()).unwrap();
                fs::rename(data.join("aside"), data.join("report")).unwrap();
            }
        });
        let mut terminated = signal(SignalKind::terminate()).unwrap();
        run(Config::new("here"), backend, link, async move { terminated.recv().await.unwrap_or_default() })
            .await
            .unwrap();
    });
}

/// A desk and its agent.
struct Desk {
    dir: TempDir,
    seq: u64,
}

impl Desk {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), seq: 0 }
    }

    fn agent(&self) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "agent_entry", "--nocapture"]).env(AGENT, self.dir.path());
        command.stdout(Stdio::null()).spawn().unwrap()
    }

    /// Asks, and waits for a report that answers and holds.
    async fn ask(
        &mut self,
        verb: Verb,
        uid: &str,
        script: &str,
        holds: impl Fn(Option<&ObservedLeg>) -> bool,
    ) -> Report {
        self.seq += 1;
        let spec = (verb == Verb::Create).then(|| job(1, script));
        let leg = DesiredLeg {
            workload: Some(key(1).workload()),
            attempt: 1,
            verb: verb.into(),
            uid: uid.into(),
            spec,
        };
        let epoch = self.report().map_or(0, |report| report.epoch);
        let legs = vec![leg];
        let desired = Desired { generation: 0xab, cluster: "here".into(), seq: self.seq, epoch, legs };
        fs::write(self.dir.path().join("next"), desired.encode_to_vec()).unwrap();
        fs::rename(self.dir.path().join("next"), self.dir.path().join("desired")).unwrap();
        until(&format!("{verb:?} is answered"), || {
            self.report().is_some_and(|report| report.echo >= self.seq && holds(report.legs.first()))
        })
        .await;
        self.report().unwrap()
    }

    fn report(&self) -> Option<Report> {
        Report::decode(fs::read(self.dir.path().join("report")).ok()?.as_slice()).ok()
    }

    fn child(&self) -> Option<Process> {
        let mut objects = fs::read_dir(self.dir.path().join("clusters/here/objects")).ok()?;
        let file = objects.next()?.ok()?.path().join("pods/main-0/child.json");
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    async fn started(&mut self, script: &str) -> String {
        let is = |phase: Phase| move |leg: Option<&ObservedLeg>| leg.is_some_and(|leg| leg.phase() == phase);
        let report = self.ask(Verb::Create, "", script, is(Phase::Stopped)).await;
        let uid = report.legs[0].uid.clone();
        self.ask(Verb::Start, &uid, "", is(Phase::Running)).await;
        until("the pod runs", || self.child().is_some()).await;
        uid
    }
}

fn end(agent: &mut Child, with: Signal) {
    kill(Pid::from_raw(i32::try_from(agent.id()).unwrap()), with).unwrap();
    agent.wait().unwrap();
}

fn gated(gate: &Path, code: i32) -> String {
    format!("while [ ! -e {} ]; do sleep 0.1; done; exit {code}", gate.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_survives_its_agent_and_the_next_one_reports_its_exit_code() {
    let mut desk = Desk::new();
    let gate = desk.dir.path().join("gate");

    // given a pod that runs, and an agent killed with -9
    let mut first = desk.agent();
    let uid = desk.started(&gated(&gate, 7)).await;
    let pod = desk.child().unwrap();
    end(&mut first, Signal::SIGKILL);
    assert!(pod.alive());

    // when another agent comes, then it finds the same process
    let mut second = desk.agent();
    let old = desk.report().unwrap();
    until("the next agent reports", || desk.report().is_some_and(|report| report.agent != old.agent)).await;
    let report = desk.report().unwrap();
    assert_eq!((report.epoch, report.legs[0].phase()), (old.epoch + 1, Phase::Running));
    assert_eq!((desk.child(), pod.alive()), (Some(pod), true));

    // and when the pod ends while no agent lives, then the third one still knows how
    end(&mut second, Signal::SIGTERM);
    fs::write(&gate, "").unwrap();
    until("the pod is gone", || carriers(key(1), &uid) == 0).await;
    let mut third = desk.agent();
    let ended = |leg: Option<&ObservedLeg>| leg.is_some_and(|leg| leg.phase() == Phase::Failed);
    let report = desk.ask(Verb::Start, &uid, "", ended).await;
    assert_eq!(report.legs[0].exit_code, Some(7));
    end(&mut third, Signal::SIGTERM);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_ends_the_agent_alone_and_remove_ends_the_pod() {
    let mut desk = Desk::new();
    let mut agent = desk.agent();
    let uid = desk.started("sleep 1000").await;
    end(&mut agent, Signal::SIGTERM);
    assert!(desk.child().unwrap().alive());

    let mut agent = desk.agent();
    let report = desk.ask(Verb::Remove, &uid, "", |leg| leg.is_none()).await;
    assert_eq!((carriers(key(1), &uid), report.nodes.len(), report.nodes[0].nodes), (0, 1, 2));
    end(&mut agent, Signal::SIGTERM);
}
