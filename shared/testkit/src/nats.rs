//! A real nats-server of one test.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::TempDir;

/// On which port a server starts.
#[derive(Debug, Clone, Copy)]
pub enum Port {
    /// The system chooses.
    Any,
    /// This one.
    At(u16),
}

/// A nats-server with JetStream and `sync_interval: always`, killed when this is dropped.
#[derive(Debug)]
pub struct NatsServer {
    dir: TempDir,
    config: PathBuf,
    child: Option<Child>,
    port: u16,
}

const START: Duration = Duration::from_secs(20);

impl NatsServer {
    /// A server without users on a port of its own.
    ///
    /// # Panics
    /// nats-server is not installed (the message says how to) or does not start.
    #[must_use]
    pub fn start() -> NatsServer {
        NatsServer::start_with(|dir| {
            let store = dir.join("data");
            let path = dir.join("nats.conf");
            let text = format!(
                "listen: \"127.0.0.1:-1\"\njetstream {{ store_dir: \"{}\", sync_interval: always }}\n",
                store.display()
            );
            fs::write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            path
        })
    }

    /// A server with a configuration of the caller's, who gets the server's folder and returns the file's
    /// path. The port in it is overruled.
    ///
    /// # Panics
    /// As [`NatsServer::start`].
    #[must_use]
    pub fn start_with(write_config: impl FnOnce(&Path) -> PathBuf) -> NatsServer {
        let dir = TempDir::new("nats");
        let config = write_config(dir.path());
        let mut server = NatsServer { dir, config, child: None, port: 0 };
        server.spawn(Port::Any);
        server
    }

    /// `nats://127.0.0.1:<port>`
    #[must_use]
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// The port; the same after [`NatsServer::restart`].
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder of configuration and data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's process.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What the server has written to its log.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("nats.log")).unwrap_or_default()
    }

    /// kill -9. Does nothing when it is down already.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Only a child that has ended already can't be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts again on the same port with the same data; kills it first if it runs. Returns when it listens.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        self.kill();
        self.spawn(Port::At(self.port));
    }

    /// Has the running server read its configuration file again (users and accounts change without a
    /// restart). Returns when the signal is sent: wait for the change.
    ///
    /// # Panics
    /// The server is down.
    pub fn reload(&self) {
        self.signal(Signal::SIGHUP);
    }

    /// Stops the server's process without a word to its clients, as a machine that hangs.
    ///
    /// # Panics
    /// The server is down.
    pub fn pause(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// Lets a paused server go on.
    ///
    /// # Panics
    /// The server is down.
    pub fn resume(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw);
        let pid = pid.unwrap_or_else(|| panic!("{signal}: the server is down"));
        kill(pid, signal).unwrap_or_else(|error| panic!("{signal}: {error}"));
    }

    fn spawn(&mut self, port: Port) {
        let binary = muster_bus::server::find_binary().unwrap_or_else(|error| panic!("{error}"));
        let dir = self.dir.path();
        let ports = TempDir::new("ports");
        let port = match port {
            Port::Any => "-1".to_owned(),
            Port::At(port) => port.to_string(),
        };
        let child = Command::new(&binary)
            .arg("-c")
            .arg(&self.config)
            .args(["-a", "127.0.0.1", "-p", &port, "-l"])
            .arg(dir.join("nats.log"))
            .arg("--ports_file_dir")
            .arg(ports.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", binary.display()));
        let pid = child.id();
        self.child = Some(child);
        let file = ports.path().join(format!("nats-server_{pid}.ports"));
        self.port = self.wait_for_port(&file);
    }

    /// The server writes the file when it takes connections.
    fn wait_for_port(&mut self, file: &Path) -> u16 {
        let start = Instant::now();
        loop {
            if let Some(port) = fs::read(file).ok().and_then(|bytes| client_port(&bytes)) {
                return port;
            }
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "nats-server ended ({ended:?}):\n{}", self.log());
            assert!(start.elapsed() < START, "nats-server does not start:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn client_port(bytes: &[u8]) -> Option<u16> {
    let ports: serde_json::Value = serde_json::from_slice(bytes).ok()?;
    ports["nats"][0].as_str()?.rsplit(':').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    fn answers(server: &NatsServer) -> bool {
        TcpStream::connect(("127.0.0.1", server.port())).is_ok()
    }

    #[test]
    fn a_killed_server_comes_back_on_its_port() {
        let mut server = NatsServer::start();
        let other = NatsServer::start();
        assert_ne!(server.port(), other.port());
        let port = server.port();
        server.kill();
        assert!(!answers(&server) && answers(&other));
        server.restart();
        assert!(answers(&server));
        assert_eq!(server.port(), port);
    }

    #[test]
    fn nothing_is_left_of_a_dropped_server() {
        let server = NatsServer::start();
        let (pid, dir) = (server.pid().unwrap(), server.dir().to_path_buf());
        drop(server);
        assert!(!Path::new(&format!("/proc/{pid}")).exists());
        assert!(std::env::var_os("MUSTER_KEEP").is_some() || !dir.exists());
    }
}
