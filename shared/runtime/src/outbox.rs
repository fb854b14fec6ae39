//! What services want done outside EVENTS: carried out side by side, failures told after a pause.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use muster_bus::{Bus, BusError};
use muster_core::{Incoming, Outgoing, sha256};
use muster_proto::BodyRef;
use prost::Message;
use tokio::task::JoinSet;

/// Wishes carried out at a time; more wait.
const AT_A_TIME: usize = 64;
/// Wishes whose failures are counted; when there are more, counting begins anew.
const COUNTED: usize = 4096;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

pub(crate) struct Outbox {
    bus: Bus,
    waiting: VecDeque<Outgoing>,
    under_way: JoinSet<Done>,
    /// How often in a row each wish has failed.
    failures: BTreeMap<String, u32>,
}

/// A wish that was carried out, or not.
pub(crate) struct Done {
    pub key: String,
    pub answer: Incoming,
}

impl Outbox {
    pub fn new(bus: &Bus) -> Self {
        let (waiting, under_way) = (VecDeque::new(), JoinSet::new());
        Self { bus: bus.clone(), waiting, under_way, failures: BTreeMap::new() }
    }

    pub fn push(&mut self, wish: Outgoing) {
        self.waiting.push_back(wish);
        self.start();
    }

    fn start(&mut self) {
        while self.under_way.len() < AT_A_TIME {
            let Some(wish) = self.waiting.pop_front() else { return };
            let key = wish.key();
            let failures = self.failures.get(&key).copied().unwrap_or(0);
            self.under_way.spawn(carry_out(self.bus.clone(), key, wish, failures));
        }
    }

    fn failed(&mut self, key: String) {
        if self.failures.len() >= COUNTED {
            self.failures.clear();
        }
        *self.failures.entry(key).or_default() += 1;
    }

    /// The next one done; waits for ever when there is none. Nothing is lost when this is dropped while it
    /// waits.
    pub async fn next(&mut self) -> Done {
        loop {
            match self.under_way.join_next().await {
                Some(Ok(done)) => {
                    match &done.answer {
                        Incoming::Failed { key, .. } => self.failed(key.clone()),
                        _ => _ = self.failures.remove(&done.key),
                    }
                    self.start();
                    return done;
                }
                // Nobody aborts them, and a panic was reported by Tokio.
                Some(Err(error)) => tracing::error!(%error, "a wish was lost"),
                None => std::future::pending().await,
            }
        }
    }
}

async fn carry_out(bus: Bus, key: String, wish: Outgoing, failures: u32) -> Done {
    match try_out(&bus, wish).await {
        Ok(answer) => Done { key, answer },
        Err(error) => {
            tracing::warn!(%key, %error, failures, "could not be done; it will be tried again");
            // The wish comes back as soon as its failure is told.
            tokio::time::sleep(pause(failures)).await;
            Done { key: key.clone(), answer: Incoming::Failed { key, reason: error.to_string() } }
        }
    }
}

fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE)
}

async fn try_out(bus: &Bus, wish: Outgoing) -> Result<Incoming, BusError> {
    Ok(match wish {
        Outgoing::StoreBody { request, index, tenant, body } => {
            let sha256 = sha256(&body).to_vec().into();
            let size_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
            let seq = bus.store_body(&tenant, &format!("{request}/{index}"), body).await?;
            Incoming::BodyStored { request, index, body: BodyRef { seq, sha256, size_bytes } }
        }
        Outgoing::FetchBody { seq } => {
            let body = bus.fetch_body(seq).await?.map(|record| record.payload);
            Incoming::BodyFetched { seq, body }
        }
        Outgoing::DeleteBody { seq } => {
            bus.erase_body(seq).await?;
            Incoming::BodyDeleted { seq }
        }
        Outgoing::SendDesired { desired } => {
            bus.send_to_cluster(&desired.cluster, desired.encode_to_vec().into()).await?;
            Incoming::DesiredSent { cluster: desired.cluster, seq: desired.seq }
        }
        Outgoing::SendRejection { tenant, rejected } => {
            bus.notify(&tenant, "rejected", rejected.encode_to_vec().into()).await?;
            let request = rejected.request.unwrap_or_default();
            Incoming::RejectionSent { request: request.seq, index: request.index }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_five_seconds() {
        let pauses: Vec<u128> = (0..8).map(|n| pause(n).as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
