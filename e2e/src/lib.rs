//! End-to-end: real servers, real processes, the real binary.
//!
//! A [`Cell`] is one `muster up` in a folder of its own, with its own home, contexts and ports, so that any number of
//! them run side by side and none sees a user's own. Tests and the demo type the commands that a user would type
//! and read what a user would read; [`Cell::kill`] is `kill -9`. Whatever a cell started ends with it.
//!
//! [`journal`] judges what pods wrote to a file outside muster: the only witness that muster can't deceive.
//! The programs `demo` and `bench` are built on the same.

mod binary;
mod cell;
pub mod foreign;
pub mod journal;
pub mod manifest;
mod said;

pub use binary::{muster, nats_server, python, ray_venv};
pub use cell::{Cell, Setup, eventually};
pub use said::Said;
