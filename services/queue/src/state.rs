//! What the queue knows, folded from the log.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, Broken, Table, WorkloadId};
use muster_model::Lifecycle;

/// The tenant that owns the namespace `default` until a Tenant policy says otherwise.
const DEFAULT: &str = "default";
/// A due time that has come already.
pub(crate) const NOW: i64 = i64::MIN;
const FIRST: WorkloadId = WorkloadId { generation: 0, request: 0, index: 0 };

/// The queue's tables. All times are microseconds since 1970.
#[derive(Clone, Debug)]
pub struct State {
    pub(crate) lifecycle: Lifecycle,
    /// What the queue needs of each workload beyond its lifecycle.
    pub(crate) jobs: Table<WorkloadId, Job>,
    /// (tenant, Muster-Key): the request that used it. Kept for 8 days.
    pub(crate) keys: Table<(String, String), KeyUse>,
    /// Tenants that a policy names.
    pub(crate) tenants: Table<String, ()>,
    /// Namespaces and their tenants, by policy.
    pub(crate) namespaces: Table<String, String>,
    pub(crate) priority_classes: Table<String, i32>,
    /// How many rejections of a tenant were told with reasons, and in which minute.
    pub(crate) rejections: Table<String, Told>,
    /// (when, workload): the queue has to act. The only way in which `decide` finds workloads.
    pub(crate) due: Table<(i64, WorkloadId), ()>,
    due_of: Table<WorkloadId, i64>,
    /// Bodies to delete: asked for, and the workload is over.
    erasing: Table<WorkloadId, u64>,
    /// Sequences in BODIES that workloads name.
    bodies: Table<u64, ()>,
    pub(crate) key_ages: Table<(i64, String, String), ()>,
    pub(crate) owned: Table<(String, String), ()>,
}

/// A workload as the queue sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) struct Job {
    pub(crate) tenant: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Rounds after failures of the user's program.
    pub(crate) max_retries: u32,
    pub(crate) recovery_deadline_us: i64,
    /// The body's sequence in BODIES.
    pub(crate) body: u64,
    pub(crate) erase: Erase,
    /// Of the present round, and why there is one.
    pub(crate) not_before_us: i64,
    pub(crate) requeued_for: String,
    /// The attempt that started last, and when.
    pub(crate) started: Mark,
    /// The attempt that last ended without the user's fault or success, and when.
    pub(crate) broken: Mark,
    /// Requeues after such ends, none of which ran for long.
    pub(crate) infra_requeues: u32,
    pub(crate) exit: Exit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) enum Erase {
    #[default]
    No,
    Asked,
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) struct Mark {
    pub(crate) attempt: u32,
    pub(crate) time_us: i64,
}

/// How a leg of an attempt ended: the first failure, else the last success.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) struct Exit {
    pub(crate) attempt: u32,
    pub(crate) failed: bool,
    pub(crate) code: Option<i32>,
    pub(crate) reason: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) struct KeyUse {
    pub(crate) workload: WorkloadId,
    pub(crate) time_us: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub(crate) struct Told {
    pub(crate) minute: i64,
    pub(crate) count: u32,
}

impl Default for State {
    fn default() -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            jobs: Table::stored("queue.jobs"),
            keys: Table::stored("queue.keys"),
            tenants: Table::stored("queue.tenants"),
            namespaces: Table::stored("queue.namespaces"),
            priority_classes: Table::stored("queue.priority_classes"),
            rejections: Table::stored("queue.rejections"),
            due: Table::index("queue.due"),
            due_of: Table::index("queue.due_of"),
            erasing: Table::index("queue.erasing"),
            bodies: Table::index("queue.bodies"),
            key_ages: Table::index("queue.key_ages"),
            owned: Table::index("queue.owned"),
        }
    }
}

impl muster_core::State for State {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        self.lifecycle.tables(visit);
        visit(&mut self.jobs);
        visit(&mut self.keys);
        visit(&mut self.tenants);
        visit(&mut self.namespaces);
        visit(&mut self.priority_classes);
        visit(&mut self.rejections);
        visit(&mut self.due);
        visit(&mut self.due_of);
        visit(&mut self.erasing);
        visit(&mut self.bodies);
        visit(&mut self.key_ages);
        visit(&mut self.owned);
    }

    fn reindex(&mut self) {
        self.lifecycle.reindex();
        let ids: Vec<WorkloadId> = self.jobs.iter().map(|(id, _)| *id).collect();
        for id in ids {
            self.index(id);
        }
        for ((tenant, key), used) in self.keys.iter() {
            self.key_ages.put((used.time_us, tenant.clone(), key.clone()), ());
        }
        for (namespace, tenant) in self.namespaces.iter() {
            self.owned.put((tenant.clone(), namespace.clone()), ());
        }
    }
}

