//! A service at work on a real server: through kills, restarts, rivals and bad logs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::time::{Duration, Instant};

use bytes::Bytes;
use common::toy::ToyConfig;
use common::*;
use muster_bus::Log;
use muster_core::Refused;
use muster_runtime::{Question, RunError, replay};
use muster_store::Store;
use muster_testkit::{NatsServer, TempDir, eventually};

type Bus = muster_bus::Bus;

/// Everything was taken, once, in order, and a refold of the log comes to each hash that was recorded.
async fn assert_all_taken(bus: &Bus, count: usize) {
    let taken = taken(bus).await;
    assert_eq!(taken.len(), count);
    assert!(taken.is_sorted_by(|a, b| a < b), "each once, in order: {taken:?}");
    let (refolded, _) = replay::<common::toy::Toy>(ToyConfig::default(), "0", bus, None).await.unwrap();
    assert_eq!(refolded.mismatches, []);
    assert_eq!((refolded.too_old, refolded.halts), (0, vec![]));
    assert!(refolded.compared > 0);
    let stands = stands(bus, refolded.position).await.unwrap();
    assert_eq!(stands.hash, format!("{:032x}", refolded.hash), "the running service agrees");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_becomes_one_fact_and_what_is_done_is_purged() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    let toy = start(ToyConfig::default(), host(&server, image.path(), 0));
    submit(&bus, 0..300).await;
    until_taken(&bus, 300).await;
    assert_all_taken(&bus, 300).await;
    eventually(Duration::from_secs(10), || async { bus.ends("REQUESTS").await.unwrap().messages == 0 }).await;
    let explain = Question::Explain("w00000007-5-0".into());
    let answer = muster_runtime::ask(&bus, "toy", "0", &explain, Duration::from_secs(5)).await.unwrap();
    assert_eq!((answer.generation.as_str(), answer.why.unwrap().reason.as_str()), ("00000007", "Taken"));
    let nonsense = Question::Explain("nonsense".into());
    let error = muster_runtime::ask(&bus, "toy", "0", &nonsense, Duration::from_secs(5)).await.unwrap_err();
    assert!(error.to_string().contains("ids look like"), "{error}");
    toy.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_take_everything_once_in_spite_of_each_other() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let (a, b) = (TempDir::new("a"), TempDir::new("b"));
    let first = start(ToyConfig::default(), host(&server, a.path(), 0));
    let second = start(ToyConfig::default(), host(&server, b.path(), 1));
    submit(&bus, 0..400).await;
    until_taken(&bus, 400).await;
    assert_all_taken(&bus, 400).await;
    let last = Log::new(&bus).last_seq().await.unwrap();
    first.stop().unwrap();
    // now only the second one answers
    let stands = stands(&bus, last).await.unwrap();
    assert_eq!(stands.instance, "toy-1");
    second.stop().unwrap();
    // the images of both say the same
    let meta = |dir: &TempDir| Store::open(dir.path()).unwrap().1.unwrap().meta;
    assert_eq!(meta(&b).position, last);
    assert_eq!(format!("{:032x}", meta(&b).state_hash), stands.hash);
    assert_eq!(meta(&a).generation, meta(&b).generation);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_costs_nothing_but_time() {
    let mut server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let (a, b) = (TempDir::new("a"), TempDir::new("b"));
    let first = start(ToyConfig::default(), host(&server, a.path(), 0));
    let second = start(ToyConfig::default(), host(&server, b.path(), 1));
    submit(&bus, 0..300).await;
    for n in 0..3 {
        until_taken(&bus, 20 + n * 60).await;
        server.kill();
        std::thread::sleep(Duration::from_millis(100));
        server.restart();
        submit(&bus, 0..50).await;
    }
    // some submits may have been stored twice, as their sender could not know
    let requests = || async { usize::try_from(bus.ends("REQUESTS").await.unwrap().last).unwrap() };
    let count = requests().await;
    assert!(count >= 450);
    until_taken(&bus, count).await;
    assert_all_taken(&bus, count).await;
    assert!(!first.is_over() && !second.is_over());
    first.stop().unwrap();
    second.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_goes_on_from_the_image_and_a_rebuild_comes_to_the_same() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    for round in 1..=3 {
        let mut host = host(&server, image.path(), 0);
        host.rebuild = round == 3;
        let toy = start(ToyConfig::default(), host);
        submit(&bus, 0..100).await;
        until_taken(&bus, round * 100).await;
        assert_all_taken(&bus, round * 100).await;
        let started = Instant::now();
        toy.stop().unwrap();
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
        let meta = Store::open(image.path()).unwrap().1.unwrap().meta;
        assert_eq!(meta.position, Log::new(&bus).last_seq().await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn time_wakes_an_idle_service() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    let config = ToyConfig { tick_us: 50_000, ..ToyConfig::default() };
    let toy = start(config, host(&server, image.path(), 0));
    eventually(Duration::from_secs(20), || async { Log::new(&bus).last_seq().await.unwrap() > 20 }).await;
    let times: Vec<i64> = log(&bus).await.iter().skip(2).map(|record| record.time.0).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 50_000), "{times:?}");
    toy.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_reach_the_service_and_what_is_none_is_dropped() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    let mut host = host(&server, image.path(), 0);
    host.reports = true;
    let toy = start(ToyConfig::default(), host);
    submit(&bus, 0..1).await;
    until_taken(&bus, 1).await;
    let report = |cluster: &str| {
        let report = muster_proto::Report { cluster: cluster.into(), ..muster_proto::Report::default() };
        Bytes::from(prost::Message::encode_to_vec(&report))
    };
    let heard = async || {
        // bytes that are none, and another cluster's name, before each good one
        bus.send_from_cluster("west", Bytes::from_static(b"\xff")).await.unwrap();
        bus.send_from_cluster("west", report("east")).await.unwrap();
        bus.send_from_cluster("west", report("west")).await.unwrap();
        let explain = Question::Explain("w00000007-1-0".into());
        let answer = muster_runtime::ask(&bus, "toy", "0", &explain, Duration::from_secs(5)).await.unwrap();
        answer.why.unwrap().numbers[0].1.parse::<u64>().unwrap()
    };
    // the service listens from some moment on
    let mut sent = 0;
    eventually(Duration::from_secs(10), || {
        sent += 1;
        let heard = heard();
        async move { heard.await > 0 }
    })
    .await;
    assert!(heard().await <= sent + 1, "only the good ones count");
    toy.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wall_clock_that_is_off_stops_deciding_until_it_is_put_right() {
    use std::sync::atomic::{AtomicI64, Ordering};
    static OFF: AtomicI64 = AtomicI64::new(3_600_000_000);
    fn wall() -> muster_core::Timestamp {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        muster_core::Timestamp(now.as_micros() as i64 + OFF.load(Ordering::Relaxed))
    }
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    let mut host = host(&server, image.path(), 0);
    host.wall = wall;
    let toy = start(ToyConfig::default(), host);
    submit(&bus, 0..3).await;
    let not_ready = || async { stands(&bus, 0).await.ok().and_then(|answer| answer.not_ready) };
    eventually(Duration::from_secs(10), || async {
        not_ready().await.is_some_and(|problem| problem.contains("3600000 ms off"))
    })
    .await;
    assert_eq!(taken(&bus).await, Vec::<u64>::new());
    OFF.store(0, Ordering::Relaxed);
    until_taken(&bus, 3).await;
    eventually(Duration::from_secs(10), || async { not_ready().await.is_none() }).await;
    toy.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_that_breaks_an_invariant_stops_the_service_and_is_not_published() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    let config = ToyConfig { break_at: 5, ..ToyConfig::default() };
    let toy = start(config, host(&server, image.path(), 0));
    submit(&bus, 0..5).await;
    let error = tokio::task::spawn_blocking(|| toy.join()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("no request is the last of all"), "{error}");
    assert_eq!(error.exit_code(), 5);
    assert_eq!(taken(&bus).await.len(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_or_another_log_is_refused_and_an_accepted_loss_rebuilds() {
    let mut server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let image = TempDir::new("image");
    let toy = start(ToyConfig::default(), host(&server, image.path(), 0));
    submit(&bus, 0..20).await;
    until_taken(&bus, 20).await;
    // when the server comes back without its data, while the service runs
    server.kill();
    std::fs::remove_dir_all(server.dir().join("data")).unwrap();
    server.restart();
    let provisioning = provisioned(&server, 8).await;
    // then the running service stops, whichever stream it looked at first
    let error = tokio::task::spawn_blocking(|| toy.join()).await.unwrap().unwrap_err();
    let shorter = matches!(error, RunError::Refused(Refused::LogIsShorter { .. }) | RunError::Requests(_));
    assert!(shorter, "{error}");
    assert_eq!(error.exit_code(), 3);
    assert_eq!(Log::new(&provisioning).last_seq().await.unwrap(), 1, "and has published nothing");
    // and so does one that starts
    let again = start(ToyConfig::default(), host(&server, image.path(), 0));
    let error = tokio::task::spawn_blocking(|| again.join()).await.unwrap().unwrap_err();
    assert!(matches!(error, RunError::Refused(Refused::LogIsShorter { .. })), "{error}");
    // when an operator accepts the loss
    let cell = Log::new(&provisioning);
    let first = cell.get(1).await.unwrap().unwrap().payload;
    let hash = Bytes::copy_from_slice(&muster_core::sha256(&first));
    let accepted = generation_started(9, 7, 1, hash);
    cell.publish(muster_bus::names::CELL, 1, accepted).await.unwrap();
    // then the image is folded anew
    let toy = start(ToyConfig::default(), host(&server, image.path(), 0));
    submit(&provisioning, 0..20).await;
    until_taken(&provisioning, 20).await;
    assert_all_taken(&provisioning, 20).await;
    assert_eq!(stands(&provisioning, 0).await.unwrap().generation, "00000009");
    toy.stop().unwrap();
}
