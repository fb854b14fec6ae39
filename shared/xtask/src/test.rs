//! `cargo xtask test`: every check, in the order in which a failure is cheapest to learn.

use crate::context::Context;
use crate::process::{Output, run};
use crate::setup::{self, DEBIAN, DENY, LINTS, NATS, RAY};
use crate::{Failure, Outcome, run as programs};
use programs::WORKSPACE;
use std::ffi::OsString;
use std::io::Write;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

pub const HELP: &str = "\
cargo xtask test [--quick] [--only STAGE]…

Installs what is missing and runs every check: rustfmt, clippy, cargo-deny, build, all tests, and 200 seeds of
the simulator. A failed stage does not stop the later ones; the end is a table of all. Ends with 1 when one failed.

  --quick        without the end-to-end tests, and without Ray
  --only STAGE   only this stage; may be given more than once.
                 STAGE: rustfmt clippy cargo-deny build tests simulator-tests simulator
";

/// Enough for the common faults to meet in each run; campaigns are `cargo xtask sim`.
const SEEDS: &str = "200";

struct Stage {
    name: &'static str,
    command: fn(&Context, bool) -> Command,
    /// Wait for Ray first.
    needs_ray: bool,
}

const STAGES: &[Stage] = &[
    Stage { name: "rustfmt", command: |c, _| c.cargo(&["fmt", "--all", "--check"]), needs_ray: false },
    Stage { name: "clippy", command: |c, _| c.cargo(CLIPPY), needs_ray: false },
    Stage { name: "cargo-deny", command: deny, needs_ray: false },
    // Before the tests: those of e2e start the binary.
    Stage { name: "build", command: build, needs_ray: false },
    Stage { name: "tests", command: tests, needs_ray: true },
    // Apart: the simulator switches defects on in the crates that it drives, and no other test may see them.
    Stage { name: "simulator-tests", command: |c, _| c.cargo(SIM_TESTS), needs_ray: false },
    Stage { name: "simulator", command: campaign, needs_ray: false },
];

const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
const SIM_TESTS: &[&str] = &["test", "--no-fail-fast", "--package", "muster-sim"];

fn deny(context: &Context, _: bool) -> Command {
    let mut command = context.command(setup::deny(context).unwrap_or_else(|| "cargo-deny".into()));
    command.args(["--workspace", "check", "--hide-inclusion-graph", "--allow", "unused-wrapper"]);
    command.args(["licenses", "bans", "sources"]);
    command
}

fn build(context: &Context, _: bool) -> Command {
    let mut command = context.cargo(&["build", "--bins"]);
    command.args(WORKSPACE);
    command
}

fn tests(context: &Context, quick: bool) -> Command {
    let mut command = context.cargo(&["test", "--no-fail-fast"]);
    command.args(WORKSPACE);
    if quick {
        command.args(["--exclude", "muster-e2e"]);
    }
    command
}

fn campaign(context: &Context, _: bool) -> Command {
    context.cargo(&["run", "--package", "muster-sim", "--", "--from", "1", "--seeds", SEEDS])
}

struct Row {
    name: &'static str,
    seconds: f64,
    result: Result<String, String>,
}

pub fn command(context: &Arc<Context>, args: Vec<OsString>) -> Outcome {
    let Chosen { quick, only } = Chosen::parse(args)?;
    let stages =
        || STAGES.iter().filter(|stage| only.is_empty() || only.iter().any(|name| name == stage.name));
    let with_ray = !quick && stages().any(|stage| stage.needs_ray);
    let needed = [&DEBIAN, &LINTS, &DENY, &NATS];
    setup::plan(context, &[needed.as_slice(), if with_ray { &[&RAY] } else { &[] }].concat());
    eprintln!("  compile  {}", programs::build_estimate(context));
    let started = Instant::now();
    for step in needed {
        setup::ensure(context, step)?;
    }
    let mut ray = with_ray.then(|| setup::in_background(context, &RAY));
    let mut rows =
        vec![Row { name: "setup", seconds: started.elapsed().as_secs_f64(), result: Ok(String::new()) }];
    for stage in stages() {
        let waited = Instant::now();
        let ray = ray.as_mut().filter(|_| stage.needs_ray).map(setup::Background::finish);
        if let Some(Err(Failure::Failed(reason))) = ray {
            // The other tests are still worth to know.
            rows.push(Row { name: RAY.name, seconds: waited.elapsed().as_secs_f64(), result: Err(reason) });
        }
        rows.push(stage.run(context, quick));
    }
    say(&table(&rows));
    let failed: Vec<&str> = rows.iter().filter(|r| r.result.is_err()).map(|r| r.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(Failure::Failed(format!("failed: {}", failed.join(", ")))) }
}

