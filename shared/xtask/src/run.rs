//! The commands that build programs of other packages and run them: `demo`, `sim`, `bench`, `install`.
//!
//! All builds share one profile, so RocksDB is compiled once. Where speed counts only our own crates are built
//! again ([`OPTIMISED`]); dependencies are optimised in every build.

use crate::context::Context;
use crate::process::{Output, run, run_attached};
use crate::setup::{self, DEBIAN, NATS, RAY};
use crate::{Failure, Outcome};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub const DEMO_HELP: &str = "\
cargo xtask demo [--keep] [ARGUMENTS]

Installs what is missing (the plan comes first), compiles, and shows muster at work on this machine, scene by
scene: claim, command, real output. Ray is loaded while Rust compiles. Interrupted? Run it again: it goes on.
The last line on stdout is JSON: {\"scenes\":[{\"name\",\"ok\"}],\"hashes\":{…},\"equal\":true}.
Ends with 1 when a claim failed.

  --keep   leave muster running at the end

Other arguments go to the demo as they are; `cargo xtask demo -- --help` shows the ones it knows.
";

pub const SIM_HELP: &str = "\
cargo xtask sim [ARGUMENTS]

Runs the simulator: the real deciders on an in-memory log, with seeded faults. Arguments go to it as they are:

  --from A        first seed
  --seeds N       how many
  --defect NAME   with a test-only defect that the simulator must find

`cargo xtask sim -- --help` shows all. Ends with 1 when an invariant broke or a fault never occurred.
";

pub const BENCH_HELP: &str = "\
cargo xtask bench NAME [ARGUMENTS]

Measures with our own crates optimised; prints JSON. NAME: spine, and what `cargo xtask bench -- --help` lists.
";

pub const INSTALL_HELP: &str = "\
cargo xtask install [--to DIR]

Builds muster optimised and copies it to ~/.cargo/bin (CARGO_HOME), or to DIR.
";

/// As in a release build, without a second profile: that would compile RocksDB again.
const OPTIMISED: &[&str] = &[
    "--config",
    "profile.dev.opt-level=3",
    "--config",
    "profile.dev.debug-assertions=false",
    "--config",
    "profile.dev.overflow-checks=false",
];

/// What is built together always: with other packages chosen, cargo may resolve features of shared dependencies
/// differently, and RocksDB would be compiled once for each choice. The simulator stays out, as it switches
/// test-only defects on.
pub const WORKSPACE: &[&str] = &["--workspace", "--exclude", "muster-sim"];
const SIM: &[&str] = &["--package", "muster-sim"];

pub fn demo(context: &Arc<Context>, args: Vec<OsString>) -> Outcome {
    setup::plan(context, &[&DEBIAN, &NATS, &RAY]);
    eprintln!("  compile  {}", build_estimate(context));
    setup::ensure(context, &DEBIAN)?;
    let mut ray = setup::in_background(context, &RAY);
    setup::ensure(context, &NATS)?;
    build(context, &[], WORKSPACE)?;
    ray.finish()?;
    start(context, "demo", args)
}

pub fn sim(context: &Arc<Context>, args: Vec<OsString>) -> Outcome {
    build(context, &[], SIM)?;
    start(context, "muster-sim", args)
}

pub fn bench(context: &Arc<Context>, args: Vec<OsString>) -> Outcome {
    if args.is_empty() {
        return Err(Failure::Usage(format!("bench needs a name\n\n{BENCH_HELP}")));
    }
    setup::ensure(context, &DEBIAN)?;
    setup::ensure(context, &NATS)?;
    build(context, OPTIMISED, WORKSPACE)?;
    start(context, "bench", args)
}

pub fn install(context: &Arc<Context>, args: Vec<OsString>) -> Outcome {
    let folder = install_folder(args)?.unwrap_or_else(|| context.cargo_home.join("bin"));
    setup::ensure(context, &DEBIAN)?;
    build(context, OPTIMISED, WORKSPACE)?;
    let target = folder.join("muster");
    copy_over(&program(context, "muster"), &target)
        .map_err(|e| Failure::Failed(format!("{}: {e}", target.display())))?;
    println!("{}", target.display());
    let path = std::env::var_os("PATH").unwrap_or_default();
    if !std::env::split_paths(&path).any(|dir| dir == folder) {
        eprintln!("{} is not on your PATH", folder.display());
    }
    Ok(())
}

fn install_folder(args: Vec<OsString>) -> Result<Option<PathBuf>, Failure> {
    let usage = |e: lexopt::Error| Failure::Usage(format!("install: {e}\n\n{INSTALL_HELP}"));
    let mut folder = None;
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next().map_err(usage)? {
        match arg {
            lexopt::Arg::Long("to") => folder = Some(PathBuf::from(parser.value().map_err(usage)?)),
            other => return Err(usage(other.unexpected())),
        }
    }
    Ok(folder)
}

/// By a rename: a muster that runs from there keeps its file.
fn copy_over(source: &Path, target: &Path) -> std::io::Result<()> {
    let new = target.with_extension("new");
    target.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::copy(source, &new)?;
    std::fs::rename(&new, target)
}

/// Builds the programs of these packages; all that cargo says goes to stderr.
fn build(context: &Context, profile: &[&str], packages: &[&str]) -> Outcome {
    let args = [&["build", "--bins"], profile, packages].concat();
    let result = run("the build", context.cargo(&args), &Output::Told);
    result.map(drop).map_err(|(_, reason)| Failure::Failed(format!("cargo {}: {reason}", args.join(" "))))
}

/// A program that cargo has built.
fn program(context: &Context, name: &str) -> PathBuf {
    context.target.join("debug").join(name)
}

/// Not by `cargo run`: chosen alone, a package may have its dependencies' features resolved to others than in
/// the build before, and would be compiled again.
fn start(context: &Context, name: &str, mut args: Vec<OsString>) -> Outcome {
    if args.first().is_some_and(|first| first == "--") {
        args.remove(0);
    }
    let mut command = context.command(program(context, name));
    command.args(args);
    let status = run_attached(command).map_err(Failure::Failed)?;
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(Failure::Code(u8::try_from(code).unwrap_or(1))),
        None => Err(Failure::Failed(format!("{name}: {status}"))),
    }
}

/// For the plan.
pub fn build_estimate(context: &Context) -> &'static str {
    let compiled = std::fs::read_dir(context.target.join("debug/deps")).into_iter().flatten().flatten();
    let rocksdb = |name: OsString| name.to_string_lossy().starts_with("liblibrocksdb_sys");
    match compiled.map(|entry| entry.file_name()).any(rocksdb) {
        true => "RocksDB is compiled already: seconds to a few minutes",
        false => "the first time about 20 min on 2 cores, most of it RocksDB, 3000 MB; later seconds",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_takes_a_folder_and_nothing_else() {
        assert_eq!(install_folder(vec!["--to=/x".into()]).unwrap(), Some("/x".into()));
        assert_eq!(install_folder(vec![]).unwrap(), None);
        assert!(matches!(install_folder(vec!["/x".into()]), Err(Failure::Usage(_))));
        assert!(matches!(install_folder(vec!["--to".into()]), Err(Failure::Usage(_))));
    }
}
