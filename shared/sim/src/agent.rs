//! Agents and what they do in their clusters: the real plan over a simulated API server.

use muster_core::{Incoming, Input, Timestamp, WorkloadId};
use muster_plan::{Agent, Config, Effect, Key};
use muster_proto::{Desired, Phase, Report};

use crate::{
    cluster::{Call, Happened, Thing},
    host::Kind,
    options::{MS, SECOND},
    oracle::{Name, Violation},
    world::{Event, ToReplica, World},
};

const AGENT_TICK_US: i64 = SECOND;
/// An agent that hears only another generation for so long is of a log that is no more.
const FOREIGN_US: i64 = 30 * SECOND;

/// One process slot of an agent.
pub struct AgentSlot {
    pub cluster: usize,
    pub agent: Option<Agent>,
    pub name: String,
    pub life: u32,
    booted: i64,
    /// When it last heard a desired state of its own generation.
    own_heard: i64,
}

impl AgentSlot {
    #[must_use]
    pub const fn new(cluster: usize) -> Self {
        Self { cluster, agent: None, name: String::new(), life: 0, booted: 0, own_heard: 0 }
    }
}

/// Whose object bears this name.
#[must_use]
pub const fn name_of(key: &Key) -> Name {
    (WorkloadId { generation: key.generation, request: key.request, index: key.index }, key.attempt)
}

impl World {
    pub fn agent_start(&mut self, a: usize, life: u32) -> Result<(), Violation> {
        let now = self.now;
        let Some(slot) = self.agents.get_mut(a).filter(|slot| slot.life == life && slot.agent.is_none())
        else {
            return Ok(());
        };
        let Some(cluster) = self.clusters.get(slot.cluster).filter(|cluster| !cluster.destroyed) else {
            return Ok(());
        };
        slot.name = format!("a{a}.{life}");
        slot.booted = now - 1;
        slot.own_heard = now;
        let config = Config { heartbeat_us: 2_000_000, ..Config::new(&cluster.name, &slot.name, "local") };
        slot.agent = Some(Agent::new(config));
        self.say(|_| format!("agent {a} starts"));
        self.agent_tick(a, life)
    }

    pub fn agent_tick(&mut self, a: usize, life: u32) -> Result<(), Violation> {
        let Some(slot) = self.agents.get(a).filter(|slot| slot.life == life && slot.agent.is_some()) else {
            return Ok(());
        };
        let mono = (self.now - slot.booted).unsigned_abs();
        self.after(AGENT_TICK_US, Event::AgentTick { a, life });
        self.agent_input(a, life, muster_plan::Input::Tick(mono))
    }

    pub fn agent_input(&mut self, a: usize, life: u32, input: muster_plan::Input) -> Result<(), Violation> {
        let Some(slot) = self.agents.get_mut(a).filter(|slot| slot.life == life) else { return Ok(()) };
        let c = slot.cluster;
        let Some(agent) = &mut slot.agent else { return Ok(()) };
        if let muster_plan::Input::Desired(desired) = &input {
            if agent.generation().is_none_or(|known| known == desired.generation) {
                slot.own_heard = self.now;
            } else if self.now - slot.own_heard > FOREIGN_US {
                // As the agent's process does: it ends, and its supervisor starts it anew.
                self.stats.count("agent: another generation");
                self.end_agent(a);
                self.after(SECOND, Event::AgentStart { a, life: life + 1 });
                return Ok(());
            }
        }
        // The clock first: what an answer means depends on when it came.
        let mono = (self.now - slot.booted).unsigned_abs();
        let mut effects = agent.step(muster_plan::Input::Tick(mono));
        effects.extend(agent.step(input));
        let superseded = agent.superseded().is_some();
        for effect in effects {
            match effect {
                Effect::Act { id, action } => self.call(a, c, Call::Act { id, action: Box::new(action) }),
                Effect::Observe { ticket } => self.call(a, c, Call::Observe { ticket }),
                Effect::TakeLease { at_least, held } => {
                    let agent = self.agents.get(a).map(|slot| slot.name.clone()).unwrap_or_default();
                    self.call(a, c, Call::Lease { agent, at_least, held });
                }
                Effect::Report(report) => self.send_report(c, &report),
            }
        }
        if superseded {
            self.stats.count("agent: superseded");
            self.say(|_| format!("agent {a} is superseded"));
            self.end_agent(a);
        }
        Ok(())
    }

