//! `muster describe` and `muster why`.

use anyhow::{Result, bail};
use muster_ledger::view::{Answer, Question, Reason, Workload};

use crate::{
    args::{Format, Global},
    client::{As, Client},
    commands::{
        events::{page, row},
        get::amounts,
    },
    output,
};

pub async fn describe(global: &Global, workload: &str) -> Result<()> {
    let client = Client::connect(global, As::Reader).await?;
    let found = client.workload(workload).await?;
    let mut events = Vec::new();
    loop {
        let after = events.last().map_or(0, |last: &muster_ledger::view::Event| last.seq);
        let (items, more) = page(&client, after, Some(found.id.clone())).await?;
        events.extend(items);
        if !more {
            break;
        }
    }
    match global.output {
        Format::Json => {
            return output::line(&serde_json::to_string_pretty(
                &serde_json::json!({ "workload": found, "events": events }),
            )?);
        }
        Format::Yaml => {
            let value = serde_json::json!({ "workload": found, "events": events });
            return output::line(serde_saphyr::to_string(&value)?.trim_end());
        }
        Format::Table | Format::Wide => {}
    }
    summary(&found)?;
    output::line("\nTimeline:")?;
    let of_one = Some(found.id);
    events.iter().try_for_each(|event| output::line(&row(event, &of_one)))
}

fn summary(item: &Workload) -> Result<()> {
    let field = |name: &str, value: &str| output::line(&format!("{:<16}{value}", format!("{name}:")));
    field("Name", &format!("{}/{}", item.namespace, item.name))?;
    field("Id", &item.id)?;
    field("Kind", &item.kind)?;
    field("Tenant", &format!("{} ({})", item.tenant, item.principal))?;
    field("Queue", &format!("{} → {}", item.queue, item.cluster_queue.as_deref().unwrap_or("-")))?;
    field("Phase", &item.phase)?;
    if !item.reason.is_empty() {
        field("Reason", &item.reason)?;
    }
    field("Round", &item.round.to_string())?;
    field("Attempts", &item.attempts.to_string())?;
    if let Some(code) = item.exit_code {
        field("Exit code", &code.to_string())?;
    }
    let erased = if item.body_erased { ", erased" } else { "" };
    field("Body", &format!("{} bytes, message {} of BODIES{erased}", item.body_bytes, item.body_seq))?;
    for set in &item.pod_sets {
        let flavors: Vec<String> =
            set.flavors.iter().map(|(resource, flavor)| format!("{resource}:{flavor}")).collect();
        field(
            "Pod set",
            &format!("{} × {}  {}  {}", set.count, set.name, amounts(&set.requests), flavors.join(" ")),
        )?;
    }
    for leg in &item.legs {
        field("Leg", &format!("attempt {} in {}: {} {}", leg.attempt, leg.cluster, leg.state, leg.address))?;
    }
    Ok(())
}

pub async fn why(global: &Global, workload: &str) -> Result<()> {
    let client = Client::connect(global, As::Reader).await?;
    let (found, reasons) = reasons(&client, workload).await?;
    match global.output {
        Format::Json | Format::Yaml => {
            let value = serde_json::json!({ "workload": found, "reasons": reasons });
            output::print(global.output, &value, |_| output::table([""]))
        }
        Format::Table | Format::Wide => {
            output::line(&format!("{} {}/{} is {}", found.id, found.namespace, found.name, found.phase))?;
            if !found.reason.is_empty() {
                output::line(&format!("  {}", found.reason))?;
            }
            reasons.iter().try_for_each(|reason| output::line(&in_words(reason)))
        }
    }
}

/// The workload, and why it stands where it stands.
pub async fn reasons(client: &Client, workload: &str) -> Result<(Workload, Vec<Reason>)> {
    let question = Question::Why { namespace: Some(client.namespace.clone()), name: workload.to_owned() };
    match client.ask(&question).await? {
        Answer::Why { workload, reasons } => Ok((*workload, reasons)),
        _ => bail!("the ledger answered something else"),
    }
}

/// A reason with its numbers.
pub fn in_words(reason: &Reason) -> String {
    let mut text = format!("  {}: {}: {}", reason.service, reason.reason, reason.message);
    for (name, value) in &reason.numbers {
        text.push_str(&format!("\n    {name}: {value}"));
    }
    text
}
