//! The durable image of a service's state: how far it has folded the log, and its rows there.
//!
//! The log is the truth; an image only saves folding it again. So nothing here is flushed to disk before the
//! next step goes on: after a crash an image may be *older* than what was committed, but it is always whole.
//! Rows and position go into RocksDB in one batch, whose checksummed record is read back entirely or not at
//! all, and what lies after the first damaged record is not read.
//!
//! An image that can't be trusted is never mended in place: [`StoreError`] names the folder and what to do,
//! and [`rebuild`] starts an empty one, to be filled from the log.

mod error;
mod options;
mod rows;
mod store;

pub use error::StoreError;
pub use rows::FORMAT;
pub use store::{Store, rebuild};
