//! EVENTS: the fenced publish and the leader's reads.

use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bus::{Answer, ApiError, Bus, Lost, code, parse_api};
use crate::error::BusError;
use crate::names::EVENTS;
use crate::record::{Record, from_msg_get, micros};

/// What became of a fenced publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Stored with this sequence; on disk where the server runs with `sync_interval: always`.
    Stored(u64),
    /// Another writer was first: fold what it wrote, then decide again.
    Conflict,
    /// The subject's previous message is still being replicated: publish the same again.
    InFlight,
    /// The answer was lost: it may be stored now, later (the client sends what it had buffered after a
    /// reconnect) or never. Decide again **with the same expected sequence**: at most one of the two is stored.
    Unknown,
}

/// Where a stream begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// Sequence of the first message; last + 1 when the stream is empty.
    pub first: u64,
    /// Sequence of the last message; 0 when nothing was ever written.
    pub last: u64,
    /// Messages held.
    pub messages: u64,
    /// The server's clock when it answered: microseconds since 1970.
    pub time_us: i64,
}

/// The log of one cell.
#[derive(Clone)]
pub struct Log {
    bus: Bus,
    deadline: Duration,
}

#[derive(Deserialize)]
pub(crate) struct PubAck {
    pub seq: u64,
}

/// Before a publish that found nobody is sent again: JetStream comes up a little after the port does.
const AGAIN: Duration = Duration::from_millis(20);
/// What must be left of the deadline for another try: one cut short would be unknown, where "nobody" is certain.
const FAIR: Duration = Duration::from_millis(200);

impl Log {
    /// The log behind a connection. Publishing has the connection's deadline.
    #[must_use]
    pub fn new(bus: &Bus) -> Log {
        Log { bus: bus.clone(), deadline: bus.deadline }
    }

    /// The same log with another deadline for [`Log::publish`].
    #[must_use]
    pub fn with_deadline(mut self, deadline: Duration) -> Log {
        self.deadline = deadline;
        self
    }

    /// Publishes one decision if the subject's last message has the sequence `expected` (0: there is none).
    ///
    /// One publish of a subject may be in flight at a time. While the connection is down it waits for it, up
    /// to the deadline, and then is *unknown*.
    ///
    /// # Errors
    /// Not permitted, larger than the stream takes, no stream, disk full: nothing was written.
    pub async fn publish(&self, subject: &str, expected: u64, payload: Bytes) -> Result<Outcome, BusError> {
        let mut headers = HeaderMap::new();
        headers.insert("Nats-Expected-Stream", EVENTS);
        headers.insert("Nats-Expected-Last-Subject-Sequence", expected.to_string());
        let until = Instant::now() + self.deadline;
        fenced(&self.bus, subject, headers, payload, until).await
    }

    /// Where the log begins and ends now, and the server's time.
    ///
    /// # Errors
    /// No stream, not permitted, no answer.
    pub async fn ends(&self) -> Result<Ends, BusError> {
        ends(&self.bus, EVENTS).await
    }

    /// Sequence of the last message; 0 when the log is empty.
    ///
    /// # Errors
    /// As [`Log::ends`].
    pub async fn last_seq(&self) -> Result<u64, BusError> {
        Ok(self.ends().await?.last)
    }

    /// Sequence of the first message.
    ///
    /// # Errors
    /// As [`Log::ends`].
    pub async fn first_seq(&self) -> Result<u64, BusError> {
        Ok(self.ends().await?.first)
    }

    /// The server's clock: microseconds since 1970.
    ///
    /// # Errors
    /// As [`Log::ends`].
    pub async fn server_time(&self) -> Result<i64, BusError> {
        Ok(self.ends().await?.time_us)
    }

    /// The message with this sequence, read from the stream's leader; `None` when there is none.
    ///
    /// # Errors
    /// No stream, not permitted, no answer.
    pub async fn get(&self, seq: u64) -> Result<Option<Record>, BusError> {
        get(&self.bus, EVENTS, &json!({ "seq": seq })).await
    }

    /// The last message on a subject, read from the stream's leader; `None` when there is none.
    ///
    /// # Errors
    /// No stream, not permitted, no answer.
    pub async fn last_on(&self, subject: &str) -> Result<Option<Record>, BusError> {
        get(&self.bus, EVENTS, &json!({ "last_by_subj": subject })).await
    }
}

