//! EVENTS in memory: totally ordered, fenced per subject.

use std::collections::BTreeMap;

use bytes::Bytes;
use muster_core::{Record, Seq, Timestamp, defect, defect::Defect};

#[derive(Debug, Default)]
pub struct MemLog {
    records: Vec<Record>,
    last: BTreeMap<String, Seq>,
}

impl MemLog {
    /// The sequence of the last message; 0 for none.
    #[must_use]
    pub fn head(&self) -> Seq {
        self.records.len() as Seq
    }

    /// The last sequence of a subject; 0 for none.
    #[must_use]
    pub fn last_of(&self, subject: &str) -> Seq {
        self.last.get(subject).copied().unwrap_or(0)
    }

    /// Stores a message if the subject's last sequence is the expected one.
    pub fn publish(&mut self, subject: &str, expect: Seq, payload: Bytes, time: Timestamp) -> Option<Seq> {
        if self.last_of(subject) != expect && !defect::on(Defect::NoFence) {
            return None;
        }
        let seq = self.head() + 1;
        self.records.push(Record { seq, subject: subject.to_owned(), time, payload });
        self.last.insert(subject.to_owned(), seq);
        Some(seq)
    }

    /// Messages from `from` on, at most so many.
    #[must_use]
    pub fn read(&self, from: Seq, most: usize) -> Vec<Record> {
        let start = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
        self.records.iter().skip(start).take(most).cloned().collect()
    }

    #[must_use]
    pub fn get(&self, seq: Seq) -> Option<&Record> {
        self.records.get(usize::try_from(seq.checked_sub(1)?).ok()?)
    }

    /// What a restored backup has: the first messages only.
    pub fn cut(&mut self, head: Seq) {
        self.records.truncate(usize::try_from(head).unwrap_or(usize::MAX));
        self.last.clear();
        for record in &self.records {
            self.last.insert(record.subject.clone(), record.seq);
        }
    }
}
