//! The spine: what a decision costs from end to end, and what of it is JetStream's.

use std::{collections::BTreeMap, sync::Arc};

use anyhow::Result;
use serde_json::{Map, Value, json};

use crate::{
    cell::{CLUSTER, Cell},
    figures::{round, row},
    member::{self, Samples},
    raw, refold,
    watch::Watch,
    way,
};

#[derive(clap::Args)]
pub struct Args {
    /// Jobs sent one after the other, for the latency
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    jobs: u64,
    /// Jobs sent at once, for the throughput; they make the log that is replayed too
    #[arg(long, default_value_t = 30_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    many: u64,
    /// Publishes of the raw measurements
    #[arg(long, default_value_t = 5_000)]
    publishes: u32,
}

pub fn bench(args: &Args) -> Result<()> {
    tokio::runtime::Runtime::new()?.block_on(run(args))
}

async fn run(args: &Args) -> Result<()> {
    let mut cell = Cell::start().await?;
    eprintln!("a server with `sync_interval: always` and every service start in {}", cell.dir().display());
    cell.start_services()?;
    let samples = Arc::new(Samples::default());
    let member = member::start(&cell.connect(&format!("cluster/{CLUSTER}")).await?, samples.clone()).await?;
    let operator = cell.connect("operator").await?;
    let mut watch = Watch::open(&operator).await?;
    watch.until("joined by the cluster", |watch| watch.joined).await?;
    cell.policies().await?;
    let tenant = cell.connect("default/user").await?;
    eprintln!("warming up");
    way::one_by_one(&tenant, &mut watch, 20.min(args.jobs), "warm").await?;
    watch.samples.clear();
    eprintln!("{} jobs one after the other", args.jobs);
    watch.steps.clear();
    let latency = way::one_by_one(&tenant, &mut watch, args.jobs, "one").await?;
    let hops = way::hops(&watch);
    eprintln!("{} jobs at once", args.many);
    let workloads_per_s = way::many(&tenant, &mut watch, args.many).await?;
    cell.check()?;
    cell.stop_services();
    member.iter().for_each(tokio::task::JoinHandle::abort);

    eprintln!("the log is read and folded anew");
    let (records, read_per_s) = raw::read(&operator).await?;
    let messages = records.len();
    let folded = refold::all(records)?;
    eprintln!("the same publishes without muster");
    let in_a_row = raw::in_a_row(&cell, &watch, &samples, args.jobs).await?;
    let publish_per_s = raw::publish_per_s(&tenant, args.publishes).await?;

    let p = |part| (latency.percentile_ms(part), in_a_row.percentile_ms(part));
    let ((p50, raw50), (p99, raw99)) = (p(0.5), p(0.99));
    let slowest = folded.iter().map(|one| one.per_s).fold(f64::INFINITY, f64::min);
    let aim = |holds: bool, text: String| format!("{} {text}", if holds { "holds:" } else { "MISSED:" });
    row(
        "submit to committed, median",
        p50,
        "ms",
        &aim(p50 <= 1.5 * raw50, format!("≤ 1.5 × raw = {:.2}", 1.5 * raw50)),
    );
    row("submit to committed, 99 of 100", p99, "ms", "");
    for (hop, ms) in &hops {
        row(&format!("  {hop}"), *ms, "ms", "");
    }
    row("raw: its 9 publishes in a row, median", raw50, "ms", "");
    row("raw: its 9 publishes in a row, 99 of 100", raw99, "ms", "");
    row("workloads, many at once", workloads_per_s, "/s", "");
    row("raw: publishes, many at once", publish_per_s, "/s", "");
    row("raw: messages read", read_per_s, "/s", &format!("{messages} messages"));
    let mut by_service = Map::new();
    for one in &folded {
        let note =
            aim(one.per_s >= 500_000.0, format!("≥ 500000; {} facts in {:.2} s", one.facts, one.seconds));
        row(&format!("replay of {}", one.service), one.per_s, "facts/s", &note);
        by_service.insert(one.service.to_owned(), round(one.per_s).into());
    }
    let figures = json!({
        "submit_to_committed_ms": { "p50": round(p50), "p99": round(p99) },
        "hops_ms": hops.iter().map(|(hop, ms)| (*hop, round(*ms))).collect::<BTreeMap<_, _>>(),
        "workloads_per_s": round(workloads_per_s),
        // Of the service that folds slowest.
        "replay_facts_per_s": round(slowest),
        "replay_facts_per_s_by_service": Value::from(by_service),
        "facts": folded.first().map_or(0, |one| one.facts),
        "raw": {
            "publishes_in_a_row_ms": { "p50": round(raw50), "p99": round(raw99) },
            "publish_per_s": round(publish_per_s),
            "read_per_s": round(read_per_s),
        },
        "sync_interval": "always",
    });
    println!("{figures}");
    Ok(())
}
