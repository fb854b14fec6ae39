//! The fenced publish and the leader's reads, on a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{connect, layout, provisioned};
use muster_bus::provision::{ChangeKind, provision};
use muster_bus::{BusError, Credentials, Log, Options, Outcome, names};
use muster_testkit::NatsServer;

const SUBJECT: &str = "muster.evt.queue.0";

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

#[tokio::test]
async fn the_second_writer_of_a_subject_loses() {
    let server = NatsServer::start();
    let log = Log::new(&provisioned(&server).await);
    // given the generation at 1 and a first decision at 2
    assert_eq!(log.publish(SUBJECT, 0, bytes("a")).await.unwrap(), Outcome::Stored(2));
    // when another one decides on what it knew before
    assert_eq!(log.publish(SUBJECT, 0, bytes("b")).await.unwrap(), Outcome::Conflict);
    // then nothing was written, and other subjects are not held up
    assert_eq!(log.publish("muster.evt.admission.0", 0, bytes("c")).await.unwrap(), Outcome::Stored(3));
    assert_eq!(log.publish(SUBJECT, 2, bytes("d")).await.unwrap(), Outcome::Stored(4));
    assert_eq!(log.last_seq().await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_flight_makes_the_outcome_unknown_and_the_repeat_is_stored_once() {
    let mut server = NatsServer::start();
    let bus = provisioned(&server).await;
    let log = Log::new(&bus);
    // given publishes in a row, when the server is killed in the middle of them
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            let (mut last, mut stored) = (0, 0_u64);
            loop {
                match log.publish(SUBJECT, last, Bytes::from(stored.to_string())).await.unwrap() {
                    Outcome::Stored(seq) => (last, stored) = (seq, stored + 1),
                    Outcome::Unknown => return (last, stored),
                    other => panic!("{other:?}"),
                }
            }
        }
    });
    muster_testkit::eventually(Duration::from_secs(10), || async { log.last_seq().await.unwrap() > 50 })
        .await;
    server.kill();
    let start = Instant::now();
    let (last, stored) = writer.await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(2), "unknown is told when the connection breaks");
    // then a repeat with the same expectation is stored unless the first one was
    server.restart();
    let repeated = log.publish(SUBJECT, last, Bytes::from(stored.to_string())).await.unwrap();
    assert!(matches!(repeated, Outcome::Stored(_) | Outcome::Conflict), "{repeated:?}");
    let found = log.last_on(SUBJECT).await.unwrap().unwrap();
    assert_eq!(found.payload, stored.to_string(), "once, and nothing after it");
    assert_eq!(found.seq, last + 1);
}

#[tokio::test]
async fn a_publish_while_the_server_is_away_is_unknown_at_the_deadline() {
    let mut server = NatsServer::start();
    let log = Log::new(&provisioned(&server).await).with_deadline(Duration::from_millis(300));
    server.kill();
    let start = Instant::now();
    assert_eq!(log.publish(SUBJECT, 0, bytes("a")).await.unwrap(), Outcome::Unknown);
    assert!(start.elapsed() < Duration::from_secs(2));
}

#[tokio::test]
async fn the_bus_gives_the_bytes_that_a_generation_check_compares() {
    let server = NatsServer::start();
    let log = Log::new(&provisioned(&server).await);
    let first = log.last_on(names::CELL).await.unwrap().unwrap();
    assert_eq!((first.seq, first.payload.as_ref()), (1, b"generation 1".as_slice()));
    assert_eq!(log.get(1).await.unwrap().unwrap(), first);
    assert_eq!(log.get(2).await.unwrap(), None);
    assert_eq!(log.last_on(SUBJECT).await.unwrap(), None);
    let ends = log.ends().await.unwrap();
    assert_eq!((ends.first, ends.last, ends.messages), (1, 1, 1));
    let age = ends.time_us - first.time_us;
    assert!((0..60_000_000).contains(&age), "server time and message time are of one clock: {age} us");
}

