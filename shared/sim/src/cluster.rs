//! A member cluster: nodes, objects with uids, processes, and the API calls that change them.

use std::collections::BTreeMap;

use muster_core::{defect, defect::Defect};
use muster_plan::{Action, Binding, Done, Key, Lease, Node, Object, Observed};
use muster_proto::{LegSpec, Phase};

/// What a call to the API server asks for.
#[derive(Clone, Debug)]
pub enum Call {
    Act { id: u64, action: Box<Action> },
    Observe { ticket: u64 },
    Lease { agent: String, at_least: u64, held: Option<u64> },
}

/// What happened in the cluster because of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Happened {
    Nothing,
    /// The process of this object began.
    Started(String),
    /// A start named another uid.
    StartRefused,
    /// The process of this object is being killed.
    Killing(String),
    Removed(String),
}

#[derive(Clone, Debug)]
pub struct Thing {
    pub key: Key,
    pub object: Object,
    pub spec: LegSpec,
    pub bindings: Vec<Binding>,
    pub killing: bool,
}

impl Thing {
    #[must_use]
    pub fn runs(&self) -> bool {
        matches!(self.object.phase, Phase::Running | Phase::Ready)
    }

    fn holds(&self) -> bool {
        self.runs() || self.object.phase == Phase::Stopped
    }
}

#[derive(Debug)]
pub struct Cluster {
    pub name: String,
    pub nodes: Vec<Node>,
    pub lost_nodes: Vec<Node>,
    pub things: BTreeMap<Key, Thing>,
    pub lease: Lease,
    /// Grows when the cluster is built anew: calls to the old one never land.
    pub incarnation: u32,
    /// Nothing gets in or out until then.
    pub dark_until: i64,
    pub destroyed: bool,
    uids: u64,
}

impl Cluster {
    #[must_use]
    pub fn new(name: String, nodes: Vec<Node>) -> Self {
        Self {
            name,
            nodes,
            lost_nodes: Vec::new(),
            things: BTreeMap::new(),
            lease: Lease::default(),
            incarnation: 0,
            dark_until: 0,
            destroyed: false,
            uids: 0,
        }
    }

    fn free(&self) -> Vec<Node> {
        let mut nodes = self.nodes.clone();
        for thing in self.things.values().filter(|thing| thing.holds()) {
            for binding in &thing.bindings {
                let set = thing.spec.pod_sets.iter().find(|set| set.name == binding.pod_set);
                let node = nodes.iter_mut().find(|node| node.name == binding.node);
                if let (Some(set), Some(node)) = (set, node) {
                    for (resource, amount) in &set.requests {
                        *node.free.entry(resource.clone()).or_default() -= amount;
                    }
                }
            }
        }
        nodes
    }

    #[must_use]
    pub fn observe(&self) -> Observed {
        let objects = self.things.iter().map(|(key, thing)| (*key, thing.object.clone())).collect();
        Observed { objects, nodes: self.free(), lease: self.lease.clone() }
    }

    pub fn take_lease(&mut self, agent: &str, at_least: u64, held: Option<u64>) -> Lease {
        if held.is_none_or(|epoch| self.lease.agent == agent && self.lease.epoch == epoch) {
            self.lease = Lease { epoch: at_least.max(self.lease.epoch + 1), agent: agent.to_owned() };
        }
        self.lease.clone()
    }

    pub fn act(&mut self, action: &Action) -> (Done, Happened) {
        let key = action.key();
        let there = self.things.get_mut(&key);
        match (action, there) {
            (Action::Create { spec, bindings, .. }, None) => self.create(key, spec, bindings),
            (Action::Create { .. }, Some(_)) | (Action::Remove { .. }, None) => (Done::Ok, Happened::Nothing),
            (Action::Start { uid, .. }, Some(thing)) => {
                let named = thing.object.uid == *uid || defect::on(Defect::StartWithoutUid);
                if !named {
                    return (Done::Failed("no such object".into()), Happened::StartRefused);
                }
                if thing.object.phase != Phase::Stopped {
                    return (Done::Ok, Happened::Nothing);
                }
                thing.object.phase = Phase::Running;
                (Done::Ok, Happened::Started(thing.object.uid.clone()))
            }
            (Action::Start { .. }, None) => (Done::Failed("no such object".into()), Happened::StartRefused),
            (Action::Remove { uid, .. }, Some(thing)) => {
                if uid.as_ref().is_some_and(|uid| *uid != thing.object.uid) || thing.killing {
                    return (Done::Ok, Happened::Nothing);
                }
                let uid = thing.object.uid.clone();
                if thing.runs() {
                    thing.killing = true;
                    return (Done::Ok, Happened::Killing(uid));
                }
                self.things.remove(&key);
                (Done::Ok, Happened::Removed(uid))
            }
        }
    }

    fn create(&mut self, key: Key, spec: &LegSpec, bindings: &[Binding]) -> (Done, Happened) {
        let mut nodes = self.free();
        if muster_plan::fit::place(spec, &mut nodes).is_err() {
            return (Done::Failed("no room any more".into()), Happened::Nothing);
        }
        self.uids += 1;
        let uid = format!("{}-{}-{}", self.name, self.incarnation, self.uids);
        let object = Object {
            uid,
            phase: Phase::Stopped,
            reason: String::new(),
            exit_code: None,
            address: String::new(),
        };
        let thing = Thing { key, object, spec: spec.clone(), bindings: bindings.to_vec(), killing: false };
        self.things.insert(key, thing);
        (Done::Ok, Happened::Nothing)
    }

    pub fn by_uid(&mut self, uid: &str) -> Option<&mut Thing> {
        self.things.values_mut().find(|thing| thing.object.uid == uid)
    }

    /// The kill is done: the object is gone, whatever its process came to.
    pub fn remove(&mut self, uid: &str) -> Option<Thing> {
        let key = self.things.values().find(|thing| thing.object.uid == uid)?.key;
        self.things.remove(&key)
    }

    /// A node vanishes, and with it what runs there; gives the uids of the processes.
    pub fn lose_node(&mut self, index: usize) -> Vec<String> {
        if index >= self.nodes.len() {
            return Vec::new();
        }
        let node = self.nodes.remove(index);
        let mut lost = Vec::new();
        self.things.retain(|_, thing| {
            let here = thing.bindings.iter().any(|binding| binding.node == node.name);
            if here && thing.runs() {
                thing.object.phase = Phase::Lost;
                lost.push(thing.object.uid.clone());
            }
            // What was not started has no trace elsewhere.
            !(here && thing.object.phase == Phase::Stopped)
        });
        self.lost_nodes.push(node);
        lost
    }

    /// Built anew, empty, under the same name; gives what was there.
    pub fn rebuild(&mut self) -> Vec<Thing> {
        self.incarnation += 1;
        self.lease = Lease::default();
        let lost = std::mem::take(&mut self.lost_nodes);
        self.nodes.extend(lost);
        std::mem::take(&mut self.things).into_values().collect()
    }
}
