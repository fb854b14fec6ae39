//! Which ClusterQueues have changed, so that a step looks at no other.
//!
//! Everything that may let something be admitted (a place taken or left, quota that came back,
//! a policy) stirs its queue. After each fold the inbox looks once at what was stirred and
//! remembers where something fits; the rest is content until it is stirred again. The memory is
//! a shortcut only: a fresh inbox looks at every queue and finds the same.

use std::collections::BTreeSet;

use muster_core::{AnyTable, Table};

/// Queues in the order in which they were last stirred.
#[derive(Clone, Debug)]
pub struct Stirred {
    order: Table<(u64, String), ()>,
    last: Table<String, u64>,
}

impl Default for Stirred {
    fn default() -> Self {
        Self { order: Table::index("admission.stir_order"), last: Table::index("admission.stirred") }
    }
}

impl Stirred {
    pub fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.order);
        visit(&mut self.last);
    }

    fn latest(&self) -> u64 {
        self.order.iter().next_back().map_or(0, |((number, _), ())| *number)
    }

    pub fn stir(&mut self, queue: &str) {
        let number = self.latest() + 1;
        if let Some(old) = self.last.get(&queue.to_owned()).copied() {
            self.order.remove(&(old, queue.to_owned()));
        }
        self.order.put((number, queue.to_owned()), ());
        self.last.put(queue.to_owned(), number);
    }

    fn since(&self, number: u64) -> impl Iterator<Item = &String> {
        self.order.range((number + 1, String::new())..).map(|((_, queue), ())| queue)
    }
}

/// Where something fits, as far as this process has looked. Bounded by the number of queues.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    seen: u64,
    restless: BTreeSet<String>,
}

impl Inbox {
    /// Looks at what was stirred since the last time.
    pub fn look(&mut self, stirred: &Stirred, fits: impl Fn(&str) -> bool) {
        for queue in stirred.since(self.seen) {
            if fits(queue) {
                self.restless.insert(queue.clone());
            } else {
                self.restless.remove(queue);
            }
        }
        self.seen = stirred.latest();
    }

    /// The queues in which something may be admitted.
    pub fn candidates(&self, stirred: &Stirred) -> BTreeSet<String> {
        self.restless.iter().chain(stirred.since(self.seen)).cloned().collect()
    }
}
