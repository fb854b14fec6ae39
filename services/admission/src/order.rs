//! One ClusterQueue's waiting workloads in order, without looking at those that can't fit.
//!
//! Workloads of one shape fit or don't fit alike. So the index keeps them shape by shape; the
//! heads of all shapes are merged, and a shape whose head does not fit is left alone.

use std::collections::BTreeMap;

use muster_core::{Table, WorkloadId};

use crate::job::Place;

/// Everything that waits for quota: (ClusterQueue, shape, place).
pub type Waiting = Table<(String, u128, Place), ()>;

const FIRST: Place =
    Place { rank: i64::MIN, queued_us: i64::MIN, id: WorkloadId { generation: 0, request: 0, index: 0 } };

/// The next place of a shape, after one or from its start.
fn next_of(waiting: &Waiting, queue: &str, shape: u128, after: Option<Place>) -> Option<Place> {
    let start = (queue.to_owned(), shape, after.unwrap_or(FIRST));
    waiting
        .range(start..)
        .map(|(key, ())| key)
        .take_while(|key| key.0 == queue && key.1 == shape)
        .map(|key| key.2)
        .find(|place| Some(*place) != after)
}

/// The first row at or after a queue and shape.
fn first_from(waiting: &Waiting, queue: &str, shape: u128) -> Option<(String, u128, Place)> {
    waiting.range((queue.to_owned(), shape, FIRST)..).next().map(|(key, ())| key.clone())
}

/// Names of all ClusterQueues in which something waits.
pub fn queues(waiting: &Waiting) -> Vec<String> {
    let mut names = Vec::new();
    let mut next = first_from(waiting, "", 0);
    while let Some((queue, ..)) = next {
        // The least string that is greater than this one.
        next = first_from(waiting, &format!("{queue}\0"), 0);
        names.push(queue);
    }
    names
}

/// Walks a ClusterQueue's waiting workloads in order; shapes that don't fit are dropped.
pub struct Walk<'a> {
    waiting: &'a Waiting,
    queue: &'a str,
    /// The next of every shape that may still fit.
    heads: BTreeMap<Place, u128>,
}

impl<'a> Walk<'a> {
    pub fn new(waiting: &'a Waiting, queue: &'a str) -> Self {
        let mut heads = BTreeMap::new();
        let mut next = first_from(waiting, queue, 0);
        while let Some((_, shape, place)) = next.filter(|(name, ..)| name == queue) {
            heads.insert(place, shape);
            next = shape.checked_add(1).and_then(|shape| first_from(waiting, queue, shape));
        }
        Self { waiting, queue, heads }
    }

    /// One that waits too, though the index does not say so yet.
    pub fn also(&mut self, shape: u128, place: Place) {
        self.heads.insert(place, shape);
    }

    pub fn head(&self) -> Option<WorkloadId> {
        self.heads.keys().next().map(|place| place.id)
    }

    /// The head took quota: the next of its shape takes its turn.
    pub fn took(&mut self) {
        if let Some((place, shape)) = self.heads.pop_first()
            && let Some(next) = next_of(self.waiting, self.queue, shape, Some(place))
        {
            self.heads.insert(next, shape);
        }
    }

    /// The head does not fit, and so none of its shape.
    pub fn drop_shape(&mut self) {
        self.heads.pop_first();
    }
}

/// How many wait before this place. Counts them: for explanations, not for decisions.
pub fn ahead(waiting: &Waiting, queue: &str, place: Place) -> usize {
    waiting
        .range((queue.to_owned(), 0, FIRST)..)
        .take_while(|((name, ..), ())| name == queue)
        .filter(|((_, _, other), ())| *other < place)
        .count()
}
