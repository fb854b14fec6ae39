//! The world of one seed: a log, replicas, clusters, agents, clients, and one queue of events.

use std::{cmp::Reverse, collections::BinaryHeap, fmt};

use bytes::Bytes;
use muster_core::{At, Event as FactEvent, Input, Outcome, RequestMessage, Seq, Timestamp, decode};
use muster_model::Lifecycle;
use muster_proto::Kind as Fact;

use crate::{
    agent::AgentSlot,
    cluster::{Call, Cluster},
    dice::Dice,
    host::Kind,
    log::MemLog,
    options::{MS, Options, SECOND},
    oracle::{Answers, Hashes, Ledger, Processes, Violation},
    replica::Replica,
    stats::Stats,
};

pub const START: i64 = 1_700_000_000 * SECOND;

/// A publish on its way.
#[derive(Clone, Debug)]
pub struct Publish {
    pub id: u64,
    pub subject: String,
    pub expect: Seq,
    pub payload: Bytes,
    pub decided: Timestamp,
    /// How often the log had been restored: a connection does not outlive its server.
    pub restores: u32,
}

/// What reaches a replica.
#[derive(Clone, Debug)]
pub enum ToReplica {
    Deliver,
    Requests,
    Tick,
    Send(Publish),
    Ack { id: u64, outcome: Outcome },
    Input(Input),
}

#[derive(Clone, Debug)]
pub enum Event {
    Replica {
        r: usize,
        life: u32,
        what: ToReplica,
    },
    Restart {
        r: usize,
        life: u32,
    },
    /// A publish reaches the server; only the first copy is answered.
    Arrive {
        r: usize,
        life: u32,
        publish: Publish,
        answer: bool,
    },
    Agent {
        a: usize,
        life: u32,
        input: muster_plan::Input,
    },
    AgentTick {
        a: usize,
        life: u32,
    },
    AgentStart {
        a: usize,
        life: u32,
    },
    Api {
        c: usize,
        incarnation: u32,
        history: u32,
        a: usize,
        life: u32,
        call: Call,
        answer: bool,
    },
    ProcessEnd {
        c: usize,
        uid: String,
        good: bool,
    },
    Removed {
        c: usize,
        uid: String,
    },
    NodeBack {
        c: usize,
    },
    Client {
        n: u64,
    },
    Cancel {
        request: u64,
        index: u32,
    },
    Operator,
    Chaos,
    Restore,
    AcceptLoss,
    Rebuild {
        c: usize,
    },
    Destroy {
        c: usize,
    },
    Heal,
}

struct Entry {
    at: i64,
    tie: u64,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.tie) == (other.at, other.tie)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.tie).cmp(&(other.at, other.tie))
    }
}

pub struct World {
    pub now: i64,
    pub dice: Dice,
    pub options: Options,
    pub healed: bool,
    events: BinaryHeap<Reverse<Entry>>,
    ties: u64,
    pub steps: u64,
    pub log: MemLog,
    pub requests: Vec<RequestMessage>,
    /// How many commands each request has, as the queue counts them.
    pub commands: Vec<u32>,
    pub bodies: Vec<Option<Bytes>>,
    pub kinds: Vec<Kind>,
    pub replicas: Vec<Replica>,
    pub clusters: Vec<Cluster>,
    pub agents: Vec<AgentSlot>,
    pub ids: u64,
    pub restores: u32,
    /// How often a loss of the log was accepted.
    pub history: u32,
    /// The lifecycle as all services agree on it: for counting, not for judging.
    pub reference: Lifecycle,
    pub ledger: Ledger,
    pub answers: Answers,
    pub processes: Processes,
    pub hashes: Hashes,
    pub stats: Stats,
    pub trace: Trace,
}

/// What happened, as a hash, and as lines when somebody reads them.
#[derive(Default)]
pub struct Trace {
    pub hash: u64,
    pub lines: Option<Vec<String>>,
}

impl Trace {
    pub fn add(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(17);
    }
}

