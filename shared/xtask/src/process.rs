//! The one way to start a child.
//!
//! Each child leads its own process group, reads nothing, and is known here while it lives: a SIGINT or SIGTERM
//! to xtask is passed on to each group once, and what has not ended after [`GRACE`] is killed. So Ctrl-C on a
//! terminal and a CI that signals only xtask do the same.

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// A child that says nothing for this long gets a line that says it still works.
const SILENCE: Duration = Duration::from_secs(10);
/// Between a signal and SIGKILL: a demo takes its nats-server and services down in this time.
const GRACE: Duration = Duration::from_secs(20);

/// Where a child's output goes.
pub enum Output<'a> {
    /// Both streams to ours, line by line; `test result:` lines are counted.
    Shown,
    /// Both streams to our stderr: stdout is kept for the program that is run last.
    Told,
    /// To a file; its end is shown when the child fails.
    Logged(&'a Path),
}

/// What a child's output held.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Report {
    /// Tests passed, by cargo test's own result lines.
    pub passed: u64,
    /// Tests failed.
    pub failed: u64,
}

struct Running {
    groups: BTreeSet<i32>,
    stopping: bool,
}

static RUNNING: Mutex<Running> = Mutex::new(Running { groups: BTreeSet::new(), stopping: false });

fn running() -> MutexGuard<'static, Running> {
    RUNNING.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// To be called first. Handlers, unlike a blocked mask, are not inherited by children.
pub fn stop_children_on_signals() {
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        let Some(number) = signals.forever().next() else { return };
        let signal = if number == SIGINT { Signal::SIGINT } else { Signal::SIGTERM };
        eprintln!("\nxtask: {signal}, stopping");
        stop_all(signal);
        std::process::exit(128 + number);
    });
}

fn stop_all(signal: Signal) {
    let send = |signal: Signal| {
        let mut running = running();
        running.stopping = true;
        for group in &running.groups {
            // A group that has just ended is as good as one that was told.
            let _ = killpg(Pid::from_raw(*group), signal);
        }
        running.groups.len()
    };
    if send(signal) == 0 {
        return;
    }
    let asked = Instant::now();
    while !running().groups.is_empty() && asked.elapsed() < GRACE {
        std::thread::sleep(Duration::from_millis(50));
    }
    if send(Signal::SIGKILL) > 0 {
        eprintln!("xtask: killed what did not end within {} s", GRACE.as_secs());
    }
}

/// To be called last: a step in the background does not outlive a command that failed. When a signal came,
/// the thread that took it ends the process; main must not end it first with another code.
pub fn stop_what_is_left() {
    while running().stopping {
        std::thread::park();
    }
    stop_all(Signal::SIGTERM);
}

/// Runs to the end with our own stdout and stderr.
/// The error says that it could not be started; a bad exit code is not an error here.
pub fn run_attached(mut command: Command) -> Result<ExitStatus, String> {
    let mut child = spawn(&mut command)?;
    let status = child.wait();
    forget(&child);
    status.map_err(|e| e.to_string())
}

/// Runs to the end, with a sign of life whenever it is silent for ten seconds.
/// The error says why it could not start, or how it ended.
pub fn run(label: &str, mut command: Command, output: &Output<'_>) -> Result<Report, (Report, String)> {
    let start = |reason: String| (Report::default(), reason);
    let mut log = match output {
        Output::Logged(path) => Some(open_log(path).map_err(start)?),
        Output::Shown | Output::Told => None,
    };
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).map_err(start)?;
    let (sender, lines) = channel();
    read_lines(child.stdout.take(), false, &sender);
    read_lines(child.stderr.take(), true, &sender);
    drop(sender);
    let mut report = Report::default();
    let seen = log.is_none();
    let status = follow(label, &mut child, &lines, seen, |line| {
        report.count(&line.text);
        // Nobody to read our output is no reason to stop the work.
        let _ = match (&mut log, output, line.to_stderr) {
            (Some(log), _, _) => log.write_all(&line.text),
            (None, Output::Shown, false) => std::io::stdout().lock().write_all(&line.text),
            (None, _, _) => std::io::stderr().lock().write_all(&line.text),
        };
    });
    forget(&child);
    match status {
        Ok(status) if status.success() => Ok(report),
        Ok(status) => Err((report, ended(status, output))),
        Err(error) => Err((report, error.to_string())),
    }
}

fn spawn(command: &mut Command) -> Result<Child, String> {
    // Under the lock, so that a signal finds either no child or a known one.
    let mut running = running();
    if running.stopping {
        return Err("stopping".into());
    }
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.stdin(Stdio::null()).process_group(0).spawn();
    let child = child.map_err(|e| format!("can't start {program}: {e}"))?;
    running.groups.insert(child.id() as i32);
    Ok(child)
}

fn forget(child: &Child) {
    running().groups.remove(&(child.id() as i32));
}

