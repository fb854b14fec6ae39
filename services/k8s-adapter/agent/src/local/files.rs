//! Files as an API server: every write is whole or absent, and some happen once.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use nix::fcntl::{Flock, FlockArg};
use serde::{Serialize, de::DeserializeOwned};

/// Microseconds since 1970.
pub fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

fn aside(path: &Path) -> PathBuf {
    path.with_file_name(format!(".{:016x}", rand::random::<u64>()))
}

fn write_aside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let aside = aside(path);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&aside)?;
    file.write_all(bytes)?;
    Ok(aside)
}

/// Replaces the file: readers see the old or the new content.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::rename(write_aside(path, bytes)?, path)
}

/// Writes the file unless it exists; true if this call wrote it. Of racing writers one wins, and its content is
/// whole before anybody sees the name.
pub fn write_once<T: Serialize>(path: &Path, value: &T) -> io::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    let aside = write_aside(path, &serde_json::to_vec(value)?)?;
    let linked = fs::hard_link(&aside, path);
    fs::remove_file(&aside)?;
    match linked {
        Ok(()) => Ok(true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// None when there is no such file.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

pub fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let Some(bytes) = read(path)? else { return Ok(None) };
    let value = serde_json::from_slice(&bytes);
    value.map(Some).map_err(|cause| io::Error::other(format!("{}: {cause}", path.display())))
}

/// Held until dropped, and by the kernel no longer than the process lives.
pub fn lock(path: &Path) -> io::Result<Flock<File>> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, cause)| cause.into())
}
