//! Requests beyond the cursor, and what became of the wishes made for them. Volatile: a crash
//! loses nothing, as everything here is read or asked for again.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{Incoming, Outgoing, RequestMessage, Timestamp, defect, defect::Defect};
use muster_proto::{BodyRef, RequestRef};

use crate::judge::{Step, Walk};
use crate::parse::{Parsed, parse};
use crate::refusal::Refusal;
use crate::state::State;

/// When the host stops reading requests: so many messages, commands or bytes wait.
const ROOM_MESSAGES: usize = 2_048;
const ROOM_COMMANDS: usize = 8_192;
const ROOM_BYTES: usize = 16 * 1024 * 1024;
/// How long a wish that failed is not made again.
const RETRY_US: i64 = 1_000_000;

/// What has arrived and is not answered by the log yet.
#[derive(Clone, Debug, Default)]
pub struct Inbox {
    /// By sequence. A gap between them is a gap in REQUESTS: it is read in order.
    pub(crate) messages: BTreeMap<u64, Pending>,
    commands: usize,
    bytes: usize,
    /// Bodies that no fact names: this process stored them, but another one's fact came first.
    pub(crate) orphans: BTreeSet<u64>,
    /// Bodies whose deletion is confirmed.
    pub(crate) deleted: BTreeSet<u64>,
    /// Wishes that failed, by key, and when to make them again.
    pub(crate) failed: BTreeMap<String, Timestamp>,
}

/// A message of REQUESTS, read.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) tenant: String,
    pub(crate) principal: String,
    pub(crate) time: Timestamp,
    pub(crate) key: String,
    pub(crate) commands: Vec<Entry>,
    bytes: usize,
}

/// One command of a message, and what is already done for it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) parsed: Parsed,
    /// Where its manifest lies.
    pub(crate) body: Option<BodyRef>,
    /// What its sender has been told. From then on that is the answer.
    pub(crate) told: Option<Refusal>,
}

impl Pending {
    pub(crate) fn of(&self) -> u32 {
        u32::try_from(self.commands.len()).unwrap_or(u32::MAX)
    }
}

impl Inbox {
    pub(crate) fn has_room(&self) -> bool {
        self.messages.len() < ROOM_MESSAGES && self.commands < ROOM_COMMANDS && self.bytes < ROOM_BYTES
    }

    pub(crate) fn absorb(&mut self, state: &State, now: Timestamp, incoming: Incoming) {
        match incoming {
            Incoming::Request(request) => self.request(state, request),
            Incoming::BodyStored { request, index, body } => self.body_stored(state, request, index, body),
            Incoming::RejectionSent { request, index } => self.rejection_sent(state, request, index),
            Incoming::BodyDeleted { seq } => {
                if !self.orphans.remove(&seq) {
                    self.deleted.insert(seq);
                }
            }
            Incoming::Failed { key, .. } => _ = self.failed.insert(key, now.plus_us(RETRY_US)),
            Incoming::Report { .. } | Incoming::BodyFetched { .. } | Incoming::DesiredSent { .. } => {}
        }
        self.failed.retain(|_, again| *again > now);
    }

    /// Takes it even without room: leaving it out would look like a gap in REQUESTS.
    fn request(&mut self, state: &State, request: RequestMessage) {
        let answered = request.seq <= state.lifecycle.cursor().seq && !defect::on(Defect::NoRequestCursor);
        if answered || self.messages.contains_key(&request.seq) {
            return;
        }
        let (parsed, key) = parse(&request);
        let commands: Vec<Entry> =
            parsed.into_iter().map(|parsed| Entry { parsed, body: None, told: None }).collect();
        let bytes = request.payload.len();
        self.commands += commands.len();
        self.bytes += bytes;
        let RequestMessage { seq, tenant, principal, time, .. } = request;
        self.messages.insert(seq, Pending { tenant, principal, time, key, commands, bytes });
    }

    fn entry(&mut self, request: u64, index: u32) -> Option<&mut Entry> {
        self.messages.get_mut(&request)?.commands.get_mut(usize::try_from(index).ok()?)
    }

    fn body_stored(&mut self, state: &State, request: u64, index: u32, body: BodyRef) {
        let seq = body.seq;
        match self.entry(request, index) {
            Some(entry) if entry.body.is_none() && !state.is_answered(request, index) => {
                entry.body = Some(body);
            }
            Some(entry) if entry.body.as_ref().is_some_and(|known| known.seq == seq) => {}
            _ if state.names_body(seq) => {}
            _ => _ = self.orphans.insert(seq),
        }
    }

    fn rejection_sent(&mut self, state: &State, request: u64, index: u32) {
        let told = Walk::new(state, self).find_map(|step| match step {
            Step::Refused { request: of, refusal, .. } if (of.seq, of.index) == (request, index) => {
                Some(refusal.into_owned())
            }
            _ => None,
        });
        if let Some(entry) = self.entry(request, index) {
            entry.told = told;
        }
    }

    /// Drops what the cursor has passed and what needs no deletion any more.
    pub(crate) fn folded(&mut self, state: &State) {
        let seq = state.lifecycle.cursor().seq;
        while let Some(first) = self.messages.first_entry() {
            let request = *first.key();
            if request > seq {
                break;
            }
            let pending = first.remove();
            self.commands -= pending.commands.len();
            self.bytes -= pending.bytes;
            self.forget(state, pending.commands);
        }
        if !self.deleted.is_empty() {
            let asked: BTreeSet<u64> = state.erasing().map(|(_, body)| body).collect();
            self.deleted.retain(|seq| asked.contains(seq));
        }
    }

    /// A body that this process stored and that no fact names is to be deleted: it may hold secrets.
    fn forget(&mut self, state: &State, entries: Vec<Entry>) {
        let bodies = entries.into_iter().filter_map(|entry| entry.body).map(|body| body.seq);
        self.orphans.extend(bodies.filter(|body| !state.names_body(*body)));
    }

    /// Whether a wish may be made: it did not just fail.
    pub(crate) fn may_try(&self, wish: &Outgoing, now: Timestamp) -> bool {
        self.failed.is_empty() || self.failed.get(&wish.key()).is_none_or(|again| *again <= now)
    }

    /// When the next wish that failed may be made again.
    pub(crate) fn next_retry(&self, now: Timestamp) -> Option<Timestamp> {
        self.failed.values().copied().filter(|again| *again > now).min()
    }

    /// The command of a workload's own request, while it waits here.
    pub(crate) fn find(&self, request: RequestRef) -> Option<&Entry> {
        self.messages.get(&request.seq)?.commands.get(usize::try_from(request.index).ok()?)
    }
}
