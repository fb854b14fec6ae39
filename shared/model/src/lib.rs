//! The words of the domain that all services share.
//!
//! - [`lifecycle`]: the one fold that judges every fact about a workload at that fact's own
//!   sequence. A fact that no longer holds is void for every reader alike.
//! - [`Amounts`]: quantities per resource, integers with checked arithmetic.
//! - [`PodSet`]: replicas of one shape, as rows keep them, and the nodes that they may use.

mod amounts;
pub mod lifecycle;
mod nodes;
mod podset;
pub mod quantity;

pub use amounts::{Amounts, Overflow};
pub use lifecycle::{Lifecycle, Verdict};
pub use nodes::{Labels, Taint, repelled_by};
pub use podset::{PodSet, Requirement, Toleration, total_requests};
