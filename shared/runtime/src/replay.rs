//! Folding the log anew, without a store, and checking what was recorded in it.
//!
//! Every own message of a service says the hash of the state that its decision knew (`as_of`). A refold
//! comes by each of these sequences and compares. To know in time which ones will be named, it stays a
//! window of messages behind what it has read.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use muster_bus::{Bus, BusError, Incoming, Log, Reader, names};
use muster_core::{Driver, Identity, Input, Position, Record, Seq, Service, Stop};
use prost::encoding::{DecodeContext, decode_key, decode_varint, skip_field};

use crate::export::{self, ExportError};
use crate::source::record;

/// How far a refold stays behind what it has read, in messages. A decision is at most seconds old when it is
/// recorded, so what it names lies within.
const WINDOW: usize = 1 << 16;
/// Messages folded at a time.
const CHUNK: usize = 8192;
/// The envelope's fields that a refold looks at itself.
const AS_OF: u32 = 6;
const STATE_HASH: u32 = 9;
const FACTS: u32 = 12;

/// Why a log could not be folded to the end.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The chain is broken, or a message asks for another build.
    #[error(transparent)]
    Stop(#[from] Stop),
    /// The log can't be read.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// The exported file can't be read, or was changed.
    #[error(transparent)]
    Export(#[from] ExportError),
}

/// A recorded state hash that the refold does not come to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "message {seq} says that the state at {as_of} hashes to {recorded}, but folding the log gives {computed:032x}"
)]
pub struct Mismatch {
    /// The message that recorded it.
    pub seq: Seq,
    /// The sequence that it is about.
    pub as_of: Seq,
    /// As recorded, in hexadecimal digits.
    pub recorded: String,
    /// As folded.
    pub computed: u128,
}

/// A fold under way.
pub struct Refold<S: Service> {
    driver: Driver<S>,
    subject: String,
    to: Seq,
    ahead: VecDeque<Record>,
    /// What own messages ahead say of sequences that are not folded yet.
    claims: BTreeMap<Seq, Vec<Claim>>,
    done: Refolded,
    began: Instant,
}

struct Claim {
    seq: Seq,
    hash: Vec<u8>,
}

/// What a refold found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Refolded {
    /// Where the fold ended.
    pub position: Seq,
    /// The state hash there.
    pub hash: u128,
    /// The log's generation.
    pub generation: u32,
    /// Messages folded; each one's place in the chain was checked.
    pub messages: u64,
    /// Facts in them.
    pub facts: u64,
    /// Recorded state hashes that were compared.
    pub compared: u64,
    /// Recorded state hashes about sequences too long ago to be compared.
    pub too_old: u64,
    /// Those that differ.
    pub mismatches: Vec<Mismatch>,
    /// Scopes that were halted by a message, with its sequence and what is wrong with it.
    pub halts: Vec<(String, Seq, String)>,
    /// From the first message to the end of the fold, waiting for the log included.
    pub took: Duration,
}

impl Refolded {
    /// Facts per second, reading included.
    #[must_use]
    pub fn facts_per_s(&self) -> f64 {
        self.facts as f64 / self.took.as_secs_f64().max(1e-9)
    }
}

impl<S: Service> Refold<S> {
    /// Begins at the log's first message; folds no further than `to`.
    #[must_use]
    pub fn new(config: S::Config, partition: &str, to: Option<Seq>) -> Self {
        let instance = "replay".to_owned();
        let identity = Identity { partition: partition.to_owned(), instance, build: String::new() };
        Self {
            driver: Driver::new(config, identity),
            subject: format!("muster.evt.{}.{partition}", S::NAME),
            to: to.unwrap_or(Seq::MAX),
            ahead: VecDeque::new(),
            claims: BTreeMap::new(),
            done: Refolded::default(),
            began: Instant::now(),
        }
    }

    /// Takes the next messages of the log, in order.
    ///
    /// # Errors
    /// [`Stop`], when the chain does not hold.
    pub fn push(&mut self, records: Vec<Record>) -> Result<(), Stop> {
        let to = self.to;
        for record in records.into_iter().filter(|record| record.seq <= to) {
            self.done.messages += 1;
            let skimmed = skim(&record.payload);
            self.done.facts += skimmed.facts;
            if record.subject == self.subject {
                self.note(record.seq, &skimmed);
            }
            self.ahead.push_back(record);
        }
        while self.ahead.len() > WINDOW {
            self.fold_chunk()?;
        }
        Ok(())
    }

