//! `muster up`: everything on this machine.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use muster_ledger::view::{Answer, Question};
use muster_proto::{ApplyPolicy, command};

use super::{
    cell::{CLUSTER, Cell, GivenNats, PRINCIPAL, TENANT},
    nats,
    supervisor::supervise,
};
use crate::{
    args::{Global, Up},
    client::{As, Client},
    context::{Config, Context, default_data},
    output,
};

/// How long the supervisor may take until its pid is written.
const START: Duration = Duration::from_secs(2);
/// How long the cell may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);

pub async fn up(global: &Global, args: &Up) -> Result<()> {
    let data = std::path::absolute(args.data.clone().unwrap_or_else(default_data))?;
    let cell = prepare(&data, args)?;
    write_context(&cell, &args.name)?;
    if args.foreground {
        eprintln!("muster runs in {}; Ctrl-C ends it", data.display());
        return supervise(&data, true).await;
    }
    if cell.supervisor().is_none() {
        detach(&cell)?;
    }
    let client = ready(global, &cell, &args.name).await?;
    first_policies(&client, &cell).await?;
    output::line(&format!(
        "muster is up: {} (context {:?}, data in {})",
        cell.url(),
        args.name,
        data.display()
    ))?;
    output::line("  submit a job:  muster submit -f JOB.yaml --queue default --follow")
}

/// The cell of this folder, made or as it was; its server's configuration is written.
fn prepare(data: &Path, args: &Up) -> Result<Cell> {
    let before = Cell::load(data)?;
    if let Some(cell) = &before
        && cell.supervisor().is_some()
    {
        return Ok(cell.clone());
    }
    fs::create_dir_all(data.join("run")).with_context(|| format!("could not create {}", data.display()))?;
    let nodes = match (&args.nodes, &before) {
        (Some(file), _) => std::path::absolute(file)?,
        (None, Some(cell)) => cell.nodes.clone(),
        (None, None) => this_machine(data)?,
    };
    muster_agent::local::read_nodes(&nodes)
        .map_err(|error| anyhow::anyhow!("{}: {error}", nodes.display()))?;
    let cell = Cell {
        data: data.to_owned(),
        port: nats::free_port(before.map(|cell| cell.port))?,
        replicas: args.replicas,
        nodes,
        given: match (&args.nats, &args.nats_users) {
            (Some(url), Some(users)) => {
                Some(GivenNats { url: url.clone(), users: std::path::absolute(users)? })
            }
            _ => None,
        },
    };
    if cell.given.is_none() {
        nats::configure(&cell)?;
    }
    cell.save()?;
    Ok(cell)
}

/// One node: this machine.
fn this_machine(data: &Path) -> Result<PathBuf> {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(4 << 20);
    let path = data.join("nodes.yaml");
    let text = format!(
        "# The local cluster's nodes. Accelerators that are not there may be declared too.\n\
         - name: this-machine\n  allocatable: {{cpu: \"{cpus}\", memory: \"{kib}Ki\"}}\n"
    );
    fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))?;
    Ok(path)
}

fn write_context(cell: &Cell, name: &str) -> Result<()> {
    let mut config = Config::load()?;
    let context = Context {
        url: cell.url(),
        tenant: TENANT.to_owned(),
        namespace: "default".to_owned(),
        credentials: Some(cell.credentials(&format!("{TENANT}/{PRINCIPAL}"))),
        operator: Some(cell.credentials("operator")),
        data: Some(cell.data.clone()),
    };
    config.contexts.insert(name.to_owned(), context);
    name.clone_into(&mut config.current);
    config.save()
}

fn detach(cell: &Cell) -> Result<()> {
    let path = cell.log("supervisor");
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let log = fs::OpenOptions::new().create(true).append(true).open(&path)?;
    let program = std::env::current_exe()?;
    Command::new(program)
        .arg("supervise")
        .arg(&cell.data)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("could not start the supervisor")?;
    Ok(())
}

/// Waits until the ledger answers and the local cluster has joined.
async fn ready(global: &Global, cell: &Cell, name: &str) -> Result<Client> {
    let global =
        Global { context: Some(name.to_owned()), namespace: global.namespace.clone(), output: global.output };
    let began = Instant::now();
    let until = began + PATIENCE;
    let mut told = Instant::now();
    loop {
        let problem = match Client::connect(&global, As::Operator).await {
            Err(error) => error.to_string(),
            Ok(client) => match client.ask(&Question::Clusters).await {
                Ok(Answer::Clusters { items }) if items.iter().any(|item| item.nodes > 0) => {
                    return Ok(client);
                }
                Ok(_) => format!("cluster {CLUSTER} has not joined yet"),
                Err(error) => error.to_string(),
            },
        };
        if cell.supervisor().is_none() && began.elapsed() > START {
            bail!("the supervisor has ended: see {}", cell.log("supervisor").display());
        }
        if Instant::now() >= until {
            bail!(
                "muster did not come up in {PATIENCE:?}: {problem}. `muster doctor` tells more; logs are in {}",
                cell.data.join("log").display()
            );
        }
        if told.elapsed() > Duration::from_secs(5) {
            eprintln!("waiting: {problem}");
            told = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A new cell gets a flavor, a ClusterQueue of the cluster's capacity and a LocalQueue, all
/// named `default`, so that the first submit finds a queue.
async fn first_policies(client: &Client, cell: &Cell) -> Result<()> {
    let Answer::ClusterQueues { items } = client.ask(&Question::ClusterQueues).await? else { return Ok(()) };
    let Answer::Clusters { items: clusters } = client.ask(&Question::Clusters).await? else { return Ok(()) };
    let marker = cell.run_dir().join("policies-applied");
    if !items.is_empty() || marker.exists() {
        return Ok(());
    }
    let Some(cluster) = clusters.into_iter().find(|cluster| cluster.nodes > 0) else { return Ok(()) };
    let quota = |(name, amount): (&String, &i64)| serde_json::json!({ "name": name, "nominalQuota": muster_manifest::quantity::format(name, *amount) });
    let resources: Vec<_> = cluster.allocatable.iter().map(quota).collect();
    let covered: Vec<_> = cluster.allocatable.keys().collect();
    let api = "kueue.x-k8s.io/v1beta2";
    let group = serde_json::json!({
        "coveredResources": covered, "flavors": [{ "name": "default", "resources": resources }],
    });
    let documents = [
        serde_json::json!({ "apiVersion": api, "kind": "ResourceFlavor", "metadata": { "name": "default" } }),
        serde_json::json!({
            "apiVersion": api, "kind": "ClusterQueue", "metadata": { "name": "default" },
            "spec": { "namespaceSelector": {}, "resourceGroups": [group] },
        }),
        serde_json::json!({
            "apiVersion": api, "kind": "LocalQueue", "metadata": { "name": "default", "namespace": "default" },
            "spec": { "clusterQueue": "default" },
        }),
    ];
    let command = |document: &serde_json::Value| {
        let manifest = serde_json::to_vec(document)?.into();
        Ok(command::Kind::ApplyPolicy(ApplyPolicy {
            manifest,
            source: "muster up".to_owned(),
            delete: false,
        }))
    };
    let request =
        client.request("policy", documents.iter().map(command).collect::<Result<_>>()?, None).await?;
    if let Err(reasons) = crate::commands::submit::settled(client, request, documents.len() - 1).await? {
        bail!("the first policies were rejected: {reasons}");
    }
    fs::write(marker, "")?;
    eprintln!("queue \"default\" made: ClusterQueue default with this cluster's whole capacity");
    Ok(())
}
