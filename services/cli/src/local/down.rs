//! `muster down`: stops what `up` started.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, bail};
use nix::{sys::signal, unistd::Pid};

use super::cell::Cell;
use crate::{
    args::{Down, Global},
    context::{Config, default_data},
    output,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The cell that a command is about: `--data`, else the context's, else the default folder's.
pub fn find(global: &Global, data: Option<&std::path::Path>) -> Result<Cell> {
    let data = match data {
        Some(data) => data.to_owned(),
        None => {
            let config = Config::load()?;
            let chosen = config.choose(global.context.as_deref()).ok();
            chosen.and_then(|(_, context)| context.data).unwrap_or_else(default_data)
        }
    };
    Cell::load(&data)?.with_context(|| format!("{} holds no cell: `muster up` makes one", data.display()))
}

pub async fn down(global: &Global, args: &Down) -> Result<()> {
    let cell = find(global, args.data.as_deref())?;
    if let Some(pid) = cell.supervisor() {
        signal::kill(Pid::from_raw(pid), signal::Signal::SIGTERM)
            .with_context(|| format!("supervisor pid {pid}"))?;
        let until = tokio::time::Instant::now() + PATIENCE;
        while cell.supervisor().is_some() {
            if tokio::time::Instant::now() > until {
                bail!(
                    "the supervisor (pid {pid}) did not end in {PATIENCE:?}: see {}",
                    cell.log("supervisor").display()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        output::line("muster is down")?;
    } else {
        output::line("muster was not up")?;
    }
    let pods = pods(&cell);
    if pods == 0 {
        return Ok(());
    }
    if args.kill_pods {
        kill_pods(&cell)?;
        output::line(&format!("pods of {pods} workload attempt(s) were killed"))
    } else {
        output::line(&format!(
            "{pods} workload attempt(s) of the local cluster may go on running; `muster up` takes them over, `muster down --kill-pods` ends them"
        ))
    }
}

fn objects(cell: &Cell) -> std::path::PathBuf {
    cell.data.join("clusters").join(super::cell::CLUSTER).join("objects")
}

/// Attempts that the local cluster holds.
fn pods(cell: &Cell) -> usize {
    fs::read_dir(objects(cell)).map_or(0, |entries| entries.flatten().count())
}

/// Kills every process that carries the token of one of this cluster's attempts.
fn kill_pods(cell: &Cell) -> Result<()> {
    let mark =
        format!("MUSTER_CLUSTER_DIR={}", cell.data.join("clusters").join(super::cell::CLUSTER).display());
    muster_agent::proc::kill_all(&[mark], std::process::id().cast_signed(), Duration::from_secs(10))?;
    Ok(())
}
