//! `muster replay` and `muster log`: the log folded again, checked, exported, continued after a loss.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use muster_bus::{Bus, Credentials, Log, Options, names};
use muster_core::{Driver, Service, sha256};
use muster_ledger::{
    Ledger, Scope,
    view::{Answer, Question, Select},
};
use muster_proto::{Envelope, Kind};
use muster_runtime::{Question as Ask, Refolded, ask, export, replay as fold, replay_file};
use prost::Message;
use serde::Serialize;

use crate::{
    args::{Format, Global, LogAction, Replay},
    client::{As, Client},
    commands::get,
    exit,
    local::{find, generation_message},
    output,
};

/// What a service's refold came to.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    service: String,
    position: u64,
    hash: String,
    messages: u64,
    facts: u64,
    facts_per_s: u64,
    /// Recorded state hashes that were compared, and those that differ.
    compared: u64,
    mismatches: Vec<String>,
    halts: Vec<String>,
    /// The running service's hash at the same sequence: equal, different, or why it is not known.
    live: String,
    ok: bool,
}

/// Where the log is read from.
struct Source<'a> {
    client: Option<&'a Client>,
    args: &'a Replay,
}

pub async fn replay(global: &Global, args: &Replay) -> Result<()> {
    let client = match args.file {
        Some(_) => None,
        None => Some(Client::connect(global, As::Operator).await?),
    };
    let source = Source { client: client.as_ref(), args };
    let (ledger, view) = source.fold::<Ledger>((), "0").await?;
    let view = view.state();
    let mut rows = Vec::new();
    let wanted = |name: &str| args.service.as_deref().is_none_or(|service| service == name);
    if wanted("queue") {
        rows.push(source.fold::<muster_queue::Queue>(Default::default(), "0").await?.0);
    }
    if wanted("admission") {
        rows.push(source.fold::<muster_admission::Admission>(Default::default(), "0").await?.0);
    }
    if wanted("federation") {
        rows.push(source.fold::<muster_federation::Federation>(Default::default(), "0").await?.0);
    }
    if wanted("desk") {
        for (cluster, _) in view.lifecycle.clusters() {
            rows.push(source.fold::<muster_desk::Desk>(muster_desk::Config::new(cluster), cluster).await?.0);
        }
    }
    if wanted("ledger") {
        rows.push(ledger);
    }
    if rows.is_empty() {
        bail!("--service {:?}: there are queue, admission, federation, desk, ledger", args.service);
    }
    show(global, args, &rows, view)
}

fn show(global: &Global, args: &Replay, rows: &[Row], view: &muster_ledger::LedgerState) -> Result<()> {
    let equal = rows.iter().all(|row| row.ok);
    let position = rows.first().map_or(0, |row| row.position);
    let question = Question::Workloads(Select::default());
    let workloads = match muster_ledger::answer(view, position, &Scope::Operator, &question) {
        Answer::Workloads { items, .. } if args.to.is_some() => Some(items),
        _ => None,
    };
    let value = serde_json::json!({ "services": rows, "equal": equal, "workloads": workloads });
    output::print(global.output, &value, |_| table(rows))?;
    if let Some(items) = workloads
        && matches!(global.output, Format::Table | Format::Wide)
    {
        output::line(&format!("\nWorkloads at sequence {position}:"))?;
        output::line(&get::workloads(&items, global.output == Format::Wide).to_string())?;
    }
    for row in rows {
        for problem in row.mismatches.iter().chain(&row.halts) {
            eprintln!("{}: {problem}", row.service);
        }
    }
    if args.verify && !equal {
        return Err(exit::with(exit::FAILED, "the log does not fold to what was recorded"));
    }
    Ok(())
}

fn table(rows: &[Row]) -> comfy_table::Table {
    let header =
        ["SERVICE", "POSITION", "STATE HASH", "MESSAGES", "FACTS", "FACTS/S", "RECORDED HASHES", "LIVE"];
    let mut table = output::table(header);
    for row in rows {
        let recorded = match row.mismatches.len() {
            0 => format!("{} equal", row.compared),
            different => format!("{different} of {} DIFFERENT", row.compared),
        };
        table.add_row([
            row.service.clone(),
            row.position.to_string(),
            row.hash.clone(),
            row.messages.to_string(),
            row.facts.to_string(),
            row.facts_per_s.to_string(),
            recorded,
            row.live.clone(),
        ]);
    }
    table
}

