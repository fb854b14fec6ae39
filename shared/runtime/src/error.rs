//! Why a service ended other than by request.

use std::path::PathBuf;

use muster_bus::BusError;
use muster_core::{CorruptRow, Refused, Stop};
use muster_observe::HttpError;
use muster_store::StoreError;

/// Why a service could not go on. Nothing of it was half done: the log has what was published, and the image
/// some earlier state.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The log and the image don't belong together.
    #[error("refused: {0}")]
    Refused(#[from] Refused),
    /// What was folded, or decided, can't be right.
    #[error("stopped: {0}")]
    Stop(#[from] Stop),
    /// The image can't be opened or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The image was read, but its rows are not what was committed.
    #[error(
        "the image in {} is corrupt: {source}. The log holds everything that was in it: start again with \
         `--rebuild` to fold it anew",
        path.display()
    )]
    Rows {
        /// Folder of the image.
        path: PathBuf,
        /// What was found.
        source: CorruptRow,
    },
    /// The stream of requests lost messages that the log has answered; the log itself may be whole.
    #[error(
        "refused: {0}. The log has answered requests that the stream no longer holds: restore the stream"
    )]
    Requests(BusError),
    /// NATS refuses, or its log is damaged.
    #[error(transparent)]
    Bus(#[from] BusError),
    /// Health and metrics can't be served.
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl RunError {
    /// The process's exit code: 3 log and image don't belong together, 4 the image, 5 stopped by an
    /// invariant or a broken chain, 1 everything else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) | Self::Requests(_) => 3,
            Self::Store(_) | Self::Rows { .. } => 4,
            Self::Stop(_) => 5,
            Self::Bus(_) | Self::Http(_) => 1,
        }
    }
}

/// As [`of_log`], of REQUESTS.
pub(crate) fn of_requests(error: BusError) -> RunError {
    match error {
        BusError::LogShorter { .. } => RunError::Requests(error),
        other => other.into(),
    }
}

/// What the bus found out about the log is told like what `verify` finds.
pub(crate) fn of_log(error: BusError) -> RunError {
    match error {
        BusError::LogShorter { position, last, .. } => Refused::LogIsShorter { last, position }.into(),
        BusError::LogCut { position, first, .. } => Refused::Cut { first, position }.into(),
        other => other.into(),
    }
}
