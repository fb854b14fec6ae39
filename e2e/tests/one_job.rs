//! One job's whole way, as a user sees it.

use std::path::Path;

use anyhow::{Context as _, Result};
use muster_e2e::{Cell, Setup, eventually, manifest};
use muster_proto::{Command, Request, Submit, command};
use prost::Message as _;
use serde_json::Value;

/// The names of a workload's facts in the order of the log.
fn facts(cell: &Cell, id: &str) -> Result<Vec<String>> {
    let events = cell.run(&["events", id, "-o", "json"])?.json()?;
    let name = |event: &Value| event["fact"].as_str().unwrap_or_default().to_owned();
    Ok(events.as_array().context("a list")?.iter().map(name).collect())
}

fn exists(path: &Path) -> Result<()> {
    eventually(&path.display().to_string(), || Ok(path.exists()))
}

#[test]
fn a_job_runs_to_its_end_and_every_step_stands_in_the_log() {
    let cell = Cell::start(&Setup::default()).unwrap();
    let job = manifest::job("hello", "default", "1", "echo hello from $MUSTER_NODE");
    let said = cell.run_with(&["submit", "-f", "-", "--wait"], &job).unwrap();
    let id = said.ok().unwrap().trim().to_owned();
    let workload = cell.workload(&id).unwrap();
    assert_eq!(workload["phase"], "Succeeded");
    assert_eq!(workload["exitCode"], 0);
    assert_eq!(cell.ok(&["logs", &id]).unwrap(), "hello from n1\n");

    // DESIGN 5. The commit may come before or after the desk's first word on what runs.
    let way = facts(&cell, &id).unwrap();
    let order = ["WorkloadQueued", "QuotaReserved", "PlacementOffered", "LegGranted"];
    assert_eq!(way[..4], order, "{way:?}");
    assert_eq!(way.iter().filter(|fact| *fact == "PlacementCommitted").count(), 1, "{way:?}");
    assert_eq!(way[way.len() - 2..], ["LegEnded", "WorkloadFinished"], "{way:?}");

    // The same to people, by name instead of id.
    let described = cell.ok(&["describe", "hello"]).unwrap();
    assert!(described.contains(&id) && described.contains("WorkloadFinished"), "{described}");
    let verified = cell.run(&["replay", "--verify"]).unwrap();
    verified.ok().unwrap();
}