    /// The process ends, and nobody starts it again by itself.
    pub fn end_agent(&mut self, a: usize) {
        if let Some(slot) = self.agents.get_mut(a) {
            slot.agent = None;
            slot.life += 1;
        }
    }

    fn call(&mut self, a: usize, c: usize, call: Call) {
        let life = self.agents.get(a).map_or(0, |slot| slot.life);
        let incarnation = self.clusters.get(c).map_or(0, |cluster| cluster.incarnation);
        let history = self.history;
        let delay = if self.dice.chance(self.options.late_call) {
            self.stats.count("fault: call late");
            self.dice.between(SECOND, 30 * SECOND)
        } else {
            self.dice.between(MS, 20 * MS)
        };
        if matches!(call, Call::Act { .. }) && self.dice.chance(self.options.double_call) {
            self.stats.count("fault: call landed twice");
            let again = self.dice.between(20 * MS, 20 * SECOND);
            self.after(
                again,
                Event::Api { c, incarnation, history, a, life, call: call.clone(), answer: false },
            );
        }
        self.after(delay, Event::Api { c, incarnation, history, a, life, call, answer: true });
    }

    pub fn api(
        &mut self,
        (c, incarnation, history): (usize, u32, u32),
        (a, life): (usize, u32),
        call: Call,
        answer: bool,
    ) -> Result<(), Violation> {
        let Some(cluster) = self.clusters.get_mut(c) else { return Ok(()) };
        if cluster.incarnation != incarnation || cluster.destroyed {
            return Ok(());
        }
        let input = match call {
            Call::Observe { ticket } => muster_plan::Input::Observed { ticket, seen: Ok(cluster.observe()) },
            Call::Lease { agent, at_least, held } => {
                muster_plan::Input::Lease(Ok(cluster.take_lease(&agent, at_least, held)))
            }
            Call::Act { id, action } => {
                let (done, happened) = cluster.act(&action);
                self.say(|_| {
                    format!("c{c} {:?} {} → {done:?}, {happened:?}", action_name(&action), action.key())
                });
                if history < self.history {
                    // It was asked for by a history that is lost.
                    self.disown();
                }
                self.happened(c, &action.key(), happened)?;
                muster_plan::Input::Acted { id, done }
            }
        };
        if !answer {
            return Ok(());
        }
        if self.dice.chance(self.options.lost_reply) {
            self.stats.count("fault: call's answer lost");
            return Ok(());
        }
        let delay = self.dice.between(500, 5 * MS);
        self.after(delay, Event::Agent { a, life, input });
        Ok(())
    }

    fn happened(&mut self, c: usize, key: &Key, happened: Happened) -> Result<(), Violation> {
        match happened {
            Happened::Nothing => {}
            Happened::StartRefused => self.stats.count("object: start refused by its uid"),
            Happened::Started(uid) => {
                self.stats.count("object: started");
                let spec = self.clusters.get(c).and_then(|cluster| cluster.things.get(key));
                let spec = spec.map(|thing| thing.spec.clone()).unwrap_or_default();
                let runs = self.dice.between(200 * MS, 12 * SECOND);
                let good = !self.dice.chance(self.options.fails);
                self.after(runs, Event::ProcessEnd { c, uid: uid.clone(), good });
                let fake = self.dice.below(4) == 0;
                if let Some(thing) =
                    self.clusters.get_mut(c).and_then(|cluster| cluster.by_uid(&uid)).filter(|_| fake)
                {
                    thing.object.phase = Phase::Ready;
                    thing.object.address = format!("{uid}:6379");
                }
                self.processes.started(&uid, name_of(key), &spec, &self.ledger)?;
            }
            Happened::Killing(uid) => {
                self.stats.count("object: removed while it ran");
                let delay = self.dice.between(10 * MS, 4 * SECOND);
                self.after(delay, Event::Removed { c, uid });
            }
            Happened::Removed(uid) => self.processes.ended(&uid, false)?,
        }
        self.watch(c);
        Ok(())
    }

    /// The agents may see that something changed.
    fn watch(&mut self, c: usize) {
        for a in 0..self.agents.len() {
            let Some(slot) = self.agents.get(a).filter(|slot| slot.cluster == c && slot.agent.is_some())
            else {
                continue;
            };
            let life = slot.life;
            if self.dice.below(4) > 0 {
                let delay = self.dice.between(MS, 10 * MS);
                self.after(delay, Event::Agent { a, life, input: muster_plan::Input::Changed });
            }
        }
    }

