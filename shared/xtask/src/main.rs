//! `cargo xtask`: the few commands that a person or CI needs, with nothing installed but Rust and a C linker.
//!
//! Every command begins with [`setup`]: a list of steps as data, each with its reason, cost, check and action,
//! so that the plan can be printed before anything is downloaded, a second run does nothing, and an interrupted
//! run goes on where it stopped. Then `test` runs the [`test`] stages, `demo`, `sim`, `bench` and `install`
//! ([`run`]) build and start what other packages provide. [`process`] is the one way to start a child: it reports
//! on silent ones every ten seconds and leaves none behind when xtask is stopped.
//!
//! xtask depends on no crate of the workspace; it spawns cargo. What it says goes to stderr, what the
//! programs it runs say on stdout stays on stdout.

mod context;
mod process;
mod run;
mod setup;
mod test;

use context::Context;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

/// Why a command ended without success.
#[derive(Debug)]
pub enum Failure {
    /// The command line is wrong: exit code 2.
    Usage(String),
    /// Something that had to hold or work did not: exit code 1.
    Failed(String),
    /// A program that was run for the caller ended with this code: it becomes ours.
    Code(u8),
}

type Outcome = Result<(), Failure>;

struct Command {
    name: &'static str,
    summary: &'static str,
    help: &'static str,
    run: fn(&Arc<Context>, Vec<OsString>) -> Outcome,
}

const COMMANDS: &[Command] = &[
    Command {
        name: "setup",
        summary: "install what the other commands need",
        help: setup::HELP,
        run: setup::command,
    },
    Command { name: "test", summary: "run every check; what CI runs", help: test::HELP, run: test::command },
    Command {
        name: "demo",
        summary: "show muster at work, scene by scene",
        help: run::DEMO_HELP,
        run: run::demo,
    },
    Command { name: "sim", summary: "run the simulator over many seeds", help: run::SIM_HELP, run: run::sim },
    Command { name: "bench", summary: "measure, optimised", help: run::BENCH_HELP, run: run::bench },
    Command {
        name: "install",
        summary: "put the binary muster on the PATH",
        help: run::INSTALL_HELP,
        run: run::install,
    },
];

fn main() -> ExitCode {
    process::stop_children_on_signals();
    let outcome = dispatch(std::env::args_os().skip(1).collect());
    process::stop_what_is_left();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
        Err(Failure::Failed(message)) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
        Err(Failure::Code(code)) => ExitCode::from(code),
    }
}

fn dispatch(mut args: Vec<OsString>) -> Outcome {
    if args.is_empty() {
        return Err(Failure::Usage(format!("no command\n\n{}", overview())));
    }
    let name = args.remove(0).to_string_lossy().into_owned();
    if ["--help", "-h", "help"].contains(&name.as_str()) {
        print!("{}", overview());
        return Ok(());
    }
    let command = COMMANDS.iter().find(|c| c.name == name).ok_or_else(|| {
        let names: Vec<&str> = COMMANDS.iter().map(|c| c.name).collect();
        Failure::Usage(format!("no command `{name}`; there are: {}", names.join(", ")))
    })?;
    if wants_help(&args) {
        print!("{}", command.help);
        return Ok(());
    }
    (command.run)(&Arc::new(Context::new().map_err(Failure::Failed)?), args)
}

/// Help is asked for before any `--`; behind it the arguments belong to the program that is run.
fn wants_help(args: &[OsString]) -> bool {
    args.iter().take_while(|a| *a != "--").any(|a| a == "--help" || a == "-h")
}

fn overview() -> String {
    let mut text = String::from("cargo xtask COMMAND [ARGUMENTS]\n\n");
    for command in COMMANDS {
        text += &format!("  {:<9} {}\n", command.name, command.summary);
    }
    text + "\n`cargo xtask COMMAND --help` tells more.\n\
            Exit codes: 0 done · 1 something failed · 2 wrong usage · 130, 143 stopped by a signal;\n\
            demo, sim and bench: the exit code of the program that was run.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_command_names_the_valid_ones() {
        let Err(Failure::Usage(message)) = dispatch(vec!["tset".into()]) else { panic!("accepted") };
        for command in COMMANDS {
            assert!(message.contains(command.name), "{message}");
        }
    }

    #[test]
    fn each_help_shows_its_own_command_line() {
        for command in COMMANDS {
            assert!(command.help.starts_with(&format!("cargo xtask {}", command.name)), "{}", command.name);
        }
    }

    #[test]
    fn help_behind_two_dashes_is_the_programs() {
        assert!(wants_help(&["--keep".into(), "--help".into()]));
        assert!(!wants_help(&["--".into(), "--help".into()]));
    }
}
