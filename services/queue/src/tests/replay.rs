//! The same log through the real driver, and through an image of it.

use std::collections::BTreeMap;

use muster_core::{Driver, Effect, Identity, Image, Input, Record, WriteSet, hash_of, sha256};
use muster_proto::{Envelope, Fact};
use prost::Message;

use super::world::*;
use crate::{Config, Queue, State};

fn identity() -> Identity {
    Identity { partition: "0".into(), instance: "test".into(), build: "test".into() }
}

/// The world's log as messages of EVENTS, with its chain.
fn records(world: &World) -> Vec<Record> {
    let mut last: BTreeMap<String, (u64, [u8; 32])> = BTreeMap::new();
    let mut records = Vec::new();
    for (seq, (service, partition, time, facts)) in (1..).zip(&world.log) {
        let subject = format!("muster.evt.{service}.{partition}");
        let (prev, hash) = last.get(&subject).copied().unwrap_or_default();
        let envelope = Envelope {
            generation: GENERATION,
            service: service.clone(),
            partition: partition.clone(),
            prev,
            prev_hash: if prev == 0 { Default::default() } else { hash.to_vec().into() },
            facts: facts.iter().map(|fact| Fact { kind: Some(fact.clone()) }).collect(),
            ..Envelope::default()
        };
        let payload: bytes::Bytes = envelope.encode_to_vec().into();
        last.insert(subject.clone(), (seq, sha256(&payload)));
        records.push(Record { seq, subject, time: *time, payload });
    }
    records
}

fn image(effects: Vec<Effect>) -> Image {
    let mut rows = BTreeMap::new();
    let mut image = Image::default();
    for effect in effects {
        let Effect::Commit(WriteSet { rows: written, meta }) = effect else { continue };
        image.meta = meta;
        for (table, key, row) in written {
            match row {
                Some(row) => rows.insert((table.to_owned(), key), row),
                None => rows.remove(&(table.to_owned(), key)),
            };
        }
    }
    image.rows = rows.into_iter().map(|((table, key), row)| (table, key, row)).collect();
    image
}

fn indexes(state: &State) -> String {
    let (due, ages, owned) = (&state.due, &state.key_ages, &state.owned);
    let rows = |table: String| table;
    [
        rows(format!("{:?}", due.iter().collect::<Vec<_>>())),
        rows(format!("{:?}", ages.iter().collect::<Vec<_>>())),
        rows(format!("{:?}", owned.iter().collect::<Vec<_>>())),
        rows(format!("{:?}", state.erasing().collect::<Vec<_>>())),
    ]
    .join("\n")
}

/// Folding the log anew, and going on from its image, gives the same state, indexes included.
pub(super) fn replays_alike(world: &mut World) {
    let mut driver: Driver<Queue> = Driver::new(Config::default(), identity());
    let mut effects = Vec::new();
    for chunk in records(world).chunks(7) {
        effects.extend(driver.step(None, Input::Records(chunk.to_vec())));
    }
    assert_eq!(driver.stopped(), None);
    let hash = hash_of(&mut world.queue.state);
    assert_eq!(driver.position().hash, hash);
    assert_eq!(indexes(driver.state()), indexes(&world.queue.state));
    let mut restored: Driver<Queue> = Driver::restore(Config::default(), identity(), image(effects)).unwrap();
    assert_eq!(restored.position().hash, hash);
    assert_eq!(indexes(restored.state()), indexes(&world.queue.state));
}
