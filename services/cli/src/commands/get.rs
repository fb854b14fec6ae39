//! `muster get`: lists.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Result, bail};
use comfy_table::Table;
use muster_ledger::view::{
    Answer, Cluster, ClusterQueue, LocalQueue, PodSet, Question, ResourceFlavor, Select, Workload,
};
use muster_manifest::quantity;

use crate::{
    args::{Format, Get, Global, Kind},
    client::{As, Client},
    output,
};

/// Between two looks with `--watch`.
const AGAIN: Duration = Duration::from_millis(500);

pub async fn get(global: &Global, args: &Get) -> Result<()> {
    let client = Client::connect(global, As::Reader).await?;
    let mut last = String::new();
    loop {
        let (json, table) = look(&client, args, global.output == Format::Wide).await?;
        let text = match global.output {
            Format::Json => serde_json::to_string_pretty(&json)?,
            Format::Yaml => serde_saphyr::to_string(&json)?.trim_end().to_owned(),
            Format::Table | Format::Wide => table.to_string(),
        };
        if text != last {
            output::line(&text)?;
            last = text;
        }
        if !args.watch {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(AGAIN) => {}
            _ = tokio::signal::ctrl_c() => return Ok(()),
        }
    }
}

async fn look(client: &Client, args: &Get, wide: bool) -> Result<(serde_json::Value, Table)> {
    match args.kind {
        Kind::Workloads => {
            if let Some(name) = &args.name {
                let found = client.workload(name).await?;
                return Ok((serde_json::to_value(&found)?, workloads(&[found], wide)));
            }
            let items = all_workloads(client, args).await?;
            Ok((serde_json::to_value(&items)?, workloads(&items, wide)))
        }
        Kind::Localqueues => {
            let namespace = Some(client.namespace.clone()).filter(|_| !args.all_namespaces);
            let Answer::LocalQueues { items } = client.ask(&Question::LocalQueues { namespace }).await?
            else {
                bail!("the ledger answered something else")
            };
            Ok((serde_json::to_value(&items)?, local_queues(&items)))
        }
        Kind::Clusterqueues => {
            let Answer::ClusterQueues { items } = client.ask(&Question::ClusterQueues).await? else {
                bail!("the ledger answered something else")
            };
            Ok((serde_json::to_value(&items)?, cluster_queues(&items)))
        }
        Kind::Resourceflavors => {
            let Answer::ResourceFlavors { items } = client.ask(&Question::ResourceFlavors).await? else {
                bail!("the ledger answered something else")
            };
            Ok((serde_json::to_value(&items)?, flavors(&items)))
        }
        Kind::Clusters => {
            let Answer::Clusters { items } = client.ask(&Question::Clusters).await? else {
                bail!("the ledger answered something else")
            };
            Ok((serde_json::to_value(&items)?, clusters(&items)))
        }
    }
}

async fn all_workloads(client: &Client, args: &Get) -> Result<Vec<Workload>> {
    let mut select = Select {
        namespace: Some(client.namespace.clone()).filter(|_| !args.all_namespaces),
        labels: labels(args.selector.as_deref())?,
        ..Select::default()
    };
    let mut all = Vec::new();
    loop {
        let Answer::Workloads { items, next } = client.ask(&Question::Workloads(select.clone())).await?
        else {
            bail!("the ledger answered something else")
        };
        all.extend(items);
        match next {
            Some(next) => select.after = Some(next),
            None => return Ok(all),
        }
    }
}

fn labels(selector: Option<&str>) -> Result<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for part in selector.unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
        match part.split_once('=') {
            Some((key, value)) => _ = labels.insert(key.to_owned(), value.trim_start_matches('=').to_owned()),
            None => bail!("-l {part:?}: labels are key=value, separated by commas"),
        }
    }
    Ok(labels)
}

/// Amounts in Kubernetes' notation.
pub fn amounts(amounts: &BTreeMap<String, i64>) -> String {
    let shown: Vec<String> =
        amounts.iter().map(|(name, amount)| format!("{name}={}", quantity::format(name, *amount))).collect();
    shown.join(" ")
}