/// Publishes with conditions in the headers and tells the outcomes apart.
pub(crate) async fn fenced(
    bus: &Bus,
    subject: &str,
    headers: HeaderMap,
    payload: Bytes,
    until: Instant,
) -> Result<Outcome, BusError> {
    let time_for_another = || Instant::now() + AGAIN + FAIR < until;
    loop {
        match bus.call(subject, headers.clone(), payload.clone(), until).await? {
            Answer::Unknown(why) => {
                if why == Lost::Silence {
                    // A server whose disk is full answers like this until it is restarted.
                    tracing::error!(
                        subject,
                        "NATS is connected but acknowledges nothing: see its log (disk full?)"
                    );
                }
                return Ok(Outcome::Unknown);
            }
            // Nobody took it, so it is certainly not stored and can be sent again.
            Answer::Nobody if time_for_another() => {}
            Answer::Nobody => return Err(BusError::Missing { what: format!("a stream for {subject}") }),
            Answer::Message(message) => match parse_api(subject, &message.payload)? {
                Ok(ack) => return Ok(Outcome::Stored(stored(subject, ack)?)),
                Err(error) => match error.err_code {
                    code::WRONG_LAST_SEQUENCE => return Ok(Outcome::Conflict),
                    code::IN_FLIGHT => return Ok(Outcome::InFlight),
                    code::NOT_AVAILABLE if time_for_another() => {}
                    code::STORE_FAILED if error.description.contains("per subject exceeded") => {
                        return Err(BusError::Full { subject: subject.into() });
                    }
                    _ => return Err(error.into_error(&format!("publish to {subject}"))),
                },
            },
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Publishes without a fence; the sequence. For streams whose messages may be repeated.
pub(crate) async fn publish(
    bus: &Bus,
    stream: &str,
    subject: &str,
    mut headers: HeaderMap,
    payload: Bytes,
) -> Result<u64, BusError> {
    headers.insert("Nats-Expected-Stream", stream);
    let until = Instant::now() + bus.deadline;
    match fenced(bus, subject, headers, payload, until).await? {
        Outcome::Stored(seq) => Ok(seq),
        _ => Err(BusError::Timeout { what: format!("publish to {subject}"), waited: bus.deadline }),
    }
}

fn stored(subject: &str, ack: Value) -> Result<u64, BusError> {
    serde_json::from_value::<PubAck>(ack)
        .map(|ack| ack.seq)
        .map_err(|e| BusError::Malformed { what: subject.into(), detail: e.to_string() })
}

pub(crate) async fn ends(bus: &Bus, stream: &str) -> Result<Ends, BusError> {
    #[derive(Deserialize)]
    struct Info {
        ts: String,
        state: State,
    }
    #[derive(Deserialize)]
    struct State {
        first_seq: u64,
        last_seq: u64,
        messages: u64,
    }
    let call = format!("STREAM.INFO.{stream}");
    let answer = bus.api(&call, &json!({})).await?.map_err(|e| missing(e, &call, stream))?;
    let malformed = |detail: String| BusError::Malformed { what: call.clone(), detail };
    let info: Info = serde_json::from_value(answer).map_err(|e| malformed(e.to_string()))?;
    let time_us = micros(&info.ts).ok_or_else(|| malformed(format!("time {:?}", info.ts)))?;
    let State { first_seq, last_seq, messages } = info.state;
    // A stream that was never written says first 0; one that was emptied says last + 1.
    Ok(Ends { first: first_seq.max(1), last: last_seq, messages, time_us })
}

pub(crate) async fn get(bus: &Bus, stream: &str, query: &Value) -> Result<Option<Record>, BusError> {
    let call = format!("STREAM.MSG.GET.{stream}");
    match bus.api(&call, query).await? {
        Ok(answer) => from_msg_get(&call, answer).map(Some),
        Err(error) if matches!(error.err_code, code::NO_MESSAGE | code::NO_SUCH_SEQUENCE) => Ok(None),
        Err(error) => Err(missing(error, &call, stream)),
    }
}

pub(crate) fn missing(error: ApiError, call: &str, stream: &str) -> BusError {
    match error.err_code {
        code::STREAM_NOT_FOUND => BusError::Missing { what: format!("stream {stream}") },
        _ => error.into_error(call),
    }
}
