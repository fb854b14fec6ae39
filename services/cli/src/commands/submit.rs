//! `muster submit`: manifests become workloads.

use std::{
    io::{Read, stdin},
    path::Path,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use comfy_table::Table;
use muster_ledger::view::{Answer, Question};
use muster_manifest::{document, quantity, workload};
use muster_proto::{Fault, Submit, command};

use crate::{
    args::{Global, Submit as Args},
    client::{As, Client, id_of},
    commands::logs,
    exit, output,
};

/// How long the queue's verdict is waited for before the command ends.
const VERDICT: Duration = Duration::from_secs(5);

pub async fn submit(global: &Global, args: &Args) -> Result<u8> {
    let text = read_file(&args.file)?;
    let documents = document::documents(&text).map_err(|faults| refuse(&faults))?;
    if documents.is_empty() {
        bail!("{} holds no manifest", args.file.display());
    }
    if documents.len() > 1 && args.name.is_some() {
        bail!("--name names one workload, but {} holds {}", args.file.display(), documents.len());
    }
    let namespace = global.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let specs = check(&documents, &namespace, args)?;
    if args.dry_run {
        output::print(global.output, &specs.iter().map(summary).collect::<Vec<_>>(), |_| {
            dry_run_table(&specs)
        })?;
        return Ok(0);
    }
    let client = Client::connect(global, As::Tenant).await?;
    let generation = client.generation().await?;
    let commands =
        documents.iter().map(|value| to_command(value, &client.namespace, args)).collect::<Result<_>>()?;
    let request = client.request("submit", commands, args.key.as_deref()).await?;
    let ids: Vec<String> =
        (0..documents.len()).map(|index| id_of(generation, request, index).to_string()).collect();
    for id in &ids {
        output::line(id)?;
    }
    for (index, id) in ids.iter().enumerate() {
        match settled(&client, request, index).await? {
            Ok(true) => {}
            Ok(false) => eprintln!("{id}: stored; the queue has not taken it yet. See `muster why {id}`"),
            Err(reasons) => return Err(exit::with(exit::REJECTED, format!("{id} rejected: {reasons}"))),
        }
    }
    let mut code = 0;
    if args.wait || args.follow {
        for id in &ids {
            code = logs::attend(global, &client, id, args.follow).await?.max(code);
        }
    }
    Ok(code)
}

fn check(documents: &[serde_json::Value], namespace: &str, args: &Args) -> Result<Vec<workload::JobSpec>> {
    let defaults = workload::Defaults {
        namespace: namespace.to_owned(),
        queue: args.queue.clone().unwrap_or_default(),
        name: args.name.clone().unwrap_or_default(),
        priority_class: args.priority_class.clone().unwrap_or_default(),
        max_retries: args.max_retries,
        // The queue completes a generated name with the request's sequence; here any will do.
        name_suffix: "0-0".to_owned(),
        ..workload::Defaults::default()
    };
    let mut faults = Vec::new();
    let mut specs = Vec::new();
    for (n, value) in documents.iter().enumerate() {
        match workload::read(value, &defaults) {
            Ok(spec) => specs.push(spec),
            Err(found) => faults.extend(found.into_iter().map(|mut fault| {
                if documents.len() > 1 {
                    fault.field = format!("[{n}].{}", fault.field);
                }
                fault
            })),
        }
    }
    if faults.is_empty() { Ok(specs) } else { Err(refuse(&faults)) }
}

fn to_command(value: &serde_json::Value, namespace: &str, args: &Args) -> Result<command::Kind> {
    Ok(command::Kind::Submit(Submit {
        manifest: serde_json::to_vec(value)?.into(),
        namespace: namespace.to_owned(),
        queue: args.queue.clone().unwrap_or_default(),
        name: args.name.clone().unwrap_or_default(),
        max_retries: args.max_retries,
        priority_class: args.priority_class.clone().unwrap_or_default(),
    }))
}

/// What the queue made of a command: taken, not answered yet, or rejected with these reasons.
pub async fn settled(client: &Client, request: u64, index: usize) -> Result<Result<bool, String>> {
    let question = Question::Request { seq: request, index: u32::try_from(index)? };
    let until = tokio::time::Instant::now() + VERDICT;
    loop {
        match client.ask(&question).await? {
            Answer::Request { state, .. } if state == "Pending" && tokio::time::Instant::now() >= until => {
                return Ok(Ok(false));
            }
            Answer::Request { state, .. } if state == "Pending" => {
                tokio::time::sleep(Duration::from_millis(50)).await
            }
            Answer::Request { state, reasons } if state == "Rejected" => return Ok(Err(reasons.join("; "))),
            Answer::Request { .. } => return Ok(Ok(true)),
            _ => bail!("the ledger answered something else"),
        }
    }
}

/// Reads a file, or stdin for `-`.
pub fn read_file(file: &Path) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    if file == Path::new("-") {
        stdin().read_to_end(&mut text).context("could not read stdin")?;
    } else {
        text = std::fs::read(file).with_context(|| format!("could not read {}", file.display()))?;
    }
    Ok(text)
}

/// Every fault on a line of its own.
pub fn refuse(faults: &[Fault]) -> anyhow::Error {
    let line = |fault: &Fault| {
        let value = if fault.value.is_empty() { String::new() } else { format!(" ({})", fault.value) };
        format!("  {}{value}: {}", fault.field, fault.message)
    };
    let lines: Vec<String> = faults.iter().map(line).collect();
    exit::with(exit::REJECTED, format!("{} mistake(s):\n{}", faults.len(), lines.join("\n")))
}

fn summary(spec: &workload::JobSpec) -> serde_json::Value {
    let pod_set = |set: &muster_proto::PodSet| serde_json::json!({ "name": set.name, "count": set.count, "requests": set.requests });
    serde_json::json!({
        "kind": spec.kind, "namespace": spec.namespace, "name": spec.name, "queue": spec.queue,
        "podSets": spec.pod_sets.iter().map(pod_set).collect::<Vec<_>>(),
    })
}

fn dry_run_table(specs: &[workload::JobSpec]) -> Table {
    let mut table = output::table(["KIND", "NAME", "QUEUE", "POD SET", "PODS", "REQUESTS OF ONE"]);
    for spec in specs {
        for set in &spec.pod_sets {
            let requests: Vec<String> = set
                .requests
                .iter()
                .map(|(name, amount)| format!("{name}={}", quantity::format(name, *amount)))
                .collect();
            let name = format!("{}/{}", spec.namespace, spec.name);
            table.add_row([
                &spec.kind,
                &name,
                &spec.queue,
                &set.name,
                &set.count.to_string(),
                &requests.join(" "),
            ]);
        }
    }
    table
}
