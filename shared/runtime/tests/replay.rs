//! A log folded anew, from the server and from a file, and what is found when it was meddled with.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use common::toy::{Toy, ToyConfig};
use common::*;
use muster_core::{Driver, Identity, Input, Record, Stop, Timestamp};
use muster_proto::Envelope;
use muster_runtime::{Refold, ReplayError, export, replay, replay_file};
use muster_testkit::{NatsServer, TempDir};
use prost::Message;

fn refold(records: Vec<Record>) -> Result<muster_runtime::Refolded, Stop> {
    let mut refold = Refold::<Toy>::new(ToyConfig::default(), "0", None);
    refold.push(records)?;
    Ok(refold.finish()?.0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refold_finds_what_was_meddled_with() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let folder = TempDir::new("toy");
    let toy = start(ToyConfig::default(), host(&server, &folder.path().join("image"), 0));
    for n in 0..10 {
        submit(&bus, 0..5).await;
        until_taken(&bus, n * 5 + 5).await;
    }
    toy.stop().unwrap();
    let records = log(&bus).await;
    let (live, _) = replay::<Toy>(ToyConfig::default(), "0", &bus, None).await.unwrap();
    assert_eq!((live.generation, live.mismatches.len()), (7, 0));
    assert_eq!(live.messages, records.len() as u64);
    assert_eq!(live.facts, 51);
    assert!(live.compared >= 10);
    // the same from a file
    let file = folder.path().join("log");
    assert_eq!(export::export(&bus, &file, None).await.unwrap(), live.messages);
    let (filed, _) = replay_file::<Toy>(ToyConfig::default(), "0", &file, None).unwrap();
    assert_eq!((filed.position, filed.hash, filed.compared), (live.position, live.hash, live.compared));
    // and to an earlier sequence
    let (part, driver) = replay_file::<Toy>(ToyConfig::default(), "0", &file, Some(3)).unwrap();
    assert_eq!(part.position, 3);
    assert_eq!(driver.state().taken.len() as u64, part.facts - 1);

    // a byte flipped in the file
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = replay_file::<Toy>(ToyConfig::default(), "0", &file, None).err().unwrap();
    assert!(matches!(error, ReplayError::Export(_)), "{error}");

    // a message left out, changed, or saying another hash
    let at = records.len() - 3;
    let mut left_out = records.clone();
    left_out.remove(at);
    assert!(matches!(refold(left_out), Err(Stop::Gap { .. })));
    let change = |change: &dyn Fn(&mut Envelope)| {
        let mut records = records.clone();
        let mut envelope = Envelope::decode(records[at].payload.clone()).unwrap();
        change(&mut envelope);
        records[at].payload = envelope.encode_to_vec().into();
        records
    };
    let altered = refold(change(&|envelope| envelope.facts.clear()));
    assert!(matches!(altered, Err(Stop::ChainAltered { .. })));
    let mut lied = change(&|envelope| envelope.state_hash = vec![1; 16].into());
    lied.truncate(at + 1);
    let found = refold(lied).unwrap().mismatches;
    assert_eq!(found.iter().map(|mismatch| mismatch.seq).collect::<Vec<_>>(), [records[at].seq]);
}

/// A log as the toy would write it, `facts` in each message.
fn long_log(messages: u64, facts: u64) -> Vec<Record> {
    let identity = || Identity { partition: "0".into(), instance: "t".into(), build: "t".into() };
    let mut driver = Driver::<Toy>::new(ToyConfig::default(), identity());
    let mut record = Record {
        seq: 1,
        subject: "muster.evt.cell.0".into(),
        time: Timestamp(1),
        payload: generation_started(7, 0, 0, Default::default()),
    };
    let mut records = Vec::new();
    for n in 0..messages {
        driver.take(None, Input::Records(vec![record.clone()]));
        records.push(record.clone());
        let request = |i: u64| muster_core::RequestMessage {
            seq: n * facts + i + 1,
            tenant: "acme".into(),
            principal: "alice".into(),
            time: Timestamp(1),
            key: None,
            payload: Default::default(),
        };
        for i in 0..facts {
            let (request, body) = (request(i), Default::default());
            let stored = muster_core::Incoming::BodyStored { request: request.seq, index: 0, body };
            driver.take(None, Input::Incoming(muster_core::Incoming::Request(request)));
            driver.take(None, Input::Incoming(stored));
        }
        let effects = driver.conclude(Some(Timestamp(n as i64 + 2)));
        let muster_core::Effect::Publish { subject, payload, .. } = &effects[0] else {
            panic!("{effects:?}")
        };
        record = Record {
            seq: n + 2,
            subject: subject.clone(),
            time: Timestamp(n as i64 + 2),
            payload: payload.clone(),
        };
        driver.take(None, Input::Published(muster_core::Outcome::Stored(n + 2)));
    }
    records
}

/// Seconds of CPU that this thread has used: other work on the machine does not count.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse::<f64>().unwrap() / 1e9
}

/// Run by hand: `cargo test -p muster-runtime --test replay -- --ignored --nocapture measure`.
#[test]
#[ignore = "a measurement"]
fn measure_refolding() {
    for (messages, facts) in [(200_000, 1), (40_000, 8), (4_000, 100)] {
        let log = long_log(messages, facts);
        let before = cpu();
        let found = refold(log).unwrap();
        let per_cpu = found.facts as f64 / (cpu() - before);
        println!(
            "{facts} facts a message: {:.0} facts/s, {per_cpu:.0} a CPU second ({} messages, {} hashes compared, {} too old)",
            found.facts_per_s(),
            found.messages,
            found.compared,
            found.too_old
        );
    }
}
