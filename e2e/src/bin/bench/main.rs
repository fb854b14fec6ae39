//! `cargo xtask bench NAME`: measurements. A table for people, then one JSON object as the last line.

mod cell;
mod figures;
mod member;
mod raw;
mod refold;
mod spine;
mod watch;
mod way;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand, error::ErrorKind};

/// As in the binary `muster`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures muster, and in the same run what NATS JetStream itself does.
#[derive(Parser)]
#[command(name = "bench")]
struct Args {
    #[command(subcommand)]
    name: Name,
}

#[derive(Subcommand)]
enum Name {
    /// The way of a job: latency, throughput, replay; all services and a NATS server with `sync_interval: always`
    Spine(spine::Args),
}

fn main() -> ExitCode {
    let Args { name } = Args::try_parse().unwrap_or_else(|error| {
        if error.kind() == ErrorKind::InvalidSubcommand {
            let command = Args::command();
            let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
            eprintln!("there are these benches: {}", names.join(", "));
        }
        error.exit()
    });
    let result = match name {
        Name::Spine(args) => spine::bench(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
