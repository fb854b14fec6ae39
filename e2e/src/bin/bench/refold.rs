//! Folding the log anew, as `muster replay` does, from memory: reading is measured apart.

use anyhow::{Result, ensure};
use muster_core::{Record, Service, Timestamp};
use muster_runtime::Refold;

use crate::cell::CLUSTER;

/// Messages given at a time.
const CHUNK: usize = 8192;

/// A service's facts a second.
pub struct Folded {
    pub service: &'static str,
    pub facts: u64,
    pub per_s: f64,
    pub seconds: f64,
}

/// Every service, one after the other.
pub fn all(records: Vec<muster_bus::Record>) -> Result<Vec<Folded>> {
    let record = |record: muster_bus::Record| Record {
        seq: record.seq,
        subject: record.subject.to_string(),
        time: Timestamp(record.time_us),
        payload: record.payload,
    };
    let records: Vec<Record> = records.into_iter().map(record).collect();
    Ok(vec![
        fold::<muster_queue::Queue>(muster_queue::Config::default(), "0", &records)?,
        fold::<muster_admission::Admission>(muster_admission::Config::default(), "0", &records)?,
        fold::<muster_federation::Federation>(muster_federation::Config::default(), "0", &records)?,
        fold::<muster_desk::Desk>(muster_desk::Config::new(CLUSTER), CLUSTER, &records)?,
        fold::<muster_ledger::Ledger>((), "0", &records)?,
    ])
}

fn fold<S: Service>(config: S::Config, partition: &str, records: &[Record]) -> Result<Folded> {
    let mut refold = Refold::<S>::new(config, partition, None);
    for chunk in records.chunks(CHUNK) {
        refold.push(chunk.to_vec())?;
    }
    let (done, _) = refold.finish()?;
    ensure!(done.mismatches.is_empty(), "{}: {}", S::NAME, done.mismatches[0]);
    ensure!(done.halts.is_empty(), "{}: {:?}", S::NAME, done.halts);
    let (per_s, seconds) = (done.facts_per_s(), done.took.as_secs_f64());
    Ok(Folded { service: S::NAME, facts: done.facts, per_s, seconds })
}