    /// Folds what is left, and tells.
    ///
    /// # Errors
    /// [`Stop`], when the chain does not hold.
    pub fn finish(mut self) -> Result<(Refolded, Driver<S>), Stop> {
        while !self.ahead.is_empty() {
            self.fold_chunk()?;
        }
        let Position { seq, hash } = self.driver.position();
        let halt = |(scope, (seq, reason)): (&String, &(Seq, String))| (scope.clone(), *seq, reason.clone());
        let done = Refolded {
            position: seq,
            hash,
            generation: self.driver.meta().generation,
            halts: self.driver.halts().map(halt).collect(),
            took: self.began.elapsed(),
            ..self.done
        };
        Ok((done, self.driver))
    }

    /// What an own message says of an earlier state. One that can't be read halts its scope when folded.
    fn note(&mut self, seq: Seq, skimmed: &Skimmed<'_>) {
        if skimmed.as_of < self.driver.meta().position {
            self.done.too_old += 1;
        } else if !skimmed.state_hash.is_empty() {
            let claim = Claim { seq, hash: skimmed.state_hash.to_vec() };
            self.claims.entry(skimmed.as_of).or_default().push(claim);
        }
    }

    /// Folds up to the next sequence that something is said of.
    fn fold_chunk(&mut self) -> Result<(), Stop> {
        self.compare();
        let stop_at = self.claims.first_key_value().map_or(Seq::MAX, |(seq, _)| *seq);
        let count = self.ahead.partition_point(|record| record.seq <= stop_at).clamp(1, CHUNK);
        let chunk: Vec<Record> = self.ahead.drain(..count.min(self.ahead.len())).collect();
        self.driver.take(None, Input::Records(chunk));
        if let Some(stop) = self.driver.stopped() {
            return Err(stop.clone());
        }
        self.compare();
        Ok(())
    }

    /// Compares what is said of the present position.
    fn compare(&mut self) {
        let position = self.driver.meta().position;
        while let Some(entry) = self.claims.first_entry().filter(|entry| *entry.key() <= position) {
            let as_of = *entry.key();
            let claims = entry.remove();
            if as_of != position {
                // Names a sequence that the log does not hold.
                self.done.too_old += claims.len() as u64;
                continue;
            }
            let computed = self.driver.position().hash;
            for Claim { seq, hash } in claims {
                self.done.compared += 1;
                if hash != computed.to_le_bytes() {
                    let recorded = hash.iter().rev().map(|byte| format!("{byte:02x}")).collect();
                    self.done.mismatches.push(Mismatch { seq, as_of, recorded, computed });
                }
            }
        }
    }
}

/// What a refold looks at in an envelope; folding it reads the rest.
#[derive(Default)]
struct Skimmed<'a> {
    as_of: Seq,
    state_hash: &'a [u8],
    facts: u64,
}

/// Goes over an envelope's fields without reading its facts.
fn skim(payload: &[u8]) -> Skimmed<'_> {
    let (mut rest, mut skimmed) = (payload, Skimmed::default());
    while let Ok((field, wire)) = decode_key(&mut rest) {
        let value = rest;
        if skip_field(wire, field, &mut rest, DecodeContext::default()).is_err() {
            break;
        }
        let mut value = &value[..value.len() - rest.len()];
        match field {
            AS_OF => skimmed.as_of = decode_varint(&mut value).unwrap_or(0),
            STATE_HASH => {
                // The length is a varint before the bytes.
                let length = decode_varint(&mut value).unwrap_or(0);
                skimmed.state_hash = if length == value.len() as u64 { value } else { &[] };
            }
            FACTS => skimmed.facts += 1,
            _ => {}
        }
    }
    skimmed
}

/// Folds the log that a server holds, up to `to` or its present end.
///
/// # Errors
/// The log can't be read (it needs the right to create consumers), or its chain does not hold.
pub async fn replay<S: Service>(
    config: S::Config,
    partition: &str,
    bus: &Bus,
    to: Option<Seq>,
) -> Result<(Refolded, Driver<S>), ReplayError> {
    let last = Log::new(bus).last_seq().await?;
    let to = to.map_or(last, |to| to.min(last));
    let mut refold = Refold::<S>::new(config, partition, Some(to));
    let mut reader = Reader::scan(bus, names::EVENTS, None, 0).await?;
    while reader.position() < to {
        if let Incoming::Batch(records) = reader.next().await? {
            refold.push(records.into_iter().map(record).collect())?;
        }
    }
    Ok(refold.finish()?)
}

/// Folds an exported log, up to `to` or its end.
///
/// # Errors
/// The file can't be read or was changed, or the chain does not hold.
pub fn replay_file<S: Service>(
    config: S::Config,
    partition: &str,
    path: &Path,
    to: Option<Seq>,
) -> Result<(Refolded, Driver<S>), ReplayError> {
    let mut refold = Refold::<S>::new(config, partition, to);
    let mut records = export::open(path)?;
    loop {
        let chunk = records.by_ref().take(CHUNK).collect::<Result<Vec<_>, _>>()?;
        if chunk.is_empty() {
            return Ok(refold.finish()?);
        }
        refold.push(chunk)?;
    }
}