#[tokio::test]
async fn provisioning_twice_changes_nothing_and_a_changed_setting_is_put_right() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let generation = || bytes("generation 1");
    let changes = provision(&bus, &layout(), generation).await.unwrap();
    assert!(changes.iter().all(|c| c.kind == ChangeKind::Created) && changes.len() > 20, "{changes:?}");
    // when run again, also with another first message
    let again = provision(&bus, &layout(), || bytes("generation 2")).await.unwrap();
    assert_eq!(again, vec![]);
    assert_eq!(Log::new(&bus).last_on(names::CELL).await.unwrap().unwrap().payload, "generation 1");
    // when somebody has changed a setting
    let meddler = async_nats::connect(server.url()).await.unwrap();
    let stream = async_nats::jetstream::new(meddler);
    let mut config = stream.get_stream("REQUESTS").await.unwrap().cached_info().config.clone();
    config.max_messages_per_subject = 7;
    stream.update_stream(config).await.unwrap();
    // then it is reported and put right
    let repaired = provision(&bus, &layout(), generation).await.unwrap();
    let told: Vec<String> = repaired.iter().map(ToString::to_string).collect();
    assert_eq!(told, ["stream REQUESTS updated (max_msgs_per_subject: 7 -> 10000)"]);
    assert_eq!(provision(&bus, &layout(), generation).await.unwrap(), vec![]);
}

#[tokio::test]
async fn errors_of_the_way_to_the_server_are_told_apart() {
    let mut server = NatsServer::start();
    let bus = connect(&server).await;
    let log = Log::new(&bus).with_deadline(Duration::from_millis(200));
    // no stream yet
    let error = log.publish(SUBJECT, 0, bytes("a")).await.unwrap_err();
    assert!(matches!(error, BusError::Missing { .. }), "{error}");
    // too large
    let error = log.publish(SUBJECT, 0, vec![0; 2 << 20].into()).await.unwrap_err();
    assert!(matches!(error, BusError::TooLarge { .. }), "{error}");
    // no server
    server.kill();
    let mut options = Options::new(server.url(), "test");
    options.wait = Some(Duration::from_millis(300));
    let error = muster_bus::Bus::connect(&options).await.err().unwrap();
    assert!(matches!(error, BusError::Unreachable { .. }), "{error}");
    // a missing credentials file
    let options = options.with(Credentials::File("/nowhere/x.json".into()));
    let error = muster_bus::Bus::connect(&options).await.err().unwrap();
    assert!(error.to_string().starts_with("/nowhere/x.json: "), "{error}");
}

#[tokio::test]
async fn a_flood_of_requests_harms_its_sender_alone() {
    let server = NatsServer::start();
    let bus = provisioned(&server).await;
    // given a limit that a test can reach
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let mut config = js.get_stream(names::REQUESTS).await.unwrap().cached_info().config.clone();
    config.max_messages_per_subject = 3;
    js.update_stream(config).await.unwrap();
    let [alice, bob] = ["alice", "bob"].map(|who| names::request("acme", who, "submit").unwrap());
    for seq in 1..=3 {
        assert_eq!(bus.submit(&alice, bytes("r"), None).await.unwrap(), seq);
    }
    let error = bus.submit(&alice, bytes("r"), None).await.unwrap_err();
    assert!(matches!(error, BusError::Full { .. }), "{error}");
    assert_eq!(bus.submit(&bob, bytes("r"), None).await.unwrap(), 4);
    // when the queue has taken the first two
    bus.purge_below(&alice, 3).await.unwrap();
    assert_eq!(bus.submit(&alice, bytes("r"), None).await.unwrap(), 5);
    let large = bus.submit(&bob, vec![0; 300 << 10].into(), None).await.unwrap_err();
    assert!(large.to_string().contains("message size exceeds maximum allowed"), "{large}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fenced_publishes_in_a_row_cost_little_more_than_the_disk() {
    let server = NatsServer::start();
    let log = Log::new(&provisioned(&server).await);
    let (mut last, mut times) = (0, Vec::new());
    for _ in 0..500 {
        let start = Instant::now();
        match log.publish(SUBJECT, last, Bytes::from(vec![1; 256])).await.unwrap() {
            Outcome::Stored(seq) => last = seq,
            other => panic!("{other:?}"),
        }
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("fenced publish, sync always: p50 {:?} p99 {:?}", times[250], times[495]);
    assert!(times[250] < Duration::from_millis(100));
}

#[tokio::test]
async fn a_full_disk_is_said_and_reading_goes_on() {
    let server = NatsServer::start_with(|dir| {
        let path = dir.join("nats.conf");
        let store = dir.join("data");
        let text = format!("jetstream {{ store_dir: \"{}\", max_file_store: 2MB }}", store.display());
        std::fs::write(&path, text).unwrap();
        path
    });
    let log = Log::new(&provisioned(&server).await);
    let mut last = 0;
    let error = loop {
        match log.publish(SUBJECT, last, vec![1; 500_000].into()).await {
            Ok(Outcome::Stored(seq)) => last = seq,
            Ok(other) => panic!("{other:?}"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("NATS has no room left on its disk"), "{error}");
    assert!(last > 1 && log.get(last).await.unwrap().is_some());
}
