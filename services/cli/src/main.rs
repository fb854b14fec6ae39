//! `muster`: every service, everything on one machine, and the user's commands, in one binary.
//!
//! [`local`] is `up`, `down`, `status` and `doctor`; [`run`] hosts one service; [`commands`] is
//! what users and operators type. Commands decide nothing: they ask the ledger and publish
//! requests. Data goes to stdout, everything else to stderr.

mod args;
mod client;
mod commands;
mod context;
mod exit;
mod files;
mod local;
mod output;
mod replay;
mod run;
mod wire;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use args::{Cli, Command};

/// Folding is many small rows: this allocator folds a log faster than the system's (`cargo xtask bench spine`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Which build wrote a fact.
const BUILD: &str = env!("CARGO_PKG_VERSION");

fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Command::Shim { dir } = &cli.command {
        // The shim makes its own runtime, after it has left the agent's session.
        return match muster_agent::shim::main(dir) {
            Ok(code) => ExitCode::from(u8::try_from(code).unwrap_or(exit::FAILED)),
            Err(error) => fail(&error.into()),
        };
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error.into()),
    };
    let result = runtime.block_on(dispatch(&cli));
    runtime.shutdown_background();
    match result {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(&error),
    }
}

fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::from(exit::code_of(error))
}

async fn dispatch(cli: &Cli) -> Result<u8> {
    let global = &cli.global;
    match &cli.command {
        Command::Up(args) => local::up(global, args).await?,
        Command::Down(args) => local::down(global, args).await?,
        Command::Status => local::status(global).await?,
        Command::Doctor => local::doctor(global).await?,
        Command::Run(args) => run::run(args).await?,
        Command::Context { action } => commands::context::context(global, action.as_ref())?,
        Command::Apply { file, dry_run } => commands::apply::apply(global, file, *dry_run).await?,
        Command::Submit(args) => return commands::submit::submit(global, args).await,
        Command::Get(args) => commands::get::get(global, args).await?,
        Command::Describe { workload } => commands::show::describe(global, workload).await?,
        Command::Why { workload } => commands::show::why(global, workload).await?,
        Command::Events { workload, follow, after } => {
            commands::events::events(global, workload.as_deref(), *follow, *after).await?;
        }
        Command::Logs { workload, follow, pod, attempt } => {
            commands::logs::logs(global, workload, *follow, pod.as_deref(), *attempt).await?;
        }
        Command::Cancel { workload, reason } => commands::change::cancel(global, workload, reason).await?,
        Command::Erase { workload } => commands::change::erase(global, workload).await?,
        Command::Replay(args) => replay::replay(global, args).await?,
        Command::Log { action } => replay::log(global, action).await?,
        Command::Supervise { data } => local::supervise(data, false).await?,
        // Handled before the runtime was made.
        Command::Shim { .. } => {}
    }
    Ok(0)
}
