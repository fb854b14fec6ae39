//! The real queue in its host: requests as outsiders send them become facts, bodies and notices.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use muster_bus::{Incoming, Reader};
use muster_proto::{ApplyPolicy, Command, Envelope, Kind, Rejected, Request, Submit, command};
use muster_queue::{Config, Queue};
use muster_testkit::{NatsServer, TempDir, eventually};
use prost::Message;

fn request(kind: command::Kind) -> Bytes {
    Request { commands: vec![Command { kind: Some(kind) }], key: String::new() }.encode_to_vec().into()
}

const TENANT: &str =
    "{apiVersion: muster.dev/v1, kind: Tenant, metadata: {name: acme}, spec: {namespaces: [acme]}}";
const JOB: &str = "{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: acme, labels: \
    {kueue.x-k8s.io/queue-name: main}}, spec: {backoffLimit: 1, template: {spec: {restartPolicy: Never, \
    containers: [{name: c, image: i, resources: {requests: {cpu: 500m}}}]}}}}";

async fn facts(bus: &muster_bus::Bus) -> Vec<Kind> {
    let envelopes = log(bus).await.into_iter().map(|record| Envelope::decode(record.payload).unwrap());
    envelopes.flat_map(|envelope| envelope.facts).filter_map(|fact| fact.kind).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_become_facts_with_bodies_and_rejections_become_notices() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let (a, b) = (TempDir::new("a"), TempDir::new("b"));
    let first = start_service::<Queue>(Config::default, host(&server, a.path(), 0));
    let second = start_service::<Queue>(Config::default, host(&server, b.path(), 1));
    let tenant = ApplyPolicy { manifest: TENANT.into(), ..ApplyPolicy::default() };
    bus.submit("muster.req._ops.root.apply", request(command::Kind::ApplyPolicy(tenant)), None)
        .await
        .unwrap();
    let submit = Submit { manifest: JOB.into(), ..Submit::default() };
    let subject = "muster.req.acme.alice.submit";
    bus.submit(subject, request(command::Kind::Submit(submit)), None).await.unwrap();
    bus.submit(subject, Bytes::from_static(b"\xff\xff"), None).await.unwrap();
    let queued = |facts: &[Kind]| {
        facts.iter().find_map(|fact| match fact {
            Kind::WorkloadQueued(fact) => Some(fact.clone()),
            _ => None,
        })
    };
    eventually(Duration::from_secs(20), || async { queued(&facts(&bus).await).is_some() }).await;
    // the body is where the fact says
    let fact = queued(&facts(&bus).await).unwrap();
    let body = fact.body.unwrap();
    let stored = bus.fetch_body(body.seq).await.unwrap().unwrap().payload;
    assert_eq!(muster_core::sha256(&stored), body.sha256[..]);
    // the sender of the bad one is told
    let mut out = Reader::scan(&bus, "OUT", Some("muster.out.acme.rejected"), 0).await.unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), out.next()).await.unwrap().unwrap();
    let Incoming::Batch(notices) = told else { panic!("{told:?}") };
    let rejected = Rejected::decode(notices[0].payload.clone()).unwrap();
    assert_eq!(rejected.request.unwrap().seq, 3);
    assert!(!rejected.faults.is_empty());
    // both replicas end with what the log says
    first.stop().unwrap();
    second.stop().unwrap();
    let (refolded, _) = muster_runtime::replay::<Queue>(Config::default(), "0", &bus, None).await.unwrap();
    assert_eq!((refolded.mismatches.len(), refolded.halts.len()), (0, 0));
    assert!(refolded.compared >= 1);
}
