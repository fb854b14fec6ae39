//! What the commands need beyond Rust, as a list of steps.
//!
//! A step knows its reason and cost, how to see that it is done, and how to do it. [`plan`] prints them before
//! anything happens; [`ensure`] does what is missing. A step is done when its check says so, never because an
//! earlier run believed it: so a run that was interrupted is simply run again. A file lock per step makes a
//! second run wait for the first one instead of installing beside it.

mod debian;
mod python;
mod tools;

use crate::context::Context;
use crate::{Failure, Outcome};
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

pub const HELP: &str = "\
cargo xtask setup [--plan]

Installs what `test`, `demo`, `sim` and `bench` need, and does nothing where it is there already:
Debian packages (as root; else it prints the command for sudo and ends with 1), and in ~/.cache/muster
(or MUSTER_CACHE) nats-server, Ray and cargo-deny. The other commands do the same for their own needs.

  --plan   only print the steps, with minutes and megabytes

MUSTER_NATS_SERVER names a nats-server of your own, 2.14 or later.
";

/// One thing to have.
pub struct Step {
    /// For the plan, the log file and the lock.
    pub name: &'static str,
    /// What it is for.
    pub why: &'static str,
    /// Expected seconds on two cores and a fast line.
    pub seconds: u32,
    /// Expected megabytes on disk.
    pub megabytes: u32,
    /// What of it is missing, for the plan; nothing means done. Sets the environment of children when done.
    pub missing: fn(&Context) -> Option<String>,
    /// Gets it. The log takes the tools' own output.
    pub act: fn(&Context, &Log) -> Result<(), String>,
}

/// Where a step's tools write.
pub struct Log {
    /// Shown in the sign of life.
    pub label: &'static str,
    /// `<cache>/log/<step>.log`.
    pub path: PathBuf,
}

pub use debian::STEP as DEBIAN;
pub use python::{NATS, RAY};
pub use tools::{DENY, LINTS, deny};

/// A step that goes on while others work.
pub struct Background(Option<JoinHandle<Result<(), String>>>);

impl Background {
    /// Waits for its end; more than once is fine.
    pub fn finish(&mut self) -> Outcome {
        let Some(thread) = self.0.take() else { return Ok(()) };
        let result = thread.join().unwrap_or_else(|_| Err("the step's thread broke".into()));
        result.map_err(Failure::Failed)
    }
}

pub fn command(context: &Arc<Context>, args: Vec<OsString>) -> Outcome {
    let only_plan = match args.as_slice() {
        [] => false,
        [flag] if flag == "--plan" => true,
        _ => return Err(Failure::Usage(format!("setup takes only --plan, not {args:?}"))),
    };
    let steps = [&DEBIAN, &NATS, &RAY, &DENY, &LINTS];
    plan(context, &steps);
    if only_plan {
        return Ok(());
    }
    for step in steps {
        ensure(context, step)?;
    }
    eprintln!("Everything is there.");
    Ok(())
}

/// Prints each step with its state, and what the missing ones cost.
pub fn plan(context: &Context, steps: &[&Step]) {
    eprintln!("What is needed ({} cores):", context.cores());
    let (mut seconds, mut megabytes) = (0, 0);
    for step in steps {
        match (step.missing)(context) {
            None => eprintln!("  there    {:<16} {}", step.name, step.why),
            Some(missing) => {
                let cost = cost(step.seconds, step.megabytes);
                eprintln!("  to get   {:<16} {}: {missing} ({cost})", step.name, step.why);
                seconds += step.seconds;
                megabytes += step.megabytes;
            }
        }
    }
    if seconds > 0 {
        eprintln!("  in all: {}", cost(seconds, megabytes));
    }
}

/// `about 2 min, 450 MB`
pub fn cost(seconds: u32, megabytes: u32) -> String {
    let time = if seconds < 90 { format!("{seconds} s") } else { format!("{} min", seconds.div_ceil(60)) };
    if megabytes == 0 { format!("about {time}") } else { format!("about {time}, {megabytes} MB") }
}

/// Does the step unless it is done.
pub fn ensure(context: &Context, step: &'static Step) -> Outcome {
    get(context, step).map_err(Failure::Failed)
}

/// Does the step on a thread of its own.
pub fn in_background(context: &Arc<Context>, step: &'static Step) -> Background {
    let context = Arc::clone(context);
    Background(Some(std::thread::spawn(move || get(&context, step))))
}

fn get(context: &Context, step: &'static Step) -> Result<(), String> {
    if (step.missing)(context).is_none() {
        return Ok(());
    }
    let _lock = lock(context, step)?;
    // The one that held the lock may have done it.
    let Some(missing) = (step.missing)(context) else { return Ok(()) };
    let log = Log { label: step.name, path: context.cache.join("log").join(format!("{}.log", step.name)) };
    let expected = cost(step.seconds, step.megabytes);
    eprintln!("→ {}: getting {missing} ({expected}; log: {})", step.name, log.path.display());
    let started = Instant::now();
    (step.act)(context, &log).map_err(|reason| format!("{}: {reason}", step.name))?;
    if let Some(missing) = (step.missing)(context) {
        return Err(format!("{}: installed, but still missing: {missing}", step.name));
    }
    eprintln!("→ {}: done in {} s", step.name, started.elapsed().as_secs());
    Ok(())
}

/// Held until the file is dropped; the kernel lets go of it when a process dies.
fn lock(context: &Context, step: &Step) -> Result<File, String> {
    let path = context.cache.join("lock").join(step.name);
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    std::fs::create_dir_all(context.cache.join("lock")).map_err(said)?;
    let file = File::create(&path).map_err(said)?;
    if file.try_lock().is_err() {
        eprintln!("→ {}: another xtask is at it; waiting", step.name);
        file.lock().map_err(said)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_are_said_in_the_unit_one_thinks_in() {
        assert_eq!(cost(20, 8), "about 20 s, 8 MB");
        assert_eq!(cost(90, 450), "about 2 min, 450 MB");
        assert_eq!(cost(600, 0), "about 10 min");
    }
}
