//! The bench's own eyes: reads EVENTS as it grows and notes when a fact was seen.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bytes::Bytes;
use muster_bus::{Bus, Incoming, Reader, Record, names};
use muster_proto::{Envelope, Kind, WorkloadRef};
use prost::Message as _;

/// A job is known by the sequence of its request.
pub struct Watch {
    reader: Reader,
    /// When each job's commit was seen.
    pub committed: BTreeMap<u64, Instant>,
    /// The server's times of each job's request and decisions, in the order of the way.
    pub steps: BTreeMap<u64, Vec<i64>>,
    pub finished: u64,
    pub joined: bool,
    /// By the name of a fact: subject and payload of a message that holds one such fact and nothing else.
    pub samples: BTreeMap<&'static str, (String, Bytes)>,
}

/// A silence this long means that something is broken.
const SILENCE: Duration = Duration::from_secs(30);

impl Watch {
    pub async fn open(operator: &Bus) -> Result<Self> {
        let reader = Reader::scan(operator, names::EVENTS, None, 0).await?;
        let (committed, steps, samples) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { reader, committed, steps, finished: 0, joined: false, samples })
    }

    /// Reads on until it holds.
    pub async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) -> Result<()> {
        while !holds(self) {
            match tokio::time::timeout(SILENCE, self.reader.next()).await {
                Ok(incoming) => {
                    if let Incoming::Batch(records) = incoming? {
                        let seen = Instant::now();
                        for record in records {
                            self.note(&record, seen)?;
                        }
                    }
                }
                Err(_) => bail!(
                    "nothing was recorded for {SILENCE:?}, and yet not {what} ({} committed, {} finished)",
                    self.committed.len(),
                    self.finished
                ),
            }
        }
        Ok(())
    }

    fn note(&mut self, record: &Record, seen: Instant) -> Result<()> {
        let envelope = Envelope::decode(record.payload.clone())?;
        let mut name = "";
        for kind in envelope.facts.iter().filter_map(|fact| fact.kind.as_ref()) {
            let of =
                |workload: &Option<WorkloadRef>| workload.as_ref().map_or(0, |workload| workload.request);
            let (step, request) = match kind {
                Kind::WorkloadQueued(fact) => ("WorkloadQueued", of(&fact.workload)),
                Kind::QuotaReserved(fact) => ("QuotaReserved", of(&fact.workload)),
                Kind::PlacementOffered(fact) => ("PlacementOffered", of(&fact.workload)),
                Kind::LegGranted(fact) => ("LegGranted", of(&fact.workload)),
                Kind::PlacementCommitted(fact) => ("PlacementCommitted", of(&fact.workload)),
                Kind::WorkloadFinished(_) => {
                    self.finished += 1;
                    continue;
                }
                Kind::CapacityReported(_) => {
                    self.joined = true;
                    continue;
                }
                _ => continue,
            };
            let steps = self.steps.entry(request).or_default();
            if let Kind::WorkloadQueued(fact) = kind {
                steps.push(fact.submitted_us);
            }
            steps.push(record.time_us);
            if step == "PlacementCommitted" {
                self.committed.insert(request, seen);
            }
            name = step;
        }
        if envelope.facts.len() == 1 && !name.is_empty() {
            let sample = || (record.subject.to_string(), record.payload.clone());
            self.samples.entry(name).or_insert_with(sample);
        }
        Ok(())
    }
}
