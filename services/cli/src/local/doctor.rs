//! `muster doctor`: looks for what is wrong, and says how to mend it.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use anyhow::Result;
use muster_ledger::view::{Answer, Question};
use serde::Serialize;

use super::{cell::Cell, down::find, status::ask};
use crate::{
    args::{Format, Global},
    client::{As, Client},
    context::{Config, config_path},
    exit, output,
};

/// Below this much free space RocksDB and NATS are in danger.
const LEAST_FREE_MIB: u64 = 512;

#[derive(Serialize)]
struct Finding {
    check: String,
    ok: bool,
    detail: String,
}

pub async fn doctor(global: &Global) -> Result<()> {
    let mut findings = vec![nats_binary(), context(global)];
    if let Ok(cell) = find(global, None) {
        findings.extend(machine(&cell));
        findings.push(processes(&cell));
    }
    findings.extend(services(global).await);
    findings.push(ray());
    match global.output {
        Format::Json | Format::Yaml => output::print(global.output, &findings, |_| output::table([""]))?,
        Format::Table | Format::Wide => {
            for finding in &findings {
                let mark = if finding.ok { "ok  " } else { "BAD " };
                output::line(&format!("{mark} {:<22} {}", finding.check, finding.detail))?;
            }
        }
    }
    let bad = findings.iter().filter(|finding| !finding.ok).count();
    if bad > 0 {
        return Err(exit::with(exit::FAILED, format!("{bad} problem(s) found")));
    }
    Ok(())
}

fn finding(check: &str, result: Result<String, String>) -> Finding {
    let ok = result.is_ok();
    Finding { check: check.to_owned(), ok, detail: result.unwrap_or_else(|problem| problem) }
}

fn nats_binary() -> Finding {
    let version = || {
        let path = muster_bus::server::find_binary().map_err(|error| error.to_string())?;
        let output = Command::new(&path)
            .arg("--version")
            .output()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(format!("{} ({})", String::from_utf8_lossy(&output.stdout).trim(), path.display()))
    };
    finding("nats-server", version())
}

fn context(global: &Global) -> Finding {
    let found = Config::load().and_then(|config| config.choose(global.context.as_deref()));
    finding(
        "context",
        match found {
            Ok((name, context)) => Ok(format!("{name:?} at {} ({})", context.url, config_path().display())),
            Err(error) => Err(format!("{error:#}")),
        },
    )
}

fn machine(cell: &Cell) -> Vec<Finding> {
    vec![finding("disk", disk(&cell.data)), finding("credentials", private(cell))]
}

fn disk(data: &Path) -> Result<String, String> {
    let stat = nix::sys::statvfs::statvfs(data).map_err(|error| format!("{}: {error}", data.display()))?;
    let free = stat.blocks_available() as u64 * stat.fragment_size() as u64 / (1 << 20);
    if free < LEAST_FREE_MIB {
        return Err(format!(
            "{free} MiB free in {}: make room, below {LEAST_FREE_MIB} MiB writes may fail",
            data.display()
        ));
    }
    Ok(format!("{free} MiB free in {}", data.display()))
}

fn private(cell: &Cell) -> Result<String, String> {
    let operator = cell.credentials("operator");
    let folder = operator.parent().unwrap_or(&operator);
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries.flatten() {
        let mode = entry.metadata().map_err(|error| error.to_string())?.permissions().mode();
        if mode & 0o077 != 0 {
            let path = entry.path();
            return Err(format!("others may read {0}: chmod 600 {0}", path.display()));
        }
    }
    Ok(format!("{} readable by the owner only", folder.display()))
}

fn processes(cell: &Cell) -> Finding {
    let look = || {
        let pid = cell.supervisor().ok_or("muster is not up: `muster up` starts it")?;
        let running = cell.running().map_err(|error| error.to_string())?;
        let down: Vec<String> = running
            .processes
            .iter()
            .filter(|process| process.pid.is_none())
            .map(|process| {
                format!("{} ({}; see {})", process.name, process.last_exit, cell.log(&process.name).display())
            })
            .collect();
        if down.is_empty() {
            Ok(format!("supervisor {pid} keeps {} processes", running.processes.len()))
        } else {
            Err(format!("not running: {}", down.join(", ")))
        }
    };
    finding("processes", look())
}

async fn services(global: &Global) -> Vec<Finding> {
    let client = match Client::connect(global, As::Operator).await {
        Ok(client) => client,
        Err(error) => return vec![finding("server", Err(format!("{error:#}")))],
    };
    let mut findings = vec![finding("server", Ok(format!("connected to {}", client.context.url)))];
    for service in ["queue", "admission", "federation", "desk", "ledger"] {
        let answer = ask(&client, service).await.and_then(|answer| {
            match answer.get("stopped").or_else(|| answer.get("notReady")).and_then(|value| value.as_str()) {
                Some(problem) => Err(problem.to_owned()),
                None => {
                    Ok(format!("at sequence {}", answer.get("position").unwrap_or(&serde_json::Value::Null)))
                }
            }
        });
        findings.push(finding(service, answer));
    }
    let clusters = match client.ask(&Question::Clusters).await {
        Ok(Answer::Clusters { items }) if items.is_empty() => {
            Err("no cluster has joined: is the agent running?".to_owned())
        }
        Ok(Answer::Clusters { items }) => match items.iter().find(|item| item.state != "Ready") {
            Some(item) => Err(format!("cluster {} is {}", item.name, item.state)),
            None => Ok(format!("{} ready", items.len())),
        },
        Ok(_) => Err("the ledger answered something else".to_owned()),
        Err(error) => Err(format!("{error:#}")),
    };
    findings.push(finding("clusters", clusters));
    findings
}

fn ray() -> Finding {
    let venv = std::env::var_os("MUSTER_RAY_VENV").map(|venv| Path::new(&venv).join("bin/ray"));
    let found = match venv {
        Some(ray) if ray.exists() => Ok(format!("{}", ray.display())),
        Some(ray) => Err(format!("{} is not there: pip install 'ray[default]==2.60.0' into that environment", ray.display())),
        None => match Command::new("ray").arg("--version").output() {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
            _ => Ok("not found; only RayJobs on the local backend need it: pip install 'ray[default]', or set MUSTER_RAY_VENV".to_owned()),
        },
    };
    finding("ray", found)
}
