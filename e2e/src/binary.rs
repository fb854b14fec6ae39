//! The programs that cells are made of.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

/// `MUSTER_BIN`, else the `muster` of this program's own target folder.
///
/// # Errors
/// It was not built; says how to.
pub fn muster() -> Result<PathBuf> {
    if let Some(own) = env::var_os("MUSTER_BIN") {
        let own = PathBuf::from(own);
        return if own.is_file() { Ok(own) } else { bail!("MUSTER_BIN={} is no file", own.display()) };
    }
    let me = env::current_exe().context("where is this program?")?;
    // A test stands in `deps`, one folder below.
    let beside = me.ancestors().skip(1).take(2).map(|folder| folder.join("muster"));
    match beside.clone().find(|path| path.is_file()) {
        Some(found) => Ok(found),
        None => bail!(
            "muster is not beside {}: build it with `cargo build --workspace --exclude muster-sim --bins`",
            me.display()
        ),
    }
}

fn cached(variable: &str, folder: &str) -> PathBuf {
    let home = || env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    let cache = || env::var_os("MUSTER_CACHE").map_or_else(|| home().join(".cache/muster"), PathBuf::from);
    env::var_os(variable).filter(|set| !set.is_empty()).map_or_else(|| cache().join(folder), PathBuf::from)
}

/// The virtual environment with Ray that xtask made.
///
/// # Errors
/// There is none; says how to get it.
pub fn ray_venv() -> Result<PathBuf> {
    in_venv(cached("MUSTER_RAY_VENV", "venv-ray"), "ray")
}

/// A Python with nats-py, which xtask put beside the server.
///
/// # Errors
/// There is none; says how to get it.
pub fn python() -> Result<PathBuf> {
    Ok(in_venv(cached("MUSTER_NATS_VENV", "venv-nats"), "python")?.join("bin/python"))
}

fn in_venv(venv: PathBuf, program: &str) -> Result<PathBuf> {
    if !venv.join("bin").join(program).exists() {
        bail!("{} holds no {program}: `cargo xtask setup` makes it", venv.display());
    }
    Ok(venv)
}

/// The NATS server as found now; a cell's own home or another shell would find another one, or none.
///
/// # Errors
/// There is none; says how to get it.
pub fn nats_server() -> Result<PathBuf> {
    let cached = cached("MUSTER_NATS_VENV", "venv-nats").join("bin/nats-server");
    if env::var_os("MUSTER_NATS_SERVER").is_none() && cached.is_file() {
        return Ok(cached);
    }
    let found = muster_bus::server::find_binary()?;
    Ok(Path::new(&found).to_owned())
}
