//! A NATS server and one process a service. The member cluster is this program's ([`crate::member`]).

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use muster_bus::{
    Bus, Credentials, Layout, Options,
    layout::{ClusterLayout, TenantLayout},
    names,
    provision::provision,
    server::{Password, ServerConfig, User},
};
use muster_e2e::manifest;
use muster_proto::{
    ApplyPolicy, Command as Asked, Envelope, Fact, GenerationStarted, Kind, Request, command,
};
use prost::Message as _;
use tempfile::TempDir;

pub const CLUSTER: &str = "local";
const SERVICES: [&str; 5] = ["queue", "admission", "federation", "desk", "ledger"];

pub struct Cell {
    dir: TempDir,
    url: String,
    server: Child,
    services: Vec<Child>,
}

impl Cell {
    /// Server and streams; no service yet.
    pub async fn start() -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("muster-bench-").tempdir()?;
        let tenants = vec![TenantLayout { name: "default".to_owned(), principals: vec!["user".to_owned()] }];
        let layout = Layout::standard(tenants, vec![ClusterLayout { name: CLUSTER.to_owned(), agents: 1 }]);
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        // Nobody else lives on this server, and it ends with the measurement.
        let password = |user: &User| Password::Literal(format!("of-{}", user.name));
        let (listen, store) = (format!("127.0.0.1:{port}"), dir.path().join("streams"));
        let config = ServerConfig { layout: &layout, listen, monitor: None, store, password: &password };
        let written = config.write(dir.path())?;
        let mut command = Command::new(muster_bus::server::find_binary()?);
        command.arg("-c").arg(written.config).stdin(Stdio::null()).stdout(Stdio::null());
        let log = fs::File::create(dir.path().join("nats.log"))?;
        let server = command.stderr(log).spawn()?;
        let cell = Self { dir, url: format!("nats://127.0.0.1:{port}"), server, services: Vec::new() };
        provision(&cell.connect("provision").await?, &layout, || generation().into()).await?;
        Ok(cell)
    }

    /// Every service's process; they are ready when the first decisions come.
    pub fn start_services(&mut self) -> Result<()> {
        let muster = muster_e2e::muster()?;
        for service in SERVICES {
            let data = self.dir.path().join(service);
            fs::create_dir_all(&data)?;
            let log = fs::File::create(data.join("log"))?;
            let mut command = Command::new(&muster);
            command
                .args(["run", service, "--nats", &self.url, "--credentials"])
                .arg(self.credentials(service));
            command.arg("--data").arg(data).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
            if service == "desk" {
                command.args(["--cluster", CLUSTER]);
            }
            self.services.push(command.spawn().with_context(|| muster.display().to_string())?);
        }
        Ok(())
    }

    /// SIGKILL: what they know stands in the log.
    pub fn stop_services(&mut self) {
        for mut service in self.services.drain(..) {
            // One that has ended already can't be killed.
            let _ = service.kill();
            let _ = service.wait();
        }
    }

    /// That none has ended meanwhile.
    pub fn check(&mut self) -> Result<()> {
        for (service, name) in self.services.iter_mut().zip(SERVICES) {
            if let Some(status) = service.try_wait()? {
                let log = fs::read_to_string(self.dir.path().join(name).join("log"))?;
                let lines: Vec<&str> = log.lines().collect();
                bail!("{name} ended: {status}\n{}", lines[lines.len().saturating_sub(10)..].join("\n"));
            }
        }
        Ok(())
    }

    fn credentials(&self, user: &str) -> PathBuf {
        self.dir.path().join("users").join(format!("{}.json", user.replace('/', ".")))
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub async fn connect(&self, user: &str) -> Result<Bus> {
        let credentials = Credentials::File(self.credentials(user));
        let mut options = Options::new(&self.url, "muster-bench").with(credentials);
        options.wait = Some(Duration::from_secs(20));
        Ok(Bus::connect(&options).await?)
    }

    /// A queue with more quota than is ever used.
    pub async fn policies(&self) -> Result<()> {
        let manifests = manifest::queue("default", "1000000", "1000000Gi");
        let command = |manifest: &str| {
            let manifest = manifest.as_bytes().to_vec().into();
            let apply = ApplyPolicy { manifest, source: "bench".to_owned(), delete: false };
            Asked { kind: Some(command::Kind::ApplyPolicy(apply)) }
        };
        let request =
            Request { commands: manifests.split("---\n").map(command).collect(), key: String::new() };
        let subject = names::request(names::OPS, "operator", "policy")?;
        self.connect("operator").await?.submit(&subject, request.encode_to_vec().into(), None).await?;
        Ok(())
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.stop_services();
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn generation() -> Vec<u8> {
    let fact = GenerationStarted { generation: 0xbe2c_4000, reason: "bench".to_owned(), replaces: 0 };
    Envelope {
        generation: fact.generation,
        service: "cell".to_owned(),
        partition: "0".to_owned(),
        rules: 1,
        facts: vec![Fact { kind: Some(Kind::GenerationStarted(fact)) }],
        ..Envelope::default()
    }
    .encode_to_vec()
}
