//! One cell: a real `muster up`, its commands, its processes.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use muster_agent::proc::{self, Process};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Said, binary, manifest};

/// For everything that must come true sooner or later; a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

/// How a cell starts.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nodes of its cluster: YAML.
    pub nodes: String,
    pub replicas: u8,
    /// Applied once it is up.
    pub policies: String,
}

impl Default for Setup {
    fn default() -> Self {
        let nodes = "- name: n1\n  allocatable: {cpu: \"64\", memory: 64Gi}\n".to_owned();
        Self { nodes, replicas: 1, policies: manifest::queue("default", "64", "64Gi") }
    }
}

/// A running cell. Dropping it ends all that it started, and says where its logs are if the test failed.
pub struct Cell {
    program: PathBuf,
    nats: PathBuf,
    dir: PathBuf,
    temp: Option<TempDir>,
    up: Option<Child>,
    replicas: u8,
}

impl Cell {
    /// A cell in a temporary folder, up and with its policies applied.
    ///
    /// # Errors
    /// It does not come up.
    pub fn start(setup: &Setup) -> Result<Self> {
        let temp = tempfile::Builder::new().prefix("muster-e2e-").tempdir()?;
        let (program, nats, dir) = (binary::muster()?, binary::nats_server()?, temp.path().to_owned());
        let mut cell = Self { program, nats, dir, temp: Some(temp), up: None, replicas: setup.replicas };
        fs::create_dir_all(cell.home())?;
        fs::write(cell.dir.join("nodes.yaml"), &setup.nodes)?;
        cell.up()?;
        cell.ready()?;
        cell.apply(&setup.policies)?;
        Ok(cell)
    }

    /// Starts `muster up --foreground`; it need not be ready yet.
    ///
    /// # Errors
    /// It can't be started.
    pub fn up(&mut self) -> Result<()> {
        let log = fs::File::options().create(true).append(true).open(self.dir.join("up.log"))?;
        let replicas = self.replicas.to_string();
        let mut command = self.command(&["up", "--foreground", "--replicas", &replicas, "--nodes"]);
        command.arg(self.dir.join("nodes.yaml")).arg("--data").arg(self.data());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.up = Some(command.spawn()?);
        Ok(())
    }

    /// Waits until its cluster has joined.
    ///
    /// # Errors
    /// It has not within 90 s.
    pub fn ready(&mut self) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let said = self.run(&["get", "clusters", "-o", "json"])?;
            let ready = |cluster: &Value| cluster["state"] == "Ready" && cluster["nodes"] != 0;
            let clusters = said.json().unwrap_or_default();
            if clusters.as_array().is_some_and(|all| all.iter().any(ready)) {
                return Ok(());
            }
            let ended = self.up.as_mut().and_then(|up| up.try_wait().ok().flatten());
            if ended.is_some() || Instant::now() > until {
                bail!("the cell did not come up ({ended:?}): {} {}\n{}", said.out, said.err, self.tails());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Where its supervisor keeps state.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Its folder, for a test's own files.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The home that all its processes and pods have: whoever carries it belongs to this cell.
    fn home(&self) -> PathBuf {
        self.dir.join("home")
    }

    /// The binary with these arguments, in this cell's environment.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).env("HOME", self.home()).env("MUSTER_CONFIG", self.dir.join("config.json"));
        command.env("MUSTER_NATS_SERVER", &self.nats).env("NO_COLOR", "1").current_dir(&self.dir);
        if let Ok(venv) = binary::ray_venv() {
            command.env("MUSTER_RAY_VENV", venv);
        }
        for other in ["MUSTER_CONTEXT", "MUSTER_DATA", "MUSTER_NATS", "MUSTER_CREDENTIALS"] {
            command.env_remove(other);
        }
        command
    }

    /// Runs one command to its end.
    ///
    /// # Errors
    /// It can't be started.
    pub fn run(&self, args: &[&str]) -> Result<Said> {
        self.run_with(args, "")
    }

    /// As [`Cell::run`], with this on its stdin.
    ///
    /// # Errors
    /// It can't be started.
    pub fn run_with(&self, args: &[&str], stdin: &str) -> Result<Said> {
        let mut command = self.command(args);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().with_context(|| self.program.display().to_string())?;
        if let Some(mut pipe) = child.stdin.take() {
            // A command that does not read its stdin closes it.
            let _ = pipe.write_all(stdin.as_bytes());
        }
        Ok(Said::new(format!("muster {}", args.join(" ")), child.wait_with_output()?))
    }

    /// stdout of a command that must succeed.
    ///
    /// # Errors
    /// It ended with another code than 0.
    pub fn ok(&self, args: &[&str]) -> Result<String> {
        self.run(args)?.ok().map(str::to_owned)
    }

