//! A cluster in memory that obeys the backend's contract, for driving the agent.
#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeMap;

use muster_plan::{Action, Agent, Config, Done, Effect, Input, Key, Lease, Node, Object, Observed};
use muster_proto::{Desired, DesiredLeg, LegSpec, Phase, PodRange, PodSet, Report, Verb};

pub fn key(request: u64) -> Key {
    Key { generation: 7, request, index: 0, attempt: 1 }
}

pub fn spec(pods: u32, cpu: i64) -> LegSpec {
    LegSpec {
        pods: vec![PodRange { pod_set: "main".into(), first: 0, count: pods, ..PodRange::default() }],
        pod_sets: vec![PodSet {
            name: "main".into(),
            count: pods,
            requests: BTreeMap::from([("cpu".to_owned(), cpu)]),
            ..PodSet::default()
        }],
        ..LegSpec::default()
    }
}

pub fn leg(request: u64, verb: Verb, uid: &str) -> DesiredLeg {
    DesiredLeg {
        workload: Some(key(request).workload()),
        attempt: 1,
        verb: verb.into(),
        uid: uid.into(),
        spec: (verb == Verb::Create).then(|| spec(1, 1000)),
    }
}

pub fn desired(seq: u64, epoch: u64, legs: Vec<DesiredLeg>) -> Desired {
    Desired { generation: 7, cluster: "c".into(), seq, epoch, legs }
}

#[derive(Clone, Default)]
pub struct World {
    pub seen: Observed,
    uids: u64,
    pub started: Vec<(Key, String)>,
    pub removed: Vec<Key>,
}

impl World {
    pub fn with_cpu(cpu: i64) -> Self {
        let free = BTreeMap::from([("cpu".to_owned(), cpu)]);
        let node = Node { name: "n".into(), allocatable: free.clone(), free, ..Node::default() };
        Self { seen: Observed { nodes: vec![node], ..Observed::default() }, ..Self::default() }
    }

    pub fn put(&mut self, key: Key, phase: Phase) -> String {
        self.uids += 1;
        let uid = format!("u{}", self.uids);
        let object = Object {
            uid: uid.clone(),
            phase,
            reason: String::new(),
            exit_code: None,
            address: String::new(),
        };
        self.seen.objects.insert(key, object);
        uid
    }

    pub fn act(&mut self, action: &Action) -> Done {
        let key = action.key();
        match action {
            Action::Create { .. } if self.seen.objects.contains_key(&key) => {}
            Action::Create { .. } => drop(self.put(key, Phase::Stopped)),
            Action::Start { uid, .. } => match self.seen.objects.get_mut(&key) {
                Some(object) if object.uid == *uid => {
                    object.phase = Phase::Running;
                    self.started.push((key, uid.clone()));
                }
                _ => return Done::Failed("no such object".into()),
            },
            Action::Remove { uid, .. } => {
                if self.seen.objects.get(&key).is_some_and(|o| uid.as_ref().is_none_or(|uid| *uid == o.uid)) {
                    self.seen.objects.remove(&key);
                    self.removed.push(key);
                }
            }
        }
        Done::Ok
    }

    pub fn take_lease(&mut self, agent: &str, at_least: u64, held: Option<u64>) -> Lease {
        let lease = &mut self.seen.lease;
        if held.is_none_or(|epoch| lease.agent == agent && lease.epoch == epoch) {
            *lease = Lease { epoch: at_least.max(lease.epoch + 1), agent: agent.into() };
        }
        lease.clone()
    }

    /// Performs effects until none is left; gives the reports.
    pub fn run(&mut self, name: &str, agent: &mut Agent, input: Input) -> Vec<Report> {
        let (mut inputs, mut reports) = (vec![input], Vec::new());
        while !inputs.is_empty() {
            for effect in agent.step(inputs.remove(0)) {
                match effect {
                    Effect::Act { id, action } => inputs.push(Input::Acted { id, done: self.act(&action) }),
                    Effect::Observe { ticket } => {
                        inputs.push(Input::Observed { ticket, seen: Ok(self.seen.clone()) });
                    }
                    Effect::TakeLease { at_least, held } => {
                        inputs.push(Input::Lease(Ok(self.take_lease(name, at_least, held))));
                    }
                    Effect::Report(report) => reports.push(report),
                }
            }
        }
        reports
    }
}

/// An agent that holds the lease.
pub fn agent(world: &mut World, name: &str) -> Agent {
    let mut agent = Agent::new(Config::new("c", name, "test"));
    world.run(name, &mut agent, Input::Tick(1));
    agent
}
