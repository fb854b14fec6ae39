//! `muster logs`, and attending a workload to its end.

use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use muster_agent::LogQuery;
use muster_bus::{BusError, names};
use muster_ledger::view::Workload;

use crate::{
    args::Global,
    client::{As, Client},
    commands::show::reasons,
    exit, output,
    wire::{LogAnswer, LogAsk},
};

/// Between two looks.
const AGAIN: Duration = Duration::from_millis(250);
/// Bytes of one answer.
const CHUNK: usize = 256 * 1024;

/// Where a reader of a log stands.
struct Place {
    attempt: u32,
    pod: String,
    from: u64,
}

pub async fn logs(
    global: &Global,
    workload: &str,
    follow: bool,
    pod: Option<&str>,
    attempt: u32,
) -> Result<()> {
    let client = Client::connect(global, As::Reader).await?;
    let mut found = client.workload(workload).await?;
    if found.attempts == 0 {
        return Err(exit::with(
            exit::NOT_FOUND,
            format!("{} has not started yet: see `muster why {}`", found.id, found.id),
        ));
    }
    let mut place = Place { attempt, pod: pod.unwrap_or_default().to_owned(), from: 0 };
    loop {
        let more = copy(&client, &found, &mut place).await?;
        if more {
            continue;
        }
        if !follow || is_over(&found) {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
        found = client.workload(&found.id).await?;
    }
}

/// Copies what is new to stdout, and says whether there may be more at once.
async fn copy(client: &Client, workload: &Workload, place: &mut Place) -> Result<bool> {
    let Some(leg) = workload.legs.first() else { return Ok(false) };
    let query = LogAsk::from(LogQuery {
        workload: workload.id.clone(),
        attempt: place.attempt,
        pod: place.pod.clone(),
        from: place.from,
        limit: CHUNK,
    });
    let payload = Bytes::from(serde_json::to_vec(&query)?);
    let answer: LogAnswer =
        match client.bus.ask(&names::ask_agent(&leg.cluster)?, payload, Duration::from_secs(5)).await {
            Ok(reply) => serde_json::from_slice(&reply)?,
            Err(BusError::Refused { .. }) if place.from == 0 => return Ok(false),
            Err(error) => bail!("the agent of cluster {} does not answer: {error}", leg.cluster),
        };
    // A RayJob's output is its entrypoint's, which comes after the head's.
    let comes_later = workload.kind == "RayJob" && place.pod.is_empty() && !is_driver(&answer.pod);
    if comes_later && !is_over(workload) {
        return Ok(false);
    }
    output::raw(answer.data.as_bytes())?;
    (place.attempt, place.pod, place.from) = (answer.attempt, answer.pod, answer.next);
    Ok(!answer.data.is_empty())
}

fn is_driver(pod: &str) -> bool {
    matches!(pod, "submitter-0" | "entrypoint-0")
}

fn is_over(workload: &Workload) -> bool {
    matches!(workload.phase.as_str(), "Succeeded" | "Failed" | "Cancelled")
}

/// Waits until a workload is over, showing why it waits and its output, and gives the exit code.
pub async fn attend(global: &Global, client: &Client, id: &str, show: bool) -> Result<u8> {
    let reader = Client::connect(global, As::Reader).await?;
    let mut told = String::new();
    let mut place = Place { attempt: 0, pod: String::new(), from: 0 };
    loop {
        let found = client.workload(id).await?;
        if show {
            if found.attempts > 0 && found.attempts != place.attempt {
                place = Place { attempt: found.attempts, pod: String::new(), from: 0 };
            }
            if !is_over(&found) {
                tell(&reader, &found, &mut told).await?;
            }
            while found.attempts > 0 && copy(&reader, &found, &mut place).await? {}
        }
        if is_over(&found) {
            return Ok(end(&found));
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = tokio::signal::ctrl_c() => {
                eprintln!("\ndetached; the job goes on. Again: muster logs -f {id}   or   muster why {id}");
                return Ok(0);
            }
        }
    }
}

/// Says on stderr why the workload waits or where it runs, again only when the reason is another one:
/// its numbers change all the time.
async fn tell(reader: &Client, found: &Workload, told: &mut String) -> Result<()> {
    let mut reason = found.phase.clone();
    let mut text = found.phase.clone();
    if matches!(found.phase.as_str(), "Queued" | "Admitted" | "Placing") {
        for found in reasons(reader, &found.id).await?.1 {
            reason.push_str(&found.reason);
            text.push_str(&format!("\n  {}: {}", found.reason, found.message));
        }
    } else if let Some(leg) = found.legs.first() {
        text.push_str(&format!(" in {}", leg.cluster));
    }
    if reason != *told {
        eprintln!("{}: {text}", found.id);
        *told = reason;
    }
    Ok(())
}

/// The job's exit code; 0 for success, 1 where a failure has none.
fn end(found: &Workload) -> u8 {
    let code = found.exit_code.map_or(String::new(), |code| format!(", exit code {code}"));
    let is_news = !found.reason.is_empty() && found.reason != found.phase;
    let reason = if is_news { format!(": {}", found.reason) } else { String::new() };
    eprintln!("{}: {}{code}{reason}", found.id, found.phase);
    if found.phase == "Succeeded" {
        return 0;
    }
    found.exit_code.and_then(|code| u8::try_from(code).ok()).filter(|code| *code != 0).unwrap_or(exit::FAILED)
}
