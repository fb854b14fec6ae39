//! Where things are: the repository, the cache that clones share, cargo, and the environment of children.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Set up once; steps of the setup add what they found to the environment of later children.
pub struct Context {
    /// The repository's root.
    pub root: PathBuf,
    /// `~/.cache/muster`, or `MUSTER_CACHE`: tools, logs of their installation, and the target folder.
    pub cache: PathBuf,
    /// Where cargo builds: `CARGO_TARGET_DIR`, or the cache, so that all clones share one RocksDB.
    pub target: PathBuf,
    /// `CARGO_HOME`, or `~/.cargo`.
    pub cargo_home: PathBuf,
    cargo: PathBuf,
    vars: Mutex<BTreeMap<String, OsString>>,
}

impl Context {
    /// Fails when there is no home directory, or when cargo can't be found.
    pub fn new() -> Result<Self, String> {
        let home = std::env::home_dir().ok_or("no home directory: set HOME")?;
        let cargo_home = path_from("CARGO_HOME").unwrap_or_else(|| home.join(".cargo"));
        let cache = path_from("MUSTER_CACHE").unwrap_or_else(|| home.join(".cache/muster"));
        let target = path_from("CARGO_TARGET_DIR").unwrap_or_else(|| cache.join("target"));
        let cargo = path_from("CARGO")
            .or_else(|| find_program("cargo"))
            .or_else(|| Some(cargo_home.join("bin/cargo")).filter(|p| p.is_file()))
            .ok_or("cargo is neither on the PATH nor in ~/.cargo/bin: install Rust first")?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = root.ancestors().nth(2).ok_or("xtask was moved out of shared/xtask")?.to_owned();
        // Relative folders would mean another place for each child that changes its directory.
        let target = std::path::absolute(target).map_err(|e| format!("CARGO_TARGET_DIR: {e}"))?;
        let context = Self { root, cache, target, cargo_home, cargo, vars: Mutex::default() };
        context.export("PATH", with_cargo_bin(&context.cargo_home));
        context.export("CARGO_TARGET_DIR", context.target.clone());
        Ok(context)
    }

    /// Every child started from now on sees `name`.
    pub fn export(&self, name: &str, value: impl Into<OsString>) {
        let mut vars = self.vars.lock().unwrap_or_else(|broken| broken.into_inner());
        vars.insert(name.to_owned(), value.into());
    }

    /// A child in the repository's root, with what was exported.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        let vars = self.vars.lock().unwrap_or_else(|broken| broken.into_inner());
        command.current_dir(&self.root).envs(vars.iter());
        command
    }

    /// `cargo ARGS…` in the repository's root.
    pub fn cargo(&self, args: &[&str]) -> Command {
        let mut command = self.command(&self.cargo);
        command.args(args);
        command
    }

    /// Cores that a build may use; the estimates are for two.
    pub fn cores(&self) -> usize {
        std::thread::available_parallelism().map_or(1, usize::from)
    }
}

/// The first executable of this name on the PATH.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file())
}

fn path_from(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Last on the PATH: whoever put another cargo in front meant it.
fn with_cargo_bin(cargo_home: &Path) -> OsString {
    let old = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&old).collect();
    dirs.push(cargo_home.join("bin"));
    std::env::join_paths(dirs).unwrap_or(old)
}
