//! What can go wrong with an image, with its folder and the mend.

use std::path::{Path, PathBuf};

use rocksdb::ErrorKind;

/// Why an image can't be opened, read or written. The log is not affected by any of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Bytes on disk are not what was written.
    #[error(
        "the image in {path} is corrupt: {reason}. The log holds everything that was in it: start again with \
         `--rebuild` to fold it anew"
    )]
    Corrupt {
        /// Folder of the image.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// Another process has the folder open.
    #[error(
        "the image in {path} is in use by another process: each replica needs a folder of its own ({reason})"
    )]
    Locked {
        /// Folder of the image.
        path: PathBuf,
        /// As the system says it.
        reason: String,
    },
    /// Written by a build that arranges images in another way.
    #[error(
        "the image in {path} has format {found}, this build knows {known}: use the build that wrote it, or \
         start with `--rebuild`"
    )]
    Format {
        /// Folder of the image.
        path: PathBuf,
        /// The format found.
        found: u16,
        /// The format of this build.
        known: u16,
    },
    /// No room; nothing of the commit was kept.
    #[error(
        "no room for the image in {path}: {reason}. Nothing was half-written; free some space and start again"
    )]
    DiskFull {
        /// Folder of the image.
        path: PathBuf,
        /// As the system says it.
        reason: String,
    },
    /// The file system refuses.
    #[error("the image in {path} can't be used: {reason}")]
    Io {
        /// Folder of the image.
        path: PathBuf,
        /// As the system says it.
        reason: String,
    },
}

/// What the system says when there is no room, also by quota or limit.
const NO_ROOM: [&str; 4] = ["No space left", "NoSpace", "Disk quota exceeded", "File too large"];

impl StoreError {
    pub(crate) fn corrupt(path: &Path, reason: impl Into<String>) -> Self {
        Self::Corrupt { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn io(path: &Path, error: &std::io::Error) -> Self {
        Self::said(path, error.to_string())
    }

    /// RocksDB tells most things by text only.
    pub(crate) fn of(path: &Path, error: &rocksdb::Error) -> Self {
        let reason = error.to_string();
        let locked = reason.contains("lock file") || reason.contains("lock hold by current process");
        match error.kind() {
            ErrorKind::IOError if locked => Self::Locked { path: path.to_owned(), reason },
            // A file that the manifest names and that is not there.
            ErrorKind::IOError if reason.contains("No such file") => Self::corrupt(path, reason),
            ErrorKind::IOError => Self::said(path, reason),
            _ if NO_ROOM.iter().any(|words| reason.contains(words)) => Self::said(path, reason),
            _ => Self::corrupt(path, reason),
        }
    }

    fn said(path: &Path, reason: String) -> Self {
        let path = path.to_owned();
        if NO_ROOM.iter().any(|words| reason.contains(words)) {
            Self::DiskFull { path, reason }
        } else {
            Self::Io { path, reason }
        }
    }
}
