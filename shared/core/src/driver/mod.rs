//! The host's brain: pure, driven by Tokio in production and by the simulator in tests.
//!
//! `step` takes one input, folds or absorbs it, and then, if nothing of its own is under way,
//! decides. What has to happen outside comes back as effects, in the order to carry them out.
//!
//! After a publish the driver waits until it has folded its own message. After a *conflict* it
//! waits for the winner's. After an *unknown* outcome it decides again with the same expected
//! sequence: at most one of both can be stored.

mod decide;
mod fold;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::{
    AnyTable, Broken, CorruptRow, Image, ImageMeta, Incoming, Outgoing, Record, Seq, Service, State, Table,
    Timestamp, WriteSet, hash_of,
};

/// Who this process is, as its envelopes say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub partition: String,
    pub instance: String,
    pub build: String,
}

/// How far a driver has folded, and the hash of what it knows there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub seq: Seq,
    pub hash: u128,
}

/// One wake is enough: the earlier one.
fn wake_by(effects: &mut Vec<Effect>, due: Timestamp) {
    let wake = effects.iter_mut().find_map(|effect| match effect {
        Effect::WakeAt(at) => Some(at),
        _ => None,
    });
    match wake {
        Some(at) => *at = due.min(*at),
        None => effects.push(Effect::WakeAt(due)),
    }
}

/// What happened outside.
#[derive(Clone, Debug)]
pub enum Input {
    /// Messages of EVENTS, in order, each once.
    Records(Vec<Record>),
    Incoming(Incoming),
    /// A wish of this key was carried out; the answer, if there is one.
    Done {
        key: String,
        answer: Option<Incoming>,
    },
    /// What became of the publish under way.
    Published(Outcome),
    /// The log reaches this far: nothing is decided before it is folded.
    Head(Seq),
    Tick,
}

/// What became of a publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Stored(Seq),
    /// Another writer of the subject was faster (10071).
    Conflict,
    /// The subject was still in flight (10164): nothing was stored.
    InFlight,
    /// No answer: stored or not.
    Unknown,
    /// Too old when it was about to be sent: dropped.
    Stale,
}

/// What has to happen outside, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Publish with the expected last sequence of the subject; drop it when it is older than 1 s.
    Publish {
        subject: String,
        expect: Seq,
        payload: Bytes,
        decided: Timestamp,
    },
    /// Write rows and position in one batch.
    Commit(WriteSet),
    Do(Outgoing),
    WakeAt(Timestamp),
    /// Stop this process and say why: nothing it does from here on could be right.
    Stop(Stop),
}

/// Why a driver can't go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stop {
    #[error(
        "message {seq} on {subject} says that {prev} came before it, but {folded} did: the log is not what its writer saw"
    )]
    ChainBroken { seq: Seq, subject: String, prev: Seq, folded: Seq },
    #[error(
        "message {seq} on {subject} does not carry the hash of the message before it: the log was altered"
    )]
    ChainAltered { seq: Seq, subject: String },
    #[error(
        "message {seq} activates rules {rules} of {service}; this build knows up to {known}: install a newer one"
    )]
    RulesUnknown { seq: Seq, service: String, rules: u32, known: u32 },
    #[error("message {got} came when {expected} was due: the reader lost messages")]
    Gap { expected: Seq, got: Seq },
    #[error("a decision would break an invariant and was not published: {0}")]
    Broken(#[from] Broken),
    #[error("a decision of {bytes} bytes is above the limit of {limit}: it was not published")]
    TooLarge { bytes: usize, limit: usize },
}

/// The image is a cache of the log: it may lag by so much time, or so many messages. Rows that change again
/// meanwhile are hashed and written once.
const COMMIT_EVERY_US: i64 = 50_000;
const COMMIT_MESSAGES: Seq = 4096;

