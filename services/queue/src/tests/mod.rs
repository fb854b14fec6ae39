//! Given facts and requests, when the queue decides, then these facts.

mod any_order;
mod replay;
mod requests;
mod rounds;
mod world;
