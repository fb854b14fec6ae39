//! Exit codes, and errors that carry one.

/// An error that ends the program with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Exit {
    pub code: u8,
    pub message: String,
}

pub const FAILED: u8 = 1;
pub const NOT_FOUND: u8 = 3;
pub const REJECTED: u8 = 4;
pub const NO_CONNECTION: u8 = 5;

pub fn with(code: u8, message: impl Into<String>) -> anyhow::Error {
    Exit { code, message: message.into() }.into()
}

/// The code that an error ends the program with.
pub fn code_of(error: &anyhow::Error) -> u8 {
    if let Some(exit) = error.downcast_ref::<Exit>() {
        return exit.code;
    }
    FAILED
}
