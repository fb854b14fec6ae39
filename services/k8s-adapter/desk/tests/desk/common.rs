//! A desk of cluster `c` with one workload, and sentences about it.

use std::collections::BTreeMap;

use bytes::Bytes;
use muster_core::{Incoming, Outgoing, Service, Timestamp, harness::Given, sha256};
use muster_desk::{Config, Desk};
use muster_proto::{self as proto, Desired, Kind, NodeGroup, ObservedLeg, Phase, Report, WorkloadRef};

pub const BODY: &[u8] = b"kind: Job";
pub const W: WorkloadRef = WorkloadRef { generation: 7, request: 1, index: 0 };

pub fn desk() -> Given<Desk> {
    let generation = proto::GenerationStarted { generation: 7, ..Default::default() };
    Given::new(Config::new("c")).at(Timestamp(1_000_000)).message(
        "cell",
        "0",
        [Kind::GenerationStarted(generation)],
    )
}

/// A desk whose cluster has joined, at epoch 1.
pub fn joined() -> Given<Desk> {
    let mut given = desk().incoming(report(1, 0, vec![]));
    given.decide_until_content("c", 2);
    given
}

pub fn queued(request: u64) -> Kind {
    Kind::WorkloadQueued(proto::WorkloadQueued {
        request: Some(proto::RequestRef { seq: request, index: 0, of: 1 }),
        workload: Some(WorkloadRef { request, ..W }),
        tenant: "t".into(),
        name: "train".into(),
        kind: "Job".into(),
        pod_sets: vec![proto::PodSet { name: "main".into(), count: 1, ..Default::default() }],
        body: Some(proto::BodyRef {
            seq: 40 + request,
            sha256: sha256(BODY).to_vec().into(),
            size_bytes: BODY.len() as u32,
        }),
        ..Default::default()
    })
}

pub fn reserved(request: u64) -> Kind {
    let workload = Some(WorkloadRef { request, ..W });
    Kind::QuotaReserved(proto::QuotaReserved { workload, round: 1, ..Default::default() })
}

pub fn offered(request: u64, reservation: u64, attempt: u32) -> Kind {
    let pods = vec![proto::PodRange { pod_set: "main".into(), count: 1, ..Default::default() }];
    Kind::PlacementOffered(proto::PlacementOffered {
        workload: Some(WorkloadRef { request, ..W }),
        reservation,
        attempt,
        legs: vec![proto::Leg { cluster: "c".into(), pods }],
        commit_on_grant: false,
    })
}

/// A joined desk that was asked for attempt 1 of workload 1.
pub fn asked() -> Given<Desk> {
    let given = joined().message("queue", "0", [queued(1)]).message("admission", "0", [reserved(1)]);
    let reservation = given.seq;
    given.message("federation", "0", [offered(1, reservation, 1)])
}

/// The same, granted `u1` and committed.
pub fn committed() -> Given<Desk> {
    let given = asked();
    let echo = given.seq;
    let mut given = given.incoming(report(1, echo, vec![object(1, "u1", Phase::Stopped)]));
    assert_eq!(given.decide_until_content("c", 2).len(), 1);
    given.message(
        "federation",
        "0",
        [Kind::PlacementCommitted(proto::PlacementCommitted { workload: Some(W), attempt: 1 })],
    )
}

pub fn cancelled(request: u64) -> Kind {
    Kind::WorkloadCancelled(proto::WorkloadCancelled {
        request: Some(proto::RequestRef { seq: request, index: 0, of: 1 }),
        workload: Some(W),
        ..Default::default()
    })
}

pub fn object(attempt: u32, uid: &str, phase: Phase) -> ObservedLeg {
    ObservedLeg { workload: Some(W), attempt, uid: uid.into(), phase: phase.into(), ..Default::default() }
}

pub fn report(epoch: u64, echo: u64, legs: Vec<ObservedLeg>) -> Incoming {
    let allocatable = BTreeMap::from([("cpu".to_owned(), 1000)]);
    let nodes = vec![NodeGroup { nodes: 1, allocatable, ..Default::default() }];
    let report = Report {
        generation: 7,
        cluster: "c".into(),
        agent: format!("a{epoch}"),
        epoch,
        echo,
        legs,
        nodes,
        backend: "local".into(),
    };
    Incoming::Report { report, time: Timestamp(1_000_000) }
}

pub fn kinds(given: &Given<Desk>) -> Vec<Kind> {
    given.decide().into_iter().filter_map(|fact| fact.kind).collect()
}

pub fn body(seq: u64) -> Incoming {
    Incoming::BodyFetched { seq, body: Some(Bytes::from_static(BODY)) }
}

pub fn sent(seq: u64) -> Incoming {
    Incoming::DesiredSent { cluster: "c".into(), seq }
}

pub fn outbox(given: &Given<Desk>) -> Vec<Outgoing> {
    Desk::outbox(&given.config, &given.state, &given.inbox, given.now)
}

/// The desired state that would go out now, if any.
pub fn desired(given: &Given<Desk>) -> Option<Desired> {
    outbox(given).into_iter().find_map(|wish| match wish {
        Outgoing::SendDesired { desired } => Some(desired),
        _ => None,
    })
}
