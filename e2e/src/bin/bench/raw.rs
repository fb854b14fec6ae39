//! What JetStream itself does: the same messages as on a job's way, by the same users, on the same streams with the
//! same fences, one after the other. Measured when the services are stopped, so nobody reads them.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use muster_bus::{Bus, Log, Outcome, Reader, Record, names};
use tokio::sync::Semaphore;

use crate::{
    cell::{CLUSTER, Cell},
    figures::Durations,
    member::Samples,
    watch::Watch,
    way,
};

/// Publishes under way at a time.
const AT_ONCE: usize = 64;

/// One of a job's decisions: who writes it, and a message as it was.
struct Decision {
    log: Log,
    subject: String,
    payload: Bytes,
}

impl Decision {
    async fn publish(&self, ends: &mut BTreeMap<String, u64>) -> Result<()> {
        let expected = match ends.get(&self.subject) {
            Some(seq) => *seq,
            None => self.log.last_on(&self.subject).await?.map_or(0, |record| record.seq),
        };
        match self.log.publish(&self.subject, expected, self.payload.clone()).await? {
            Outcome::Stored(seq) => _ = ends.insert(self.subject.clone(), seq),
            other => bail!("{}: {other:?}, and nobody else writes there", self.subject),
        }
        Ok(())
    }
}

/// The nine publishes of a job, one after the other.
pub async fn in_a_row(cell: &Cell, watch: &Watch, samples: &Samples, rounds: u64) -> Result<Durations> {
    let decision = async |kind: &str, user: &str| -> Result<Decision> {
        let (subject, payload) =
            watch.samples.get(kind).with_context(|| format!("no {kind} was seen alone"))?;
        let log = Log::new(&cell.connect(user).await?);
        Ok(Decision { log, subject: subject.clone(), payload: payload.clone() })
    };
    let queued = decision("WorkloadQueued", "queue").await?;
    let reserved = decision("QuotaReserved", "admission").await?;
    let offered = decision("PlacementOffered", "federation").await?;
    let granted = decision("LegGranted", "desk").await?;
    let committed = decision("PlacementCommitted", "federation").await?;
    let (tenant, queue) = (cell.connect("default/user").await?, cell.connect("queue").await?);
    let (desk, agent) = (cell.connect("desk").await?, cell.connect(&format!("cluster/{CLUSTER}")).await?);
    let desired = samples.desired.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let report = samples.report.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let (subject, request) = (way::subject()?, way::request("raw-0"));
    let (mut ends, mut durations) = (BTreeMap::new(), Durations::default());
    for round in 0..=rounds {
        let began = Instant::now();
        tenant.submit(&subject, request.clone(), None).await?;
        queue.store_body("default", "1/0", request.clone()).await?;
        for decision in [&queued, &reserved, &offered] {
            decision.publish(&mut ends).await?;
        }
        desk.send_to_cluster(CLUSTER, desired.clone()).await?;
        agent.send_from_cluster(CLUSTER, report.clone()).await?;
        for decision in [&granted, &committed] {
            decision.publish(&mut ends).await?;
        }
        // The first round asks for the subjects' ends too.
        if round > 0 {
            durations.add(began.elapsed());
        }
    }
    Ok(durations)
}

/// Publishes a second, many at once.
pub async fn publish_per_s(tenant: &Bus, count: u32) -> Result<f64> {
    let (permits, began) = (Arc::new(Semaphore::new(AT_ONCE)), Instant::now());
    let (subject, payload) = (way::subject()?, way::request("raw-1"));
    let mut sent = Vec::new();
    for _ in 0..count {
        let permit = permits.clone().acquire_owned().await?;
        let (tenant, subject, payload) = (tenant.clone(), subject.clone(), payload.clone());
        sent.push(tokio::spawn(async move {
            let stored = tenant.submit(&subject, payload, None).await;
            drop(permit);
            stored
        }));
    }
    for one in sent {
        one.await??;
    }
    Ok(f64::from(count) / began.elapsed().as_secs_f64())
}

/// Reads the whole log; messages, and how many a second.
pub async fn read(operator: &Bus) -> Result<(Vec<Record>, f64)> {
    let last = Log::new(operator).last_seq().await?;
    let began = Instant::now();
    let mut reader = Reader::scan(operator, names::EVENTS, None, 0).await?;
    let mut all = Vec::new();
    while reader.position() < last {
        if let muster_bus::Incoming::Batch(records) = reader.next().await? {
            all.extend(records);
        }
    }
    let per_s = all.len() as f64 / began.elapsed().as_secs_f64();
    Ok((all, per_s))
}
