//! `deploy/nats/nats.conf` is what this crate writes for one tenant and one cluster, and the server takes it.
//! `MUSTER_UPDATE=1 cargo test -p muster-bus --test deploy` writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

use std::path::Path;
use std::process::Command;

use muster_bus::Layout;
use muster_bus::layout::{ClusterLayout, TenantLayout};
use muster_bus::server::{Password, ServerConfig, User, find_binary, users};

fn layout() -> Layout {
    Layout::standard(
        vec![TenantLayout { name: "default".into(), principals: vec!["me".into()] }],
        vec![ClusterLayout { name: "local".into(), agents: 2 }],
    )
}

/// `acme/alice` has its password in `MUSTER_NATS_ACME_ALICE`.
fn variable(user: &User) -> String {
    let upper = user.name.to_ascii_uppercase();
    format!("MUSTER_NATS_{}", upper.replace(|c: char| !c.is_ascii_alphanumeric(), "_"))
}

#[test]
fn the_deployed_configuration_is_what_the_layout_gives() {
    let layout = layout();
    let text = ServerConfig {
        layout: &layout,
        listen: "127.0.0.1:4222".into(),
        monitor: Some("127.0.0.1:8222".into()),
        store: "/var/lib/muster/nats".into(),
        password: &|user| Password::Env(variable(user)),
    }
    .render()
    .unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/nats/nats.conf");
    if std::env::var_os("MUSTER_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == text, "{} differs: run this test with MUSTER_UPDATE=1", path.display());

    let variables = users(&layout).unwrap().into_iter().map(|user| (variable(&user), "\"s3cret\""));
    let checked = Command::new(find_binary().unwrap()).args(["-t", "-c"]).arg(&path).envs(variables).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    // and without the passwords the server does not start, rather than start open
    let open = Command::new(find_binary().unwrap()).args(["-t", "-c"]).arg(&path).output().unwrap();
    assert!(!open.status.success());
}
