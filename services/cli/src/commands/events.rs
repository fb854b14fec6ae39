//! `muster events`: the log, in words.

use std::time::Duration;

use anyhow::{Result, bail};
use muster_ledger::view::{Answer, Event, Question};

use crate::{
    args::{Format, Global},
    client::{As, Client},
    output,
};

/// Between two looks at the log with `--follow`.
const AGAIN: Duration = Duration::from_millis(200);

pub async fn events(global: &Global, workload: Option<&str>, follow: bool, after: u64) -> Result<()> {
    let client = Client::connect(global, As::Reader).await?;
    let workload = match workload {
        Some(name) => Some(client.workload(name).await?.id),
        None => None,
    };
    let mut position = after;
    let mut all = Vec::new();
    loop {
        let (items, more) = page(&client, position, workload.clone()).await?;
        position = items.last().map_or(position, |last| last.seq);
        match global.output {
            Format::Table | Format::Wide => {
                items.iter().try_for_each(|event| output::line(&row(event, &workload)))?
            }
            Format::Json if follow => {
                items.iter().try_for_each(|event| output::line(&serde_json::to_string(event)?))?
            }
            _ => all.extend(items),
        }
        if more {
            continue;
        }
        if !follow {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    match global.output {
        Format::Json if !follow => output::line(&serde_json::to_string_pretty(&all)?),
        Format::Yaml => output::line(serde_saphyr::to_string(&all)?.trim_end()),
        _ => Ok(()),
    }
}

/// Facts above a sequence, and whether there are more.
pub async fn page(client: &Client, after: u64, workload: Option<String>) -> Result<(Vec<Event>, bool)> {
    match client.ask(&Question::Events { after, limit: 0, workload }).await? {
        Answer::Events { items, next } => Ok((items, next.is_some())),
        _ => bail!("the ledger answered something else"),
    }
}

/// One fact on a line; the workload is left out where all are of the same.
pub fn row(event: &Event, of_one: &Option<String>) -> String {
    let workload = event.workload.as_deref().filter(|_| of_one.is_none()).unwrap_or_default();
    let void = event.void.as_ref().map(|why| format!("  VOID: {why}")).unwrap_or_default();
    let writer = format!("{}.{}", event.service, event.partition);
    let time = output::clock(event.time_us);
    let line = format!(
        "{:>6}  {time}  {writer:<14} {:<19} {workload} {}{void}",
        event.seq, event.fact, event.detail
    );
    line.trim_end().to_owned()
}