impl State {
    /// The lifecycle of workloads and clusters.
    #[must_use]
    pub const fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// The tenant that owns a namespace.
    #[must_use]
    pub fn owner_of(&self, namespace: &str) -> Option<&str> {
        let by_policy = self.namespaces.get(&namespace.to_owned()).map(String::as_str);
        let out_of_the_box =
            || (namespace == DEFAULT && !self.tenants.contains(&DEFAULT.to_owned())).then_some(DEFAULT);
        by_policy.or_else(out_of_the_box)
    }

    /// The namespaces that policies give to a tenant.
    pub(crate) fn namespaces_of(&self, tenant: &str) -> impl Iterator<Item = &str> {
        let tenant = tenant.to_owned();
        self.owned
            .range((tenant.clone(), String::new())..)
            .take_while(move |((owner, _), ())| *owner == tenant)
            .map(|((_, namespace), ())| namespace.as_str())
    }

    /// Whether the cursor has passed this command.
    pub(crate) fn is_answered(&self, request: u64, index: u32) -> bool {
        let cursor = self.lifecycle.cursor();
        (request, index) < (cursor.seq + 1, cursor.index)
    }

    /// The id of the workload that a command makes.
    pub(crate) fn id(&self, request: u64, index: u32) -> WorkloadId {
        WorkloadId { generation: self.lifecycle.generation(), request, index }
    }

    /// Whether a workload has its body at this sequence of BODIES. Of any generation: a body may outlive the
    /// one in which its workload was queued.
    pub(crate) fn names_body(&self, body: u64) -> bool {
        self.bodies.contains(&body)
    }

    /// Workloads whose bodies are to be deleted, with the body's sequence; at most 64 at a time.
    pub(crate) fn erasing(&self) -> impl Iterator<Item = (WorkloadId, u64)> {
        self.erasing.iter().take(64).map(|(id, body)| (*id, *body))
    }

    /// Workloads that need the queue at `now`, those that have waited longest first.
    pub(crate) fn due_by(&self, now: i64) -> impl Iterator<Item = WorkloadId> {
        self.due
            .range(..=(now, WorkloadId { generation: u32::MAX, request: u64::MAX, index: u32::MAX }))
            .map(|((_, id), ())| *id)
    }

    /// When the next workload needs the queue that does not need it at `now`.
    pub(crate) fn due_after(&self, now: i64) -> Option<i64> {
        self.due.range((now.saturating_add(1), FIRST)..).next().map(|((due, _), ())| *due)
    }

    /// When the queue has to act on a workload by itself: [`NOW`] at once, none: it has not.
    pub(crate) fn due_of(&self, id: &WorkloadId) -> Option<i64> {
        let (row, job) = (self.lifecycle.workload(id)?, self.jobs.get(id)?);
        if row.terminal.is_some() || row.live().is_some() {
            return None;
        }
        if row.won() || row.cancel || row.preempted || row.user_failed() {
            return Some(NOW);
        }
        if !row.infra_failed() || row.plan.is_some() {
            return None;
        }
        Some(if row.declined { NOW } else { job.broken.time_us.saturating_add(job.recovery_deadline_us) })
    }

    /// Brings the indexes of a workload up to date.
    pub(crate) fn index(&mut self, id: WorkloadId) {
        let due = self.due_of(&id);
        let before = self.due_of.get(&id).copied();
        if due != before {
            if let Some(before) = before {
                self.due.remove(&(before, id));
                self.due_of.remove(&id);
            }
            if let Some(due) = due {
                self.due.put((due, id), ());
                self.due_of.put(id, due);
            }
        }
        if let Some(body) = self.jobs.get(&id).map(|job| job.body) {
            self.bodies.put(body, ());
        }
        let over = self.lifecycle.workload(&id).is_some_and(|row| row.terminal.is_some());
        match self.jobs.get(&id).filter(|job| over && job.erase == Erase::Asked).map(|job| job.body) {
            Some(body) => self.erasing.put(id, body),
            None => _ = self.erasing.remove(&id),
        }
    }
}

/// So many workloads that need the queue are checked after each decision.
const CHECKED: usize = 256;

impl State {
    /// Every workload has one row here, and the index holds only workloads at rest.
    pub(crate) fn check(&self) -> Result<(), Broken> {
        let lives = self.lifecycle.workloads().size_hint().0;
        if lives != self.jobs.len() {
            let detail = format!("{lives} workloads live, the queue knows {}", self.jobs.len());
            return Err(Broken { invariant: "EachWorkloadHasAJob", detail });
        }
        if self.keys.len() != self.key_ages.len() || self.due.len() != self.due_of.len() {
            let detail = format!(
                "keys {} {}, due {} {}",
                self.keys.len(),
                self.key_ages.len(),
                self.due.len(),
                self.due_of.len()
            );
            return Err(Broken { invariant: "IndexesMatch", detail });
        }
        let wrong = self.due.iter().take(CHECKED).find(|((due, id), ())| self.due_of(id) != Some(*due));
        match wrong {
            Some(((due, id), ())) => {
                let detail = format!("{id} stands at {due}, it should at {:?}", self.due_of(id));
                Err(Broken { invariant: "DueIsDerived", detail })
            }
            None => Ok(()),
        }
    }
}