impl World {
    #[must_use]
    pub fn new(seed: u64, trace: bool) -> Self {
        let mut dice = Dice::new(seed);
        let options = Options::draw(&mut dice);
        let mut kinds = vec![Kind::Queue, Kind::Admission, Kind::Federation];
        kinds.extend((0..options.clusters).map(|c| Kind::Desk(format!("c{c}"))));
        let mut world = Self {
            now: START,
            events: BinaryHeap::new(),
            ties: 0,
            steps: 0,
            healed: false,
            log: MemLog::default(),
            requests: Vec::new(),
            commands: Vec::new(),
            bodies: Vec::new(),
            replicas: (0..kinds.len() * 2).map(|slot| Replica::new(slot / 2)).collect(),
            hashes: Hashes::new(kinds.len()),
            kinds,
            clusters: Vec::new(),
            agents: Vec::new(),
            ids: 0,
            restores: 0,
            history: 0,
            reference: Lifecycle::default(),
            ledger: Ledger::default(),
            answers: Answers::default(),
            processes: Processes::default(),
            stats: Stats::default(),
            trace: Trace { hash: seed, lines: trace.then(Vec::new) },
            dice,
            options,
        };
        world.say(|world| format!("{:?}", world.options));
        world.populate();
        world
    }

    /// A line of the trace, made only when somebody reads it.
    pub fn say(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.trace.lines.is_some() {
            let text = format!("{:>12.6} {}", (self.now - START) as f64 / 1e6, line(self));
            if let Some(lines) = &mut self.trace.lines {
                lines.push(text);
            }
        }
    }

    pub fn after(&mut self, delay_us: i64, event: Event) {
        self.at(self.now + delay_us.max(1), event);
    }

    pub fn at(&mut self, at: i64, event: Event) {
        self.ties += 1;
        self.events.push(Reverse(Entry { at: at.max(self.now), tie: self.ties, event }));
    }

    /// An id that nothing else in this world has.
    pub fn fresh(&mut self) -> u64 {
        self.ids += 1;
        self.ids
    }

    /// A quick way over the network, sometimes a slow one.
    pub fn hop(&mut self, late: f64, counted: &str) -> i64 {
        if self.dice.chance(late) {
            self.stats.count(counted);
            return self.dice.between(50 * MS, 12 * SECOND);
        }
        self.dice.between(200, 3 * MS)
    }

