//! Given facts and reports, when the desk decides, then these facts and this desired state.

mod common;
mod desired;
mod facts;
mod rest;
