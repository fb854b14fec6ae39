//! The wire: what stands on the log and on the subjects around it.
//!
//! One `.proto` file per owning service (`muster/v1/*.proto`), the envelope that
//! carries facts, requests, and what desk and agent tell each other. Fields are only
//! ever added. A service publishes the facts of its own file and no others.

#![allow(clippy::all, rustdoc::invalid_html_tags)]

include!(concat!(env!("OUT_DIR"), "/muster.v1.rs"));

pub use fact::Kind;
