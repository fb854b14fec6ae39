//! One connection and the calls that everything else is made of.

use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, HeaderMap, Message, RequestErrorKind, client::Request};
use bytes::Bytes;
use serde_json::Value;
use tokio::time::Instant;

use crate::error::BusError;
use crate::link::{self, Link};
use crate::log::{Ends, ends};
use crate::names;

/// A connection to NATS; cheap to clone. Reconnects by itself for ever, within 0.1 s of the server's return.
#[derive(Clone)]
pub struct Bus {
    pub(crate) client: Client,
    pub(crate) link: Arc<Link>,
    pub(crate) deadline: Duration,
}

/// What became of a call.
pub(crate) enum Answer {
    Message(Message),
    /// Nobody listens there (yet): it certainly had no effect.
    Nobody,
    /// The connection broke or the deadline passed: it may have had its effect.
    Unknown(Lost),
}

/// How an answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    /// With the connection.
    Connection,
    /// There was a connection all the time, and no answer.
    Silence,
}

/// An error of JetStream's API.
#[derive(Debug, Clone, serde::Deserialize)]
pub(crate) struct ApiError {
    #[serde(default)]
    pub err_code: u64,
    #[serde(default)]
    pub description: String,
}

pub(crate) mod code {
    //! JetStream's `err_code`s that are handled.
    pub const NOT_AVAILABLE: u64 = 10008;
    pub const CONSUMER_NOT_FOUND: u64 = 10014;
    pub const NO_MESSAGE: u64 = 10037;
    pub const NO_SUCH_SEQUENCE: u64 = 10043;
    pub const DELETE_FAILED: u64 = 10057;
    pub const STREAM_NOT_FOUND: u64 = 10059;
    pub const WRONG_LAST_SEQUENCE: u64 = 10071;
    pub const INSUFFICIENT_RESOURCES: u64 = 10023;
    pub const STORAGE_EXCEEDED: u64 = 10047;
    pub const STORE_FAILED: u64 = 10077;
    pub const IN_FLIGHT: u64 = 10164;
}

/// How long to wait before a call is tried again that found nobody: JetStream comes up after the port does.
const AGAIN: Duration = Duration::from_millis(20);

impl Bus {
    pub(crate) fn new(client: Client, link: Arc<Link>, deadline: Duration) -> Bus {
        Bus { client, link, deadline }
    }

    /// Whether the connection is up at this moment.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.link.watch().borrow().up
    }

    /// How often a connection was made. A change means that there may be another server, with another log.
    #[must_use]
    pub fn connects(&self) -> u64 {
        self.link.watch().borrow().connects
    }

    /// Waits until the connection is up.
    pub async fn connected(&self) {
        // The sender lives in `self.link`, so the wait can't fail.
        let _ = self.link.watch().wait_for(|status| status.up).await;
    }

    /// The server's version and the largest message that it takes, in bytes.
    #[must_use]
    pub fn server(&self) -> (String, usize) {
        (self.client.server_info().version, self.client.max_payload())
    }

    /// Where a stream begins and ends now; a reader opened at `last` gets only what comes later.
    ///
    /// # Errors
    /// No stream; not permitted; no answer.
    pub async fn ends(&self, stream: &str) -> Result<Ends, BusError> {
        ends(self, names::token("stream", stream)?).await
    }

    /// Sends what is buffered; call it before the process ends.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn flush(&self) -> Result<(), BusError> {
        self.client.flush().await.map_err(|_| BusError::Closed { what: "flush".into() })
    }

    /// One request and its reply. Waits for the connection first; a denial surfaces at once.
    pub(crate) async fn call(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
        until: Instant,
    ) -> Result<Answer, BusError> {
        let mut watch = self.link.watch();
        let mut denials = self.link.denials();
        let since = match tokio::time::timeout_at(until, watch.wait_for(|s| s.up)).await {
            Ok(Ok(status)) => *status,
            Ok(Err(_)) => return Err(BusError::Closed { what: subject.into() }),
            Err(_) => return Ok(Answer::Unknown(Lost::Connection)),
        };
        let (size, limit) = (payload.len(), self.client.max_payload());
        let request = Request::new().payload(payload).headers(headers).timeout(None);
        tokio::select! {
            biased;
            reply = self.client.send_request(subject.to_owned(), request) => match reply {
                Ok(message) => Ok(Answer::Message(message)),
                Err(error) => match error.kind() {
                    RequestErrorKind::NoResponders => Ok(Answer::Nobody),
                    RequestErrorKind::TimedOut | RequestErrorKind::Other => Ok(Answer::Unknown(Lost::Connection)),
                    RequestErrorKind::MaxPayloadExceeded => {
                        Err(BusError::TooLarge { what: subject.into(), size, limit })
                    }
                    RequestErrorKind::InvalidSubject => {
                        Err(BusError::Malformed { what: subject.into(), detail: error.to_string() })
                    }
                },
            },
            text = link::denied(&mut denials, subject) => {
                Err(BusError::Denied { what: format!("publish to {subject}"), detail: text.to_string() })
            }
            () = link::lost(&mut watch, since) => Ok(Answer::Unknown(Lost::Connection)),
            () = tokio::time::sleep_until(until) => Ok(Answer::Unknown(Lost::Silence)),
        }
    }

    /// One call of JetStream's API that may be repeated without harm; repeats it until the deadline.
    /// The inner error is JetStream's own.
    pub(crate) async fn api(&self, call: &str, body: &Value) -> Result<Result<Value, ApiError>, BusError> {
        let until = Instant::now() + self.deadline;
        let subject = format!("$JS.API.{call}");
        let body = Bytes::from(body.to_string());
        loop {
            match self.call(&subject, HeaderMap::new(), body.clone(), until).await? {
                Answer::Message(message) => match parse_api(call, &message.payload)? {
                    Err(error) if error.err_code == code::NOT_AVAILABLE && Instant::now() < until => {}
                    answer => return Ok(answer),
                },
                Answer::Nobody | Answer::Unknown(_) if Instant::now() < until => {}
                Answer::Nobody | Answer::Unknown(_) => {
                    return Err(BusError::Timeout { what: call.into(), waited: self.deadline });
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

pub(crate) fn parse_api(what: &str, payload: &[u8]) -> Result<Result<Value, ApiError>, BusError> {
    let malformed = |e: serde_json::Error| BusError::Malformed { what: what.into(), detail: e.to_string() };
    let mut value: Value = serde_json::from_slice(payload).map_err(malformed)?;
    match value.get_mut("error").map(Value::take) {
        Some(error) => Ok(Err(serde_json::from_value(error).map_err(malformed)?)),
        None => Ok(Ok(value)),
    }
}

impl ApiError {
    pub fn into_error(self, what: &str) -> BusError {
        let (what, description) = (what.into(), self.description);
        match self.err_code {
            code::INSUFFICIENT_RESOURCES | code::STORAGE_EXCEEDED => BusError::DiskFull { what, description },
            code::STORE_FAILED if description.contains("no space left") => {
                BusError::DiskFull { what, description }
            }
            code => BusError::Api { what, code, description },
        }
    }
}
