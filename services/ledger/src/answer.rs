//! Questions to the state. Pure: the same state and question give the same answer.

use std::collections::BTreeMap;
use std::ops::Bound;

use muster_core::{Seq, WorkloadId};
use muster_model::Amounts;

use crate::{
    LedgerState,
    phase::{leg_state, phase},
    state::{Entry, Spec},
    view::{
        Answer, Cluster, ClusterQueue, Event, Leg, LocalQueue, PodSet, Question, Quota, ResourceFlavor,
        Select, Workload,
    },
};

/// Rows of one page: a reply stays well below NATS' 1 MiB.
const PAGE: usize = 200;

/// Who asks: an operator sees everything, a tenant its own workloads and the queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Operator,
    Tenant(String),
}

impl Scope {
    fn sees(&self, spec: &Spec) -> bool {
        match self {
            Self::Operator => true,
            Self::Tenant(tenant) => &spec.tenant == tenant,
        }
    }
}

/// Answers from the state at `position`. `Why` is answered without the services' reasons: the
/// server adds those.
#[must_use]
pub fn answer(state: &LedgerState, position: Seq, scope: &Scope, question: &Question) -> Answer {
    match question {
        Question::Workloads(select) => workloads(state, scope, select),
        Question::Workload { namespace, name } | Question::Why { namespace, name } => {
            match find(state, scope, namespace.as_deref(), name) {
                Some(found) => Answer::Workload(Box::new(found)),
                None => Answer::NotFound { what: format!("workload {name:?}") },
            }
        }
        Question::LocalQueues { namespace } => local_queues(state, namespace.as_deref()),
        Question::ClusterQueues => cluster_queues(state),
        Question::ResourceFlavors => {
            let flavor = |(name, labels): (&String, &BTreeMap<String, String>)| ResourceFlavor {
                name: name.clone(),
                node_labels: labels.clone(),
            };
            Answer::ResourceFlavors { items: state.flavors.iter().map(flavor).collect() }
        }
        Question::Clusters => clusters(state),
        Question::Events { after, limit, workload } => {
            events(state, scope, *after, *limit, workload.as_deref())
        }
        Question::Request { seq, index } => request(state, *seq, *index),
        Question::Position { .. } => {
            Answer::Position { seq: position, generation: format!("{:08x}", state.lifecycle.generation()) }
        }
    }
}

fn workloads(state: &LedgerState, scope: &Scope, select: &Select) -> Answer {
    let limit = if select.limit == 0 { PAGE } else { (select.limit as usize).min(PAGE) };
    let after = match select.after.as_deref().map(str::parse::<WorkloadId>) {
        Some(Ok(id)) => Bound::Excluded(id),
        Some(Err(bad)) => return Answer::Refused { reason: bad.to_string() },
        None => Bound::Unbounded,
    };
    let range = (after, Bound::Unbounded);
    let ids: Box<dyn Iterator<Item = &WorkloadId>> = if select.open {
        Box::new(state.open.range(range).map(|(id, ())| id))
    } else {
        Box::new(state.specs.range(range).map(|(id, _)| id))
    };
    let matches = |spec: &Spec| {
        select.namespace.as_ref().is_none_or(|namespace| namespace == &spec.namespace)
            && select.labels.iter().all(|(key, value)| spec.labels.get(key) == Some(value))
    };
    let mut items: Vec<Workload> = ids
        .filter(|id| state.specs.get(id).is_some_and(|spec| scope.sees(spec) && matches(spec)))
        .take(limit + 1)
        .filter_map(|id| workload(state, id))
        .collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(|last| last.id.clone());
    Answer::Workloads { items, next }
}

fn find(state: &LedgerState, scope: &Scope, namespace: Option<&str>, name: &str) -> Option<Workload> {
    let sees = |id: &WorkloadId| state.specs.get(id).is_some_and(|spec| scope.sees(spec));
    if let Ok(id) = name.parse::<WorkloadId>() {
        return Some(id).filter(sees).and_then(|id| workload(state, &id));
    }
    let named = |namespace: &str| {
        let first = WorkloadId { generation: 0, request: 0, index: 0 };
        let from = (namespace.to_owned(), name.to_owned(), first);
        state
            .names
            .range(from..)
            .take_while(|((ns, known, _), ())| ns == namespace && known == name)
            .map(|((_, _, id), ())| *id)
            .filter(|id| sees(id))
            .max_by_key(|id| id.request)
    };
    workload(state, &named(namespace.unwrap_or("default"))?)
}

