//! Reading a stream from a position, through server restarts, without loss or repetition.
//!
//! A provisioned durable is reset to the position after the last message read and then pulled: after a
//! restart of the server it goes on at once, where the library's ordered consumers need 10 to 15 s. The
//! position is the reader's alone; the server's is never trusted.

use std::collections::VecDeque;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::bus::{ApiError, Bus, code};
use crate::error::BusError;
use crate::link::{self, Status};
use crate::log::{Ends, ends, get};
use crate::names::{self, EVENTS, OUT, REQUESTS};
use crate::pull::{Heard, Pull};
use crate::record::Record;

/// What a reader hands out.
#[derive(Debug)]
pub enum Incoming {
    /// Messages in the order of their sequences, never empty.
    Batch(Vec<Record>),
    /// The connection was lost and is back, and reading goes on after the last batch. Compare the log's
    /// generation with your own before the next batch: it may be another log.
    Reconnected,
}

/// What a reader may expect of its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Promise {
    /// Every sequence is there, none is ever lost: EVENTS read whole.
    Whole,
    /// Sequences may be missing (other subjects, purged), but what was read is never lost: REQUESTS.
    Sparse,
    /// A crash of the server may take the newest messages back: CLUSTERS, SIGNALS, OUT.
    Lossy,
}

/// The consumer on the server.
enum Consumer {
    /// Provisioned; reset to the position.
    Durable(String),
    /// Provisioned for another account, which may only pull.
    Pulled(String),
    /// Made for this reader; the server removes it 30 s after the last pull.
    Ephemeral { filter: Option<String> },
}

/// A position in a stream that moves forward. [`Reader::next`] may be dropped and called again at any time.
pub struct Reader {
    bus: Bus,
    stream: String,
    consumer: Consumer,
    promise: Promise,
    position: u64,
    pull: Option<Pull>,
    /// The connection that `pull` belongs to.
    since: Status,
    watch: watch::Receiver<Status>,
    denials: broadcast::Receiver<std::sync::Arc<str>>,
    /// Whether the host must hear of a reconnect before the next batch.
    tell: bool,
    gap: Option<u64>,
    thefts: VecDeque<Instant>,
    told: Option<Instant>,
}

/// Between two tries to set the consumer up again.
const AGAIN: Duration = Duration::from_millis(20);
/// As many stolen messages within [`THEFT_WINDOW`] mean that another process reads with our durable; fewer
/// can come from our own connection that the server has not yet given up.
const THEFTS: usize = 20;
const THEFT_WINDOW: Duration = Duration::from_secs(10);

impl Reader {
    /// Reads after `position` (0: from the beginning) with a provisioned durable. Waits, with a log line, for
    /// a stream or durable that is not there yet.
    ///
    /// # Errors
    /// The position is beyond the stream's end or before its beginning (EVENTS); not permitted.
    pub async fn open(bus: &Bus, stream: &str, durable: &str, position: u64) -> Result<Reader, BusError> {
        Reader::start(bus, stream, Consumer::Durable(names::token("durable", durable)?.into()), position)
            .await
    }

