//! What is known of the connection: up or down, how often it was made, and what the server denied.
//!
//! The client library answers a denied or a lost call with a timeout only; watching its events tells both
//! at once.

use std::sync::Arc;

use async_nats::{Event, ServerError};
use tokio::sync::{broadcast, watch};

/// A moment's state of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status {
    /// How often a connection was made; a change means that replies to earlier calls may be lost.
    pub connects: u64,
    pub up: bool,
}

#[derive(Debug)]
pub(crate) struct Link {
    status: watch::Sender<Status>,
    denials: broadcast::Sender<Arc<str>>,
}

impl Link {
    pub fn new() -> Link {
        Link {
            status: watch::Sender::new(Status { connects: 0, up: false }),
            denials: broadcast::Sender::new(64),
        }
    }

    pub fn on_event(&self, event: Event) {
        match event {
            Event::Connected => self.status.send_modify(|s| {
                s.connects += 1;
                s.up = true;
            }),
            Event::Disconnected | Event::Closed => {
                tracing::warn!("connection to NATS lost; trying again every 0.1 s");
                self.status.send_modify(|s| s.up = false);
            }
            Event::ServerError(ServerError::Other(text)) if text.contains("ermissions Violation") => {
                tracing::error!(%text, "NATS denied a call");
                // Nobody in flight: the log line above is all that is needed.
                let _ = self.denials.send(text.into());
            }
            Event::ClientError(error) => tracing::debug!(%error, "NATS client"),
            other => tracing::warn!(event = %other, "NATS"),
        }
    }

    pub fn watch(&self) -> watch::Receiver<Status> {
        self.status.subscribe()
    }

    pub fn denials(&self) -> broadcast::Receiver<Arc<str>> {
        self.denials.subscribe()
    }
}

/// Waits until the server denies something that names `subject`; never returns otherwise.
pub(crate) async fn denied(denials: &mut broadcast::Receiver<Arc<str>>, subject: &str) -> Arc<str> {
    loop {
        match denials.recv().await {
            Ok(text) if names(&text, subject) => return text,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// The server quotes the subject: `Permissions Violation for Publish to "muster.evt.x.0"`.
fn names(text: &str, subject: &str) -> bool {
    text.split('"').nth(1) == Some(subject)
}

/// Waits until the connection of `since` is gone.
pub(crate) async fn lost(watch: &mut watch::Receiver<Status>, since: Status) {
    if watch.wait_for(|now| !now.up || now.connects != since.connects).await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_denial_is_matched_by_the_whole_subject() {
        let text = "Permissions Violation for Publish to \"muster.evt.queue.0\"";
        assert!(names(text, "muster.evt.queue.0"));
        assert!(!names(text, "muster.evt.queue"));
    }
}
