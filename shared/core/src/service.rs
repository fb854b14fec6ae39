//! What every service is: a pure decider.

use bytes::Bytes;
use muster_proto::{self as proto, BodyRef, Desired, Fact, Rejected, Report};

use crate::{At, Event, State, Timestamp, WorkloadId};

/// A service: no IO, no clock, no randomness, no async.
pub trait Service: 'static {
    /// Subject token, consumer name and metric label, all at once.
    const NAME: &'static str;
    /// The highest rules number that this build knows (DESIGN 3.4).
    const RULES: u32 = 1;
    /// What operators tune. Read by `decide` only: `evolve` must not depend on it.
    type Config: Clone + borsh::BorshSerialize;
    type State: State;
    type Inbox: Default;
    type Fact: Into<Fact>;

    /// Folds one fact. Total: never fails, never decides.
    fn evolve(state: &mut Self::State, at: At, event: &Event);
    /// Takes what came from outside the log. Volatile and bounded; never hashed, never stored.
    fn absorb(inbox: &mut Self::Inbox, state: &Self::State, now: Timestamp, incoming: Incoming);
    /// The state has folded on: drop from the inbox what it has answered.
    fn folded(_inbox: &mut Self::Inbox, _state: &Self::State) {}
    /// Whether the inbox takes another request; the host reads no further while it does not.
    fn has_room(_inbox: &Self::Inbox) -> bool {
        true
    }
    /// The REQUESTS sequence after which this service still has to read; none: it reads none.
    fn requests_after(_state: &Self::State) -> Option<u64> {
        None
    }
    /// What should be recorded next, looking at state and inbox, not at a message. Empty: content.
    /// All facts of one decision become one message, so at most 512 KiB.
    fn decide(
        config: &Self::Config,
        state: &Self::State,
        inbox: &Self::Inbox,
        now: Timestamp,
    ) -> Decision<Self::Fact>;
    /// What should be done outside the log. Level-triggered too: asked again until the inbox has
    /// absorbed the answer; the host keeps one of each key under way.
    fn outbox(
        _config: &Self::Config,
        _state: &Self::State,
        _inbox: &Self::Inbox,
        _now: Timestamp,
    ) -> Vec<Outgoing> {
        Vec::new()
    }
    /// When `decide` or `outbox` could answer differently although nothing arrives.
    fn wake_at(
        _config: &Self::Config,
        _state: &Self::State,
        _inbox: &Self::Inbox,
        _now: Timestamp,
    ) -> Option<Timestamp> {
        None
    }
    /// Why this workload stands where it stands, as far as this service is concerned.
    fn explain(
        config: &Self::Config,
        state: &Self::State,
        inbox: &Self::Inbox,
        workload: &WorkloadId,
        now: Timestamp,
    ) -> Option<Why>;
    /// Invariants of the state. A decision that breaks one is not published.
    ///
    /// # Errors
    /// The invariant that is broken.
    fn check(state: &Self::State) -> Result<(), Broken>;
}

/// Facts that belong together: recorded as one message or not at all.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision<F> {
    pub facts: Vec<F>,
}

impl<F> Default for Decision<F> {
    fn default() -> Self {
        Self { facts: Vec::new() }
    }
}

/// A broken invariant: which, and with what numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{invariant}: {detail}")]
pub struct Broken {
    pub invariant: &'static str,
    pub detail: String,
}

/// A reason a person can act on: a stable CamelCase code, a sentence, and its numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Why {
    pub reason: &'static str,
    pub message: String,
    pub numbers: Vec<(String, String)>,
}

/// A message of REQUESTS.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestMessage {
    pub seq: u64,
    pub tenant: String,
    pub principal: String,
    pub time: Timestamp,
    /// The header `Muster-Key`.
    pub key: Option<String>,
    pub payload: Bytes,
}

/// What reaches a service from outside EVENTS.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    Request(RequestMessage),
    /// What an agent sees; also its heartbeat. `time` is the server's.
    Report {
        report: Report,
        time: Timestamp,
    },
    /// The body of command `index` of request `request` lies in BODIES.
    BodyStored {
        request: u64,
        index: u32,
        body: BodyRef,
    },
    /// A body from BODIES; none: it was erased.
    BodyFetched {
        seq: u64,
        body: Option<Bytes>,
    },
    BodyDeleted {
        seq: u64,
    },
    /// The sender of this command has been told that it was rejected.
    RejectionSent {
        request: u64,
        index: u32,
    },
    /// The desired state went out.
    DesiredSent {
        cluster: String,
        seq: u64,
    },
    /// What was to be done outside could not be done; it will be asked again.
    Failed {
        key: String,
        reason: String,
    },
}

/// What a service wants done outside EVENTS.
#[derive(Clone, Debug, PartialEq)]
pub enum Outgoing {
    StoreBody { request: u64, index: u32, tenant: String, body: Bytes },
    FetchBody { seq: u64 },
    DeleteBody { seq: u64 },
    SendDesired { desired: Desired },
    SendRejection { tenant: String, rejected: Rejected },
}

impl Outgoing {
    /// Two wishes of the same key are the same wish: only one is under way at a time.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::StoreBody { request, index, .. } => format!("store-body/{request}/{index}"),
            Self::FetchBody { seq } => format!("fetch-body/{seq}"),
            Self::DeleteBody { seq } => format!("delete-body/{seq}"),
            Self::SendDesired { desired } => format!("desired/{}", desired.cluster),
            Self::SendRejection { rejected, .. } => {
                let request = rejected.request.unwrap_or(proto::RequestRef { seq: 0, index: 0, of: 0 });
                format!("rejection/{}/{}", request.seq, request.index)
            }
        }
    }
}
