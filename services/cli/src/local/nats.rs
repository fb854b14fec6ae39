//! The cell's NATS server: its configuration, and provisioning.

use std::{cell::RefCell, collections::BTreeMap, fs, net::TcpListener};

use anyhow::{Context as _, Result};
use muster_bus::{
    Bus, Credentials, CredentialsFile, Options,
    provision::provision,
    server::{Password, ServerConfig, User},
};
use muster_proto::{Envelope, Fact, GenerationStarted, Kind, Writer};
use prost::Message;

use super::cell::Cell;

/// Writes the server's configuration; users keep their passwords from one start to the next.
pub fn configure(cell: &Cell) -> Result<()> {
    let layout = cell.layout();
    let known = |user: &User| -> Option<String> {
        let text = fs::read(cell.credentials(&user.name)).ok()?;
        serde_json::from_slice::<CredentialsFile>(&text).ok().map(|file| file.password)
    };
    // Asked twice for each user: for the configuration and for the credentials file.
    let chosen = RefCell::new(BTreeMap::new());
    let password = |user: &User| {
        let mut chosen = chosen.borrow_mut();
        let password =
            chosen.entry(user.name.clone()).or_insert_with(|| known(user).unwrap_or_else(random_password));
        Password::Literal(password.clone())
    };
    let config = ServerConfig {
        layout: &layout,
        listen: format!("127.0.0.1:{}", cell.port),
        monitor: None,
        store: cell.nats_dir().join("streams"),
        password: &password,
    };
    config.write(&cell.nats_dir())?;
    Ok(())
}

fn random_password() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

/// Makes streams and durables; the first time, the log's generation too. Says what changed.
pub async fn provision_cell(cell: &Cell) -> Result<Vec<String>> {
    let credentials = Credentials::File(cell.credentials("provision"));
    let bus = Bus::connect(&Options::new(cell.url(), "muster-provision").with(credentials)).await?;
    let changes = provision(&bus, &cell.layout(), || first_message("a new log").into()).await?;
    Ok(changes.iter().map(ToString::to_string).collect())
}

fn first_message(reason: &str) -> Vec<u8> {
    generation_message(0, Vec::new(), 0, reason)
}

/// The message that starts a generation, after `prev` on the cell's subject.
pub fn generation_message(prev: u64, prev_hash: Vec<u8>, replaces: u32, reason: &str) -> Vec<u8> {
    // 0 stands for "none", so it is never drawn.
    let generation = rand::random::<u32>().max(1);
    let fact = GenerationStarted { generation, reason: reason.to_owned(), replaces };
    Envelope {
        generation,
        service: "cell".to_owned(),
        partition: "0".to_owned(),
        prev,
        prev_hash: prev_hash.into(),
        as_of: prev,
        now_us: crate::output::now_us(),
        rules: 1,
        writer: Some(Writer {
            instance: format!("provision-{}", std::process::id()),
            build: crate::BUILD.to_owned(),
        }),
        facts: vec![Fact { kind: Some(Kind::GenerationStarted(fact)) }],
        ..Envelope::default()
    }
    .encode_to_vec()
}

/// The port of before if it is free, else one that the system gives.
pub fn free_port(wanted: Option<u16>) -> Result<u16> {
    let listener = wanted
        .and_then(|port| TcpListener::bind(("127.0.0.1", port)).ok())
        .map_or_else(|| TcpListener::bind(("127.0.0.1", 0)), Ok)
        .context("no free port on loopback")?;
    Ok(listener.local_addr()?.port())
}
