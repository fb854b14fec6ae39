//! `muster status`: what `up` started, and how each process is.

use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use muster_bus::names;
use serde::Serialize;
use serde_json::Value;

use super::{cell::CLUSTER, down::find};
use crate::{
    args::Global,
    client::{As, Client},
    exit, output,
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    pid: Option<u32>,
    restarts: u32,
    last_exit: String,
    /// How far it has folded; none when it does not answer.
    position: Option<u64>,
    hash: Option<String>,
    /// Why it does not decide, if it doesn't.
    problem: String,
}

pub async fn status(global: &Global) -> Result<()> {
    let cell = find(global, None)?;
    if cell.supervisor().is_none() {
        return Err(exit::with(
            exit::NO_CONNECTION,
            format!("muster is not up in {}: `muster up` starts it", cell.data.display()),
        ));
    }
    let client = Client::connect(global, As::Operator).await;
    let mut rows = Vec::new();
    for process in cell.running()?.processes {
        let service = process.name.split('-').next().unwrap_or_default();
        let answer = match &client {
            Ok(client) if !matches!(service, "nats" | "agent") => ask(client, service).await,
            Err(error) => Err(error.to_string()),
            _ => Ok(Value::Null),
        };
        let (found, problem) = match answer {
            Ok(found) => (found, String::new()),
            Err(error) => (Value::Null, error),
        };
        rows.push(Row {
            name: process.name,
            pid: process.pid,
            restarts: process.restarts,
            last_exit: process.last_exit,
            position: found.get("position").and_then(Value::as_u64),
            hash: found.get("hash").and_then(Value::as_str).map(str::to_owned),
            problem: found.get("stopped").and_then(Value::as_str).map_or(problem, str::to_owned),
        });
    }
    output::print(global.output, &rows, |wide| {
        let mut table = output::table(["PROCESS", "PID", "RESTARTS", "POSITION", "STATE HASH", "PROBLEM"]);
        for row in &rows {
            let pid = row.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let position = row.position.map(|position| position.to_string()).unwrap_or_default();
            let hash = row.hash.clone().unwrap_or_default();
            let hash = if wide { hash } else { hash.chars().take(12).collect() };
            table.add_row([&row.name, &pid, &row.restarts.to_string(), &position, &hash, &row.problem]);
        }
        table
    })
}

/// Where a service stands, in its own words.
pub async fn ask(client: &Client, service: &str) -> Result<Value, String> {
    let partition = if service == "desk" { CLUSTER } else { "0" };
    let subject = names::ask(service, partition).map_err(|error| error.to_string())?;
    let question = Bytes::from_static(br#"{"hash":{"at_least":0}}"#);
    let reply = client
        .bus
        .ask(&subject, question, Duration::from_secs(3))
        .await
        .map_err(|error| error.to_string())?;
    serde_json::from_slice(&reply).map_err(|error| error.to_string())
}
