//! Free ports for many Ray clusters on one machine.
//!
//! Ray wants its ports named before it binds them. Until then a file per port keeps other clusters, agents and muster
//! installations of this machine away from it.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    net::TcpListener,
    path::PathBuf,
    time::Duration,
};

/// Below the kernel's own choice of ports for outgoing connections.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;
/// By then whoever reserved a port has bound it, or never will.
const STALE: Duration = Duration::from_secs(600);

fn folder() -> PathBuf {
    std::env::temp_dir().join("muster-ports")
}

/// So many ports, kept for `owner` until [`release`].
///
/// # Errors
/// The folder of reservations can't be written, or there are not so many free ports.
pub fn reserve(count: usize, owner: &str) -> io::Result<Vec<u16>> {
    fs::create_dir_all(folder())?;
    let (start, mut ports) = (rand::random::<u16>() % COUNT, Vec::new());
    for offset in 0..COUNT {
        if ports.len() == count {
            break;
        }
        let port = FIRST + (start + offset) % COUNT;
        if TcpListener::bind(("0.0.0.0", port)).is_ok() && take(port, owner)? {
            ports.push(port);
        }
    }
    if ports.len() < count {
        return Err(io::Error::other("no free ports are left"));
    }
    Ok(ports)
}

fn take(port: u16, owner: &str) -> io::Result<bool> {
    let path = folder().join(port.to_string());
    let age =
        fs::metadata(&path).and_then(|found| found.modified()).map(|at| at.elapsed().unwrap_or_default());
    if age.is_ok_and(|age| age > STALE) {
        drop(fs::remove_file(&path)); // another one may have been faster
    }
    match OpenOptions::new().write(true).create_new(true).open(&path) {
        Ok(mut file) => file.write_all(owner.as_bytes()).map(|()| true),
        Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(cause) => Err(cause),
    }
}

pub fn release(owner: &str) {
    let Ok(entries) = fs::read_dir(folder()) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if fs::read(&path).is_ok_and(|holder| holder == owner.as_bytes()) {
            drop(fs::remove_file(path)); // stale before long in any case
        }
    }
}
