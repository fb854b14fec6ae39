//! Keeps the cell's processes running: one a service, restarted with backoff.

use std::{
    fs::{self, OpenOptions},
    path::{Path, PathBuf},
    pin::pin,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{sys::signal, unistd::Pid};
use tokio::{
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
};

use super::{
    cell::{CLUSTER, Cell, Process, Running},
    nats,
};
use crate::files::write_json;

const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LAST_BACKOFF: Duration = Duration::from_secs(10);
/// Who ran this long starts again at once.
const HEALTHY: Duration = Duration::from_secs(30);
/// From SIGTERM to SIGKILL.
const GRACE: Duration = Duration::from_secs(10);
/// Between two looks at the children.
const LOOK: Duration = Duration::from_millis(100);

/// One process that shall run.
struct Kept {
    name: String,
    program: PathBuf,
    args: Vec<String>,
    child: Option<Child>,
    started: Instant,
    backoff: Duration,
    not_before: Instant,
    shown: Process,
}

/// Runs the cell of this data folder until SIGTERM. In a session of its own unless `foreground`.
pub async fn supervise(data: &Path, foreground: bool) -> Result<()> {
    muster_observe::init_logs("supervisor");
    if !foreground {
        // Fails only for a process that leads its session already.
        let _ = nix::unistd::setsid();
    }
    let cell =
        Cell::load(data)?.with_context(|| format!("{} holds no cell: run `muster up`", data.display()))?;
    if let Some(pid) = cell.supervisor().filter(|pid| *pid != std::process::id().cast_signed()) {
        bail!("the cell in {} is up already (supervisor pid {pid})", data.display());
    }
    fs::create_dir_all(cell.run_dir())?;
    fs::write(cell.run_dir().join("supervisor.pid"), std::process::id().to_string())?;
    let mut stop = Stop::new()?;
    let mut kept = Vec::new();
    if cell.given.is_none() {
        kept.push(Kept::new("nats-server", muster_bus::server::find_binary()?, nats_args(&cell)));
    }
    let result = run(&cell, &mut kept, &mut stop).await;
    // Services first; the server last, so that they can finish.
    let services = kept.split_off(usize::from(cell.given.is_none()));
    services.iter().for_each(Kept::ask_to_end);
    for mut process in services.into_iter().chain(kept) {
        process.end().await;
    }
    let _ = fs::remove_file(cell.run_dir().join("supervisor.pid"));
    let _ = fs::remove_file(cell.run_dir().join("state.json"));
    result
}

async fn run(cell: &Cell, kept: &mut Vec<Kept>, stop: &mut Stop) -> Result<()> {
    let mut provisioning = pin!(nats::provision_cell(cell));
    let changes = loop {
        keep(cell, kept)?;
        tokio::select! {
            changes = &mut provisioning => break changes.context("provisioning")?,
            () = tokio::time::sleep(LOOK) => {}
            () = stop.asked() => return Ok(()),
        }
    };
    for change in changes {
        tracing::info!(%change, "provisioned");
    }
    kept.extend(services(cell)?);
    loop {
        keep(cell, kept)?;
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            () = stop.asked() => return Ok(()),
        }
    }
}

