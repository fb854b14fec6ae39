//! `muster run SERVICE`: one process, one service.

use std::{rc::Rc, sync::Arc};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use muster_agent::{Backend, Link, LogQuery, Remote, local};
use muster_bus::{Bus, Credentials, Options, Reader, names};
use muster_core::Service;
use muster_observe::{Health, Http, init_logs, metrics, serve};
use muster_runtime::{Answerer, HostConfig, RunError, Shutdown};

use crate::{
    args::{Run, ServiceName},
    exit,
    wire::{LogAnswer, LogAsk},
};

pub async fn run(args: &Run) -> Result<()> {
    let args = args.clone();
    // The host owns its driver on one thread; a second runtime thread would only add hops.
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run_here(&args))
    };
    tokio::task::spawn_blocking(work).await?
}

async fn run_here(args: &Run) -> Result<()> {
    match args.service {
        ServiceName::Queue => host::<muster_queue::Queue>(args, muster_queue::Config::default(), None).await,
        ServiceName::Admission => {
            host::<muster_admission::Admission>(args, muster_admission::Config::default(), None).await
        }
        ServiceName::Federation => {
            host::<muster_federation::Federation>(args, muster_federation::Config::default(), None).await
        }
        ServiceName::Desk => {
            let config = muster_desk::Config::new(cluster(args)?);
            host::<muster_desk::Desk>(args, config, None).await
        }
        ServiceName::Ledger => {
            host::<muster_ledger::Ledger>(args, (), Some(Rc::new(muster_ledger::Questions))).await
        }
        ServiceName::Agent => agent(args).await,
    }
}

fn cluster(args: &Run) -> Result<&str> {
    args.cluster.as_deref().context("--cluster NAME is missing: desk and agent serve one cluster")
}

fn options(args: &Run, name: &str) -> Options {
    Options::new(&args.nats, format!("muster-{name}-{}", args.slot))
        .with(Credentials::File(args.credentials.clone()))
}

fn http(args: &Run) -> Http {
    Http { port: args.port, port_file: Some(args.data.join("http.port")) }
}

async fn host<S: Service>(
    args: &Run,
    config: S::Config,
    answerer: Option<Rc<dyn Answerer<S>>>,
) -> Result<()> {
    init_logs(S::NAME);
    let mut host = HostConfig::new(options(args, S::NAME), args.data.join("image"));
    host.slot = args.slot;
    host.rebuild = args.rebuild;
    host.build = crate::BUILD.to_owned();
    host.http = Some(http(args));
    if S::NAME == muster_desk::Desk::NAME {
        host.partition = cluster(args)?.to_owned();
        host.reports = true;
    }
    let shutdown = Shutdown::on_signals()?;
    muster_runtime::run_with::<S>(config, host, shutdown, answerer)
        .await
        .map_err(|error: RunError| exit::with(error.exit_code(), error.to_string()))
}

/// The agent of a local cluster, with the bus wired to its link.
async fn agent(args: &Run) -> Result<()> {
    init_logs("agent");
    let name = cluster(args)?;
    let Some(file) = &args.nodes else { bail!("--nodes FILE is missing: the cluster's nodes") };
    let nodes = local::read_nodes(file).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))?;
    let shutdown = Shutdown::on_signals()?;
    let health = Health::starting("start", "connecting to NATS");
    std::fs::create_dir_all(&args.data)?;
    let mut port = http(args);
    port.port_file = Some(args.data.join(format!("run/agent-{}.port", args.slot)));
    let server = serve(&port, health.clone(), metrics()).await?;
    let backend = Arc::new(local::Local::open(local::Config::new(args.data.clone(), name, nodes))?);
    let (link, remote) = Link::new();
    let options = options(args, "agent");
    let bus = tokio::select! {
        bus = Bus::connect(&options) => bus?,
        () = shutdown.requested() => return Ok(()),
    };
    let logs = backend.clone();
    let answer = move |ask: muster_bus::Ask| {
        let logs = logs.clone();
        async move { log_chunk(&*logs, &ask.payload).await }
    };
    let _serving = bus.serve(&names::ask_agent(name)?, None, answer).await?;
    let reader = Reader::follow(&bus, names::CLUSTERS, &names::durable("agent", name, args.slot)?).await?;
    health.set("start", None);
    let config = muster_agent::Config::new(name);
    let result = tokio::select! {
        ended = muster_agent::run(config, backend, link, shutdown.requested()) => ended.map_err(Into::into),
        ended = carry(&bus, name, reader, remote, &health) => ended,
    };
    server.shutdown().await;
    result
}

/// Between the bus and the agent's link, both ways.
async fn carry(
    bus: &Bus,
    cluster: &str,
    mut reader: Reader,
    mut remote: Remote,
    health: &Health,
) -> Result<()> {
    let mut beat = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        tokio::select! {
            incoming = reader.next() => {
                let muster_bus::Incoming::Batch(records) = incoming? else { continue };
                // Each says all that the cluster shall hold, so of several only the newest matters.
                if let Some(newest) = records.last() {
                    remote.desired.send(newest.payload.to_vec()).await?;
                }
            }
            changed = remote.reports.changed() => {
                changed?;
                let report = Bytes::from(remote.reports.borrow_and_update().clone());
                // Reports are repeated: one that is lost in an outage is made good by the next.
                if let Err(error) = bus.send_from_cluster(cluster, report).await {
                    tracing::warn!(%error, "a report was not sent");
                }
            }
            _ = beat.tick() => health.beat(),
        }
    }
}

async fn log_chunk(backend: &impl Backend, payload: &[u8]) -> Result<Bytes, String> {
    let ask: LogAsk =
        serde_json::from_slice(payload).map_err(|error| format!("not a question about logs: {error}"))?;
    let chunk = backend.logs(LogQuery::from(ask)).await.map_err(|error| error.to_string())?;
    serde_json::to_vec(&LogAnswer::from(chunk)).map(Bytes::from).map_err(|error| error.to_string())
}