    pub fn process_end(&mut self, c: usize, uid: &str, good: bool) -> Result<(), Violation> {
        let Some(thing) = self.clusters.get_mut(c).and_then(|cluster| cluster.by_uid(uid)) else {
            return Ok(());
        };
        if !thing.runs() {
            return Ok(());
        }
        thing.object.phase = if good { Phase::Succeeded } else { Phase::Failed };
        thing.object.exit_code = Some(if good { 0 } else { 1 });
        self.say(|_| format!("c{c} {uid} ends: {}", if good { "good" } else { "bad" }));
        self.stats.count(if good { "process: succeeded" } else { "process: failed" });
        self.processes.ended(uid, good)?;
        self.watch(c);
        Ok(())
    }

    pub fn removed(&mut self, c: usize, uid: &str) -> Result<(), Violation> {
        let Some(cluster) = self.clusters.get_mut(c) else { return Ok(()) };
        cluster.remove(uid);
        self.say(|_| format!("c{c} {uid} is gone"));
        self.processes.ended(uid, false)?;
        self.watch(c);
        Ok(())
    }

    /// These objects are gone with their cluster, and what they came to as well.
    pub fn lost(&mut self, things: Vec<Thing>) -> Result<(), Violation> {
        for thing in things {
            self.processes.ended(&thing.object.uid, false)?;
            self.processes.excused.insert(name_of(&thing.key).0);
        }
        Ok(())
    }

    fn send_report(&mut self, c: usize, report: &Report) {
        if self.is_dark(c) {
            return;
        }
        let time = Timestamp(self.now);
        self.say(|_| {
            let Report { agent, epoch, echo, generation, .. } = report;
            let legs: Vec<_> =
                report.legs.iter().map(|leg| format!("{} {:?}", leg.uid, leg.phase())).collect();
            format!("{agent} reports: epoch {epoch} echo {echo} generation {generation:x} {legs:?}")
        });
        for r in 0..self.replicas.len() {
            let Some(replica) = self.replicas.get(r).filter(|replica| replica.host.is_some()) else {
                continue;
            };
            let listens = match self.kinds.get(replica.kind) {
                Some(Kind::Desk(name)) => *name == report.cluster,
                Some(Kind::Federation) => true,
                _ => false,
            };
            if !listens {
                continue;
            }
            let life = replica.life;
            for delay in self.mail() {
                let incoming = Incoming::Report { report: report.clone(), time };
                let what = ToReplica::Input(Input::Incoming(incoming));
                self.after(delay, Event::Replica { r, life, what });
            }
        }
    }

    pub fn send_desired(&mut self, desired: &Desired) {
        let Some(c) = self.clusters.iter().position(|cluster| cluster.name == desired.cluster) else {
            return;
        };
        if self.is_dark(c) {
            return;
        }
        self.say(|_| {
            let Desired { seq, epoch, generation, .. } = desired;
            let verbs: Vec<_> =
                desired.legs.iter().map(|leg| format!("{:?} {}", leg.verb(), leg.uid)).collect();
            format!("c{c} shall hold: seq {seq} epoch {epoch} generation {generation:x} {verbs:?}")
        });
        for a in 0..self.agents.len() {
            let Some(slot) = self.agents.get(a).filter(|slot| slot.cluster == c && slot.agent.is_some())
            else {
                continue;
            };
            let life = slot.life;
            for delay in self.mail() {
                self.after(
                    delay,
                    Event::Agent { a, life, input: muster_plan::Input::Desired(desired.clone()) },
                );
            }
        }
    }

    fn is_dark(&self, c: usize) -> bool {
        self.clusters.get(c).is_none_or(|cluster| cluster.destroyed || cluster.dark_until > self.now)
    }

    /// When the copies of a message arrive: none, one or two of them.
    fn mail(&mut self) -> Vec<i64> {
        if self.dice.chance(self.options.lost_mail) {
            self.stats.count("fault: mail lost");
            return Vec::new();
        }
        let mut delays = vec![self.hop(self.options.late_mail, "fault: mail late")];
        if self.dice.chance(self.options.double_mail) {
            self.stats.count("fault: mail doubled");
            delays.push(self.dice.between(MS, 10 * SECOND));
        }
        delays
    }
}

fn action_name(action: &muster_plan::Action) -> &'static str {
    match action {
        muster_plan::Action::Create { .. } => "create",
        muster_plan::Action::Start { .. } => "start",
        muster_plan::Action::Remove { .. } => "remove",
    }
}
