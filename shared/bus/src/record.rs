//! One stored message, as the server hands it out.

use std::sync::Arc;

use async_nats::{HeaderMap, Message};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::error::BusError;

/// The sender's own key of a request, unique per tenant.
pub const HEADER_KEY: &str = "Muster-Key";
/// On a body: the request that it belongs to.
pub const HEADER_REQUEST: &str = "Muster-Request";

/// A stored message: opaque bytes with their place in a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Sequence in the stream, from 1.
    pub seq: u64,
    /// Subject it was published on. A reader in a tenant's or cluster's account sees its own inbox instead.
    pub subject: Arc<str>,
    /// When the server stored it: microseconds since 1970, by the server's clock.
    pub time_us: i64,
    /// The headers that muster uses.
    pub headers: Headers,
    /// The bytes.
    pub payload: Bytes,
}

/// The headers named `Muster-…` and `traceparent`; all others are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(Box<str>, Box<str>)>);

impl Headers {
    /// The first value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| &**value)
    }

    fn keep(&mut self, name: &str, value: &str) {
        let muster = name.get(..7).is_some_and(|p| p.eq_ignore_ascii_case("muster-"));
        if muster || name.eq_ignore_ascii_case("traceparent") {
            self.0.push((name.into(), value.into()));
        }
    }

    pub(crate) fn of(map: Option<&HeaderMap>) -> Headers {
        let mut headers = Headers::default();
        for (name, values) in map.into_iter().flat_map(HeaderMap::iter) {
            if let Some(value) = values.first() {
                headers.keep(name.as_ref(), value.as_str());
            }
        }
        headers.0.sort();
        headers
    }

    /// From the block `NATS/1.0\r\nName: value\r\n\r\n` as stored.
    fn parse(block: &str) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in block.lines().filter_map(|line| line.split_once(':')) {
            headers.keep(name.trim(), value.trim());
        }
        headers.0.sort();
        headers
    }
}

/// Sequence and time (ns) from the reply subject of a delivered message:
/// `$JS.ACK.<stream>.<consumer>.<delivered>.<sequence>.<consumer sequence>.<time>.<pending>`, or the newer
/// form with domain and account hash before the stream.
fn place(reply: &str) -> Option<(u64, i64)> {
    let rest = reply.strip_prefix("$JS.ACK.")?;
    let skip = if rest.bytes().filter(|b| *b == b'.').count() >= 8 { 5 } else { 3 };
    let mut tokens = rest.split('.').skip(skip);
    let seq = tokens.next()?.parse().ok()?;
    let time = tokens.nth(1)?.parse().ok()?;
    Some((seq, time))
}

/// Makes records of delivered messages; keeps the last subjects, as few differ in a row.
#[derive(Default)]
pub(crate) struct Parser {
    subjects: Vec<Arc<str>>,
}

const SUBJECTS_KEPT: usize = 16;

impl Parser {
    pub fn record(&mut self, what: &str, message: Message) -> Result<Record, BusError> {
        let reply = message.reply.as_ref().map_or("", |reply| reply.as_str());
        let Some((seq, time_ns)) = place(reply) else {
            return Err(BusError::Malformed {
                what: what.into(),
                detail: format!("reply subject {reply:?}"),
            });
        };
        Ok(Record {
            seq,
            subject: self.subject(message.subject.as_str()),
            time_us: time_ns / 1000,
            headers: Headers::of(message.headers.as_ref()),
            payload: message.payload,
        })
    }

    fn subject(&mut self, subject: &str) -> Arc<str> {
        if let Some(known) = self.subjects.iter().find(|known| &***known == subject) {
            return Arc::clone(known);
        }
        if self.subjects.len() == SUBJECTS_KEPT {
            self.subjects.remove(0);
        }
        let new: Arc<str> = subject.into();
        self.subjects.push(Arc::clone(&new));
        new
    }
}

/// `message` of a STREAM.MSG.GET answer.
#[derive(Deserialize)]
struct Stored {
    subject: String,
    seq: u64,
    time: String,
    #[serde(default)]
    hdrs: String,
    #[serde(default)]
    data: String,
}

pub(crate) fn from_msg_get(what: &str, mut answer: Value) -> Result<Record, BusError> {
    let malformed = |detail: String| BusError::Malformed { what: what.into(), detail };
    let message = answer.get_mut("message").map(Value::take).unwrap_or_default();
    let stored: Stored = serde_json::from_value(message).map_err(|e| malformed(e.to_string()))?;
    let decode = |text: &str| STANDARD.decode(text).map_err(|e| malformed(e.to_string()));
    let headers = Headers::parse(&String::from_utf8_lossy(&decode(&stored.hdrs)?));
    Ok(Record {
        seq: stored.seq,
        subject: stored.subject.into(),
        time_us: micros(&stored.time).ok_or_else(|| malformed(format!("time {:?}", stored.time)))?,
        headers,
        payload: decode(&stored.data)?.into(),
    })
}

/// Microseconds since 1970 of an RFC 3339 time.
pub(crate) fn micros(time: &str) -> Option<i64> {
    let nanos = async_nats::datetime::parse_rfc3339(time).ok()?.unix_timestamp_nanos();
    i64::try_from(nanos / 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_delivered_messages_place_are_read() {
        let old = "$JS.ACK.EVENTS.queue-0-0.1.42.7.1764456630123456789.3";
        assert_eq!(place(old), Some((42, 1_764_456_630_123_456_789)));
        let new = "$JS.ACK._.hash.EVENTS.queue-0-0.1.42.7.1764456630123456789.3";
        assert_eq!(place(new), Some((42, 1_764_456_630_123_456_789)));
        let newest = "$JS.ACK._.hash.EVENTS.queue-0-0.1.42.7.1764456630123456789.3.rnd";
        assert_eq!(place(newest), Some((42, 1_764_456_630_123_456_789)));
        assert_eq!(place("_INBOX.x"), None);
        assert_eq!(place("$JS.ACK.EVENTS.x.1.y.7.8.9"), None);
    }

    #[test]
    fn only_musters_headers_are_kept() {
        let block =
            "NATS/1.0\r\nNats-Expected-Stream: EVENTS\r\nMuster-Key: k 1\r\ntraceparent: 00-a\r\n\r\n";
        let headers = Headers::parse(block);
        assert_eq!(headers.get("muster-key"), Some("k 1"));
        assert_eq!(headers.get("traceparent"), Some("00-a"));
        assert_eq!(headers.get("Nats-Expected-Stream"), None);
    }

    #[test]
    fn a_servers_time_is_read_to_the_microsecond() {
        assert_eq!(micros("1970-01-01T00:00:01.000002003Z"), Some(1_000_002));
        assert_eq!(micros("1970-01-01T02:00:00+02:00"), Some(0));
        assert_eq!(micros("now"), None);
    }
}
