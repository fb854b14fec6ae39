//! What the tests against a real server share.
#![allow(dead_code, reason = "each test file uses its own part")]

use bytes::Bytes;
use muster_bus::layout::{ClusterLayout, TenantLayout};
use muster_bus::server::{Password, ServerConfig, Written};
use muster_bus::{Bus, Credentials, Layout, Options, provision};
use muster_testkit::{NatsServer, eventually};
use std::path::Path;
use std::time::Duration;

pub fn layout() -> Layout {
    let tenant = |name: &str| TenantLayout { name: name.into(), principals: vec!["alice".into()] };
    let cluster = |name: &str| ClusterLayout { name: name.into(), agents: 2 };
    Layout::standard(vec![tenant("acme"), tenant("rival")], vec![cluster("west"), cluster("east")])
}

pub async fn connect(server: &NatsServer) -> Bus {
    let mut options = Options::new(server.url(), "test");
    options.wait = Some(Duration::from_secs(10));
    Bus::connect(&options).await.unwrap()
}

pub async fn provisioned(server: &NatsServer) -> Bus {
    let bus = connect(server).await;
    provision::provision(&bus, &layout(), || Bytes::from_static(b"generation 1")).await.unwrap();
    bus
}

/// A server with accounts, and the way to log in as any user.
pub struct Cell {
    pub server: NatsServer,
    pub files: Written,
}

impl Cell {
    pub async fn start() -> Cell {
        let mut written = None;
        let server = NatsServer::start_with(|dir| {
            let files = written.insert(write(dir, &layout(), "127.0.0.1:-1"));
            files.config.clone()
        });
        let cell = Cell { server, files: written.unwrap() };
        let bus = cell.login("provision").await;
        provision::provision(&bus, &layout(), || Bytes::from_static(b"generation 1")).await.unwrap();
        cell
    }

    /// Writes the configuration of another layout, has the server take it, and provisions.
    pub async fn change(&mut self, layout: &Layout) {
        self.files = write(self.server.dir(), layout, &format!("127.0.0.1:{}", self.server.port()));
        // After one reload a new account's imports reach nobody; after the second they do (2.15.1).
        let done = |server: &NatsServer| server.log().matches("Reloaded server configuration").count();
        for times in done(&self.server) + 1..done(&self.server) + 3 {
            self.server.reload();
            eventually(Duration::from_secs(5), || async { done(&self.server) >= times }).await;
        }
        let bus = self.login("provision").await;
        provision::provision(&bus, layout, || Bytes::from_static(b"generation 2")).await.unwrap();
    }

    pub async fn login(&self, user: &str) -> Bus {
        let mut options = Options::new(self.server.url(), user)
            .with(Credentials::File(self.files.credentials[user].clone()));
        options.wait = Some(Duration::from_secs(10));
        options.deadline = Duration::from_secs(3);
        Bus::connect(&options).await.unwrap()
    }
}

fn write(dir: &Path, layout: &Layout, listen: &str) -> Written {
    let config = ServerConfig {
        layout,
        listen: listen.into(),
        monitor: None,
        store: dir.join("data"),
        password: &|user| Password::Literal(format!("secret of {} \"quoted\"", user.name)),
    };
    config.write(dir).unwrap()
}
