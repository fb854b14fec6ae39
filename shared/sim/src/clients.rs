//! Those who ask: an operator who sets policies, tenants who submit and cancel, and who also ask for nonsense.

use std::collections::BTreeMap;

use bytes::Bytes;
use muster_core::{RequestMessage, Timestamp, WorkloadId};
use muster_plan::Node;
use muster_proto::{self as proto, Request, command};
use prost::Message;

use crate::{
    agent::AgentSlot,
    cluster::Cluster,
    options::{FAULTS_US, MS, SECOND},
    oracle::Violation,
    world::{Event, START, World},
};

const QUEUES: [&str; 2] = ["a", "b"];
const FLAVORS: [&str; 2] = ["small", "large"];

impl World {
    /// Builds the clusters, and schedules what is to come.
    pub fn populate(&mut self) {
        for c in 0..self.options.clusters as usize {
            let nodes = self.nodes(c);
            self.clusters.push(Cluster::new(format!("c{c}"), nodes));
            for _ in 0..2 {
                self.agents.push(AgentSlot::new(c));
            }
        }
        let start = proto::GenerationStarted { generation: 0x51b0_0001, ..Default::default() };
        // The first message of a log can't break anything.
        _ = self.append("muster.evt.cell.0", 0, cell_message(0, Bytes::new(), start));
        for r in 0..self.replicas.len() {
            let delay = self.dice.between(MS, 500 * MS);
            self.after(delay, Event::Restart { r, life: 0 });
        }
        for a in (0..self.agents.len()).step_by(2) {
            let delay = self.dice.between(MS, SECOND);
            self.after(delay, Event::AgentStart { a, life: 0 });
        }
        self.policies();
        for n in 0..self.options.workloads {
            let at = START + self.dice.between(500 * MS, FAULTS_US * 2 / 3);
            self.at(at, Event::Client { n });
        }
        self.after(2 * SECOND, Event::Operator);
        self.after(2 * SECOND, Event::Chaos);
        self.at(START + FAULTS_US, Event::Heal);
        if let Some(at) = self.options.restore_at {
            self.at(START + at, Event::Restore);
        }
        let c = self.dice.below(self.options.clusters) as usize;
        if let Some(at) = self.options.rebuild_at {
            self.at(START + at, Event::Rebuild { c });
        }
        if let Some(at) = self.options.destroy_at {
            self.at(START + at, Event::Destroy { c: 0 });
        }
    }

    fn nodes(&mut self, c: usize) -> Vec<Node> {
        let node = |n: usize, flavor: &str, cpu: i64, gpu: i64| {
            let allocatable = BTreeMap::from([("cpu".to_owned(), cpu), ("nvidia.com/gpu".to_owned(), gpu)]);
            let labels = BTreeMap::from([("pool".to_owned(), flavor.to_owned())]);
            Node {
                name: format!("c{c}n{n}"),
                labels,
                free: allocatable.clone(),
                allocatable,
                taints: Vec::new(),
            }
        };
        let small = self.dice.between(1, 2) as usize;
        let large = self.dice.between(1, 2) as usize;
        let smalls = (0..small).map(|n| node(n, "small", 4000, 0));
        let larges = (small..small + large).map(|n| node(n, "large", 8000, 4));
        smalls.chain(larges).collect()
    }

    /// Policies come as requests, like everything else.
    fn policies(&mut self) {
        let mut manifests: Vec<String> = FLAVORS
            .iter()
            .map(|flavor| {
                format!(
                    r#"{{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ResourceFlavor","metadata":{{"name":"{flavor}"}},"spec":{{"nodeLabels":{{"pool":"{flavor}"}}}}}}"#
                )
            })
            .collect();
        for queue in QUEUES {
            let mut flavors = Vec::new();
            for flavor in FLAVORS {
                let (cpu, gpu) = if flavor == "small" {
                    (self.dice.between(2, 4), 0)
                } else {
                    (self.dice.between(4, 8), self.dice.between(2, 4))
                };
                for (resource, amount) in [("cpu", cpu * 1000), ("nvidia.com/gpu", gpu)] {
                    let key = (format!("cq-{queue}"), flavor.to_owned(), resource.to_owned());
                    self.processes.quota.insert(key, amount);
                }
                flavors.push(format!(
                    r#"{{"name":"{flavor}","resources":[{{"name":"cpu","nominalQuota":"{cpu}"}},{{"name":"nvidia.com/gpu","nominalQuota":"{gpu}"}}]}}"#
                ));
            }
            let flavors = flavors.join(",");
            manifests.push(format!(
                r#"{{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"ClusterQueue","metadata":{{"name":"cq-{queue}"}},"spec":{{"namespaceSelector":{{}},"resourceGroups":[{{"coveredResources":["cpu","nvidia.com/gpu"],"flavors":[{flavors}]}}]}}}}"#
            ));
            manifests.push(format!(
                r#"{{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"LocalQueue","metadata":{{"name":"lq-{queue}","namespace":"default"}},"spec":{{"clusterQueue":"cq-{queue}"}}}}"#
            ));
        }
        let commands = manifests
            .into_iter()
            .map(|manifest| {
                command::Kind::ApplyPolicy(proto::ApplyPolicy {
                    manifest: manifest.into(),
                    source: "sim".to_owned(),
                    delete: false,
                })
            })
            .collect();
        self.ask("_ops", commands, "");
    }

