//! Test-only defects: the simulator switches one on and must find it.
//!
//! Without the cargo feature `defects` every question is answered by a constant `false`, so a
//! production build has none of them.

/// What the simulator can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The log takes a publish whatever sequence its writer expected.
    NoFence,
    /// A fact that no longer holds takes effect all the same.
    LateFacts,
    /// The store keeps rows and position in two writes.
    PositionOutsideBatch,
    /// Quota goes back when a barrier stands, though pods still run.
    ReleaseAtBarrier,
    /// A request may take effect more than once.
    NoRequestCursor,
    /// The agent starts whatever bears the name, not only the granted uid.
    StartWithoutUid,
    /// The desk believes reports that were made before the leg's last fact.
    ReportsWithoutEcho,
}

#[cfg(feature = "defects")]
mod switch {
    use super::Defect;
    use std::cell::Cell;

    thread_local!(static ON: Cell<Option<Defect>> = const { Cell::new(None) });

    /// Switches one defect on for this thread, or all off.
    pub fn set(defect: Option<Defect>) {
        ON.set(defect);
    }

    /// Whether the defect is on in this thread.
    #[must_use]
    pub fn on(defect: Defect) -> bool {
        ON.get() == Some(defect)
    }
}

#[cfg(not(feature = "defects"))]
mod switch {
    /// Always false: this build has no defects to switch on.
    #[must_use]
    pub const fn on(_: super::Defect) -> bool {
        false
    }
}

pub use switch::*;
