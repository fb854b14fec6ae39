//! `muster shim DIR`: the small parent of one pod's process.
//!
//! It claims the pod (of two shims of one pod the second leaves at once), runs the command in a session of its own,
//! and writes what an agent needs to adopt the pod later: `shim.json`, `child.json` (pid and start time), `exit.json`.
//! It lives as long as the command, whatever becomes of the agent, and leaves nothing of the pod behind.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use nix::{
    errno::Errno,
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::{Pid, setsid},
};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    local::files::{self, now_us, write_once},
    proc::{self, Process},
};

/// A pod's process, as an agent wrote it to `run.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Of the attempt.
    pub token: String,
    pub pod: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// All of it: nothing of the agent's own is passed on.
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
    /// Appended to by the command's stdout and stderr.
    pub log: PathBuf,
    /// Between SIGTERM and SIGKILL.
    pub grace_ms: u64,
}

/// How a pod's process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    /// 128 + n after signal n; 127: no such command; 126: it can't be run.
    pub code: i32,
    pub reason: String,
    pub ended_us: u64,
}

/// Who runs a pod; holds the claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claim {
    pub process: Process,
    pub claimed_us: u64,
}

/// The body of the hidden subcommand; `dir` is the pod's folder. Returns the process's exit code.
///
/// # Errors
/// The folder can't be read or written. The pod then counts as lost.
pub fn main(dir: &Path) -> io::Result<i32> {
    let _ = setsid(); // fails only where the session is our own already
    std::env::set_current_dir(dir)?; // a later object of the same name is another folder
    let here = Path::new(".");
    let run: Run = files::read_json(&here.join("run.json"))?.ok_or(io::ErrorKind::NotFound)?;
    let own = Process::of(Pid::this().as_raw()).ok_or(io::ErrorKind::NotFound)?;
    if !write_once(&here.join("shim.json"), &Claim { process: own, claimed_us: now_us() })? {
        return Ok(0);
    }
    let _ = prctl::set_child_subreaper(true); // grandchildren come to us, not to init
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exit = runtime.block_on(supervise(&run, here))?;
    // What the command left behind ends with it, as in a container.
    let marks = [format!("{}={}", proc::ATTEMPT, run.token), format!("{}={}", proc::POD, run.pod)];
    proc::kill_all(&marks, own.pid, Duration::from_secs(30))?;
    write_once(&here.join("exit.json"), &exit)?;
    Ok(exit.code)
}

async fn supervise(run: &Run, here: &Path) -> io::Result<Exit> {
    let mut terminated = signal(SignalKind::terminate())?;
    let mut children = signal(SignalKind::child())?;
    let log = OpenOptions::new().create(true).append(true).open(&run.log)?;
    let child = match spawn(run, &log) {
        Ok(pid) => Process::of(pid).unwrap_or(Process { pid, start: 0 }),
        Err(exit) => return Ok(exit),
    };
    write_once(&here.join("child.json"), &child)?;
    let mut kill_at = None;
    loop {
        if let Some(exit) = reap(child.pid) {
            return Ok(exit);
        }
        tokio::select! {
            _ = children.recv() => {}
            _ = terminated.recv() => {
                child.signal_group(Signal::SIGTERM);
                let grace = Duration::from_millis(run.grace_ms);
                kill_at.get_or_insert(tokio::time::Instant::now() + grace);
            }
            () = tokio::time::sleep_until(kill_at.unwrap_or_else(tokio::time::Instant::now)), if kill_at.is_some() => {
                child.signal_group(Signal::SIGKILL);
                kill_at = Some(tokio::time::Instant::now() + Duration::from_secs(1));
            }
        }
    }
}

fn spawn(run: &Run, log: &File) -> Result<i32, Exit> {
    let failed = |code, reason: String| Exit { code, reason, ended_us: now_us() };
    let Some((program, arguments)) = run.argv.split_first() else {
        return Err(failed(
            127,
            "NoCommand: the manifest names no command, and the local backend has no image to take one from"
                .into(),
        ));
    };
    if !run.cwd.is_dir() {
        return Err(failed(126, format!("NoWorkingDir: {} does not exist", run.cwd.display())));
    }
    let output = || log.try_clone().map_or_else(|_| Stdio::null(), Stdio::from);
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs(&run.env).current_dir(&run.cwd);
    command.process_group(0).stdin(Stdio::null()).stdout(output()).stderr(output());
    match command.spawn() {
        Ok(child) => Ok(i32::try_from(child.id()).unwrap_or_default()),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let path = run.env.get("PATH").map_or("", String::as_str);
            Err(failed(127, format!("CommandNotFound: {program} (PATH={path})")))
        }
        Err(cause) => Err(failed(126, format!("CommandNotRunnable: {program}: {cause}"))),
    }
}

/// Takes every dead child off the kernel's hands; the exit of the pod's own command, once it is among them.
fn reap(command: i32) -> Option<Exit> {
    let mut exit = None;
    loop {
        let (pid, code, reason) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) => (pid, code, String::new()),
            Ok(WaitStatus::Signaled(pid, signal, _)) => {
                (pid, 128 + signal as i32, format!("killed by {}", signal.as_str()))
            }
            Ok(WaitStatus::StillAlive) => return exit,
            Err(Errno::EINTR) | Ok(_) => continue,
            Err(_) => return exit,
        };
        if pid.as_raw() == command {
            exit = Some(Exit { code, reason, ended_us: now_us() });
        }
    }
}

/// The folder where the command runs unless the manifest names one.
pub fn work_dir(pod: &Path) -> io::Result<PathBuf> {
    let work = pod.join("work");
    fs::create_dir_all(&work)?;
    Ok(work)
}
