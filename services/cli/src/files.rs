//! JSON files that a crash leaves whole: the old one or the new one.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use serde::{Serialize, de::DeserializeOwned};

/// Reads a file; none when it is not there.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    match fs::read(path) {
        Ok(bytes) => {
            let value = serde_json::from_slice(&bytes);
            Ok(Some(value.with_context(|| format!("{} can't be read: mend or remove it", path.display()))?))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// Writes through a file beside it.
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_vec_pretty(value)?)?;
        fs::rename(&new, path)
    };
    write().with_context(|| format!("could not write {}", path.display()))
}