    fn ask(&mut self, tenant: &str, commands: Vec<command::Kind>, key: &str) -> u64 {
        let of = u32::try_from(commands.len()).unwrap_or(1).max(1);
        let commands = commands.into_iter().map(|kind| proto::Command { kind: Some(kind) }).collect();
        let payload = Request { commands, key: key.to_owned() }.encode_to_vec().into();
        self.publish_request(tenant, payload, of)
    }

    fn publish_request(&mut self, tenant: &str, payload: Bytes, of: u32) -> u64 {
        let seq = self.requests.len() as u64 + 1;
        self.requests.push(RequestMessage {
            seq,
            tenant: tenant.to_owned(),
            principal: "sim".to_owned(),
            time: Timestamp(self.now),
            key: None,
            payload,
        });
        self.commands.push(of);
        for r in 0..self.replicas.len() {
            self.wake_requests(r);
        }
        seq
    }

    pub fn client(&mut self, n: u64) -> Result<(), Violation> {
        if self.dice.chance(self.options.bad_requests) {
            self.nonsense(n);
        }
        let jobs = if self.dice.below(5) == 0 { 3 } else { 1 };
        let commands: Vec<_> = (0..jobs).map(|index| self.job(&format!("job-{n}-{index}"))).collect();
        let key = format!("key-{n}");
        let seq = self.ask("default", commands.clone(), &key);
        if self.dice.chance(self.options.bad_requests) {
            // A client that did not hear the answer asks again, with the same key.
            self.ask("default", commands, &key);
        }
        for index in 0..jobs as u32 {
            if self.dice.chance(self.options.cancels) {
                let delay = self.dice.between(MS, 20 * SECOND);
                self.after(delay, Event::Cancel { request: seq, index });
            }
        }
        Ok(())
    }

    /// Cancels what a command made, wherever that stands.
    pub fn cancel(&mut self, request: u64, index: u32) -> Result<(), Violation> {
        let generation = self.ledger.generation;
        let workload = Some(WorkloadId { generation, request, index }.into());
        self.stats.count("request: cancel");
        let cancel = proto::Cancel { workload, reason: "the simulation wants it".to_owned() };
        self.ask("default", vec![command::Kind::Cancel(cancel)], "");
        Ok(())
    }

    fn job(&mut self, name: &str) -> command::Kind {
        let queue = if self.dice.below(2) == 0 { "a" } else { "b" };
        let pods = self.dice.between(1, 2);
        let cpu = self.dice.between(1, 4) * 500;
        let gpu = if self.dice.below(3) == 0 { 1 } else { 0 };
        let manifest = format!(
            r#"{{"apiVersion":"batch/v1","kind":"Job","metadata":{{"name":"{name}","labels":{{"kueue.x-k8s.io/queue-name":"lq-{queue}"}}}},"spec":{{"parallelism":{pods},"completions":{pods},"template":{{"spec":{{"restartPolicy":"Never","containers":[{{"name":"c","image":"i","resources":{{"requests":{{"cpu":"{cpu}m","nvidia.com/gpu":{gpu}}}}}}}]}}}}}}}}"#
        );
        let max_retries = Some(self.dice.below(3) as u32);
        command::Kind::Submit(proto::Submit { manifest: manifest.into(), max_retries, ..Default::default() })
    }

    fn nonsense(&mut self, n: u64) {
        match self.dice.below(4) {
            0 => _ = self.publish_request("default", Bytes::from_static(&[0xff, 0xff, 0xff]), 1),
            1 => {
                let manifest = Bytes::from_static(b"{\"kind\":\"Job\",\"spec\":{}}");
                let submit = proto::Submit { manifest, ..Default::default() };
                self.ask(
                    "default",
                    vec![command::Kind::Submit(submit.clone()), command::Kind::Submit(submit)],
                    "",
                );
            }
            2 => {
                let job = self.job(&format!("foreign-{n}"));
                self.ask("other", vec![job], "");
            }
            _ => {
                let dead = proto::DeclareDeadRequest { cluster: "c0".to_owned() };
                self.ask("default", vec![command::Kind::DeclareDead(dead)], "");
            }
        }
    }

    /// The operator declares dead what is destroyed, once it is suspected, and sees to it that
    /// there is an agent and that nobody stays away because of an image of a lost history.
    pub fn operator(&mut self) -> Result<(), Violation> {
        self.after(2 * SECOND, Event::Operator);
        if self.stats.of("accept-loss") > 0 {
            // An old image may come to light long after.
            self.rebuild_refused();
        }
        for c in 0..self.clusters.len() {
            let alive = self.agents.iter().any(|slot| slot.cluster == c && slot.agent.is_some());
            if !alive && self.dice.below(4) == 0 {
                self.restart_agents(c);
            }
        }
        let destroyed: Vec<String> = self
            .clusters
            .iter()
            .filter(|cluster| cluster.destroyed && self.ledger.suspected.contains(&cluster.name))
            .filter(|cluster| !self.ledger.dead.contains(&cluster.name))
            .map(|cluster| cluster.name.clone())
            .collect();
        for cluster in destroyed {
            self.ask("_ops", vec![command::Kind::DeclareDead(proto::DeclareDeadRequest { cluster })], "");
        }
        Ok(())
    }
}

/// A message of provisioning.
pub fn cell_message(prev: u64, prev_hash: Bytes, fact: proto::GenerationStarted) -> Bytes {
    proto::Envelope {
        generation: fact.generation,
        service: "cell".to_owned(),
        partition: "0".to_owned(),
        prev,
        prev_hash,
        rules: 1,
        facts: vec![proto::Fact { kind: Some(proto::Kind::GenerationStarted(fact)) }],
        ..Default::default()
    }
    .encode_to_vec()
    .into()
}
