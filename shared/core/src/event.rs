//! From the bytes of a stream message to facts that can be folded.

use bytes::Bytes;
use muster_proto::{Envelope, Kind};
use prost::Message;

use crate::{Seq, Timestamp};

/// A message of EVENTS as the bus hands it over.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub seq: Seq,
    pub subject: String,
    /// When the server stored it.
    pub time: Timestamp,
    pub payload: Bytes,
}

/// Where and when a fact stands. All facts of one message stand at the same sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    pub seq: Seq,
    pub time: Timestamp,
}

/// One fact, and who wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub service: String,
    pub partition: String,
    pub fact: Kind,
}

/// A message that this build can't read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecodable {
    #[error("not an envelope: {0}")]
    Bytes(String),
    #[error("written by {writer}, but stands on {subject}")]
    WrongSubject { writer: String, subject: String },
    #[error("fact {index} is of a kind unknown to this build")]
    UnknownFact { index: usize },
}

/// Reads a record's envelope and checks that it stands on its writer's subject and that each
/// of its facts is known. A fact of an unknown kind is never skipped.
///
/// # Errors
/// [`Undecodable`] says what is wrong; the caller halts the writer's scope.
pub fn decode(record: &Record) -> Result<Envelope, Undecodable> {
    let envelope =
        Envelope::decode(record.payload.clone()).map_err(|error| Undecodable::Bytes(error.to_string()))?;
    let rest = record.subject.strip_prefix("muster.evt.").and_then(|rest| rest.split_once('.'));
    if rest != Some((envelope.service.as_str(), envelope.partition.as_str())) {
        let writer = format!("{}.{}", envelope.service, envelope.partition);
        return Err(Undecodable::WrongSubject { writer, subject: record.subject.clone() });
    }
    match envelope.facts.iter().position(|fact| fact.kind.is_none()) {
        Some(index) => Err(Undecodable::UnknownFact { index }),
        None => Ok(envelope),
    }
}
