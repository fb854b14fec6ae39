//! What a running service answers on `muster.ask.<service>.<partition>`: JSON, one question an ask.
//!
//! ```text
//! {"explain": "w1f2e3d4c-118-0"}      why this workload stands where it stands
//! {"hash": {"at_least": 118}}         waits until 118 is folded, then as {"hash": {}}: where it stands now
//! ```
//!
//! The answer is an [`Answer`], the same for both; `why` is there only if the service has something to say
//! of the workload. What can't be answered is an error of the ask (`BusError::Refused`).

use std::time::Duration;

use bytes::Bytes;
use muster_bus::{Bus, BusError, names};
use muster_core::{Seq, Why};
use serde::{Deserialize, Serialize};

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// Why this workload stands where it stands, as far as the service knows.
    Explain(String),
    /// Where the service stands.
    Hash {
        /// Answer only when this sequence is folded (at most 30 s later; then it is an error).
        #[serde(default)]
        at_least: Seq,
    },
}

/// Where a service stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Service.
    pub service: String,
    /// Partition.
    pub partition: String,
    /// Which process.
    pub instance: String,
    /// Its build.
    pub build: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// The log's generation, 8 hexadecimal digits.
    pub generation: String,
    /// The rules in force.
    pub rules: u32,
    /// The last sequence that was folded.
    pub position: Seq,
    /// The state hash there, 32 hexadecimal digits.
    pub hash: String,
    /// Why it does not decide at present; absent when it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_ready: Option<String>,
    /// Why it has stopped for good; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<String>,
    /// Scopes in which nothing is decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub halts: Vec<HaltedScope>,
    /// The answer to `explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Reason>,
}

/// A scope in which nothing is decided until an operator lifts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HaltedScope {
    /// The scope.
    pub scope: String,
    /// The message that halted it.
    pub seq: Seq,
    /// What is wrong with it.
    pub reason: String,
}

/// A [`Why`] on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// A stable CamelCase code.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// Its numbers, by name, in a good order.
    pub numbers: Vec<(String, String)>,
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        Self { reason: why.reason.to_owned(), message: why.message, numbers: why.numbers }
    }
}

/// Asks a running service. Of two replicas the faster one answers.
///
/// # Errors
/// Nobody answers; no answer in time; the service refuses the question.
pub async fn ask(
    bus: &Bus,
    service: &str,
    partition: &str,
    question: &Question,
    timeout: Duration,
) -> Result<Answer, BusError> {
    let subject = names::ask(service, partition)?;
    let malformed =
        |error: serde_json::Error| BusError::Malformed { what: subject.clone(), detail: error.to_string() };
    let payload = serde_json::to_vec(question).map_err(malformed)?;
    let answer = bus.ask(&subject, Bytes::from(payload), timeout).await?;
    serde_json::from_slice(&answer).map_err(malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Question> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn questions_read_as_documented() {
        assert_eq!(
            read(r#"{"explain":"w1f2e3d4c-118-0"}"#),
            Some(Question::Explain("w1f2e3d4c-118-0".into()))
        );
        assert_eq!(read(r#"{"hash":{"at_least":118}}"#), Some(Question::Hash { at_least: 118 }));
        assert_eq!(read(r#"{"hash":{}}"#), Some(Question::Hash { at_least: 0 }));
        for text in ["", "{}", r#"{"hash":{"at_most":1}}"#, r#"{"decide":{}}"#, "[]", "\"hash\""] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
