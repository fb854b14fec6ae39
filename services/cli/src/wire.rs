//! What is asked of an agent, as JSON on `muster.ask.agent.<cluster>`.

use muster_agent::{LogChunk, LogQuery};
use serde::{Deserialize, Serialize};

/// Part of a pod's log; see [`LogQuery`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogAsk {
    pub workload: String,
    pub attempt: u32,
    pub pod: String,
    pub from: u64,
    pub limit: usize,
}

/// That part. Bytes that are no UTF-8 are shown as U+FFFD.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LogAnswer {
    pub attempt: u32,
    pub pod: String,
    pub pods: Vec<String>,
    pub data: String,
    pub next: u64,
    pub ended: bool,
}

impl From<LogQuery> for LogAsk {
    fn from(query: LogQuery) -> Self {
        let LogQuery { workload, attempt, pod, from, limit } = query;
        Self { workload, attempt, pod, from, limit }
    }
}

impl From<LogAsk> for LogQuery {
    fn from(ask: LogAsk) -> Self {
        let LogAsk { workload, attempt, pod, from, limit } = ask;
        Self { workload, attempt, pod, from, limit }
    }
}

impl From<LogChunk> for LogAnswer {
    fn from(chunk: LogChunk) -> Self {
        Self {
            attempt: chunk.attempt,
            pod: chunk.pod,
            pods: chunk.pods,
            data: String::from_utf8_lossy(&chunk.data).into_owned(),
            next: chunk.next,
            ended: chunk.ended,
        }
    }
}