#[test]
fn what_fails_says_why_and_with_which_code() {
    let cell = Cell::start(&Setup::default()).unwrap();
    let failing = manifest::job("fails", "default", "1", "echo it goes wrong >&2; exit 7");
    let said = cell.run_with(&["submit", "-f", "-", "--follow"], &failing).unwrap();
    let out = said.ended(7).unwrap();
    assert!(out.contains("it goes wrong"), "{out}");
    let workload = cell.workload("fails").unwrap();
    assert_eq!((&workload["phase"], &workload["exitCode"]), (&"Failed".into(), &7.into()));

    let missing = manifest::job_of("missing", "default", "1", "command: [no-such-program-anywhere]");
    let said = cell.run_with(&["submit", "-f", "-", "--wait"], &missing).unwrap();
    said.ended(127).unwrap();
    let workload = cell.workload("missing").unwrap();
    let reason = workload["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("CommandNotFound") && reason.contains("PATH"), "{workload}");

    // Rounds are the queue's: a second one succeeds.
    let mark = cell.dir().join("second-round");
    let script = format!("if [ -e {0} ]; then echo better; else touch {0}; exit 1; fi", mark.display());
    let again = manifest::job("again", "default", "1", &script);
    let said = cell.run_with(&["submit", "-f", "-", "--wait", "--max-retries", "1"], &again).unwrap();
    said.ok().unwrap();
    let workload = cell.workload("again").unwrap();
    assert_eq!(workload["attempts"], 2, "{workload}");
    assert_eq!(cell.ok(&["logs", "again"]).unwrap(), "better\n");
}

#[test]
fn a_job_waits_for_quota_says_so_and_both_can_be_cancelled() {
    let setup = Setup { policies: manifest::queue("default", "2", "64Gi"), ..Setup::default() };
    let cell = Cell::start(&setup).unwrap();
    let mark = cell.dir().join("runs");
    let script = format!("touch {}; sleep 1000", mark.display());
    let running = cell.submit(&manifest::job("running", "default", "2", &script), &[]).unwrap().remove(0);
    cell.reach(&running, "Running").unwrap();
    exists(&mark).unwrap();

    let waiting = cell.submit(&manifest::job("waiting", "default", "1500m", "true"), &[]).unwrap().remove(0);
    let why = cell.run(&["why", &waiting, "-o", "json"]).unwrap().json().unwrap();
    assert_eq!(why["workload"]["phase"], "Queued", "{why}");
    let reasons = why["reasons"].as_array().unwrap();
    let admission = reasons.iter().find(|reason| reason["service"] == "admission").unwrap();
    let text = cell.ok(&["why", &waiting]).unwrap();
    // Which queue, what it has, what is used, what lacks, and who holds it.
    for word in ["default", "nominal", "used", "short", &running] {
        assert!(text.contains(word), "{word:?} is not in:\n{text}\n{admission}");
    }

    cell.ok(&["cancel", &waiting, "--reason", "changed my mind"]).unwrap();
    let workload = cell.reach(&waiting, "Cancelled").unwrap();
    assert_eq!(workload["attempts"], 0);
    let events = cell.ok(&["events", &waiting]).unwrap();
    assert!(events.contains("changed my mind"), "{events}");

    cell.ok(&["cancel", &running]).unwrap();
    cell.reach(&running, "Cancelled").unwrap();
    let pods = || muster_agent::proc::carrying(&[format!("MUSTER_WORKLOAD={running}")]);
    eventually("no process of the cancelled job is left", || Ok(pods()?.is_empty())).unwrap();
    // Its quota is free again.
    let last = cell.submit(&manifest::job("last", "default", "2", "true"), &["--wait"]).unwrap().remove(0);
    assert_eq!(cell.workload(&last).unwrap()["phase"], "Succeeded");
    cell.run(&["cancel", &last]).unwrap().ended(4).unwrap();
    cell.run(&["replay", "--verify"]).unwrap().ok().unwrap();
}

#[test]
fn any_nats_client_may_submit_and_a_key_counts_once() {
    let cell = Cell::start(&Setup::default()).unwrap();
    let count = cell.dir().join("count");
    let job = manifest::job("foreign", "default", "1", &format!("echo once >> {}", count.display()));
    let submit =
        Submit { manifest: job.into_bytes().into(), namespace: "default".to_owned(), ..Submit::default() };
    let commands = vec![Command { kind: Some(command::Kind::Submit(submit)) }];
    let payload = Request { commands, key: String::new() }.encode_to_vec();

    let sequence = cell.publish_from_python(&payload, "nightly-42").unwrap();
    let again = cell.publish_from_python(&payload, "nightly-42").unwrap();
    assert!(again > sequence);
    eventually("the job is known", || Ok(cell.workload("foreign").is_ok())).unwrap();
    let id = cell.workload("foreign").unwrap()["id"].as_str().unwrap().to_owned();
    // The sender knows the id from the server's answer.
    assert!(id.starts_with('w') && id.ends_with(&format!("-{sequence}-0")), "{id} of {sequence}");
    cell.reach(&id, "Succeeded").unwrap();

    // What comes after the repeat was taken, so the repeat was too; it changed nothing.
    cell.submit(&manifest::job("after", "default", "1", "true"), &["--wait"]).unwrap();
    assert_eq!(std::fs::read_to_string(&count).unwrap(), "once\n");
    let all = cell.run(&["get", "workloads", "-o", "json"]).unwrap().json().unwrap();
    assert_eq!(all.as_array().unwrap().len(), 2, "{all}");
}
