//! The judges. They see the log as it is stored and the processes as they run, and nothing of any service's state.

mod answers;
mod hashes;
mod ledger;
mod processes;

pub use answers::Answers;
pub use hashes::Hashes;
pub use ledger::{Ledger, Name};
pub use processes::{Processes, Quota};

/// A property that does not hold, and what shows it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{property}: {detail}")]
pub struct Violation {
    pub property: &'static str,
    pub detail: String,
}

impl Violation {
    pub fn new(property: &'static str, detail: impl Into<String>) -> Self {
        Self { property, detail: detail.into() }
    }
}
