//! What is shown.

use std::fs;

use anyhow::{Context as _, Result, bail, ensure};
use muster_agent::proc::Process;
use muster_e2e::{journal, manifest};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::stage::Stage;

/// Two machines that aren't there: the jobs' processes run here, but are counted against these.
const NODES: &str = "\
- name: node-a
  allocatable: {cpu: \"8\", memory: 16Gi, nvidia.com/gpu: 4}
- name: node-b
  allocatable: {cpu: \"8\", memory: 16Gi, nvidia.com/gpu: 4}
";

/// Jobs that run while everything is killed.
const HOLDERS: usize = 2;
const WAITERS: usize = 6;

pub fn up(stage: &Stage) -> Result<()> {
    let nodes = stage.write("nodes.yaml", NODES)?;
    let data = stage.data().display().to_string();
    stage.muster(&["up", "--name", "demo", "--data", &data, "--nodes", &nodes])?;
    stage.muster(&["status"])?;
    stage.muster(&["get", "clusters"]).map(drop)
}

pub fn ray_job(stage: &Stage) -> Result<()> {
    let script = stage.write("primes.py", include_str!("primes.py"))?;
    let job = manifest::ray_job("primes", "default", 1, &format!("python {script}"));
    let file = stage.write("primes.yaml", &job)?;
    let out = stage.muster(&["submit", "-f", &file, "--follow"])?;
    ensure!(out.contains("148933 primes below 2000000"), "its output is not what it should be");
    ensure!(out.contains("2 nodes"), "it did not see both Ray nodes");
    stage.muster(&["describe", "primes"]).map(drop)
}

pub fn why(stage: &Stage) -> Result<()> {
    let team = stage.write("team.yaml", &manifest::queue("team", "2", "4Gi"))?;
    stage.muster(&["apply", "-f", &team])?;
    let (go, journal) = (stage.dir.join("go"), stage.dir.join("journal"));
    let holder = format!(
        "say() {{ echo \"$1 $MUSTER_WORKLOAD $MUSTER_ATTEMPT $EPOCHREALTIME\" >> '{}'; }}\n\
         say start\nuntil [ -e '{}' ]; do sleep 0.2; say alive; done\nsay end\n",
        journal.display(),
        go.display()
    );
    let jobs = |name: &str, count, script: &str| -> String {
        (1..=count).map(|n| manifest::job(&format!("{name}-{n}"), "team", "1", script)).collect()
    };
    let holders = stage.write("holders.yaml", &jobs("holder", HOLDERS, &holder))?;
    let waiters = stage.write("waiters.yaml", &jobs("waiter", WAITERS, &journal::script(&journal, 3)))?;
    stage.muster(&["submit", "-f", &holders])?;
    stage.until("both holders run", 60, || Ok(pods(stage)?.len() == HOLDERS))?;
    stage.muster(&["submit", "-f", &waiters])?;
    stage.muster(&["get", "workloads"])?;
    let why = stage.muster(&["why", "waiter-1"])?;
    for word in ["is Queued", "team", "cpu", "nominal", "used", "short"] {
        ensure!(why.contains(word), "it does not say {word:?}");
    }
    Ok(())
}

/// Pids of the holders' pods, by pod.
fn pods(stage: &Stage) -> Result<Vec<(String, Process)>> {
    let objects = stage.data().join("clusters/local/objects");
    let mut found = Vec::new();
    for object in fs::read_dir(objects)?.flatten() {
        let Ok(pods) = fs::read_dir(object.path().join("pods")) else { continue };
        for pod in pods.flatten() {
            let Ok(text) = fs::read(pod.path().join("child.json")) else { continue };
            let process: Process = serde_json::from_slice(&text)?;
            if process.alive() {
                found.push((object.file_name().to_string_lossy().into_owned(), process));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

pub fn kill_9(stage: &Stage) -> Result<()> {
    let before = pods(stage)?;
    for (object, process) in &before {
        println!("  {object} runs as pid {}", process.pid);
    }
    kill_one(stage, "admission-0")?;
    kill_one(stage, "agent")?;
    let after = pods(stage)?;
    for (object, process) in &after {
        println!("  {object} runs as pid {}", process.pid);
    }
    ensure!(!before.is_empty() && before == after, "the running pods changed");
    println!("\nThe holders may end now; admission has to let {WAITERS} waiters in, two at a time.");
    println!("$ touch {}", stage.dir.join("go").display());
    fs::write(stage.dir.join("go"), "")?;
    over(stage)
}

fn kill_one(stage: &Stage, name: &str) -> Result<()> {
    let pid = stage.pid(name)?.with_context(|| format!("{name} does not run"))?;
    println!("\n$ kill -9 {pid}    # {name}");
    kill(Pid::from_raw(pid), Signal::SIGKILL)?;
    let mut new = None;
    stage.until(&format!("{name} is back"), 30, || {
        new = stage.pid(name)?.filter(|now| *now != pid);
        Ok(new.is_some())
    })?;
    println!("  {name} is back as pid {}", new.unwrap_or_default());
    Ok(())
}

/// All have succeeded, and a file outside muster agrees.
fn over(stage: &Stage) -> Result<()> {
    let mut open = 1;
    stage.until("all jobs are over", 120, || {
        let all = stage.ask(&["get", "workloads"]).unwrap_or_default();
        let over = |one: &Value| matches!(one["phase"].as_str(), Some("Succeeded" | "Failed" | "Cancelled"));
        open = all.as_array().map_or(1, |all| all.iter().filter(|one| !over(one)).count());
        Ok(open == 0)
    })?;
    stage.muster(&["get", "workloads"])?;
    let all = stage.ask(&["get", "workloads"])?;
    let failed = all.as_array().map_or(1, |all| all.iter().filter(|one| one["phase"] != "Succeeded").count());
    ensure!(failed == 0, "{failed} jobs did not succeed");
    let journal = fs::read_to_string(stage.dir.join("journal"))?;
    match journal::judge(&journal) {
        Ok(found) => {
            ensure!(found.workloads == HOLDERS + WAITERS, "{found:?}");
            println!(
                "  By the file that the pods themselves wrote: {} jobs, {} attempts, each job succeeded once,",
                found.workloads, found.attempts
            );
            println!("  and no two attempts of a job ran at a time.");
            Ok(())
        }
        Err(wrong) => bail!("{}", wrong.join("; ")),
    }
}

/// The replay's own words; its JSON is the demo's last line.
pub fn replay(stage: &Stage) -> Result<Value> {
    stage.muster(&["replay", "--verify"])?;
    stage.ask(&["replay", "--verify"])
}
