//! A queue with an outside that carries out its wishes.

use bytes::Bytes;
use muster_core::harness::Given;
use muster_core::{Incoming, Outgoing, RequestMessage, Service, Timestamp, WorkloadId};
use muster_model::lifecycle::Workload;
use muster_proto::*;
use prost::Message;

use crate::state::Job;
use crate::{Config, Queue};

pub(super) const GENERATION: u32 = 7;
pub(super) const SECOND: i64 = 1_000_000;
pub(super) const START: Timestamp = Timestamp(1_700_000_000 * SECOND);

pub(super) struct World {
    pub(super) queue: Given<Queue>,
    /// The next sequence of REQUESTS.
    pub(super) next: u64,
    pub(super) bodies: Vec<(u64, Bytes)>,
    pub(super) told: Vec<(String, Rejected)>,
    pub(super) deleted: Vec<u64>,
    pub(super) sent: Vec<RequestMessage>,
    /// What was folded: service, partition, time, facts.
    pub(super) log: Vec<(String, String, Timestamp, Vec<Kind>)>,
}

pub(super) fn job(name: &str) -> Submit {
    let manifest = format!(
        "{{apiVersion: batch/v1, kind: Job, metadata: {{name: {name}, labels: {{kueue.x-k8s.io/queue-name: main}}}}, \
         spec: {{backoffLimit: 1, template: {{spec: {{restartPolicy: Never, containers: [{{name: c, image: i, \
         env: [{{name: TOKEN, value: hush}}], resources: {{requests: {{cpu: 500m}}}}}}]}}}}}}}}"
    );
    Submit { manifest: manifest.into(), ..Submit::default() }
}

pub(super) fn submit(name: &str) -> command::Kind {
    command::Kind::Submit(job(name))
}

pub(super) fn cancel(id: WorkloadId) -> command::Kind {
    command::Kind::Cancel(Cancel { workload: Some(id.into()), reason: "enough".into() })
}

pub(super) fn erase(id: WorkloadId) -> command::Kind {
    command::Kind::Erase(EraseRequest { workload: Some(id.into()) })
}

pub(super) fn apply(manifest: &str) -> command::Kind {
    let manifest = manifest.to_owned().into();
    command::Kind::ApplyPolicy(ApplyPolicy { manifest, source: "policies.yaml".into(), delete: false })
}

pub(super) fn tenant(name: &str, namespaces: &str) -> command::Kind {
    apply(&format!(
        "{{apiVersion: muster.dev/v1, kind: Tenant, metadata: {{name: {name}}}, spec: {{namespaces: [{namespaces}]}}}}"
    ))
}

pub(super) fn class(name: &str, value: i32) -> command::Kind {
    apply(&format!(
        "{{apiVersion: kueue.x-k8s.io/v1beta2, kind: WorkloadPriorityClass, metadata: {{name: {name}}}, value: {value}}}"
    ))
}

pub(super) fn encoded(key: &str, commands: impl IntoIterator<Item = command::Kind>) -> Bytes {
    let commands = commands.into_iter().map(|kind| Command { kind: Some(kind) }).collect();
    Request { commands, key: key.into() }.encode_to_vec().into()
}

