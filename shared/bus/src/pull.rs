//! Pull requests to one consumer, and what the server says about them.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use async_nats::{Message, StatusCode, Subject, Subscriber};
use bytes::Bytes;
use futures::Stream;
use serde_json::json;
use tokio::time::{Instant, Sleep, sleep};

use crate::bus::Bus;
use crate::error::BusError;
use crate::record::{Parser, Record};

/// What came of waiting.
pub(crate) enum Heard {
    Records(Vec<Record>),
    /// A sign of life.
    Idle,
    /// The pull is over: the server was silent too long, restarts, or lost the consumer.
    Silence(&'static str),
}

/// Messages asked for at a time, and how many may be handed out as one batch. The library drops messages
/// when 65,536 wait unread, so all that is asked for must stay well below.
const ASK: usize = 4096;
const BATCH: usize = 1024;
/// Bounds what may be on its way; a message has at most 1 MiB.
const ASK_BYTES: usize = 16 << 20;
/// A pull request's life; then a new one is sent.
const EXPIRES: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Longer silence than this means that the server has forgotten the pull.
const SILENCE: Duration = Duration::from_secs(5);

pub(crate) struct Pull {
    bus: Bus,
    subscriber: Subscriber,
    subject: String,
    inbox: String,
    asked: usize,
    silence: Pin<Box<Sleep>>,
    parser: Parser,
    what: String,
    /// Replies that acknowledge what was handed out last; `None` where nothing is acknowledged.
    acks: Option<Vec<Subject>>,
}

impl Pull {
    pub async fn start(bus: &Bus, stream: &str, consumer: &str, acked: bool) -> Result<Pull, BusError> {
        let what = format!("pull {consumer} of {stream}");
        let inbox = bus.client.new_inbox();
        let subscriber =
            bus.client.subscribe(inbox.clone()).await.map_err(|_| BusError::Closed { what: what.clone() })?;
        let mut pull = Pull {
            bus: bus.clone(),
            subscriber,
            subject: format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"),
            inbox,
            asked: 0,
            silence: Box::pin(sleep(SILENCE)),
            parser: Parser::default(),
            what,
            acks: acked.then(Vec::new),
        };
        pull.ask().await?;
        Ok(pull)
    }

    /// The subject of the requests, as a denial names it.
    pub fn asks(&self) -> String {
        self.subject.clone()
    }

    async fn ask(&mut self) -> Result<(), BusError> {
        let body = json!({
            "batch": ASK, "max_bytes": ASK_BYTES,
            "expires": nanos(EXPIRES), "idle_heartbeat": nanos(HEARTBEAT),
        });
        let body = Bytes::from(body.to_string());
        self.bus
            .client
            .publish_with_reply(self.subject.clone(), self.inbox.clone(), body)
            .await
            .map_err(|_| BusError::Closed { what: self.what.clone() })?;
        self.asked += ASK;
        Ok(())
    }

    /// Waits for something to come. May be dropped and called again: nothing is lost.
    pub async fn next(&mut self) -> Result<Heard, BusError> {
        // Whoever comes for more has dealt with what it got.
        while let Some(ack) = self.acks.as_mut().and_then(Vec::pop) {
            let sent = self.bus.client.publish(ack, Bytes::from_static(b"+ACK")).await;
            sent.map_err(|_| BusError::Closed { what: self.what.clone() })?;
        }
        if self.asked <= ASK / 2 {
            self.ask().await?;
        }
        let mut messages = Vec::new();
        // All that is there in one go: a lone message at once, a backlog in large batches.
        let open = poll_fn(|cx| {
            loop {
                match Pin::new(&mut self.subscriber).poll_next(cx) {
                    Poll::Ready(Some(message)) => messages.push(message),
                    Poll::Ready(None) => return Poll::Ready(Ok(false)),
                    Poll::Pending if messages.is_empty() => {
                        return self.silence.as_mut().poll(cx).map(|()| Err(()));
                    }
                    Poll::Pending => return Poll::Ready(Ok(true)),
                }
                if messages.len() == BATCH {
                    return Poll::Ready(Ok(true));
                }
            }
        })
        .await;
        match open {
            Err(()) => return Ok(Heard::Silence("no heartbeat")),
            Ok(false) if messages.is_empty() => return Err(BusError::Closed { what: self.what.clone() }),
            Ok(_) => self.silence.as_mut().reset(Instant::now() + SILENCE),
        }
        self.sort(messages)
    }

    fn sort(&mut self, messages: Vec<Message>) -> Result<Heard, BusError> {
        let mut records = Vec::with_capacity(messages.len());
        for message in messages {
            match message.status {
                None => {
                    self.asked = self.asked.saturating_sub(1);
                    if let (Some(acks), Some(reply)) = (&mut self.acks, &message.reply) {
                        acks.push(reply.clone());
                    }
                    records.push(self.parser.record(&self.what, message)?);
                }
                Some(status) => {
                    if let Some(why) = self.status(status, &message)? {
                        // What came before is good; the consumer is set up again after it.
                        if records.is_empty() {
                            return Ok(Heard::Silence(why));
                        }
                        self.silence.as_mut().reset(Instant::now());
                    }
                }
            }
        }
        Ok(if records.is_empty() { Heard::Idle } else { Heard::Records(records) })
    }

    /// `Some(why)` when this pull is of no use any more.
    fn status(&mut self, status: StatusCode, message: &Message) -> Result<Option<&'static str>, BusError> {
        let text = message.description.as_deref().unwrap_or_default();
        match status.as_u16() {
            100 => Ok(None),
            404 | 408 => {
                self.ended(message);
                Ok(None)
            }
            409 if ["MaxBytes", "Batch Completed"].iter().any(|known| text.contains(known)) => {
                self.ended(message);
                Ok(None)
            }
            409 if text.contains("MaxRequest") || text.contains("Push Based") => {
                Err(BusError::Malformed { what: self.what.clone(), detail: text.to_owned() })
            }
            409 => Ok(Some("the server ended the pull")),
            503 => Ok(Some("JetStream is not up")),
            other => {
                let detail = format!("status {other} {text}");
                Err(BusError::Malformed { what: self.what.clone(), detail })
            }
        }
    }

    /// One request has ended; the server says how much of it was left.
    fn ended(&mut self, message: &Message) {
        let left = message.headers.as_ref().and_then(|h| h.get("Nats-Pending-Messages"));
        let left = left.and_then(|left| left.as_str().parse().ok()).unwrap_or(self.asked);
        self.asked = self.asked.saturating_sub(left);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
