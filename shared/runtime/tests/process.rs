//! A service as a process of its own: signals, kills, a disk that is full, and what it costs to be idle.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::toy::{Toy, ToyConfig};
use common::*;
use muster_bus::Log;
use muster_observe::Http;
use muster_runtime::{Shutdown, run};
use muster_store::Store;
use muster_testkit::{NatsServer, TempDir, eventually};

/// Runs the toy as the parent says, until SIGTERM; the exit code is the runtime's.
#[test]
#[ignore = "run as a child"]
fn child() {
    let Ok(url) = std::env::var("TOY_URL") else { return };
    muster_observe::init_logs("toy");
    let folder = std::path::PathBuf::from(std::env::var_os("TOY_FOLDER").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let result = runtime.block_on(async {
        let shutdown = Shutdown::on_signals().unwrap();
        let mut host =
            muster_runtime::HostConfig::new(muster_bus::Options::new(url, "toy"), folder.join("image"));
        host.http = Some(Http { port: 0, port_file: Some(folder.join("port")) });
        run::<Toy>(ToyConfig::default(), host, shutdown).await
    });
    std::process::exit(result.map_or_else(|error| error.exit_code().into(), |()| 0));
}

struct Process(Child);

impl Process {
    fn spawn(url: &str, folder: &Path, prefix: &str) -> Self {
        let exe = std::env::current_exe().unwrap();
        let command = format!("{prefix} exec {} child --exact --ignored --nocapture", exe.display());
        let child = Command::new("sh")
            .args(["-c", &command])
            .env("TOY_URL", url)
            .env("TOY_FOLDER", folder)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Waits for its end: exit code and log lines.
    fn wait(mut self) -> (Option<i32>, String) {
        let mut lines = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut lines).unwrap();
        (self.0.wait().unwrap().code(), lines)
    }

    fn end(self, signal: &str) -> (Option<i32>, String) {
        let done = Command::new("kill").args([signal, &self.0.id().to_string()]).status().unwrap();
        assert!(done.success());
        self.wait()
    }

    /// CPU time used so far.
    fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn get(port_file: &Path, path: &str) -> Option<String> {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let port: u16 = std::fs::read_to_string(port_file).ok()?.trim().parse().ok()?;
    let mut socket = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_finishes_the_step_and_kill_loses_nothing() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let folder = TempDir::new("toy");
    for round in 0..6_usize {
        let process = Process::spawn(&server.url(), folder.path(), "");
        submit(&bus, 0..60).await;
        until_taken(&bus, round * 60 + 10).await;
        // in the middle of its work
        if round % 2 == 0 {
            process.end("-KILL");
        } else {
            let (code, lines) = process.end("-TERM");
            assert_eq!(code, Some(0), "{lines}");
            assert!(lines.contains("SIGTERM") && lines.contains("ended as asked"), "{lines}");
            assert!(lines.lines().all(|line| line.starts_with('{')), "one JSON object a line: {lines}");
        }
    }
    let process = Process::spawn(&server.url(), folder.path(), "");
    until_taken(&bus, 360).await;
    let taken = taken(&bus).await;
    assert_eq!(taken, (1..=360).collect::<Vec<u64>>(), "each once, in order");
    let last = Log::new(&bus).last_seq().await.unwrap();
    stands(&bus, last).await.unwrap();
    assert_eq!(process.end("-TERM").0, Some(0));
    let meta = Store::open(&folder.path().join("image")).unwrap().1.unwrap().meta;
    assert_eq!(meta.position, last);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_waits_for_nats_says_so_and_tells_how_it_is() {
    let mut server = NatsServer::start();
    let folder = TempDir::new("toy");
    let port = folder.path().join("port");
    server.kill();
    let process = Process::spawn(&server.url(), folder.path(), "");
    let seen = async |path: &'static str, words: &'static str| {
        eventually(Duration::from_secs(20), || async {
            get(&port, path).await.is_some_and(|answer| answer.contains(words))
        })
        .await;
    };
    // no server
    seen("/readyz", "connecting to NATS").await;
    seen("/healthz", "200 OK").await;
    // a server that knows nothing yet
    server.restart();
    seen("/readyz", "503").await;
    // provisioned
    let bus = provisioned(&server, 7).await;
    seen("/readyz", "200 OK").await;
    submit(&bus, 0..5).await;
    until_taken(&bus, 5).await;
    seen("/metrics", "muster_publishes_total{service=\"toy\",partition=\"0\",outcome=\"stored\"}").await;
    // away again
    server.kill();
    seen("/readyz", "the connection to NATS is lost").await;
    server.restart();
    seen("/readyz", "200 OK").await;
    // idle
    let (before, start) = (process.cpu(), Instant::now());
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (used, took) = (process.cpu() - before, start.elapsed());
    println!("idle: {used:?} of CPU in {took:?}");
    assert!(used < took / 20, "{used:?} in {took:?}");
    let (code, lines) = process.end("-TERM");
    assert_eq!(code, Some(0));
    for words in ["waiting for NATS", "caught up with the log"] {
        assert!(lines.contains(words), "{words}: {lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_room_for_the_image_ends_the_service_and_the_log_is_whole() {
    let server = NatsServer::start();
    let bus = provisioned(&server, 7).await;
    let folder = TempDir::new("toy");
    let process = Process::spawn(&server.url(), folder.path(), "trap '' XFSZ; ulimit -f 60;");
    let feeder = tokio::spawn({
        let bus = bus.clone();
        async move { submit(&bus, 0..3000).await }
    });
    let (code, lines) = tokio::task::spawn_blocking(|| process.wait()).await.unwrap();
    assert_eq!(code, Some(4), "{lines}");
    assert!(lines.contains("no room for the image in"), "{lines}");
    feeder.await.unwrap();
    let process = Process::spawn(&server.url(), folder.path(), "");
    until_taken(&bus, 3000).await;
    assert_eq!(taken(&bus).await, (1..=3000).collect::<Vec<u64>>());
    assert_eq!(process.end("-TERM").0, Some(0));
}

#[tokio::test]
async fn a_corrupt_image_is_refused_with_its_folder_and_rebuilt_on_request() {
    let server = NatsServer::start();
    let _bus = provisioned(&server, 7).await;
    let folder = TempDir::new("toy");
    std::fs::create_dir(folder.path().join("image")).unwrap();
    std::fs::write(folder.path().join("image/CURRENT"), "nonsense").unwrap();
    let process = Process::spawn(&server.url(), folder.path(), "");
    let (code, lines) = process.wait();
    assert_eq!(code, Some(4), "{lines}");
    assert!(lines.contains("is corrupt") && lines.contains("--rebuild"), "{lines}");
}