/// Drives one partition of one service.
pub struct Driver<S: Service> {
    config: S::Config,
    config_hash: u128,
    identity: Identity,
    subject: String,
    state: S::State,
    inbox: S::Inbox,
    /// The last message of every subject: the links of the chain.
    links: Table<String, (Seq, [u8; 32])>,
    /// Scopes in which nothing is decided: a subject whose message could not be read.
    halts: Table<String, (Seq, String)>,
    meta: ImageMeta,
    committed: Seq,
    committed_at: Timestamp,
    decide_from: Seq,
    publish: Publish,
    under_way: BTreeSet<String>,
    stopped: Option<Stop>,
}

/// Where the own publish stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Publish {
    Idle,
    /// Sent; no answer yet.
    Sent {
        expect: Seq,
    },
    /// Stored at this sequence; not folded yet.
    Stored(Seq),
    /// Lost against a message above this sequence, not folded yet.
    Lost {
        expect: Seq,
    },
}

impl<S: Service> Driver<S> {
    /// A driver that knows nothing: it will fold the log from its first message.
    pub fn new(config: S::Config, identity: Identity) -> Self {
        let subject = format!("muster.evt.{}.{}", S::NAME, identity.partition);
        let config_hash = xxhash_rust::xxh3::xxh3_128(&borsh::to_vec(&config).unwrap_or_default());
        Self {
            config,
            config_hash,
            identity,
            subject,
            state: S::State::default(),
            inbox: S::Inbox::default(),
            links: Table::stored("_links"),
            halts: Table::stored("_halts"),
            meta: ImageMeta { schema: S::State::SCHEMA, rules: 1, ..ImageMeta::default() },
            committed: 0,
            committed_at: Timestamp(0),
            decide_from: 0,
            publish: Publish::Idle,
            under_way: BTreeSet::new(),
            stopped: None,
        }
    }

    /// A driver that goes on from an image.
    ///
    /// # Errors
    /// When a row can't be read, or the rows don't add up to the image's hash.
    pub fn restore(config: S::Config, identity: Identity, image: Image) -> Result<Self, CorruptRow> {
        let mut driver = Self::new(config, identity);
        let expected = image.meta.state_hash;
        driver.committed = image.meta.position;
        driver.meta = image.meta;
        let mut rows: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for (table, key, row) in image.rows {
            rows.entry(table).or_default().push((key, row));
        }
        let mut result = Ok(());
        driver.all_tables(&mut |table| {
            for (key, row) in rows.remove(table.name()).into_iter().flatten() {
                if result.is_ok() {
                    result = table.load(&key, &row);
                }
            }
        });
        result?;
        if let Some(table) = rows.into_keys().next() {
            return Err(CorruptRow { table, reason: "no such table in this build".to_owned() });
        }
        driver.state.reindex();
        let hash = hash_of(&mut driver.state);
        if hash != expected {
            let reason = format!("rows hash to {hash:032x}, the image was written at {expected:032x}");
            return Err(CorruptRow { table: "*".to_owned(), reason });
        }
        Ok(driver)
    }

    /// Takes one input, then decides. `now` is none while the host's clock can't be trusted: then
    /// the input is folded and nothing is decided.
    pub fn step(&mut self, now: Option<Timestamp>, input: Input) -> Vec<Effect> {
        if self.stopped.is_some() {
            return Vec::new();
        }
        self.take(now, input);
        self.conclude(now)
    }

    /// Folds or absorbs one input and decides nothing yet: a host that has several at hand takes
    /// them all, so that one decision answers them, and then calls [`Driver::conclude`].
    pub fn take(&mut self, now: Option<Timestamp>, input: Input) {
        if self.stopped.is_some() {
            return;
        }
        match input {
            Input::Records(records) => self.stopped = self.fold(&records).err(),
            Input::Incoming(incoming) => self.absorb(now, incoming),
            Input::Done { key, answer } => {
                self.under_way.remove(&key);
                if let Some(answer) = answer {
                    self.absorb(now, answer);
                }
            }
            Input::Published(outcome) => self.published(outcome),
            Input::Head(head) => self.decide_from = self.decide_from.max(head),
            Input::Tick => {}
        }
    }

