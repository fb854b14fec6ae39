//! What the user's commands do.

pub mod apply;
pub mod change;
pub mod context;
pub mod events;
pub mod get;
pub mod logs;
pub mod show;
pub mod submit;
