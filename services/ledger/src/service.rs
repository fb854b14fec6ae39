//! Folding the log into what is shown.

use muster_core::{At, Broken, Decision, Event, Incoming, Service, Timestamp, Why, WorkloadId};
use muster_model::Verdict;
use muster_proto::{self as proto, Fact, Kind, policy::Object};

use crate::{
    LedgerState,
    describe::describe,
    state::{Cluster, ClusterQueue, Entry, PodSet, Spec},
};

/// The service that folds and never decides.
pub struct Ledger;

impl Service for Ledger {
    const NAME: &'static str = "ledger";
    type Config = ();
    type State = LedgerState;
    type Inbox = ();
    type Fact = Fact;

    fn evolve(state: &mut LedgerState, at: At, event: &Event) {
        let verdict = state.lifecycle.apply(at, event);
        state.record(at, event, &verdict);
        if verdict.is_effective() {
            state.project(at, &event.fact);
        }
        for id in verdict.touched() {
            state.refresh(id, at);
        }
    }

    fn absorb((): &mut (), _: &LedgerState, _: Timestamp, _: Incoming) {}

    fn decide((): &(), _: &LedgerState, (): &(), _: Timestamp) -> Decision<Fact> {
        Decision::default()
    }

    fn explain((): &(), _: &LedgerState, (): &(), _: &WorkloadId, _: Timestamp) -> Option<Why> {
        None
    }

    fn check(_: &LedgerState) -> Result<(), Broken> {
        Ok(())
    }
}

impl LedgerState {
    /// Every fact gets its line, void ones too.
    fn record(&mut self, at: At, event: &Event, verdict: &Verdict) {
        let described = describe(&event.fact);
        let last = self.entries.range((at.seq, 0)..).next_back();
        let index = last.map_or(0, |((_, index), _)| index + 1);
        if let Some(id) = described.workload {
            self.timeline.put((id, at.seq, index), ());
        }
        let void = match verdict {
            Verdict::Void(why) => Some((*why).to_owned()),
            Verdict::Effective(_) => None,
        };
        let entry = Entry {
            time_us: at.time.0,
            service: event.service.clone(),
            partition: event.partition.clone(),
            fact: described.name.to_owned(),
            workload: described.workload,
            detail: described.detail.trim().to_owned(),
            void,
        };
        self.entries.put((at.seq, index), entry);
    }

    fn project(&mut self, at: At, fact: &Kind) {
        match fact {
            Kind::WorkloadQueued(fact) => self.queued(fact),
            Kind::QuotaReserved(fact) => self.reserved(at, fact),
            Kind::WorkloadRequeued(fact) => self.say(fact.workload.as_ref(), &fact.reason),
            Kind::WorkloadPreempted(fact) => self.say(fact.workload.as_ref(), &fact.reason),
            Kind::WorkloadCancelled(fact) => self.say(fact.workload.as_ref(), &fact.reason),
            Kind::WorkloadFinished(fact) => {
                self.say(fact.workload.as_ref(), &fact.reason);
                self.specs.update(&WorkloadId::of(fact.workload.as_ref()), |spec| {
                    spec.finished_us = Some(at.time.0);
                    spec.exit_code = fact.exit_code;
                });
            }
            Kind::BodyErased(fact) => {
                self.specs.update(&WorkloadId::of(fact.workload.as_ref()), |spec| spec.body_erased = true);
            }
            Kind::RequestsRejected(fact) => self.rejected(fact),
            Kind::PolicyApplied(fact) => self.policy(fact),
            Kind::ClusterJoined(fact) => {
                self.clusters.put(
                    fact.cluster.clone(),
                    Cluster { backend: fact.backend.clone(), ..Cluster::default() },
                );
            }
            Kind::CapacityReported(fact) => self.capacity(fact),
            _ => {}
        }
    }

