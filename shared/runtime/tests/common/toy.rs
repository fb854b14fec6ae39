//! Takes each request once, in order, after its body was stored; and, if asked to, notes that time passes.

use std::collections::BTreeMap;

use bytes::Bytes;
use muster_core::{
    AnyTable, At, Broken, Decision, Event, Incoming, Outgoing, RequestMessage, Service, State, Table,
    Timestamp, Why, WorkloadId,
};
use muster_proto::{BodyRef, CommandAccepted, Fact, Kind, RequestRef, WorkloadsForgotten};

pub struct Toy;

#[derive(Clone, Default, borsh::BorshSerialize)]
pub struct ToyConfig {
    /// Note the time so often; 0: never.
    pub tick_us: i64,
    /// A decision that breaks an invariant once so many were taken; 0: never.
    pub break_at: u64,
}

pub struct ToyState {
    /// Request -> the sequence that took it.
    pub taken: Table<u64, u64>,
    /// What was taken last, and when something was noted last.
    pub last: Table<(), (u64, i64)>,
}

impl Default for ToyState {
    fn default() -> Self {
        Self { taken: Table::stored("taken"), last: Table::stored("last") }
    }
}

impl ToyState {
    pub fn last(&self) -> (u64, i64) {
        self.last.get(&()).copied().unwrap_or_default()
    }
}

impl State for ToyState {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        visit(&mut self.taken);
        visit(&mut self.last);
    }
}

#[derive(Default)]
pub struct ToyInbox {
    pub requests: BTreeMap<u64, (RequestMessage, Option<BodyRef>)>,
    pub reports: u64,
}

const ROOM: usize = 50;

impl Service for Toy {
    const NAME: &'static str = "toy";
    type Config = ToyConfig;
    type State = ToyState;
    type Inbox = ToyInbox;
    type Fact = Fact;

    fn evolve(state: &mut ToyState, at: At, event: &Event) {
        let (cursor, _) = state.last();
        match &event.fact {
            Kind::CommandAccepted(fact) => {
                let request = fact.request.unwrap_or_default().seq;
                if request > cursor {
                    state.taken.put(request, at.seq);
                    state.last.put((), (request, at.time.0));
                }
            }
            Kind::WorkloadsForgotten(_) => state.last.put((), (cursor, at.time.0)),
            _ => {}
        }
    }

    fn absorb(inbox: &mut ToyInbox, state: &ToyState, _: Timestamp, incoming: Incoming) {
        match incoming {
            Incoming::Request(request) if request.seq > state.last().0 => {
                inbox.requests.insert(request.seq, (request, None));
            }
            Incoming::BodyStored { request, body, .. } => {
                if let Some(entry) = inbox.requests.get_mut(&request) {
                    entry.1 = Some(body);
                }
            }
            Incoming::Report { .. } => inbox.reports += 1,
            _ => {}
        }
    }

    fn folded(inbox: &mut ToyInbox, state: &ToyState) {
        inbox.requests = inbox.requests.split_off(&(state.last().0 + 1));
    }

    fn has_room(inbox: &ToyInbox) -> bool {
        inbox.requests.len() < ROOM
    }

    fn requests_after(state: &ToyState) -> Option<u64> {
        Some(state.last().0)
    }

    fn decide(config: &ToyConfig, state: &ToyState, inbox: &ToyInbox, now: Timestamp) -> Decision<Fact> {
        let cursor = state.last().0;
        let ready = inbox.requests.range(cursor + 1..).take_while(|(_, (_, body))| body.is_some());
        let mut facts: Vec<Fact> = ready
            .map(|(seq, (request, _))| {
                let request_ref = Some(RequestRef { seq: *seq, index: 0, of: 1 });
                let (tenant, principal) = (request.tenant.clone(), request.principal.clone());
                let fact = CommandAccepted { request: request_ref, tenant, principal, command: None };
                Fact { kind: Some(Kind::CommandAccepted(fact)) }
            })
            .collect();
        if facts.is_empty() && config.tick_us > 0 && now.0 - state.last().1 >= config.tick_us {
            facts.push(Fact { kind: Some(Kind::WorkloadsForgotten(WorkloadsForgotten::default())) });
        }
        if config.break_at > 0 && state.taken.len() as u64 >= config.break_at {
            let request = Some(RequestRef { seq: u64::MAX, index: 0, of: 1 });
            let fact = CommandAccepted { request, ..CommandAccepted::default() };
            facts = vec![Fact { kind: Some(Kind::CommandAccepted(fact)) }];
        }
        Decision { facts }
    }

    fn outbox(_: &ToyConfig, _: &ToyState, inbox: &ToyInbox, _: Timestamp) -> Vec<Outgoing> {
        let waiting = inbox.requests.iter().filter(|(_, (_, body))| body.is_none());
        waiting
            .map(|(seq, (request, _))| Outgoing::StoreBody {
                request: *seq,
                index: 0,
                tenant: request.tenant.clone(),
                body: Bytes::from(format!("body of {seq}")),
            })
            .collect()
    }

    fn wake_at(config: &ToyConfig, state: &ToyState, _: &ToyInbox, now: Timestamp) -> Option<Timestamp> {
        (config.tick_us > 0).then(|| Timestamp(state.last().1 + config.tick_us).max(now))
    }

    fn explain(
        _: &ToyConfig,
        state: &ToyState,
        inbox: &ToyInbox,
        workload: &WorkloadId,
        _: Timestamp,
    ) -> Option<Why> {
        let taken = state.taken.get(&workload.request)?;
        Some(Why {
            reason: "Taken",
            message: format!("request {} was taken at {taken}", workload.request),
            numbers: vec![("reports".into(), inbox.reports.to_string())],
        })
    }

    fn check(state: &ToyState) -> Result<(), Broken> {
        match state.taken.contains(&u64::MAX) {
            true => Err(Broken { invariant: "no request is the last of all", detail: "it is".into() }),
            false => Ok(()),
        }
    }
}
