//! Helpers that tests share: real NATS servers on free ports, conditions to wait for, temp folders.
//!
//! Tests start a server each, so that they run in parallel; nothing is skipped when the binary is missing.
//! Set `MUSTER_KEEP` to keep the folders of a failed run; their paths are printed.

mod nats;
mod wait;

pub use nats::{NatsServer, Port};
pub use wait::{eventually, free_port};

use std::path::{Path, PathBuf};

/// A folder that is removed when this is dropped, unless `MUSTER_KEEP` is set.
#[derive(Debug)]
pub struct TempDir {
    path: PathBuf,
    _guard: Option<tempfile::TempDir>,
}

impl TempDir {
    /// A new empty folder; `what` is part of its name.
    ///
    /// # Panics
    /// The system's temp folder can't be written: no test can go on.
    #[must_use]
    pub fn new(what: &str) -> TempDir {
        let dir = tempfile::Builder::new().prefix(&format!("muster-{what}-")).tempdir();
        let dir = dir.unwrap_or_else(|error| panic!("temp folder: {error}"));
        let path = dir.path().to_path_buf();
        if std::env::var_os("MUSTER_KEEP").is_some() {
            eprintln!("kept: {}", path.display());
            let _ = dir.keep();
            return TempDir { path, _guard: None };
        }
        TempDir { path, _guard: Some(dir) }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}
