//! The defect must do its harm, or a simulator that misses it would look good.
#![cfg(feature = "defects")]

mod world;

use std::collections::BTreeMap;

use muster_plan::{
    actions,
    defect::{Defect, set},
};
use muster_proto::{Phase, Verb};
use world::{World, desired, key, leg};

#[test]
fn start_without_uid_starts_an_object_that_was_never_granted() {
    let mut w = World::with_cpu(1000);
    w.put(key(1), Phase::Stopped);
    let wish = desired(1, 1, vec![leg(1, Verb::Start, "granted-before")]);
    assert_eq!(actions(&wish, &w.seen, &BTreeMap::new()).actions.len(), 0);
    set(Some(Defect::StartWithoutUid));
    assert_eq!(actions(&wish, &w.seen, &BTreeMap::new()).actions.len(), 1);
    set(None);
}
