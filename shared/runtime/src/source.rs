//! EVENTS, read whole, and compared with the image at open and after each reconnect (DESIGN 3.3).

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use muster_bus::{Bus, BusError, Incoming, Log, names};
use muster_core::{ImageMeta, Record, Refused, Seq, Timestamp, verify};
use muster_proto::{Envelope, GenerationStarted, Kind};
use prost::Message;
use tokio::sync::watch;

use crate::RunError;
use crate::error::of_log;
use crate::feed::Feed;

/// What a log that was compared with the image says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub last: Seq,
    pub time: Timestamp,
}

/// What comes from the log.
pub(crate) enum FromLog {
    Records(Vec<Record>),
    /// A new connection, to the same log.
    Checked(Checked),
}

/// The log and the image, compared: they belong together, or the loss in between was accepted.
pub(crate) enum Verdict {
    Same(Checked),
    /// `muster log accept-loss` began a generation after the image's: the image is to be rebuilt.
    LossAccepted {
        generation: u32,
        reason: String,
    },
}

type Checking = Pin<Box<dyn Future<Output = Result<(Checked, u64), RunError>>>>;

pub(crate) struct LogSource {
    bus: Bus,
    feed: Feed,
    checking: Option<Checking>,
    /// The connection (by number) whose log was compared last; nothing is published on another.
    verified: watch::Sender<u64>,
}

const AGAIN: Duration = Duration::from_millis(200);
const SAY_AGAIN: Duration = Duration::from_secs(5);

impl LogSource {
    /// Goes on after the image's position.
    pub fn open(bus: &Bus, durable: String, meta: &ImageMeta) -> Self {
        Self {
            bus: bus.clone(),
            feed: Feed::open(bus, names::EVENTS, durable, meta.position),
            // Between the first comparison and now there may have been a reconnect.
            checking: Some(Box::pin(check_connection(bus.clone(), meta.clone()))),
            verified: watch::Sender::new(0),
        }
    }

    /// Says which connection leads to a log that was compared with the image.
    pub fn verified(&self) -> watch::Receiver<u64> {
        self.verified.subscribe()
    }

    /// What comes next; `meta` is what was folded so far. Nothing is lost when this is dropped while it
    /// waits.
    pub async fn next(&mut self, meta: &ImageMeta) -> Result<FromLog, RunError> {
        loop {
            if let Some(checking) = &mut self.checking {
                let result = checking.await;
                self.checking = None;
                let (checked, connection) = result?;
                self.verified.send_replace(connection);
                return Ok(FromLog::Checked(checked));
            }
            match self.feed.next().await.map_err(of_log)? {
                Incoming::Batch(records) => {
                    return Ok(FromLog::Records(records.into_iter().map(record).collect()));
                }
                Incoming::Reconnected => {
                    self.checking = Some(Box::pin(check_connection(self.bus.clone(), meta.clone())));
                }
            }
        }
    }
}

/// A message as the bus hands it over.
pub(crate) fn record(record: muster_bus::Record) -> Record {
    Record {
        seq: record.seq,
        subject: record.subject.as_ref().to_owned(),
        time: Timestamp(record.time_us),
        payload: record.payload,
    }
}

/// Compares over one and the same connection, and says which.
async fn check_connection(bus: Bus, meta: ImageMeta) -> Result<(Checked, u64), RunError> {
    loop {
        let connection = bus.connects();
        match compare(&bus, &meta).await? {
            Verdict::Same(checked) if bus.connects() == connection => return Ok((checked, connection)),
            Verdict::Same(_) => {}
            // A running service can't forget what it has folded; the next start will.
            Verdict::LossAccepted { generation, .. } => {
                return Err(Refused::OtherGeneration { log: generation, image: meta.generation }.into());
            }
        }
    }
}

/// Compares an image with the log. Waits, and says so, until the log is there and has begun.
pub(crate) async fn compare(bus: &Bus, meta: &ImageMeta) -> Result<Verdict, RunError> {
    let log = Log::new(bus);
    let mut said = None::<Instant>;
    loop {
        let waiting_for = match compare_once(&log, meta).await {
            Ok(Some(verdict)) => return Ok(verdict),
            Ok(None) => "the first message of EVENTS: provisioning writes it".to_owned(),
            Err(RunError::Bus(error @ (BusError::Timeout { .. } | BusError::Missing { .. }))) => {
                error.to_string()
            }
            Err(error) => return Err(error),
        };
        if said.is_none_or(|at| at.elapsed() > SAY_AGAIN) {
            tracing::warn!("waiting for the log: {waiting_for}");
            said = Some(Instant::now());
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn compare_once(log: &Log, meta: &ImageMeta) -> Result<Option<Verdict>, RunError> {
    let ends = log.ends().await?;
    let Some(cell) = log.last_on(names::CELL).await? else { return Ok(None) };
    let begun = generation(&cell.payload);
    let in_log = (ends.first..=ends.last).contains(&meta.position);
    let at_position = if in_log { log.get(meta.position).await? } else { None };
    let payload = at_position.as_ref().map(|record| record.payload.as_ref());
    // Without a GenerationStarted to read there is nothing to compare but the message itself.
    let number = begun.as_ref().map_or(meta.generation, |fact| fact.generation);
    match verify(meta, number, ends.first, ends.last, payload) {
        Ok(()) => {
            let checked = Checked { last: ends.last, time: Timestamp(ends.time_us) };
            Ok(Some(Verdict::Same(checked)))
        }
        Err(refused) => match begun {
            Some(fact) if fact.replaces == meta.generation && fact.generation != meta.generation => {
                let GenerationStarted { generation, reason, .. } = fact;
                Ok(Some(Verdict::LossAccepted { generation, reason }))
            }
            _ => Err(refused.into()),
        },
    }
}

/// The last GenerationStarted of a message on the cell's subject.
fn generation(payload: &[u8]) -> Option<GenerationStarted> {
    let facts = Envelope::decode(payload).ok()?.facts;
    facts.into_iter().rev().find_map(|fact| match fact.kind {
        Some(Kind::GenerationStarted(fact)) => Some(fact),
        _ => None,
    })
}
