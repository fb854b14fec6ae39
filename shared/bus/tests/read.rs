//! Reading by position, through restarts, on a real server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{connect, provisioned};
use muster_bus::{BusError, Incoming, Log, Outcome, Reader, Record, names};
use muster_testkit::NatsServer;

const SUBJECT: &str = "muster.evt.queue.0";
const DURABLE: &str = "ledger-0-0";

/// Writes `count` messages; the sequence of the last.
async fn write(log: &Log, count: usize, mut last: u64) -> u64 {
    for i in 0..count {
        match log.publish(SUBJECT, last, Bytes::from(format!("message {i}"))).await.unwrap() {
            Outcome::Stored(seq) => last = seq,
            other => panic!("{other:?}"),
        }
    }
    last
}

/// Reads until `last` was seen; the messages, and how often a reconnect was reported.
async fn read_to(reader: &mut Reader, last: u64) -> (Vec<Record>, usize) {
    let (mut records, mut reconnects) = (Vec::new(), 0);
    let all = async {
        while reader.position() < last {
            match reader.next().await.unwrap() {
                Incoming::Batch(batch) => records.extend(batch),
                Incoming::Reconnected => reconnects += 1,
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("all messages come");
    (records, reconnects)
}

fn seqs(records: &[Record]) -> Vec<u64> {
    records.iter().map(|record| record.seq).collect()
}

#[tokio::test]
async fn a_reader_goes_on_after_its_own_position_whatever_the_server_remembers() {
    let server = NatsServer::start();
    let bus = provisioned(&server).await;
    let last = write(&Log::new(&bus), 9, 0).await;
    let mut reader = Reader::open(&bus, names::EVENTS, DURABLE, 0).await.unwrap();
    let (records, _) = read_to(&mut reader, last).await;
    assert_eq!(seqs(&records), (1..=10).collect::<Vec<_>>());
    assert_eq!((&*records[0].subject, &*records[1].subject), (names::CELL, SUBJECT));
    assert_eq!(records[1].payload, "message 0");
    assert!(records[1].time_us >= records[0].time_us && records[0].time_us > 1_600_000_000_000_000);
    drop(reader);
    // back, and forward
    for position in [3, 8] {
        let mut reader = Reader::open(&bus, names::EVENTS, DURABLE, position).await.unwrap();
        let (records, _) = read_to(&mut reader, last).await;
        assert_eq!(seqs(&records), (position + 1..=10).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_goes_on_within_half_a_second_of_the_servers_return() {
    let mut server = NatsServer::start();
    let bus = provisioned(&server).await;
    let log = Log::new(&bus);
    let last = write(&log, 5, 0).await;
    let mut reader = Reader::open(&bus, names::EVENTS, DURABLE, 0).await.unwrap();
    read_to(&mut reader, last).await;
    for round in 0..3_u64 {
        server.kill();
        // long enough for several failed attempts to reconnect
        assert!(tokio::time::timeout(Duration::from_millis(1500), reader.next()).await.is_err());
        server.restart();
        let back = Instant::now();
        let before = last + round;
        let writer = tokio::spawn({
            let log = log.clone();
            async move { write(&log, 1, before).await }
        });
        let (records, reconnects) = read_to(&mut reader, before + 1).await;
        let took = back.elapsed();
        println!("round {round}: read again {took:?} after the server's return");
        assert_eq!((seqs(&records), reconnects), (vec![before + 1], 1));
        assert!(took < Duration::from_millis(500), "{took:?}");
        writer.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_or_repeated_when_the_server_dies_under_load() {
    let mut server = NatsServer::start();
    let bus = provisioned(&server).await;
    let log = Log::new(&bus);
    let writer = tokio::spawn({
        let log = log.clone();
        async move {
            let mut last = 0;
            for i in 0..600 {
                loop {
                    match log.publish(SUBJECT, last, Bytes::from(format!("{i}"))).await.unwrap() {
                        Outcome::Stored(seq) => last = seq,
                        Outcome::Unknown | Outcome::InFlight => continue,
                        // the unknown one was stored after all
                        Outcome::Conflict => last = log.last_on(SUBJECT).await.unwrap().unwrap().seq,
                    }
                    break;
                }
            }
            last
        }
    });
    let mut reader = Reader::open(&bus, names::EVENTS, DURABLE, 0).await.unwrap();
    let mut records = Vec::new();
    for mark in [150, 400] {
        records.extend(read_to(&mut reader, mark).await.0);
        server.kill();
        server.restart();
    }
    records.extend(read_to(&mut reader, 601).await.0);
    assert_eq!(writer.await.unwrap(), 601);
    assert_eq!(seqs(&records), (1..=601).collect::<Vec<_>>());
    let payloads: Vec<String> =
        records[1..].iter().map(|r| String::from_utf8_lossy(&r.payload).into()).collect();
    assert_eq!(payloads, (0..600).map(|i| i.to_string()).collect::<Vec<_>>());
}

#[tokio::test]
async fn two_readers_on_one_durable_are_found_out() {
    let server = NatsServer::start();
    let bus = provisioned(&server).await;
    let other = connect(&server).await;
    let log = Log::new(&bus);
    let mut mine = Reader::open(&bus, names::EVENTS, DURABLE, 0).await.unwrap();
    let mut theirs = Reader::open(&other, names::EVENTS, DURABLE, 0).await.unwrap();
    let writer = tokio::spawn(async move { write(&log, 2000, 0).await });
    let fight = async {
        loop {
            tokio::select! {
                result = mine.next() => if let Err(error) = result { break error },
                result = theirs.next() => if let Err(error) = result { break error },
            }
        }
    };
    let error = tokio::time::timeout(Duration::from_secs(20), fight).await.expect("noticed");
    assert!(matches!(error, BusError::SharedDurable { .. }), "{error}");
    writer.abort();
}

#[tokio::test]
async fn a_log_that_is_shorter_than_the_image_is_refused_at_open_and_after_a_reconnect() {
    let mut server = NatsServer::start();
    let bus = provisioned(&server).await;
    let last = write(&Log::new(&bus), 9, 0).await;
    let error = Reader::open(&bus, names::EVENTS, DURABLE, last + 1).await.err().unwrap();
    assert!(matches!(error, BusError::LogShorter { position: 11, last: 10, .. }), "{error}");
    // given a reader at the end, when the log comes back shorter
    let mut reader = Reader::open(&bus, names::EVENTS, DURABLE, last).await.unwrap();
    server.kill();
    std::fs::remove_dir_all(server.dir().join("data")).unwrap();
    server.restart();
    let fresh = provisioned(&server).await;
    let error = reader.next().await.unwrap_err();
    assert!(matches!(error, BusError::LogShorter { position: 10, last: 1, .. }), "{error}");
    drop(fresh);
}

#[tokio::test]
async fn a_hole_in_the_log_stops_the_reader() {
    let server = NatsServer::start();
    // given a log of the same name that lets messages be deleted
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let config = async_nats::jetstream::stream::Config {
        name: names::EVENTS.into(),
        subjects: vec!["muster.evt.*.*".into()],
        ..Default::default()
    };
    let stream = js.create_stream(config).await.unwrap();
    let bus = connect(&server).await;
    write(&Log::new(&bus), 5, 0).await;
    stream.delete_message(3).await.unwrap();
    let mut reader = Reader::scan(&bus, names::EVENTS, None, 0).await.unwrap();
    let Incoming::Batch(good) = reader.next().await.unwrap() else { panic!("a batch first") };
    assert_eq!(seqs(&good), [1, 2]);
    let error = reader.next().await.unwrap_err();
    assert!(matches!(error, BusError::Gap { expected: 3, found: 4, .. }), "{error}");
    // and a log whose beginning is gone is refused at once
    stream.purge().sequence(5).await.unwrap();
    let error = Reader::scan(&bus, names::EVENTS, None, 2).await.err().unwrap();
    assert!(matches!(error, BusError::LogCut { position: 2, first: 5, .. }), "{error}");
}

#[tokio::test]
async fn a_reader_waits_for_provisioning() {
    let server = NatsServer::start();
    let bus = connect(&server).await;
    let open = tokio::spawn({
        let bus = bus.clone();
        async move { Reader::open(&bus, names::EVENTS, DURABLE, 0).await.map(|_| ()) }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!open.is_finished());
    provisioned(&server).await;
    tokio::time::timeout(Duration::from_secs(5), open).await.expect("goes on").unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn catching_up_is_fast_and_a_lone_message_comes_at_once() {
    const MESSAGES: u64 = 200_000;
    let server = NatsServer::start();
    let bus = provisioned(&server).await;
    // given many small messages, written without fence or sync of each: only the reading is measured
    let js = async_nats::jetstream::new(async_nats::connect(server.url()).await.unwrap());
    let mut config = js.get_stream("SIGNALS").await.unwrap().cached_info().config.clone();
    config.max_messages_per_subject = -1;
    js.update_stream(config).await.unwrap();
    let payload = Bytes::from(vec![7_u8; 200]);
    let mut last = None;
    for i in 0..MESSAGES {
        let ack = js.publish(format!("muster.sig.acme.s{}", i % 8), payload.clone()).await.unwrap();
        if i % 1000 == 999 {
            last = Some(ack.await.unwrap().sequence);
        }
    }
    assert_eq!(last, Some(MESSAGES));
    let start = Instant::now();
    let mut reader = Reader::open(&bus, names::SIGNALS, "autotune-0-0", 0).await.unwrap();
    let mut count = 0;
    while reader.position() < MESSAGES {
        if let Incoming::Batch(batch) = reader.next().await.unwrap() {
            count += batch.len() as u64;
        }
    }
    let rate = count as f64 / start.elapsed().as_secs_f64();
    println!("caught up with {count} messages at {rate:.0}/s");
    assert_eq!(count, MESSAGES);
    // and one by one
    let mut times = Vec::new();
    for _ in 0..200 {
        let start = Instant::now();
        bus.send_signal("acme", "one", payload.clone()).await.unwrap();
        let Incoming::Batch(batch) = reader.next().await.unwrap() else { panic!("no reconnect here") };
        assert_eq!(batch.len(), 1);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("publish to delivery: p50 {:?} p99 {:?}", times[100], times[197]);
    assert!(times[100] < Duration::from_millis(50));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_hangs_and_comes_to_itself_is_read_on() {
    let server = NatsServer::start();
    let bus = provisioned(&server).await;
    let log = Log::new(&bus).with_deadline(Duration::from_secs(1));
    let last = write(&log, 3, 0).await;
    let mut reader = Reader::open(&bus, names::EVENTS, DURABLE, 0).await.unwrap();
    read_to(&mut reader, last).await;
    server.pause();
    assert_eq!(log.publish(SUBJECT, last, Bytes::from_static(b"a")).await.unwrap(), Outcome::Unknown);
    // longer than the reader waits for a heartbeat
    assert!(tokio::time::timeout(Duration::from_secs(7), reader.next()).await.is_err());
    server.resume();
    // the unknown one was stored after all, once
    let (records, _) = read_to(&mut reader, last + 1).await;
    assert_eq!(records.iter().map(|r| r.payload.as_ref()).collect::<Vec<_>>(), [b"a"]);
    assert_eq!(log.publish(SUBJECT, last, Bytes::from_static(b"a")).await.unwrap(), Outcome::Conflict);
}

#[tokio::test]
async fn a_reader_opened_at_the_end_gets_only_what_comes_later() {
    let server = NatsServer::start();
    let bus = provisioned(&server).await;
    bus.send_from_cluster("west", Bytes::from_static(b"old")).await.unwrap();
    let end = bus.ends(names::CLUSTERS).await.unwrap().last;
    let mut reader = Reader::open(&bus, names::CLUSTERS, "desk-west-0", end).await.unwrap();
    bus.send_from_cluster("west", Bytes::from_static(b"new")).await.unwrap();
    let (records, _) = read_to(&mut reader, end + 1).await;
    assert_eq!(records[0].payload, "new");
}
