//! Processes as the kernel shows them: who is alive, who carries an attempt's token, and their end.

use std::{
    fs, io,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

/// The environment variable that every process of an attempt inherits.
pub const ATTEMPT: &str = "MUSTER_ATTEMPT";
/// As [`ATTEMPT`], for the pod within it.
pub const POD: &str = "MUSTER_POD";

/// The folder of the local cluster that runs it: every pod of one cluster carries the same.
pub const CLUSTER_DIR: &str = "MUSTER_CLUSTER_DIR";

/// A process and no later one of the same pid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// In clock ticks since boot, as /proc/PID/stat has it.
    pub start: u64,
}

impl Process {
    /// The one that bears this pid now.
    pub fn of(pid: i32) -> Option<Self> {
        let (_, start) = stat(pid)?;
        Some(Self { pid, start })
    }

    pub fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|(state, start)| start == self.start && !matches!(state, 'Z' | 'X'))
    }

    pub fn signal(&self, signal: Signal) {
        if self.alive() {
            let _ = kill(Pid::from_raw(self.pid), signal); // gone in between: as good
        }
    }

    pub fn signal_group(&self, signal: Signal) {
        if self.alive() {
            let _ = killpg(Pid::from_raw(self.pid), signal);
        }
    }
}

/// State and start time. The command in parentheses may hold anything, so fields count from its end.
fn stat(pid: i32) -> Option<(char, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

/// Every living process whose environment has all these `NAME=value`.
///
/// # Errors
/// /proc could not be listed.
pub fn carrying(wanted: &[String]) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        let Some(process) = Process::of(pid) else { continue };
        // Unreadable: gone, or another user's, who can't be a pod of ours.
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { continue };
        let has = |wanted: &String| environ.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        if wanted.iter().all(has) && process.alive() {
            found.push(process);
        }
    }
    Ok(found)
}

/// Kills at once what carries all these, but not `except`, and looks again until nothing is left.
///
/// # Errors
/// /proc could not be listed, or something survived SIGKILL for `patience`.
pub fn kill_all(wanted: &[String], except: i32, patience: Duration) -> io::Result<()> {
    let until = Instant::now() + patience;
    loop {
        let left: Vec<_> = carrying(wanted)?.into_iter().filter(|process| process.pid != except).collect();
        if left.is_empty() {
            return Ok(());
        }
        for process in &left {
            match kill(Pid::from_raw(process.pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(cause) => return Err(io::Error::other(format!("kill {}: {cause}", process.pid))),
            }
        }
        if Instant::now() > until {
            return Err(io::Error::other(format!("{} processes survive SIGKILL", left.len())));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