fn workload(state: &LedgerState, id: &WorkloadId) -> Option<Workload> {
    let (spec, row) = (state.specs.get(id)?, state.lifecycle.workload(id)?);
    let pod_sets = spec.pod_sets.iter().map(|set| PodSet {
        name: set.name.clone(),
        count: set.count,
        requests: set.requests.0.clone(),
        flavors: set.flavors.clone(),
    });
    let legs = row.last.iter().flat_map(|attempt| {
        attempt.legs.iter().map(move |leg| Leg {
            cluster: leg.cluster.clone(),
            attempt: attempt.no,
            state: leg_state(attempt, leg).to_owned(),
            uid: leg.uid.clone(),
            address: leg.address.clone(),
        })
    });
    Some(Workload {
        id: id.to_string(),
        tenant: spec.tenant.clone(),
        principal: spec.principal.clone(),
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        kind: spec.kind.clone(),
        queue: spec.queue.clone(),
        cluster_queue: spec.cluster_queue.clone(),
        priority: spec.priority,
        phase: phase(row).to_owned(),
        reason: spec.reason.clone(),
        round: row.round,
        attempts: row.attempts,
        labels: spec.labels.clone(),
        pod_sets: pod_sets.collect(),
        legs: legs.collect(),
        queued_us: spec.queued_us,
        admitted_us: spec.admitted_us,
        started_us: spec.started_us,
        finished_us: spec.finished_us,
        exit_code: spec.exit_code,
        body_bytes: spec.body_bytes,
        body_seq: spec.body_seq,
        body_erased: spec.body_erased,
    })
}

fn request(state: &LedgerState, seq: u64, index: u32) -> Answer {
    let cursor = state.lifecycle.cursor();
    let is_taken = seq <= cursor.seq || (seq == cursor.seq + 1 && index < cursor.index);
    let at = (seq, index);
    let rejected = state
        .rejected
        .range(..=(at, (u64::MAX, u32::MAX)))
        .next_back()
        .filter(|((_, through), _)| at <= *through);
    let (status, reasons) = match rejected {
        Some((_, reasons)) => ("Rejected", reasons.clone()),
        None if is_taken => ("Taken", Vec::new()),
        None => ("Pending", Vec::new()),
    };
    Answer::Request { state: status.to_owned(), reasons }
}

/// Open workloads of a queue: (waiting, holding quota).
#[derive(Clone, Copy, Default)]
struct Counts {
    pending: u32,
    admitted: u32,
}

impl Counts {
    fn count(&mut self, reserved: bool) {
        if reserved {
            self.admitted += 1;
        } else {
            self.pending += 1;
        }
    }
}

fn open_specs(state: &LedgerState) -> impl Iterator<Item = (&WorkloadId, &Spec, bool)> {
    state.open.iter().filter_map(|(id, ())| {
        let reserved = state.lifecycle.workload(id)?.reservation.is_some();
        Some((id, state.specs.get(id)?, reserved))
    })
}

fn local_queues(state: &LedgerState, namespace: Option<&str>) -> Answer {
    let mut counts: BTreeMap<(&str, &str), Counts> = BTreeMap::new();
    for (_, spec, reserved) in open_specs(state) {
        counts.entry((&spec.namespace, &spec.queue)).or_default().count(reserved);
    }
    let items =
        state.local_queues.iter().filter(|((ns, _), _)| namespace.is_none_or(|wanted| wanted == ns)).map(
            |((namespace, name), cluster_queue)| {
                let counts = counts.get(&(namespace.as_str(), name.as_str())).copied().unwrap_or_default();
                LocalQueue {
                    namespace: namespace.clone(),
                    name: name.clone(),
                    cluster_queue: cluster_queue.clone(),
                    pending: counts.pending,
                    admitted: counts.admitted,
                }
            },
        );
    Answer::LocalQueues { items: items.collect() }
}