    /// Applies manifests.
    ///
    /// # Errors
    /// They are rejected.
    pub fn apply(&self, manifests: &str) -> Result<()> {
        self.run_with(&["apply", "-f", "-"], manifests)?.ok().map(drop)
    }

    /// Submits manifests and gives their ids.
    ///
    /// # Errors
    /// They are rejected.
    pub fn submit(&self, manifests: &str, more: &[&str]) -> Result<Vec<String>> {
        let args = [&["submit", "-f", "-"], more].concat();
        let said = self.run_with(&args, manifests)?;
        Ok(said.ok()?.lines().map(str::to_owned).collect())
    }

    /// The ledger's view of a workload.
    ///
    /// # Errors
    /// It has none.
    pub fn workload(&self, id: &str) -> Result<Value> {
        self.run(&["get", "workload", id, "-o", "json"])?.json()
    }

    /// Waits until a workload has this phase; fails at once when it is over with another.
    ///
    /// # Errors
    /// It does not get there within 90 s.
    pub fn reach(&self, id: &str, phase: &str) -> Result<Value> {
        let until = Instant::now() + PATIENCE;
        loop {
            let found = self.workload(id);
            let now = found.as_ref().map_or("", |found| found["phase"].as_str().unwrap_or_default());
            if now == phase {
                return found;
            }
            if matches!(now, "Succeeded" | "Failed" | "Cancelled") || Instant::now() > until {
                let why = self.run(&["why", id])?;
                bail!("{id} is not {phase}: {found:?}\n{}{}", why.out, why.err);
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Names of the processes that the supervisor keeps, with the pids of those that run.
    ///
    /// # Errors
    /// The supervisor has not written its state.
    pub fn processes(&self) -> Result<Vec<(String, Option<i32>)>> {
        let path = self.data().join("run/state.json");
        let state: Value = serde_json::from_slice(&fs::read(&path).context("run/state.json")?)?;
        let all = state["processes"].as_array().ok_or_else(|| anyhow!("{state}"))?;
        let pid = |one: &Value| one["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        Ok(all.iter().map(|one| (one["name"].as_str().unwrap_or_default().to_owned(), pid(one))).collect())
    }

    /// The pid of one of them.
    ///
    /// # Errors
    /// It does not run.
    pub fn pid(&self, name: &str) -> Result<i32> {
        let all = self.processes()?;
        let pid = all.iter().find(|(one, _)| one == name).and_then(|(_, pid)| *pid);
        pid.with_context(|| format!("{name} does not run; there are {all:?}"))
    }

    /// `kill -9`, and waits until the supervisor has started it again.
    ///
    /// # Errors
    /// It does not run, or does not come back.
    pub fn kill(&self, name: &str) -> Result<()> {
        let pid = self.pid(name)?;
        kill(Pid::from_raw(pid), Signal::SIGKILL).with_context(|| format!("{name}, pid {pid}"))?;
        eventually(&format!("{name} is back"), || Ok(self.pid(name).is_ok_and(|now| now != pid)))
    }

    /// SIGTERM to the supervisor; its exit status.
    ///
    /// # Errors
    /// It does not run, or does not end.
    pub fn down(&mut self) -> Result<ExitStatus> {
        let mut up = self.up.take().context("the cell is not up")?;
        kill(Pid::from_raw(up.id().cast_signed()), Signal::SIGTERM)?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = up.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > until {
                let _ = up.kill();
                bail!("the supervisor does not end\n{}", self.tails());
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The last lines of each log.
    #[must_use]
    pub fn tails(&self) -> String {
        let mut paths = vec![self.dir.join("up.log")];
        let logs = fs::read_dir(self.data().join("log")).into_iter().flatten().flatten();
        paths.extend(logs.map(|entry| entry.path()));
        paths.sort();
        let tail = |path: &PathBuf| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("== {}\n{}\n", path.display(), lines[lines.len().saturating_sub(12)..].join("\n"))
        };
        paths.iter().map(tail).collect()
    }

    /// Every living process of this cell, pods included.
    ///
    /// # Errors
    /// /proc can't be listed.
    pub fn alive(&self) -> Result<Vec<Process>> {
        Ok(proc::carrying(&[format!("HOME={}", self.home().display())])?)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(temp) = self.temp.take()
        {
            eprintln!("the cell's folder is kept: {}\n{}", temp.keep().display(), self.tails());
        }
        if self.up.is_some()
            && let Err(error) = self.down()
        {
            eprintln!("{error:#}");
        }
        let mark = format!("HOME={}", self.home().display());
        if let Err(error) = proc::kill_all(&[mark], std::process::id().cast_signed(), Duration::from_secs(10))
        {
            eprintln!("{error}");
        }
    }
}

/// Waits until it holds.
///
/// # Errors
/// It does not within 90 s, or looking failed.
pub fn eventually(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !holds()? {
        if Instant::now() > until {
            bail!("not so within {PATIENCE:?}: {what}");
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