/// SIGTERM or SIGINT.
struct Stop {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Stop {
    fn new() -> Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    async fn asked(&mut self) {
        tokio::select! { _ = self.term.recv() => {}, _ = self.int.recv() => {} }
    }
}

/// Starts what is not running and is due, and writes down what runs when that changed.
fn keep(cell: &Cell, kept: &mut [Kept]) -> Result<()> {
    let mut changed = false;
    for process in kept.iter_mut() {
        changed |= process.look(cell)?;
    }
    if changed {
        let running = Running { processes: kept.iter().map(|process| process.shown.clone()).collect() };
        write_json(&cell.run_dir().join("state.json"), &running)?;
    }
    Ok(())
}

fn nats_args(cell: &Cell) -> Vec<String> {
    vec!["-c".to_owned(), cell.nats_dir().join("nats.conf").display().to_string()]
}

fn services(cell: &Cell) -> Result<Vec<Kept>> {
    let program = std::env::current_exe().context("where is this program?")?;
    let mut all = Vec::new();
    for service in ["ledger", "queue", "admission", "federation", "desk"] {
        for slot in 0..cell.replicas {
            all.push(Kept::new(
                &format!("{service}-{slot}"),
                program.clone(),
                service_args(cell, service, slot),
            ));
        }
    }
    let mut agent = service_args(cell, "agent", 0);
    agent.extend(["--nodes".to_owned(), cell.nodes.display().to_string()]);
    all.push(Kept::new("agent", program, agent));
    Ok(all)
}

fn service_args(cell: &Cell, service: &str, slot: u8) -> Vec<String> {
    let user = if service == "agent" { format!("cluster/{CLUSTER}") } else { service.to_owned() };
    let data = match service {
        "agent" => cell.data.clone(),
        _ => cell.data.join("services").join(format!("{service}-{slot}")),
    };
    let mut args: Vec<String> = ["run", service, "--nats", &cell.url()].map(str::to_owned).to_vec();
    args.extend(["--credentials".to_owned(), cell.credentials(&user).display().to_string()]);
    args.extend(["--data".to_owned(), data.display().to_string(), "--slot".to_owned(), slot.to_string()]);
    if matches!(service, "agent" | "desk") {
        args.extend(["--cluster".to_owned(), CLUSTER.to_owned()]);
    }
    args
}

impl Kept {
    fn new(name: &str, program: PathBuf, args: Vec<String>) -> Self {
        let now = Instant::now();
        let shown = Process { name: name.to_owned(), ..Process::default() };
        let (child, backoff) = (None, FIRST_BACKOFF);
        Self { name: name.to_owned(), program, args, child, started: now, backoff, not_before: now, shown }
    }

    /// Notices an end, starts when it is due; says whether anything changed.
    fn look(&mut self, cell: &Cell) -> Result<bool> {
        if let Some(child) = &mut self.child {
            let Some(status) = child.try_wait()? else { return Ok(false) };
            self.child = None;
            self.shown.pid = None;
            self.shown.restarts += 1;
            self.shown.last_exit = status.to_string();
            tracing::warn!(process = %self.name, %status, "ended; it will be started again");
            if self.started.elapsed() >= HEALTHY {
                self.backoff = FIRST_BACKOFF;
            }
            self.not_before = Instant::now() + self.backoff;
            self.backoff = (self.backoff * 2).min(LAST_BACKOFF);
            return Ok(true);
        }
        if Instant::now() < self.not_before {
            return Ok(false);
        }
        self.start(cell)?;
        Ok(true)
    }

    fn start(&mut self, cell: &Cell) -> Result<()> {
        let path = cell.log(&self.name);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let log = OpenOptions::new().create(true).append(true).open(&path);
        let log = log.with_context(|| format!("could not write {}", path.display()))?;
        let child = Command::new(&self.program)
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // Ctrl-C in a terminal is for the supervisor alone: it stops its children in order.
            .process_group(0)
            .spawn()
            .with_context(|| format!("could not start {}", self.program.display()))?;
        self.shown.pid = child.id();
        self.child = Some(child);
        self.started = Instant::now();
        Ok(())
    }

    fn ask_to_end(&self) {
        if let Some(pid) = self.child.as_ref().and_then(Child::id) {
            // It may have ended by itself.
            let _ = signal::kill(Pid::from_raw(pid.cast_signed()), signal::Signal::SIGTERM);
        }
    }

    async fn end(&mut self) {
        self.ask_to_end();
        if let Some(mut child) = self.child.take()
            && tokio::time::timeout(GRACE, child.wait()).await.is_err()
        {
            tracing::warn!(process = %self.name, "did not end in time and was killed");
            let _ = child.kill().await;
        }
    }
}