struct Line {
    text: Vec<u8>,
    to_stderr: bool,
}

fn read_lines(stream: Option<impl Read + Send + 'static>, to_stderr: bool, sender: &Sender<Line>) {
    let Some(stream) = stream else { return };
    let sender = sender.clone();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut text = Vec::new();
        while reader.read_until(b'\n', &mut text).is_ok_and(|n| n > 0) {
            if sender.send(Line { text: std::mem::take(&mut text), to_stderr }).is_err() {
                return;
            }
        }
    });
}

/// Until the child has ended and its output is read. A grandchild that lives on may hold the pipes open for
/// ever, so after the end only what is already there is read. Lines that nobody sees don't break the silence.
fn follow(
    label: &str,
    child: &mut Child,
    lines: &Receiver<Line>,
    seen: bool,
    mut each: impl FnMut(&Line),
) -> std::io::Result<ExitStatus> {
    let started = Instant::now();
    let mut heard = Instant::now();
    let mut last = String::new();
    loop {
        let line = lines.recv_timeout(Duration::from_millis(200));
        if let Ok(line) = &line {
            each(line);
            let text = String::from_utf8_lossy(&line.text);
            if !text.trim().is_empty() {
                last = text.trim().chars().take(80).collect();
            }
            if seen {
                heard = Instant::now();
            }
        }
        if heard.elapsed() >= SILENCE {
            heard = Instant::now();
            eprintln!("{}", still(label, started.elapsed(), &last));
        }
        match line {
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => return child.wait(),
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait()? {
                    std::iter::from_fn(|| lines.recv_timeout(Duration::from_millis(200)).ok())
                        .for_each(|line| each(&line));
                    return Ok(status);
                }
            }
        }
    }
}

fn still(label: &str, since: Duration, last: &str) -> String {
    let what = if last.contains("librocksdb-sys") { " (RocksDB, the long one)" } else { "" };
    let last = if last.is_empty() { String::new() } else { format!("; last line: {last}") };
    format!("   … still at {label}, {} s{what}{last}", since.as_secs())
}

fn open_log(path: &Path) -> Result<File, String> {
    path.parent().map_or(Ok(()), std::fs::create_dir_all).map_err(|e| format!("{}: {e}", path.display()))?;
    File::options().create(true).append(true).open(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn ended(status: ExitStatus, output: &Output<'_>) -> String {
    let Output::Logged(path) = output else { return status.to_string() };
    let path: PathBuf = path.to_path_buf();
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(15)..].join("\n    ");
    format!("{status}; the end of {}:\n    {tail}", path.display())
}

impl Report {
    /// Reads `test result: ok. 12 passed; 0 failed; …`.
    fn count(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        let Some((_, rest)) = line.split_once("test result: ") else { return };
        let number = |word: &str| {
            let before = rest.split(word).next()?.trim_end();
            before.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
        };
        self.passed += number("passed").unwrap_or(0);
        self.failed += number("failed;").unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// Not through [`run`] and our own stdout: whoever reads a test's output would take these for results.
    #[test]
    fn result_lines_are_summed_up() {
        let mut report = Report::default();
        report.count(b"test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out\n");
        report.count(b"test result: FAILED. 3 passed; 2 failed; 0 ignored\n");
        report.count(b"test passed; 7 failed; ok\n");
        assert_eq!(report, Report { passed: 15, failed: 2 });
    }

    #[test]
    fn the_end_of_a_log_is_shown_with_the_exit_code() {
        let log = std::env::temp_dir().join(format!("xtask-log-{}", std::process::id()));
        let (_, reason) = run("x", shell("echo went wrong; exit 3"), &Output::Logged(&log)).unwrap_err();
        std::fs::remove_file(&log).unwrap();
        assert!(reason.contains("went wrong") && reason.contains("status: 3"), "{reason}");
    }

    #[test]
    fn a_child_reads_nothing() {
        run("x", shell("cat"), &Output::Shown).unwrap();
    }

    #[test]
    fn a_grandchild_that_keeps_the_pipe_does_not_hold_us() {
        let started = Instant::now();
        run("x", shell("sleep 30 & exit 0"), &Output::Shown).unwrap();
        assert!(started.elapsed() < Duration::from_secs(20));
    }

    /// A mask blocked here would be theirs too, and they would live on until SIGKILL.
    #[test]
    fn a_child_hears_signals_although_we_catch_them() {
        stop_children_on_signals();
        let (_, reason) = run("x", shell("kill -TERM $$; sleep 5"), &Output::Shown).unwrap_err();
        assert!(reason.contains("signal: 15"), "{reason}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let (_, reason) = run("x", Command::new("/no/such/program"), &Output::Shown).unwrap_err();
        assert!(reason.contains("/no/such/program"), "{reason}");
    }
}