    /// What has to happen after the inputs that were taken.
    pub fn conclude(&mut self, now: Option<Timestamp>) -> Vec<Effect> {
        let mut effects = Vec::new();
        if let Some(stop) = &self.stopped {
            return vec![Effect::Stop(stop.clone())];
        }
        if let Some(now) = now {
            self.advance(now, &mut effects);
        }
        if self.meta.position > self.committed {
            let due = self.committed_at.plus_us(COMMIT_EVERY_US);
            match now {
                Some(now) if now < due && self.meta.position - self.committed < COMMIT_MESSAGES => {
                    wake_by(&mut effects, due);
                }
                _ => {
                    self.committed_at = now.unwrap_or(self.committed_at);
                    effects.push(Effect::Commit(self.write_set()));
                }
            }
        }
        effects
    }

    /// What the image lacks, to be written before a clean end.
    pub fn flush(&mut self) -> Option<WriteSet> {
        (self.meta.position > self.committed).then(|| self.write_set())
    }

    fn absorb(&mut self, now: Option<Timestamp>, incoming: Incoming) {
        let now = now.unwrap_or(Timestamp(self.meta.last_now_us));
        S::absorb(&mut self.inbox, &self.state, now, incoming);
    }

    fn published(&mut self, outcome: Outcome) {
        let Publish::Sent { expect } = self.publish else { return };
        self.publish = match outcome {
            Outcome::Stored(seq) => Publish::Stored(seq),
            Outcome::Conflict => Publish::Lost { expect },
            Outcome::InFlight | Outcome::Unknown | Outcome::Stale => Publish::Idle,
        };
        self.settle_publish();
    }

    /// What was waited for has been folded: free to decide again.
    fn settle_publish(&mut self) {
        let done = match self.publish {
            Publish::Stored(seq) => self.meta.position >= seq,
            Publish::Lost { expect } => self.own_last() > expect,
            Publish::Idle | Publish::Sent { .. } => false,
        };
        if done {
            self.publish = Publish::Idle;
        }
    }

    fn own_last(&self) -> Seq {
        self.links.get(&self.subject).map_or(0, |link| link.0)
    }

    fn all_tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.links);
        visit(&mut self.halts);
        self.state.tables(visit);
    }

    fn write_set(&mut self) -> WriteSet {
        self.meta.state_hash = hash_of(&mut self.state);
        let mut writes = WriteSet { rows: Vec::new(), meta: self.meta.clone() };
        self.all_tables(&mut |table| {
            if table.is_stored() {
                table.drain(&mut writes);
            }
        });
        self.committed = self.meta.position;
        writes
    }

    /// How far this driver has folded, and its hash there.
    pub fn position(&mut self) -> Position {
        Position { seq: self.meta.position, hash: hash_of(&mut self.state) }
    }

    pub fn state(&self) -> &S::State {
        &self.state
    }

    pub fn inbox(&self) -> &S::Inbox {
        &self.inbox
    }

    pub fn config(&self) -> &S::Config {
        &self.config
    }

    /// What the image of this driver would say of the log that it belongs to.
    pub fn meta(&self) -> &ImageMeta {
        &self.meta
    }

    /// Scopes in which nothing is decided, with the sequence and the reason.
    pub fn halts(&self) -> impl Iterator<Item = (&String, &(Seq, String))> {
        self.halts.iter()
    }

    /// Why this driver stopped for good, if it did.
    pub fn stopped(&self) -> Option<&Stop> {
        self.stopped.as_ref()
    }

    /// Whether the log was folded as far as it reached when this driver was opened.
    pub fn is_caught_up(&self) -> bool {
        self.meta.position >= self.decide_from
    }

    /// Whether a publish is under way: a clean shutdown waits for it.
    pub fn is_publishing(&self) -> bool {
        matches!(self.publish, Publish::Sent { .. })
    }
}
