//! Faults put in on purpose, per thread, to prove that the simulator finds them.

use std::cell::Cell;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Starts whatever bears the name, also when the desk granted another object.
    StartWithoutUid,
}

thread_local! {
    static ACTIVE: Cell<Option<Defect>> = const { Cell::new(None) };
}

pub fn set(defect: Option<Defect>) {
    ACTIVE.set(defect);
}

pub fn is(defect: Defect) -> bool {
    ACTIVE.get() == Some(defect)
}
