//! A log folded anew, from the server and from a file, and what is found when it was meddled with.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use common::toy::{Toy, ToyConfig};
use common::*;
use muster_core::{Record, Stop};
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
