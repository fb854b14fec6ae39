//! A log written by hand: what other services would have said.

use std::collections::BTreeMap;

use muster_core::{Incoming, Service, Timestamp, Why, WorkloadId, harness::Given};
use muster_model::lifecycle::Workload;
use muster_proto::{self as proto, Kind, policy::Object};

use crate::{Config, Federation};

pub const GENERATION: u32 = 7;
pub const SECOND: i64 = 1_000_000;
pub const GPU: &str = "nvidia.com/gpu";

pub struct World {
    pub given: Given<Federation>,
    requests: u64,
    epoch: u64,
}

pub fn labels(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// So many nodes labelled gpu=`kind`, with so many GPUs each.
pub fn nodes(kind: &str, nodes: u32, gpus: i64) -> proto::NodeGroup {
    proto::NodeGroup {
        labels: labels(&[("gpu", kind)]),
        nodes,
        allocatable: [(GPU.to_owned(), gpus), ("cpu".to_owned(), 64_000)].into(),
        ..Default::default()
    }
}

/// Pods of one set, with so many GPUs each.
pub fn pods(count: u32, gpus: i64) -> proto::PodSet {
    proto::PodSet {
        name: "main".to_owned(),
        count,
        requests: [(GPU.to_owned(), gpus)].into(),
        ..Default::default()
    }
}

impl World {
    /// Flavors a100 and h100, which mean nodes with that label, and `any`, which means all nodes.
    pub fn new() -> Self {
        let started = proto::GenerationStarted { generation: GENERATION, ..Default::default() };
        let given = Given::new(Config::default()).at(Timestamp(1_000 * SECOND));
        let given = given.message("cell", "0", [Kind::GenerationStarted(started)]);
        let mut world = Self { given, requests: 0, epoch: 0 };
        for name in ["a100", "h100"] {
            world.flavor(name, labels(&[("gpu", name)]));
        }
        world.flavor("any", BTreeMap::new());
        world
    }

    pub fn flavor(&mut self, name: &str, node_labels: BTreeMap<String, String>) {
        let flavor = proto::ResourceFlavor { name: name.to_owned(), node_labels, ..Default::default() };
        let fact = proto::PolicyApplied {
            request: Some(self.request()),
            policy: Some(proto::Policy { object: Some(Object::ResourceFlavor(flavor)) }),
            ..Default::default()
        };
        self.given.fold("queue", "0", [Kind::PolicyApplied(fact)]);
    }

    fn request(&mut self) -> proto::RequestRef {
        self.requests += 1;
        proto::RequestRef { seq: self.requests, index: 0, of: 1 }
    }

    pub fn desk(&mut self, cluster: &str, fact: Kind) {
        self.given.fold("desk", cluster, [fact]);
    }

    /// A cluster joins, reports its nodes, and an agent follows.
    pub fn join(&mut self, cluster: &str, groups: Vec<proto::NodeGroup>) {
        let name = cluster.to_owned();
        self.desk(
            cluster,
            Kind::ClusterJoined(proto::ClusterJoined { cluster: name, backend: String::new() }),
        );
        self.capacity(cluster, groups);
        self.agent(cluster);
    }

    pub fn capacity(&mut self, cluster: &str, groups: Vec<proto::NodeGroup>) {
        let fact = proto::CapacityReported { cluster: cluster.to_owned(), groups };
        self.desk(cluster, Kind::CapacityReported(fact));
    }

    pub fn agent(&mut self, cluster: &str) {
        self.epoch += 1;
        let fact =
            proto::AgentJoined { cluster: cluster.to_owned(), epoch: self.epoch, agent: String::new() };
        self.desk(cluster, Kind::AgentJoined(fact));
    }

    pub fn reconcile(&mut self, cluster: &str) {
        let fact = proto::ClusterReconciled { cluster: cluster.to_owned() };
        self.desk(cluster, Kind::ClusterReconciled(fact));
    }

    pub fn submit(&mut self, priority: i32, sets: Vec<proto::PodSet>) -> WorkloadId {
        let request = self.request();
        let id = WorkloadId { generation: GENERATION, request: request.seq, index: 0 };
        let fact = proto::WorkloadQueued {
            request: Some(request),
            workload: Some(id.into()),
            priority,
            pod_sets: sets,
            ..Default::default()
        };
        self.given.fold("queue", "0", [Kind::WorkloadQueued(fact)]);
        id
    }

    /// Quota of these flavors for every pod set.
    pub fn reserve(&mut self, id: WorkloadId, flavors: &[(&str, &str)]) {
        let Some(gang) = self.given.state.gangs.get(&id).cloned() else { return };
        let assignment = |set: &muster_model::PodSet| proto::PodSetAssignment {
            pod_set: set.name.clone(),
            count: set.count,
            flavors: flavors
                .iter()
                .filter(|(resource, _)| set.requests.of(resource) > 0)
                .map(|(resource, flavor)| ((*resource).to_owned(), (*flavor).to_owned()))
                .collect(),
        };
        let fact = proto::QuotaReserved {
            workload: Some(id.into()),
            round: self.row(id).round,
            cluster_queue: "cq".to_owned(),
            assignments: gang.pod_sets.iter().map(assignment).collect(),
        };
        self.given.fold("admission", "0", [Kind::QuotaReserved(fact)]);
    }

    /// A gang of pods with so many GPUs of a flavor each, with quota.
    pub fn gang(&mut self, count: u32, gpus: i64, flavor: &str) -> WorkloadId {
        let id = self.submit(0, vec![pods(count, gpus)]);
        self.reserve(id, &[(GPU, flavor)]);
        id
    }

    pub fn release(&mut self, id: WorkloadId) {
        let fact = proto::QuotaReleased {
            workload: Some(id.into()),
            reservation: self.row(id).reservation.unwrap_or(0),
            ..Default::default()
        };
        self.given.fold("admission", "0", [Kind::QuotaReleased(fact)]);
    }

    pub fn cancel(&mut self, id: WorkloadId) {
        let fact = proto::WorkloadCancelled {
            request: Some(self.request()),
            workload: Some(id.into()),
            ..Default::default()
        };
        self.given.fold("queue", "0", [Kind::WorkloadCancelled(fact)]);
    }

    pub fn requeue(&mut self, id: WorkloadId) {
        let round = self.row(id).round + 1;
        let fact = proto::WorkloadRequeued { workload: Some(id.into()), round, ..Default::default() };
        self.given.fold("queue", "0", [Kind::WorkloadRequeued(fact)]);
    }

    pub fn plan(&mut self, id: WorkloadId, avoid: &[&str]) {
        let fact = proto::RecoveryPlanned {
            workload: Some(id.into()),
            attempt: self.row(id).attempts,
            avoid: avoid.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        self.given.fold("failover", "0", [Kind::RecoveryPlanned(fact)]);
    }

    pub fn declare_dead(&mut self, cluster: &str) {
        let command = proto::DeclareDead { cluster: cluster.to_owned() };
        let fact = proto::CommandAccepted {
            request: Some(self.request()),
            command: Some(proto::command_accepted::Command::DeclareDead(command)),
            ..Default::default()
        };
        self.given.fold("queue", "0", [Kind::CommandAccepted(fact)]);
    }

    pub fn suspect(&mut self, cluster: &str) {
        let fact = proto::ClusterSuspected { cluster: cluster.to_owned(), last_heard_us: 0 };
        self.given.fold("federation", "0", [Kind::ClusterSuspected(fact)]);
    }

    pub fn grant(&mut self, id: WorkloadId) {
        let (attempt, cluster) = (self.row(id).attempts, self.cluster_of(id));
        let (workload, uid) = (Some(id.into()), "uid".to_owned());
        let fact = proto::LegGranted { workload, attempt, cluster: cluster.clone(), uid };
        self.desk(&cluster, Kind::LegGranted(fact));
    }

    pub fn refuse(&mut self, id: WorkloadId) {
        let (attempt, cluster) = (self.row(id).attempts, self.cluster_of(id));
        let (workload, reason) = (Some(id.into()), String::new());
        let fact = proto::LegRefused { workload, attempt, cluster: cluster.clone(), reason };
        self.desk(&cluster, Kind::LegRefused(fact));
    }

    pub fn end(&mut self, id: WorkloadId, outcome: proto::Outcome) {
        let (attempt, cluster) = (self.row(id).attempts, self.cluster_of(id));
        let fact = proto::LegEnded {
            workload: Some(id.into()),
            attempt,
            cluster: cluster.clone(),
            outcome: outcome as i32,
            ..Default::default()
        };
        self.desk(&cluster, Kind::LegEnded(fact));
    }

    /// The cluster of the last attempt's leg; empty without one.
    pub fn cluster_of(&self, id: WorkloadId) -> String {
        let last = self.given.state.lifecycle.workload(&id).and_then(|row| row.last.as_ref());
        last.map(|attempt| attempt.legs[0].cluster.clone()).unwrap_or_default()
    }

    pub fn row(&self, id: WorkloadId) -> &Workload {
        self.given.state.lifecycle.workload(&id).unwrap()
    }

    pub fn decide(&mut self) -> Vec<Kind> {
        self.given.decide_until_content("0", 20)
    }

    /// Decides, grants whatever is asked, and commits.
    pub fn run(&mut self, id: WorkloadId) -> String {
        self.decide();
        self.grant(id);
        self.decide();
        assert!(self.row(id).live().is_some_and(|attempt| attempt.committed), "{:?}", self.why(id));
        self.cluster_of(id)
    }

    pub fn pass(&mut self, seconds: i64) {
        self.given.now = self.given.now.plus_us(seconds * SECOND);
    }

    pub fn heard(&mut self, cluster: &str) {
        let report =
            proto::Report { generation: GENERATION, cluster: cluster.to_owned(), ..Default::default() };
        let (time, given) = (self.given.now, &mut self.given);
        Federation::absorb(&mut given.inbox, &given.state, time, Incoming::Report { report, time });
    }

    pub fn why(&self, id: WorkloadId) -> Why {
        let given = &self.given;
        Federation::explain(&given.config, &given.state, &given.inbox, &id, given.now).unwrap()
    }

    pub fn wake_at(&self) -> Option<Timestamp> {
        let given = &self.given;
        Federation::wake_at(&given.config, &given.state, &given.inbox, given.now)
    }
}