pub(super) fn id(request: u64, index: u32) -> WorkloadId {
    WorkloadId { generation: GENERATION, request, index }
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with(config: Config) -> Self {
        let generation = GenerationStarted { generation: GENERATION, ..GenerationStarted::default() };
        let queue = Given::new(config).at(START);
        let (bodies, told, deleted) = (Vec::new(), Vec::new(), Vec::new());
        let mut world = Self { queue, next: 1, bodies, told, deleted, sent: Vec::new(), log: Vec::new() };
        world.fold("cell", "0", [Kind::GenerationStarted(generation)]);
        world
    }

    /// A request arrives; gives its sequence.
    pub(super) fn send(&mut self, tenant: &str, payload: Bytes) -> u64 {
        let seq = self.next;
        self.next += 1;
        let (time, principal) = (self.queue.now, "ada".to_owned());
        let request = RequestMessage { seq, tenant: tenant.to_owned(), principal, time, key: None, payload };
        self.sent.push(request.clone());
        self.absorb(Incoming::Request(request));
        seq
    }

    /// As [`World::send`], for the tenant `default`.
    pub(super) fn ask(&mut self, commands: impl IntoIterator<Item = command::Kind>) -> u64 {
        self.send("default", encoded("", commands))
    }

    pub(super) fn absorb(&mut self, incoming: Incoming) {
        Queue::absorb(&mut self.queue.inbox, &self.queue.state, self.queue.now, incoming);
    }

    pub(super) fn wishes(&self) -> Vec<Outgoing> {
        Queue::outbox(&self.queue.config, &self.queue.state, &self.queue.inbox, self.queue.now)
    }

    /// Carries out every wish once; says whether there was one.
    pub(super) fn serve(&mut self) -> bool {
        let wishes = self.wishes();
        for wish in &wishes {
            let answer = self.carry_out(wish.clone());
            self.absorb(answer);
        }
        !wishes.is_empty()
    }

    pub(super) fn carry_out(&mut self, wish: Outgoing) -> Incoming {
        match wish {
            Outgoing::StoreBody { request, index, body, .. } => {
                let seq = self.bodies.len() as u64 + 1;
                let size_bytes = body.len() as u32;
                self.bodies.push((seq, body));
                Incoming::BodyStored {
                    request,
                    index,
                    body: BodyRef { seq, size_bytes, sha256: Bytes::new() },
                }
            }
            Outgoing::SendRejection { tenant, rejected } => {
                let RequestRef { seq, index, .. } = rejected.request.unwrap();
                self.told.push((tenant, rejected));
                Incoming::RejectionSent { request: seq, index }
            }
            Outgoing::DeleteBody { seq } => {
                self.deleted.push(seq);
                Incoming::BodyDeleted { seq }
            }
            other => panic!("the queue does not wish for {other:?}"),
        }
    }

    /// The facts of one message are folded, as the host does it.
    pub(super) fn fold(&mut self, service: &str, partition: &str, facts: impl IntoIterator<Item = Kind>) {
        let facts: Vec<Kind> = facts.into_iter().collect();
        self.log.push((service.to_owned(), partition.to_owned(), self.queue.now, facts.clone()));
        self.queue.fold(service, partition, facts);
        Queue::folded(&mut self.queue.inbox, &self.queue.state);
        Queue::check(&self.queue.state).unwrap();
    }

    pub(super) fn decided(&self) -> Vec<Kind> {
        self.queue.decide().into_iter().map(|fact| fact.kind.unwrap()).collect()
    }

    /// Serves and decides until nothing is left to do; gives all facts.
    pub(super) fn settle(&mut self) -> Vec<Kind> {
        let mut all = Vec::new();
        for _ in 0..200 {
            let served = self.serve();
            let facts = self.decided();
            if facts.is_empty() && !served {
                return all;
            }
            if !facts.is_empty() {
                self.fold("queue", "0", facts.clone());
            }
            all.extend(facts);
        }
        panic!("the queue does not come to rest")
    }

    pub(super) fn pass(&mut self, span_us: i64) {
        self.queue.now = self.queue.now.plus_us(span_us);
    }

    pub(super) fn life(&self, id: WorkloadId) -> &Workload {
        self.queue.state.lifecycle().workload(&id).unwrap()
    }

    pub(super) fn row(&self, id: WorkloadId) -> &Job {
        self.queue.state.jobs.get(&id).unwrap()
    }

    pub(super) fn cursor(&self) -> (u64, u32) {
        let cursor = self.queue.state.lifecycle().cursor();
        (cursor.seq, cursor.index)
    }

    pub(super) fn reason(&self, id: WorkloadId) -> Option<&'static str> {
        let Given { config, state, inbox, now, .. } = &self.queue;
        Queue::explain(config, state, inbox, &id, *now).map(|why| why.reason)
    }

    pub(super) fn wake(&self) -> Option<Timestamp> {
        Queue::wake_at(&self.queue.config, &self.queue.state, &self.queue.inbox, self.queue.now)
    }

    /// Quota is reserved for the workload's present round.
    pub(super) fn reserve(&mut self, id: WorkloadId) {
        let round = self.life(id).round;
        let workload = Some(id.into());
        self.fold(
            "admission",
            "0",
            [Kind::QuotaReserved(QuotaReserved { workload, round, ..Default::default() })],
        );
        assert!(self.life(id).reservation.is_some());
    }

    /// The workload runs in cluster `c`.
    pub(super) fn run(&mut self, id: WorkloadId) {
        if self.life(id).reservation.is_none() {
            self.reserve(id);
        }
        let (workload, cluster) = (Some(id.into()), "c".to_owned());
        let reservation = self.life(id).reservation.unwrap();
        let attempt = self.life(id).attempts + 1;
        let legs = vec![Leg { cluster: cluster.clone(), pods: vec![] }];
        let offer = PlacementOffered { workload, reservation, attempt, legs, commit_on_grant: false };
        let granted = LegGranted { workload, attempt, cluster, uid: "u".into() };
        self.fold("federation", "0", [Kind::PlacementOffered(offer)]);
        self.fold("desk", "c", [Kind::LegGranted(granted)]);
        self.fold("federation", "0", [Kind::PlacementCommitted(PlacementCommitted { workload, attempt })]);
        assert!(self.life(id).live().is_some_and(|live| live.committed));
    }

    /// Its leg in cluster `c` ends.
    pub(super) fn end(&mut self, id: WorkloadId, outcome: Outcome, exit_code: Option<i32>, reason: &str) {
        let ended = LegEnded {
            workload: Some(id.into()),
            attempt: self.life(id).attempts,
            cluster: "c".into(),
            outcome: outcome.into(),
            reason: reason.into(),
            exit_code,
        };
        self.fold("desk", "c", [Kind::LegEnded(ended)]);
        assert!(self.life(id).live().is_none());
    }

    pub(super) fn preempt(&mut self, id: WorkloadId) {
        let reservation = self.life(id).reservation.unwrap();
        let workload = Some(id.into());
        let fact = WorkloadPreempted { workload, reservation, ..Default::default() };
        self.fold("admission", "0", [Kind::WorkloadPreempted(fact)]);
        assert!(self.life(id).preempted);
    }
}

/// The kinds of facts, by name, in order.
pub(super) fn names(facts: &[Kind]) -> Vec<String> {
    facts.iter().map(|fact| format!("{fact:?}").split('(').next().unwrap().to_owned()).collect()
}