pub fn workloads(items: &[Workload], wide: bool) -> Table {
    let now = output::now_us();
    let pods = |sets: &[PodSet]| sets.iter().map(|set| u64::from(set.count)).sum::<u64>().to_string();
    let clusters =
        |item: &Workload| item.legs.iter().map(|leg| leg.cluster.as_str()).collect::<Vec<_>>().join(",");
    if !wide {
        let mut table = output::table(["ID", "NAME", "KIND", "QUEUE", "PHASE", "CLUSTER", "PODS", "AGE"]);
        for item in items {
            let age = output::span(now - item.queued_us);
            let (pods, clusters) = (pods(&item.pod_sets), clusters(item));
            let cells = [&item.id, &item.name, &item.kind, &item.queue, &item.phase, &clusters, &pods, &age];
            table.add_row(cells);
        }
        return table;
    }
    let header = [
        "NAMESPACE",
        "ID",
        "NAME",
        "KIND",
        "QUEUE",
        "CLUSTERQUEUE",
        "PRIORITY",
        "PHASE",
        "ROUND",
        "ATTEMPTS",
        "CLUSTER",
        "PODS",
        "AGE",
        "RAN",
        "EXIT",
        "REASON",
    ];
    let mut table = output::table(header);
    for item in items {
        let ran = item.started_us.map(|started| output::span(item.finished_us.unwrap_or(now) - started));
        table.add_row([
            item.namespace.clone(),
            item.id.clone(),
            item.name.clone(),
            item.kind.clone(),
            item.queue.clone(),
            item.cluster_queue.clone().unwrap_or_default(),
            item.priority.to_string(),
            item.phase.clone(),
            item.round.to_string(),
            item.attempts.to_string(),
            clusters(item),
            pods(&item.pod_sets),
            output::span(now - item.queued_us),
            ran.unwrap_or_default(),
            item.exit_code.map(|code| code.to_string()).unwrap_or_default(),
            item.reason.clone(),
        ]);
    }
    table
}

fn local_queues(items: &[LocalQueue]) -> Table {
    let mut table = output::table(["NAMESPACE", "NAME", "CLUSTERQUEUE", "PENDING", "ADMITTED"]);
    for item in items {
        let (pending, admitted) = (item.pending.to_string(), item.admitted.to_string());
        table.add_row([&item.namespace, &item.name, &item.cluster_queue, &pending, &admitted]);
    }
    table
}

fn cluster_queues(items: &[ClusterQueue]) -> Table {
    let mut table =
        output::table(["NAME", "STRATEGY", "FLAVOR", "RESOURCE", "NOMINAL", "USED", "PENDING", "ADMITTED"]);
    for item in items {
        for quota in &item.quotas {
            table.add_row([
                item.name.clone(),
                item.strategy.clone(),
                quota.flavor.clone(),
                quota.resource.clone(),
                quantity::format(&quota.resource, quota.nominal),
                quantity::format(&quota.resource, quota.used),
                item.pending.to_string(),
                item.admitted.to_string(),
            ]);
        }
    }
    table
}

fn flavors(items: &[ResourceFlavor]) -> Table {
    let mut table = output::table(["NAME", "NODE LABELS"]);
    for item in items {
        let labels: Vec<String> =
            item.node_labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        table.add_row([&item.name, &labels.join(",")]);
    }
    table
}

fn clusters(items: &[Cluster]) -> Table {
    let mut table =
        output::table(["NAME", "BACKEND", "STATE", "EPOCH", "NODES", "LEGS", "ALLOCATABLE", "USED"]);
    for item in items {
        table.add_row([
            item.name.clone(),
            item.backend.clone(),
            item.state.clone(),
            item.epoch.to_string(),
            item.nodes.to_string(),
            item.legs.to_string(),
            amounts(&item.allocatable),
            amounts(&item.used),
        ]);
    }
    table
}