    fn queued(&mut self, fact: &proto::WorkloadQueued) {
        let id = WorkloadId::of(fact.workload.as_ref());
        let pod_set = |set: &proto::PodSet| PodSet {
            name: set.name.clone(),
            count: set.count,
            requests: set.requests.clone().into(),
            flavors: Default::default(),
        };
        let body = fact.body.clone().unwrap_or_default();
        let spec = Spec {
            tenant: fact.tenant.clone(),
            principal: fact.principal.clone(),
            namespace: fact.namespace.clone(),
            name: fact.name.clone(),
            kind: fact.kind.clone(),
            queue: fact.local_queue.clone(),
            priority: fact.priority,
            labels: fact.labels.clone(),
            pod_sets: fact.pod_sets.iter().map(pod_set).collect(),
            queued_us: fact.submitted_us,
            body_seq: body.seq,
            body_bytes: body.size_bytes,
            ..Spec::default()
        };
        self.names.put((spec.namespace.clone(), spec.name.clone(), id), ());
        self.specs.put(id, spec);
    }

    fn reserved(&mut self, at: At, fact: &proto::QuotaReserved) {
        self.specs.update(&WorkloadId::of(fact.workload.as_ref()), |spec| {
            spec.cluster_queue = Some(fact.cluster_queue.clone());
            spec.admitted_us = Some(at.time.0);
            for assignment in &fact.assignments {
                if let Some(set) = spec.pod_sets.iter_mut().find(|set| set.name == assignment.pod_set) {
                    set.flavors.clone_from(&assignment.flavors);
                }
            }
        });
    }

    fn rejected(&mut self, fact: &proto::RequestsRejected) {
        let place =
            |request: Option<proto::RequestRef>| request.map(|r| (r.seq, r.index)).unwrap_or_default();
        self.rejected.put((place(fact.first), place(fact.through)), fact.reasons.clone());
    }

    fn say(&mut self, workload: Option<&proto::WorkloadRef>, reason: &str) {
        self.specs.update(&WorkloadId::of(workload), |spec| reason.clone_into(&mut spec.reason));
    }

    fn policy(&mut self, fact: &proto::PolicyApplied) {
        match fact.policy.as_ref().and_then(|policy| policy.object.as_ref()) {
            Some(Object::ResourceFlavor(o)) if fact.deleted => _ = self.flavors.remove(&o.name),
            Some(Object::ResourceFlavor(o)) => self.flavors.put(o.name.clone(), o.node_labels.clone()),
            Some(Object::LocalQueue(o)) => {
                let key = (o.namespace.clone(), o.name.clone());
                if fact.deleted {
                    self.local_queues.remove(&key);
                } else {
                    self.local_queues.put(key, o.cluster_queue.clone());
                }
            }
            Some(Object::ClusterQueue(o)) if fact.deleted => _ = self.cluster_queues.remove(&o.name),
            Some(Object::ClusterQueue(o)) => self.cluster_queues.put(o.name.clone(), cluster_queue(o)),
            _ => {}
        }
    }

    fn capacity(&mut self, fact: &proto::CapacityReported) {
        self.clusters.update(&fact.cluster, |row| {
            row.nodes = fact.groups.iter().fold(0, |sum, group| sum.saturating_add(group.nodes));
            row.allocatable = Default::default();
            for group in &fact.groups {
                // An absurd capacity is left out rather than shown wrong.
                let _ = row.allocatable.add(&group.allocatable.clone().into(), i64::from(group.nodes));
            }
        });
    }

    fn refresh(&mut self, id: &WorkloadId, at: At) {
        let Some(row) = self.lifecycle.workload(id) else { return };
        if row.terminal.is_none() {
            self.open.put(*id, ());
        } else {
            self.open.remove(id);
        }
        let running = row.live().is_some_and(|attempt| attempt.committed);
        if running && self.specs.get(id).is_some_and(|spec| spec.started_us.is_none()) {
            self.specs.update(id, |spec| spec.started_us = Some(at.time.0));
        }
    }
}

fn cluster_queue(wire: &proto::ClusterQueue) -> ClusterQueue {
    let quotas = wire
        .resource_groups
        .iter()
        .flat_map(|group| &group.flavors)
        .flat_map(|flavor| {
            flavor.resources.iter().map(|quota| (flavor.name.clone(), quota.name.clone(), quota.nominal))
        })
        .collect();
    ClusterQueue {
        cohort: wire.cohort.clone(),
        strategy: wire.queueing_strategy.clone(),
        stop_policy: wire.stop_policy.clone(),
        quotas,
    }
}