fn cluster_queues(state: &LedgerState) -> Answer {
    let mut counts: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut used: BTreeMap<(&str, &str, &str), i64> = BTreeMap::new();
    for (_, spec, reserved) in open_specs(state) {
        let local = state.local_queues.get(&(spec.namespace.clone(), spec.queue.clone()));
        let Some(queue) = spec.cluster_queue.as_ref().filter(|_| reserved).or(local) else { continue };
        counts.entry(queue).or_default().count(reserved);
        for set in spec.pod_sets.iter().filter(|_| reserved) {
            for (resource, flavor) in &set.flavors {
                let amount = set.requests.of(resource).saturating_mul(i64::from(set.count));
                let sum = used.entry((queue, flavor, resource)).or_default();
                *sum = sum.saturating_add(amount);
            }
        }
    }
    let items = state.cluster_queues.iter().map(|(name, row)| {
        let counts = counts.get(name.as_str()).copied().unwrap_or_default();
        let quota = |(flavor, resource, nominal): &(String, String, i64)| Quota {
            flavor: flavor.clone(),
            resource: resource.clone(),
            nominal: *nominal,
            used: used.get(&(name.as_str(), flavor.as_str(), resource.as_str())).copied().unwrap_or(0),
        };
        ClusterQueue {
            name: name.clone(),
            cohort: row.cohort.clone(),
            strategy: row.strategy.clone(),
            stop_policy: row.stop_policy.clone(),
            pending: counts.pending,
            admitted: counts.admitted,
            quotas: row.quotas.iter().map(quota).collect(),
        }
    });
    Answer::ClusterQueues { items: items.collect() }
}

fn clusters(state: &LedgerState) -> Answer {
    let items = state.lifecycle.clusters().map(|(name, life)| {
        let known = state.clusters.get(name).cloned().unwrap_or_default();
        let status = match life {
            _ if life.dead => "Dead",
            _ if life.suspected.is_some() => "Suspected",
            _ if life.is_open() => "Ready",
            _ => "Joining",
        };
        let mut used = Amounts::default();
        let mut legs = 0;
        for id in state.lifecycle.legs_in(name) {
            legs += 1;
            for set in state.specs.get(id).iter().flat_map(|spec| &spec.pod_sets) {
                // Shown, not decided with: a sum beyond i64 leaves the rest out.
                let _ = used.add(&set.requests, i64::from(set.count));
            }
        }
        Cluster {
            name: name.clone(),
            backend: known.backend,
            state: status.to_owned(),
            epoch: life.epoch,
            nodes: known.nodes,
            legs,
            allocatable: known.allocatable.0,
            used: used.0,
        }
    });
    Answer::Clusters { items: items.collect() }
}

fn events(state: &LedgerState, scope: &Scope, after: u64, limit: u32, workload: Option<&str>) -> Answer {
    let limit = if limit == 0 { PAGE } else { (limit as usize).min(PAGE) };
    let from = (after.saturating_add(1), 0);
    let own = |entry: &Entry| match (scope, entry.workload) {
        (Scope::Operator, _) => true,
        (_, Some(id)) => state.specs.get(&id).is_some_and(|spec| scope.sees(spec)),
        (_, None) => false,
    };
    let event = |(seq, index): (Seq, u32), entry: &Entry| Event {
        seq,
        index,
        time_us: entry.time_us,
        service: entry.service.clone(),
        partition: entry.partition.clone(),
        fact: entry.fact.clone(),
        workload: entry.workload.map(|id| id.to_string()),
        detail: entry.detail.clone(),
        void: entry.void.clone(),
    };
    match workload.map(str::parse::<WorkloadId>) {
        Some(Err(bad)) => Answer::Refused { reason: bad.to_string() },
        Some(Ok(id)) => page(
            limit,
            state
                .timeline
                .range((id, from.0, 0)..)
                .take_while(|((of, _, _), ())| *of == id)
                .filter_map(|((_, seq, index), ())| {
                    Some(((*seq, *index), state.entries.get(&(*seq, *index))?))
                })
                .filter(|(_, entry)| own(entry))
                .map(|(key, entry)| event(key, entry)),
        ),
        None => page(
            limit,
            state
                .entries
                .range(from..)
                .filter(|(_, entry)| own(entry))
                .map(|(key, entry)| event(*key, entry)),
        ),
    }
}

/// A page ends at the end of a message, so that asking again above its sequence misses nothing.
fn page(limit: usize, events: impl Iterator<Item = Event>) -> Answer {
    let mut items: Vec<Event> = Vec::new();
    for event in events {
        let last = items.last().map(|last| last.seq);
        if items.len() >= limit && last != Some(event.seq) {
            return Answer::Events { items, next: last };
        }
        items.push(event);
    }
    Answer::Events { items, next: None }
}
