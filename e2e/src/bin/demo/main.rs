//! `cargo xtask demo`: muster at work on this machine, scene by scene.
//!
//! Everything is real and the commands are what a user types; a claim that does not hold ends the demo with 1.
//! The last line of stdout is JSON: `{"scenes":[{"name","ok"}],"hashes":{…},"equal":true}`.

mod scenes;
mod stage;

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser;
use serde_json::{Value, json};

use stage::Stage;

/// Shows muster at work on this machine: a real Ray job, quota, kill -9, replay.
#[derive(Parser)]
#[command(name = "demo")]
struct Args {
    /// Leave muster running at the end
    #[arg(long)]
    keep: bool,
    /// Where the demo keeps everything; an earlier demo there is ended and removed
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// In the demo's folder: what is there may be removed.
const MARK: &str = "muster-demo";

fn main() -> ExitCode {
    let args = Args::parse();
    match play(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn play(args: &Args) -> Result<bool> {
    let dir = match &args.data {
        Some(dir) => std::path::absolute(dir)?,
        None => cache()?.join("demo"),
    };
    let mut stage = Stage::new(dir)?;
    clear(&stage)?;
    println!("Below, `muster` stands for\n  {}", prefix(&stage));
    let played = all(&mut stage);
    let replay = played.as_ref().ok().cloned().unwrap_or_default();
    let equal = replay["equal"] == true;
    if args.keep {
        println!("\nmuster goes on running; `muster down --kill-pods` ends it.");
    } else if let Err(error) = stage.muster(&["down", "--kill-pods"]) {
        eprintln!("error: {error:#}");
    }
    if played.is_ok() {
        ending(&stage, args.keep);
    } else {
        println!("\nLogs are in {}", stage.data().join("log").display());
    }
    println!("{}", json!({ "scenes": stage.scenes(), "hashes": hashes(&replay), "equal": equal }));
    Ok(played.is_ok() && equal)
}

/// State hashes by service.
fn hashes(replay: &Value) -> Value {
    let services = replay["services"].as_array().into_iter().flatten();
    let hash = |one: &Value| Some((one["service"].as_str()?.to_owned(), one["hash"].clone()));
    services.filter_map(hash).collect::<serde_json::Map<_, _>>().into()
}

fn all(stage: &mut Stage) -> Result<Value> {
    let up =
        "One command starts a whole cell: a NATS server, five services, and a member cluster of two nodes.";
    stage.scene("up", up, scenes::up)?;
    let ray =
        "A RayJob as KubeRay knows it goes through queue, admission and federation, and real Ray runs it.";
    stage.scene("ray_job", ray, scenes::ray_job)?;
    let why = "`muster why` tells which quota a waiting job lacks, how much, and who holds it.";
    stage.scene("why", why, scenes::why)?;
    let kill = "kill -9 of admission, then of the agent: running pods keep their pid, and nothing is lost.";
    stage.scene("kill_9", kill, scenes::kill_9)?;
    let mut told = Value::Null;
    let replay = "Every state is a fold of the log: a new process folds it from its first message, without the \
                  services' stores, and has the services' own hashes.";
    stage.scene("replay", replay, |stage| {
        told = scenes::replay(stage)?;
        if told["equal"] == true { Ok(()) } else { bail!("not equal: {told}") }
    })?;
    Ok(told)
}

/// Ends and removes what an earlier demo left, and nothing else.
fn clear(stage: &Stage) -> Result<()> {
    let dir = &stage.dir;
    let mark = dir.join(MARK);
    let entries = fs::read_dir(dir).map(Iterator::count).unwrap_or_default();
    if entries > 0 && !mark.exists() {
        bail!("{} is not empty and not a demo's: choose another folder with --data", dir.display());
    }
    if stage.data().join("run/cell.json").exists() {
        println!("An earlier demo in {} is ended and removed.", dir.display());
        let data = stage.data().display().to_string();
        stage.muster(&["down", "--kill-pods", "--data", &data])?;
    }
    if entries > 0 {
        fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    fs::write(mark, "")?;
    Ok(())
}

/// What to type instead of `muster`, in any shell and folder.
fn prefix(stage: &Stage) -> String {
    format!("MUSTER_CONFIG={} {}", quoted(&stage.config()), quoted(&stage.muster))
}

fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

fn ending(stage: &Stage, keep: bool) {
    let muster = prefix(stage);
    println!("\nNow you, as pasted:\n");
    if keep {
        println!("  {muster} get workloads -o wide");
    } else {
        // What xtask has found for us is not in the user's shell.
        let (nats, ray) = (quoted(&stage.nats), quoted(&stage.ray_venv));
        let data = quoted(&stage.data());
        println!("  MUSTER_NATS_SERVER={nats} MUSTER_RAY_VENV={ray} {muster} up --name demo --data {data}");
    }
    println!("  {muster} submit -f {} --name primes-again --follow", quoted(&stage.dir.join("primes.yaml")));
    println!("  {muster} describe primes\n");
}

fn cache() -> Result<PathBuf> {
    match env::var_os("MUSTER_CACHE") {
        Some(cache) => Ok(cache.into()),
        None => Ok(PathBuf::from(env::var_os("HOME").context("neither HOME nor MUSTER_CACHE is set")?)
            .join(".cache/muster")),
    }
}