struct Chosen {
    quick: bool,
    only: Vec<String>,
}

impl Chosen {
    fn parse(args: Vec<OsString>) -> Result<Self, Failure> {
        let usage = |e: lexopt::Error| Failure::Usage(format!("test: {e}\n\n{HELP}"));
        let mut chosen = Self { quick: false, only: Vec::new() };
        let mut parser = lexopt::Parser::from_args(args);
        while let Some(arg) = parser.next().map_err(usage)? {
            match arg {
                lexopt::Arg::Long("quick") => chosen.quick = true,
                lexopt::Arg::Long("only") => {
                    let name = parser.value().map_err(usage)?.to_string_lossy().into_owned();
                    if !STAGES.iter().any(|stage| stage.name == name) {
                        return Err(usage(format!("there is no stage `{name}`").into()));
                    }
                    chosen.only.push(name);
                }
                other => return Err(usage(other.unexpected())),
            }
        }
        Ok(chosen)
    }
}

impl Stage {
    fn run(&self, context: &Context, quick: bool) -> Row {
        let command = (self.command)(context, quick);
        say(&format!("\n━━━ {} ━━━ {}\n", self.name, shown(&command)));
        let started = Instant::now();
        let result = run(self.name, command, &Output::Shown);
        let counted = |passed: u64, failed: u64| match passed + failed {
            0 => String::new(),
            _ => format!("{passed} passed, {failed} failed"),
        };
        let result = match result {
            Ok(report) => Ok(counted(report.passed, report.failed)),
            Err((report, reason)) => Err(format!("{} {reason}", counted(report.passed, report.failed))),
        };
        Row { name: self.name, seconds: started.elapsed().as_secs_f64(), result }
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("\n{:<24} {:>8}  {}\n", "stage", "seconds", "ok");
    for row in rows {
        let (ok, note) = match &row.result {
            Ok(note) => ("yes", note),
            Err(note) => ("NO ", note),
        };
        let line = format!("{:<24} {:>8.1}  {ok}  {}", row.name, row.seconds, note.trim());
        text += line.trim_end();
        text.push('\n');
    }
    let seconds: f64 = rows.iter().map(|r| r.seconds).sum();
    text + &format!("{:<24} {seconds:>8.1}\n", "in all")
}

fn shown(command: &Command) -> String {
    let program = std::path::Path::new(command.get_program()).file_name().unwrap_or_default();
    let args = command.get_args().map(|a| a.to_string_lossy().into_owned());
    std::iter::once(program.to_string_lossy().into_owned()).chain(args).collect::<Vec<_>>().join(" ")
}

/// On stdout, between the outputs of the stages.
fn say(text: &str) {
    // Nobody to read it is no reason to stop.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_which_stage_failed() {
        let rows = [
            Row { name: "rustfmt", seconds: 1.25, result: Ok(String::new()) },
            Row { name: "tests", seconds: 10.0, result: Err("3 passed, 1 failed exit status: 101".into()) },
        ];
        let text = table(&rows);
        assert!(text.contains("rustfmt                       1.2  yes\n"), "{text}");
        assert!(text.contains("tests                        10.0  NO   3 passed, 1 failed"), "{text}");
        assert!(text.contains("in all                       11.2"), "{text}");
    }

    #[test]
    fn quick_leaves_out_the_end_to_end_tests() {
        let context = Context::new().unwrap();
        assert!(shown(&tests(&context, true)).contains("--exclude muster-e2e"));
        assert!(!shown(&tests(&context, false)).contains("muster-e2e"));
    }

    #[test]
    fn the_help_names_each_stage_and_a_wrong_one_is_refused() {
        for stage in STAGES {
            assert!(HELP.contains(stage.name), "{}", stage.name);
        }
        let chosen = Chosen::parse(vec!["--only".into(), "clippy".into(), "--quick".into()]).unwrap();
        assert!(chosen.quick && chosen.only == ["clippy"]);
        assert!(matches!(Chosen::parse(vec!["--only=clipy".into()]), Err(Failure::Usage(_))));
    }
}
