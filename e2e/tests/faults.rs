//! `kill -9` of everything in turn while jobs run; the verdict is by what pods wrote to a file of their own.

use std::{fs, process::Child, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use muster_e2e::{Cell, Setup, eventually, journal, manifest};

/// Jobs whose pods write to `file`, as one manifest.
fn jobs(count: usize, file: &std::path::Path, beats: u32) -> String {
    let job = |n| manifest::job(&format!("j{n}"), "default", "1", &journal::script(file, beats));
    (0..count).map(job).collect()
}

/// Waits until no workload is open; how many succeeded.
fn all_over(cell: &Cell, count: usize) -> Result<usize> {
    let phases = || -> Result<Vec<String>> {
        // Ledger or server may just have been killed.
        let all = cell.run(&["get", "workloads", "-o", "json"])?.json().unwrap_or_default();
        let phase = |one: &serde_json::Value| one["phase"].as_str().unwrap_or_default().to_owned();
        Ok(all.as_array().map(|all| all.iter().map(phase).collect()).unwrap_or_default())
    };
    let over = |phase: &String| matches!(phase.as_str(), "Succeeded" | "Failed" | "Cancelled");
    let mut last = Vec::new();
    eventually("every workload is over", || {
        last = phases()?;
        std::thread::sleep(Duration::from_millis(300));
        Ok(last.len() == count && last.iter().all(over))
    })
    .with_context(|| format!("{last:?}"))?;
    Ok(last.iter().filter(|phase| *phase == "Succeeded").count())
}

fn judged(file: &std::path::Path) -> Result<journal::Found> {
    journal::judge(&fs::read_to_string(file)?).map_err(|wrong| anyhow!("{}", wrong.join("\n")))
}

#[test]
fn two_hundred_jobs_survive_kill_9_of_each_process_in_turn() {
    const JOBS: usize = 200;
    let setup = Setup { policies: manifest::queue("default", "16", "64Gi"), ..Setup::default() };
    let cell = Cell::start(&setup).unwrap();
    let file = cell.dir().join("journal");
    let ids = cell.submit(&jobs(JOBS, &file, 5), &[]).unwrap();
    assert_eq!(ids.len(), JOBS);

    let victims = ["admission-0", "agent", "federation-0", "desk-0", "queue-0", "ledger-0", "nats-server"];
    for round in 0..2 {
        for victim in victims {
            cell.kill(victim).unwrap_or_else(|error| panic!("round {round}: {error:#}"));
            std::thread::sleep(Duration::from_millis(300));
        }
    }
    assert_eq!(all_over(&cell, JOBS).unwrap(), JOBS);
    let found = judged(&file).unwrap();
    println!("{JOBS} jobs, {} attempts, killed twice: {victims:?}", found.attempts);
    assert_eq!(found.workloads, JOBS);
    cell.run(&["replay", "--verify"]).unwrap().ok().unwrap();
}

/// A second agent of the same cluster, as by mistake.
fn second_agent(cell: &Cell) -> Result<Child> {
    let data = cell.data();
    let credentials = cell.credentials("cluster/local");
    let nodes = cell.dir().join("nodes.yaml");
    let mut command =
        cell.command(&["run", "agent", "--cluster", "local", "--slot", "1", "--nats", &cell.url()?]);
    command.arg("--credentials").arg(credentials).arg("--data").arg(data).arg("--nodes").arg(nodes);
    let log = fs::File::create(cell.data().join("log/agent-1.log"))?;
    Ok(command.stdout(log.try_clone()?).stderr(log).spawn()?)
}

#[test]
fn two_replicas_of_each_service_and_two_agents_do_each_job_once() {
    const JOBS: usize = 40;
    let setup = Setup { replicas: 2, policies: manifest::queue("default", "8", "64Gi"), ..Setup::default() };
    let cell = Cell::start(&setup).unwrap();
    let mut agent = second_agent(&cell).unwrap();
    let file = cell.dir().join("journal");
    cell.submit(&jobs(JOBS, &file, 5), &[]).unwrap();
    for victim in ["agent", "queue-0", "admission-1", "federation-0", "desk-1"] {
        cell.kill(victim).unwrap();
    }
    assert_eq!(all_over(&cell, JOBS).unwrap(), JOBS);
    assert_eq!(judged(&file).unwrap().workloads, JOBS);
    assert!(agent.try_wait().unwrap().is_none(), "the second agent ended");
    agent.kill().unwrap();
    agent.wait().unwrap();
    cell.run(&["replay", "--verify"]).unwrap().ok().unwrap();
}

#[test]
fn pods_outlive_the_agent_and_its_successor_reports_their_end() {
    let cell = Cell::start(&Setup::default()).unwrap();
    let (pid, go) = (cell.dir().join("pid"), cell.dir().join("go"));
    let script = format!(
        "echo $BASHPID > {0}.new; mv {0}.new {0}; until [ -e {1} ]; do sleep 0.05; done; exit 3",
        pid.display(),
        go.display()
    );
    let id = cell.submit(&manifest::job("outlives", "default", "1", &script), &[]).unwrap().remove(0);
    eventually("the pod runs", || Ok(pid.exists())).unwrap();
    let pod: i32 = fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
    let before = muster_agent::proc::Process::of(pod).unwrap();
    cell.kill("agent").unwrap();
    assert!(before.alive(), "the pod died with its agent");
    fs::write(&go, "").unwrap();
    let workload = cell.reach(&id, "Failed").unwrap();
    assert_eq!((&workload["exitCode"], &workload["attempts"]), (&3.into(), &1.into()), "{workload}");
}