impl Source<'_> {
    /// Folds one service, and compares it with the running one where that is asked.
    async fn fold<S: Service>(&self, config: S::Config, partition: &str) -> Result<(Row, Driver<S>)> {
        let live = match self.client.filter(|_| self.args.verify && self.args.to.is_none()) {
            Some(client) => Some(self.live(client, S::NAME, partition).await),
            None => None,
        };
        // The running service may be behind the log's end: both are compared where it stands.
        let to =
            live.as_ref().and_then(|live| live.as_ref().ok()).map(|(position, _)| *position).or(self.args.to);
        let (done, driver) = match (self.client, &self.args.file) {
            (Some(client), _) => fold::<S>(config, partition, &client.bus, to).await?,
            (None, Some(file)) => replay_file::<S>(config, partition, file, to)?,
            (None, None) => bail!("neither a server nor a file to read"),
        };
        let live = match live {
            None => "-".to_owned(),
            Some(Err(problem)) => problem,
            Some(Ok((_, hash))) if hash == format!("{:032x}", done.hash) => "equal".to_owned(),
            Some(Ok((_, hash))) => format!("DIFFERENT: {hash}"),
        };
        let name = if S::NAME == "desk" { format!("desk.{partition}") } else { S::NAME.to_owned() };
        Ok((row(name, &done, live), driver))
    }

    async fn live(&self, client: &Client, service: &str, partition: &str) -> Result<(u64, String), String> {
        let question = Ask::Hash { at_least: 0 };
        match ask(&client.bus, service, partition, &question, Duration::from_secs(5)).await {
            Ok(answer) => Ok((answer.position, answer.hash)),
            Err(error) => Err(format!("no answer: {error}")),
        }
    }
}

fn row(service: String, done: &Refolded, live: String) -> Row {
    let mismatches: Vec<String> = done.mismatches.iter().map(ToString::to_string).collect();
    let halts: Vec<String> = done
        .halts
        .iter()
        .map(|(scope, seq, reason)| format!("{scope} halted by message {seq}: {reason}"))
        .collect();
    Row {
        service,
        position: done.position,
        hash: format!("{:032x}", done.hash),
        messages: done.messages,
        facts: done.facts,
        facts_per_s: done.facts_per_s() as u64,
        compared: done.compared,
        ok: mismatches.is_empty() && halts.is_empty() && (live == "-" || live == "equal"),
        mismatches,
        halts,
        live,
    }
}

pub async fn log(global: &Global, action: &LogAction) -> Result<()> {
    match action {
        LogAction::Export { file } => {
            let client = Client::connect(global, As::Operator).await?;
            let count = export::export(&client.bus, file, None).await?;
            output::line(&format!("{count} messages in {}", file.display()))
        }
        LogAction::AcceptLoss { reason } => accept_loss(global, reason).await,
    }
}

/// Writes a new generation after what is left of the log, as the provisioning user.
async fn accept_loss(global: &Global, reason: &str) -> Result<()> {
    let cell = find(global, None)?;
    let credentials = Credentials::File(cell.credentials("provision"));
    let mut options = Options::new(cell.url(), "muster-accept-loss").with(credentials);
    options.wait = Some(Duration::from_secs(5));
    let bus = Bus::connect(&options).await?;
    let log = Log::new(&bus);
    let last = log.last_on(names::CELL).await?.context("the log has no generation: it is not muster's")?;
    let envelope = Envelope::decode(last.payload.clone()).context("the log's generation can't be read")?;
    let generation = envelope.facts.iter().find_map(|fact| match &fact.kind {
        Some(Kind::GenerationStarted(fact)) => Some(fact.generation),
        _ => None,
    });
    let replaces = generation.context("the log's generation can't be read")?;
    let message = generation_message(last.seq, sha256(&last.payload).to_vec(), replaces, reason);
    match log.publish(names::CELL, last.seq, message.into()).await? {
        muster_bus::Outcome::Stored(seq) => output::line(&format!(
            "generation {replaces:08x} ends; a new one begins at sequence {seq}. Services fold the log anew; attempts \
             that run but are not on it are held, not killed"
        )),
        other => bail!("the new generation was not written ({other:?}): try again"),
    }
}
