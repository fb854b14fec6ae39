//! A log written by hand: what other services would have said.

use std::collections::BTreeMap;

use muster_core::{Timestamp, Why, WorkloadId, harness::Given};
use muster_model::lifecycle::Workload;
use muster_proto::{self as proto, Kind, policy::Object};

use crate::{Admission, Config};

pub const GENERATION: u32 = 7;
pub const SECOND: i64 = 1_000_000;

pub struct World {
    pub given: Given<Admission>,
    requests: u64,
}

/// A job of one pod set; the tests change what matters to them.
pub struct Submit {
    pub local_queue: &'static str,
    pub priority: i32,
    pub count: u32,
    pub requests: Vec<(&'static str, i64)>,
    pub selector: Vec<(&'static str, &'static str)>,
}

/// Asks for this many GPUs, in one pod.
pub fn gpus(amount: i64) -> Submit {
    Submit {
        local_queue: "lq",
        priority: 0,
        count: 1,
        requests: vec![("nvidia.com/gpu", amount)],
        selector: vec![],
    }
}

pub fn labels(list: &[(&str, &str)]) -> BTreeMap<String, String> {
    list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub fn flavor(name: &str) -> proto::ResourceFlavor {
    proto::ResourceFlavor {
        name: name.to_owned(),
        node_labels: labels(&[("gpu", name)]),
        ..Default::default()
    }
}

pub fn local_queue(name: &str, cluster_queue: &str) -> proto::LocalQueue {
    proto::LocalQueue {
        namespace: "ns".to_owned(),
        name: name.to_owned(),
        cluster_queue: cluster_queue.to_owned(),
        stop_policy: String::new(),
    }
}

/// A group that covers these resources, with one amount per flavor and resource.
pub fn group(resources: &[&str], flavors: &[(&str, &[i64])]) -> proto::ResourceGroup {
    let quotas = |amounts: &[i64]| {
        let quota = |(name, nominal): (&&str, &i64)| proto::ResourceQuota {
            name: (*name).to_owned(),
            nominal: *nominal,
            borrowing_limit: None,
            lending_limit: None,
        };
        resources.iter().zip(amounts).map(quota).collect()
    };
    proto::ResourceGroup {
        covered_resources: resources.iter().map(|name| (*name).to_owned()).collect(),
        flavors: flavors
            .iter()
            .map(|(name, amounts)| proto::FlavorQuotas {
                name: (*name).to_owned(),
                resources: quotas(amounts),
            })
            .collect(),
    }
}

pub fn cluster_queue(name: &str, groups: Vec<proto::ResourceGroup>) -> proto::ClusterQueue {
    proto::ClusterQueue { name: name.to_owned(), resource_groups: groups, ..Default::default() }
}

impl World {
    pub fn empty() -> Self {
        let started = proto::GenerationStarted { generation: GENERATION, ..Default::default() };
        let given = Given::new(Config::default()).at(Timestamp(1_000 * SECOND));
        Self { given: given.message("cell", "0", [Kind::GenerationStarted(started)]), requests: 0 }
    }

    /// One ClusterQueue `cq` with so many GPUs of flavor a100, reached by LocalQueue `lq`, and an
    /// open cluster `c1`.
    pub fn with_gpus(nominal: i64) -> Self {
        let mut world = Self::empty();
        world.policy(Object::ResourceFlavor(flavor("a100")));
        let group = group(&["nvidia.com/gpu"], &[("a100", &[nominal])]);
        world.policy(Object::ClusterQueue(cluster_queue("cq", vec![group])));
        world.policy(Object::LocalQueue(local_queue("lq", "cq")));
        world.desk(Kind::ClusterJoined(proto::ClusterJoined {
            cluster: "c1".to_owned(),
            backend: String::new(),
        }));
        world.agent_joins(1);
        world
    }

    fn request(&mut self) -> proto::RequestRef {
        self.requests += 1;
        proto::RequestRef { seq: self.requests, index: 0, of: 1 }
    }

    pub fn queue(&mut self, fact: Kind) {
        self.given.fold("queue", "0", [fact]);
    }

    pub fn federation(&mut self, fact: Kind) {
        self.given.fold("federation", "0", [fact]);
    }

    pub fn desk(&mut self, fact: Kind) {
        self.given.fold("desk", "c1", [fact]);
    }

    pub fn agent_joins(&mut self, epoch: u64) {
        let fact = proto::AgentJoined { cluster: "c1".to_owned(), epoch, agent: String::new() };
        self.desk(Kind::AgentJoined(fact));
    }

    pub fn policy(&mut self, object: Object) {
        self.policy_or_not(object, false);
    }

    pub fn delete(&mut self, object: Object) {
        self.policy_or_not(object, true);
    }

    fn policy_or_not(&mut self, object: Object, deleted: bool) {
        let fact = proto::PolicyApplied {
            request: Some(self.request()),
            policy: Some(proto::Policy { object: Some(object) }),
            deleted,
            ..Default::default()
        };
        self.queue(Kind::PolicyApplied(fact));
    }

    pub fn submit(&mut self, submit: Submit) -> WorkloadId {
        let set = proto::PodSet {
            name: "main".to_owned(),
            count: submit.count,
            requests: submit.requests.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect(),
            node_selector: labels(&submit.selector),
            ..Default::default()
        };
        self.submit_sets(submit.local_queue, submit.priority, vec![set])
    }

    pub fn submit_sets(
        &mut self,
        local_queue: &str,
        priority: i32,
        pod_sets: Vec<proto::PodSet>,
    ) -> WorkloadId {
        let request = self.request();
        let id = WorkloadId { generation: GENERATION, request: request.seq, index: 0 };
        self.queue(Kind::WorkloadQueued(proto::WorkloadQueued {
            request: Some(request),
            workload: Some(id.into()),
            namespace: "ns".to_owned(),
            local_queue: local_queue.to_owned(),
            priority,
            pod_sets,
            submitted_us: self.given.now.0,
            ..Default::default()
        }));
        id
    }

    pub fn command(&mut self, command: proto::command_accepted::Command) {
        let fact = proto::CommandAccepted {
            request: Some(self.request()),
            command: Some(command),
            ..Default::default()
        };
        self.queue(Kind::CommandAccepted(fact));
    }

    pub fn cancel(&mut self, id: WorkloadId) {
        let fact = proto::WorkloadCancelled {
            request: Some(self.request()),
            workload: Some(id.into()),
            ..Default::default()
        };
        self.queue(Kind::WorkloadCancelled(fact));
    }

    pub fn requeue(&mut self, id: WorkloadId, not_before_us: i64) {
        let round = self.row(id).round + 1;
        let fact =
            proto::WorkloadRequeued { workload: Some(id.into()), round, not_before_us, ..Default::default() };
        self.queue(Kind::WorkloadRequeued(fact));
    }

    pub fn finish(&mut self, id: WorkloadId, result: proto::Result) {
        let fact = proto::WorkloadFinished {
            workload: Some(id.into()),
            result: result as i32,
            ..Default::default()
        };
        self.queue(Kind::WorkloadFinished(fact));
    }

    pub fn preempt(&mut self, id: WorkloadId) {
        let fact = proto::WorkloadPreempted {
            workload: Some(id.into()),
            reservation: self.row(id).reservation.unwrap_or(0),
            ..Default::default()
        };
        self.given.fold("admission", "0", [Kind::WorkloadPreempted(fact)]);
    }

    pub fn exhaust(&mut self, id: WorkloadId) {
        let fact = proto::PlacementExhausted {
            workload: Some(id.into()),
            reservation: self.row(id).reservation.unwrap_or(0),
            capacity_version: self.given.state.lifecycle.capacity_version(),
            reasons: vec![],
        };
        self.federation(Kind::PlacementExhausted(fact));
    }

    /// Offered to `c1`, granted and committed.
    pub fn run(&mut self, id: WorkloadId) {
        let (reservation, attempt) = (self.row(id).reservation.unwrap_or(0), self.row(id).attempts + 1);
        let (workload, cluster) = (Some(id.into()), "c1".to_owned());
        let legs = vec![proto::Leg { cluster: cluster.clone(), pods: vec![] }];
        let offer = proto::PlacementOffered { workload, reservation, attempt, legs, commit_on_grant: false };
        self.federation(Kind::PlacementOffered(offer));
        self.desk(Kind::LegGranted(proto::LegGranted { workload, attempt, cluster, uid: "uid".to_owned() }));
        self.federation(Kind::PlacementCommitted(proto::PlacementCommitted { workload, attempt }));
    }

    pub fn end(&mut self, id: WorkloadId, outcome: proto::Outcome) {
        let fact = proto::LegEnded {
            workload: Some(id.into()),
            attempt: self.row(id).attempts,
            cluster: "c1".to_owned(),
            outcome: outcome as i32,
            ..Default::default()
        };
        self.desk(Kind::LegEnded(fact));
    }

    pub fn row(&self, id: WorkloadId) -> &Workload {
        self.given.state.lifecycle.workload(&id).unwrap()
    }

    /// Lets admission decide until it is content; the workloads that got quota, in order.
    pub fn admit(&mut self) -> Vec<WorkloadId> {
        let facts = self.given.decide_until_content("0", 20);
        facts
            .into_iter()
            .filter_map(|fact| match fact {
                Kind::QuotaReserved(fact) => Some(WorkloadId::of(fact.workload.as_ref())),
                _ => None,
            })
            .collect()
    }

    pub fn pass(&mut self, seconds: i64) {
        self.given.now = self.given.now.plus_us(seconds * SECOND);
    }

    pub fn why(&self, id: WorkloadId) -> Why {
        use muster_core::Service;
        let given = &self.given;
        Admission::explain(&given.config, &given.state, &given.inbox, &id, given.now).unwrap()
    }
}
