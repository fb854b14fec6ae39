//! The end of an attempt's processes: politely, then surely.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

use super::{files, object::Object};
use crate::{
    proc::{self, ATTEMPT, Process},
    shim::Claim,
};

/// SIGTERM through the shims, which pass it to the command's group; after the grace SIGKILL to every process of this
/// machine that carries the attempt's token, again and again until none is left.
///
/// # Errors
/// A folder or /proc can't be read, or something survives SIGKILL.
pub fn attempt(object: &Object, grace: Duration) -> io::Result<()> {
    let marks = [format!("{ATTEMPT}={}", object.token())];
    let shims = terminate(object)?;
    let until = Instant::now() + grace + Duration::from_millis(500);
    while Instant::now() < until && shims.iter().any(Process::alive) {
        std::thread::sleep(Duration::from_millis(10));
    }
    proc::kill_all(&marks, 0, Duration::from_secs(30))
}

fn terminate(object: &Object) -> io::Result<Vec<Process>> {
    let mut signalled = Vec::new();
    let pods = match fs::read_dir(object.dir.join("pods")) {
        Ok(pods) => pods,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(signalled),
        Err(cause) => return Err(cause),
    };
    for pod in pods {
        let dir = pod?.path();
        let shim = files::read_json::<Claim>(&dir.join("shim.json"))?.map(|claim| claim.process);
        match shim.filter(Process::alive) {
            Some(shim) => {
                shim.signal(Signal::SIGTERM);
                signalled.push(shim);
            }
            None => {
                if let Some(child) =
                    files::read_json::<Process>(&dir.join("child.json"))?.filter(Process::alive)
                {
                    child.signal_group(Signal::SIGTERM);
                    signalled.push(child);
                }
            }
        }
    }
    Ok(signalled)
}