    /// Until nothing happens before `until`, or something is wrong.
    ///
    /// # Errors
    /// The property that was broken.
    pub fn run(&mut self, until: i64, done: impl Fn(&Self) -> bool) -> Result<bool, Violation> {
        while let Some(Reverse(entry)) = self.events.peek() {
            if entry.at > until {
                break;
            }
            let Some(Reverse(entry)) = self.events.pop() else { break };
            self.now = entry.at;
            self.steps += 1;
            self.trace.add(entry.at.unsigned_abs());
            self.happen(entry.event)?;
            if self.steps.is_multiple_of(64) && done(self) {
                return Ok(true);
            }
            if self.steps > 3_000_000 {
                return Err(Violation::new("the world comes to rest", "3,000,000 events, and no end"));
            }
        }
        self.now = self.now.max(until);
        Ok(done(self))
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Replica { r, life, what } => self.to_replica(r, life, what),
            Event::Restart { r, life } => self.restart(r, life),
            Event::Arrive { r, life, publish, answer } => self.arrive(r, life, publish, answer),
            Event::Agent { a, life, input } => self.agent_input(a, life, input),
            Event::AgentTick { a, life } => self.agent_tick(a, life),
            Event::AgentStart { a, life } => self.agent_start(a, life),
            Event::Api { c, incarnation, history, a, life, call, answer } => {
                self.api((c, incarnation, history), (a, life), call, answer)
            }
            Event::ProcessEnd { c, uid, good } => self.process_end(c, &uid, good),
            Event::Removed { c, uid } => self.removed(c, &uid),
            Event::NodeBack { c } => self.node_back(c),
            Event::Client { n } => self.client(n),
            Event::Cancel { request, index } => self.cancel(request, index),
            Event::Operator => self.operator(),
            Event::Chaos => self.chaos(),
            Event::Restore => self.restore(),
            Event::AcceptLoss => self.accept_loss(),
            Event::Rebuild { c } => self.rebuild(c),
            Event::Destroy { c } => self.destroy(c),
            Event::Heal => self.heal(),
        }
    }

    /// Stores a message and lets the judges read it.
    ///
    /// # Errors
    /// What it breaks.
    pub fn append(&mut self, subject: &str, expect: Seq, payload: Bytes) -> Result<Option<Seq>, Violation> {
        let time = Timestamp(self.now);
        let Some(seq) = self.log.publish(subject, expect, payload.clone(), time) else { return Ok(None) };
        self.trace
            .add(seq ^ u64::from(payload.iter().fold(0u32, |sum, b| sum.rotate_left(5) ^ u32::from(*b))));
        self.read(seq, true)?;
        for r in 0..self.replicas.len() {
            self.wake_reader(r);
        }
        Ok(Some(seq))
    }

    /// # Errors
    /// What the message breaks.
    pub fn read(&mut self, seq: Seq, fresh: bool) -> Result<(), Violation> {
        let Some(record) = self.log.get(seq).cloned() else { return Ok(()) };
        let envelope =
            decode(&record).map_err(|error| Violation::new("the log can be read", error.to_string()))?;
        let at = At { seq, time: record.time };
        for fact in envelope.facts.into_iter().filter_map(|fact| fact.kind) {
            let event =
                FactEvent { service: envelope.service.clone(), partition: envelope.partition.clone(), fact };
            let effective = self.reference.apply(at, &event).is_effective();
            if fresh {
                self.count_fact(&event.fact, effective);
                self.cancel_now(&event.fact);
                self.say(|_| {
                    format!("#{seq} {}{}", if effective { "" } else { "VOID " }, short(&event.fact))
                });
            }
            self.ledger.read(&event.fact, effective)?;
            if effective {
                self.answers.read(&event.fact, &self.commands)?;
            }
        }
        Ok(())
    }

    /// A cancel at the worst moment: while federation commits what was just granted.
    fn cancel_now(&mut self, fact: &Fact) {
        let Fact::LegGranted(fact) = fact else { return };
        if let Some(workload) = fact.workload.filter(|_| self.dice.chance(self.options.cancels * 0.15)) {
            let delay = self.dice.between(0, 4 * MS);
            self.after(delay, Event::Cancel { request: workload.request, index: workload.index });
        }
    }

    fn count_fact(&mut self, fact: &Fact, effective: bool) {
        let name = name_of(fact);
        self.stats.count(&format!("{}: {name}", if effective { "effective" } else { "void" }));
        if let (Fact::LegEnded(fact), true) = (fact, effective) {
            self.stats.count(&format!("ended: {:?}", fact.outcome()));
        }
        if let (Fact::ClusterDeclaredDead(_), true) = (fact, effective) {
            self.stats.count("ended: Dead");
        }
        if let (Fact::WorkloadFinished(fact), true) = (fact, effective) {
            let result = format!("{:?}", fact.result()).to_lowercase();
            self.stats.count(&format!("workload: {result}"));
        }
    }

    /// The log was cut: everything that was read from it is read again.
    ///
    /// # Errors
    /// None that was not there before.
    pub fn reread(&mut self) -> Result<(), Violation> {
        self.reference = Lifecycle::default();
        self.ledger = Ledger::default();
        self.answers.forget();
        (1..=self.log.head()).try_for_each(|seq| self.read(seq, false))
    }

    /// The last facts of the log, for people.
    #[must_use]
    pub fn last_facts(&self, most: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for record in self.log.read(1, usize::MAX) {
            let Ok(envelope) = decode(&record) else { continue };
            let (as_of, writer) = (envelope.as_of, envelope.writer.unwrap_or_default().instance);
            for fact in envelope.facts.iter().filter_map(|fact| fact.kind.as_ref()) {
                lines.push(format!("#{} as of {as_of} by {writer}: {}", record.seq, short(fact)));
            }
        }
        lines.split_off(lines.len().saturating_sub(most))
    }
}

/// The name of a fact's kind.
#[must_use]
pub fn name_of(fact: &Fact) -> String {
    /// Takes what comes before the first parenthesis and wants no more.
    struct Head(String);
    impl fmt::Write for Head {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            let head = text.split('(').next().unwrap_or_default();
            self.0.push_str(head);
            if head.len() == text.len() { Ok(()) } else { Err(fmt::Error) }
        }
    }
    let mut head = Head(String::new());
    // It ends with an error on purpose.
    _ = fmt::write(&mut head, format_args!("{fact:?}"));
    head.0
}

fn short(fact: &Fact) -> String {
    let text: String = format!("{fact:?}")
        .replace("workload: Some(WorkloadRef { generation: ", "w{")
        .replace("request: Some(RequestRef { ", "req{");
    text.chars().take(300).collect()
}