    /// Reads with a consumer of its own, for tools (replay, export): needs the right to create consumers.
    /// With a `filter`, only messages of matching subjects.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub async fn scan(
        bus: &Bus,
        stream: &str,
        filter: Option<&str>,
        position: u64,
    ) -> Result<Reader, BusError> {
        let consumer = Consumer::Ephemeral { filter: filter.map(str::to_owned) };
        Reader::start(bus, stream, consumer, position).await
    }

    /// Goes on where the durable stands: for agents and tenants, which may pull and nothing else. A message
    /// is delivered once, to whichever process pulls.
    ///
    /// # Errors
    /// Not permitted.
    pub async fn follow(bus: &Bus, stream: &str, durable: &str) -> Result<Reader, BusError> {
        Reader::start(bus, stream, Consumer::Pulled(names::token("durable", durable)?.into()), 0).await
    }

    async fn start(bus: &Bus, stream: &str, consumer: Consumer, position: u64) -> Result<Reader, BusError> {
        let whole = !matches!(consumer, Consumer::Ephemeral { filter: Some(_) });
        let promise = match names::token("stream", stream)? {
            EVENTS if whole => Promise::Whole,
            EVENTS | REQUESTS => Promise::Sparse,
            _ => Promise::Lossy,
        };
        let mut reader = Reader {
            bus: bus.clone(),
            stream: stream.into(),
            consumer,
            promise,
            position,
            pull: None,
            since: Status { connects: 0, up: false },
            watch: bus.link.watch(),
            denials: bus.link.denials(),
            tell: false,
            gap: None,
            thefts: VecDeque::new(),
            told: None,
        };
        reader.reopen().await?;
        Ok(reader)
    }

    /// Sequence of the last message that was handed out, or where the reader was opened.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next messages as soon as there is one, or the news of a reconnect. Waits through outages.
    ///
    /// # Errors
    /// The log is damaged, shorter than the position or archived beyond it; another process uses the same
    /// durable; not permitted.
    pub async fn next(&mut self) -> Result<Incoming, BusError> {
        loop {
            if let Some(found) = self.gap {
                self.explain_gap(found).await?;
                self.gap = None;
            }
            if self.pull.is_none() {
                self.reopen().await?;
            }
            if std::mem::take(&mut self.tell) {
                return Ok(Incoming::Reconnected);
            }
            let heard = match &mut self.pull {
                Some(pull) => {
                    let asks = pull.asks();
                    tokio::select! {
                        biased;
                        heard = pull.next() => heard?,
                        text = link::denied(&mut self.denials, &asks) => {
                            let what = format!("pull from {}", self.stream);
                            return Err(BusError::Denied { what, detail: text.to_string() });
                        }
                        () = link::lost(&mut self.watch, self.since) => Heard::Silence("connection lost"),
                    }
                }
                None => continue,
            };
            match heard {
                Heard::Records(records) => {
                    let batch = self.accept(records);
                    if !batch.is_empty() {
                        return Ok(Incoming::Batch(batch));
                    }
                }
                Heard::Silence(why) => {
                    tracing::info!(stream = %self.stream, why, "reading again from the position");
                    self.pull = None;
                    self.tell = true;
                    // A server that is just coming up refuses at once: do not spin.
                    tokio::time::sleep(AGAIN).await;
                }
                Heard::Idle => {}
            }
        }
    }

    /// Drops what was read before, stops at a gap, moves the position.
    fn accept(&mut self, mut records: Vec<Record>) -> Vec<Record> {
        let mut keep = 0;
        for i in 0..records.len() {
            let seq = records[i].seq;
            if seq <= self.position {
                continue;
            }
            if self.promise == Promise::Whole && seq != self.position + 1 {
                self.gap = Some(seq);
                self.pull = None;
                break;
            }
            self.position = seq;
            records.swap(keep, i);
            keep += 1;
        }
        records.truncate(keep);
        records
    }

    /// A sequence did not come: is it gone from the log, or did somebody else pull it?
    async fn explain_gap(&mut self, found: u64) -> Result<(), BusError> {
        let expected = self.position + 1;
        if get(&self.bus, &self.stream, &json!({ "seq": expected })).await?.is_none() {
            self.check_ends().await?;
            return Err(BusError::Gap { stream: self.stream.clone(), expected, found });
        }
        let now = Instant::now();
        self.thefts.retain(|at| now - *at < THEFT_WINDOW);
        self.thefts.push_back(now);
        if let (true, Consumer::Durable(durable)) = (self.thefts.len() >= THEFTS, &self.consumer) {
            let (stream, durable) = (self.stream.clone(), durable.clone());
            return Err(BusError::SharedDurable { stream, durable });
        }
        tracing::warn!(stream = %self.stream, expected, found, "a message went elsewhere; reading it again");
        Ok(())
    }

    /// Sets the consumer to the position and pulls. Leaves `pull` as `None` when dropped half-way.
    async fn reopen(&mut self) -> Result<(), BusError> {
        loop {
            self.bus.connected().await;
            self.since = *self.watch.borrow_and_update();
            match self.try_open().await {
                Ok(pull) => {
                    self.pull = Some(pull);
                    self.told = None;
                    return Ok(());
                }
                Err(BusError::Missing { what }) => self.tell_waiting(&what),
                Err(BusError::Timeout { what, .. }) => self.tell_waiting(&what),
                Err(error) => return Err(error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    fn tell_waiting(&mut self, what: &str) {
        if self.told.is_none_or(|at| at.elapsed() > Duration::from_secs(5)) {
            tracing::warn!(stream = %self.stream, %what, "waiting for NATS: is provisioning done?");
            self.told = Some(Instant::now());
        }
    }

    async fn try_open(&mut self) -> Result<Pull, BusError> {
        if !matches!(self.consumer, Consumer::Pulled(_)) {
            self.check_ends().await?;
        }
        let next = self.position + 1;
        let name = match &self.consumer {
            Consumer::Durable(name) => {
                let call = format!("CONSUMER.RESET.{}.{name}", self.stream);
                let answer = self.bus.api(&call, &json!({ "seq": next })).await?;
                answer.map_err(|e| self.no_consumer(e, &call, name))?;
                name.clone()
            }
            Consumer::Pulled(name) => name.clone(),
            Consumer::Ephemeral { filter } => self.create(filter.as_deref(), next).await?,
        };
        Pull::start(&self.bus, &self.stream, &name, self.stream == OUT).await
    }

    async fn create(&self, filter: Option<&str>, next: u64) -> Result<String, BusError> {
        let inbox = self.bus.client.new_inbox();
        let name = format!("scan-{}", inbox.rsplit('.').next().unwrap_or_default());
        let mut config = json!({
            "name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": next,
            "ack_policy": "none", "replay_policy": "instant", "mem_storage": true,
            "num_replicas": 1, "inactive_threshold": 30_000_000_000_u64,
        });
        let mut call = format!("CONSUMER.CREATE.{}.{name}", self.stream);
        if let Some(filter) = filter {
            config["filter_subject"] = filter.into();
            call = format!("{call}.{filter}");
        }
        let body = json!({ "stream_name": self.stream, "config": config });
        self.bus.api(&call, &body).await?.map_err(|e| self.no_consumer(e, &call, &name))?;
        Ok(name)
    }

    fn no_consumer(&self, error: ApiError, call: &str, name: &str) -> BusError {
        match error.err_code {
            code::CONSUMER_NOT_FOUND => {
                BusError::Missing { what: format!("durable {name} of {}", self.stream) }
            }
            _ => crate::log::missing(error, call, &self.stream),
        }
    }

    /// The server takes any position silently and would then lose messages, so it is checked here.
    async fn check_ends(&mut self) -> Result<(), BusError> {
        let Ends { first, last, .. } = ends(&self.bus, &self.stream).await?;
        let (stream, position) = (self.stream.clone(), self.position);
        match self.promise {
            Promise::Lossy => self.position = position.min(last),
            _ if position > last => return Err(BusError::LogShorter { stream, position, last }),
            Promise::Whole if first > position + 1 => {
                return Err(BusError::LogCut { stream, position, first });
            }
            _ => {}
        }
        Ok(())
    }
}
