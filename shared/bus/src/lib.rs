//! NATS JetStream for muster: everything that passes between services goes through this crate, and it is the
//! only one that knows the NATS client. It moves opaque bytes; what they mean is no business of it.
//!
//! - [`provision`](provision::provision) makes streams and durables from a [`Layout`], as a step and a user of
//!   its own; [`server`] writes the server's configuration from the same layout: one account for the control
//!   plane, one for each tenant and cluster.
//! - [`Log`] publishes decisions on EVENTS, fenced by the sequence of their subject's last message, and tells
//!   *stored*, *conflict*, *in flight* and *unknown* apart.
//! - [`Reader`] reads a stream from a position, through restarts of the server, and notices when the log is
//!   not what it was.
//! - [`Bus`] holds the rest: requests, bodies, what goes to and comes from clusters, notices, asks.
//! - [`names`] spells every subject, stream and durable.

mod ask;
mod bus;
mod connect;
mod error;
pub mod layout;
mod link;
mod log;
mod mail;
pub mod names;
pub mod provision;
mod pull;
mod read;
mod record;
pub mod server;

pub use ask::{Ask, Serving};
pub use bus::Bus;
pub use connect::{Credentials, CredentialsFile, OLDEST_SERVER, Options, inbox_prefix};
pub use error::BusError;
pub use layout::Layout;
pub use log::{Ends, Log, Outcome};
pub use read::{Incoming, Reader};
pub use record::{HEADER_KEY, HEADER_REQUEST, Headers, Record};
