//! Asking and answering over plain request and reply. Nothing that is decided depends on an answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use futures::StreamExt as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::bus::{Answer, Bus};
use crate::error::BusError;

/// On a reply: what went wrong, instead of an answer.
const HEADER_ERROR: &str = "Muster-Error";
/// Asks that one server works on at a time; more wait.
const AT_A_TIME: usize = 16;
/// Room for headers beside the payload of a reply.
const HEADER_ROOM: usize = 1024;

/// A server of asks that has just started is known everywhere only a moment later.
const START_UP: Duration = Duration::from_millis(300);
const AGAIN: Duration = Duration::from_millis(20);

/// An ask as the handler sees it.
#[derive(Debug, Clone)]
pub struct Ask {
    /// The subject it came on; in an ask of a tenant the last token is the tenant.
    pub subject: String,
    /// The bytes.
    pub payload: Bytes,
}

/// A server of asks; it stops when this is dropped.
#[derive(Debug)]
pub struct Serving(JoinHandle<()>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Bus {
    /// Asks and waits for the answer, at most `timeout`.
    ///
    /// # Errors
    /// Nobody answers there; the answer is an error; no answer in time; not permitted.
    pub async fn ask(&self, subject: &str, payload: Bytes, timeout: Duration) -> Result<Bytes, BusError> {
        let start = Instant::now();
        loop {
            match self.call(subject, HeaderMap::new(), payload.clone(), start + timeout).await? {
                Answer::Message(reply) => return read(subject, reply),
                Answer::Nobody if start.elapsed() < START_UP.min(timeout) => {}
                Answer::Nobody => return Err(BusError::NobodyAnswers { subject: subject.into() }),
                Answer::Unknown(_) => {
                    return Err(BusError::Timeout { what: format!("ask {subject}"), waited: timeout });
                }
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Answers what is asked on `subject` (wildcards allowed). With a `group`, each ask reaches one member
    /// of it only. An answer larger than a message may be becomes an error for the asker: page it.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn serve<H, F>(
        &self,
        subject: &str,
        group: Option<&str>,
        handler: H,
    ) -> Result<Serving, BusError>
    where
        H: Fn(Ask) -> F + Send + Sync + 'static,
        F: Future<Output = Result<Bytes, String>> + Send + 'static,
    {
        let closed = || BusError::Closed { what: format!("serve {subject}") };
        let asks = match group {
            Some(group) => self.client.queue_subscribe(subject.to_owned(), group.to_owned()).await,
            None => self.client.subscribe(subject.to_owned()).await,
        }
        .map_err(|_| closed())?;
        self.client.flush().await.map_err(|_| closed())?;
        let (bus, handler) = (self.clone(), Arc::new(handler));
        let answer_all = asks.for_each_concurrent(AT_A_TIME, move |message| {
            let (bus, handler) = (bus.clone(), Arc::clone(&handler));
            async move {
                let Some(reply) = message.reply else { return };
                let ask = Ask { subject: message.subject.to_string(), payload: message.payload };
                bus.answer(reply, handler(ask).await).await;
            }
        });
        Ok(Serving(tokio::spawn(answer_all)))
    }

    async fn answer(&self, reply: async_nats::Subject, answer: Result<Bytes, String>) {
        let limit = self.client.max_payload().saturating_sub(HEADER_ROOM);
        let answer = match answer {
            Ok(bytes) if bytes.len() > limit => {
                Err(format!("the answer has {} bytes, more than the {limit} of a message", bytes.len()))
            }
            other => other,
        };
        let sent = match answer {
            Ok(bytes) => self.client.publish(reply, bytes).await,
            Err(text) => {
                let mut headers = HeaderMap::new();
                headers.insert(HEADER_ERROR, one_line(&text));
                self.client.publish_with_headers(reply, headers, Bytes::new()).await
            }
        };
        if let Err(error) = sent {
            tracing::warn!(%error, "an answer could not be sent");
        }
    }
}

fn read(subject: &str, reply: Message) -> Result<Bytes, BusError> {
    match reply.headers.as_ref().and_then(|headers| headers.get(HEADER_ERROR)) {
        None => Ok(reply.payload),
        Some(text) => Err(BusError::Refused { subject: subject.into(), message: text.as_str().into() }),
    }
}

/// A header's value can't hold a line break.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect()
}
