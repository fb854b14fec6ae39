//! Scenes: claim, command, real output.

use std::{
    io::{BufRead as _, BufReader, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::{Value, json};

/// The longest silence.
const TICK: Duration = Duration::from_secs(10);

/// Where the demo plays.
pub struct Stage {
    pub muster: PathBuf,
    /// The demo's own folder; everything is below it.
    pub dir: PathBuf,
    pub nats: PathBuf,
    pub ray_venv: PathBuf,
    scenes: Vec<Value>,
}

/// What a command said.
pub struct Heard {
    pub code: i32,
    pub out: String,
}

impl Stage {
    pub fn new(dir: PathBuf) -> Result<Self> {
        let (muster, nats, ray_venv) =
            (muster_e2e::muster()?, muster_e2e::nats_server()?, muster_e2e::ray_venv()?);
        Ok(Self { muster, dir, nats, ray_venv, scenes: Vec::new() })
    }

    pub fn config(&self) -> PathBuf {
        self.dir.join("config.json")
    }

    pub fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Plays a scene; one that fails is told and counted, and the next ones can't be played.
    pub fn scene(&mut self, name: &str, claim: &str, play: impl FnOnce(&Self) -> Result<()>) -> Result<()> {
        println!("\n━━━ {name} ━━━\n{claim}");
        let began = Instant::now();
        let result = play(self);
        self.scenes.push(json!({ "name": name, "ok": result.is_ok() }));
        match &result {
            Ok(()) => println!("✓ {name} ({:.0} s)", began.elapsed().as_secs_f64()),
            Err(error) => println!("✗ {name}: {error:#}"),
        }
        result.map_err(|error| anyhow!("{name}: {error:#}"))
    }

    pub fn scenes(&self) -> &[Value] {
        &self.scenes
    }

    /// muster with these arguments, in the demo's environment.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.muster);
        command.args(args).current_dir(&self.dir).env("MUSTER_CONFIG", self.config()).env("NO_COLOR", "1");
        command.env("MUSTER_RAY_VENV", &self.ray_venv).env("MUSTER_NATS_SERVER", &self.nats);
        for other in ["MUSTER_CONTEXT", "MUSTER_DATA", "MUSTER_NATS", "MUSTER_CREDENTIALS"] {
            command.env_remove(other);
        }
        command
    }

    /// Types a command, shows what it says as it says it, and expects it to succeed.
    pub fn muster(&self, args: &[&str]) -> Result<String> {
        println!("\n$ muster {}", args.join(" "));
        let heard = listen(self.command(args), true)?;
        if heard.code != 0 {
            bail!("`muster {}` ended with {}", args.join(" "), heard.code);
        }
        Ok(heard.out)
    }

    /// Asks behind the scenes.
    pub fn ask(&self, args: &[&str]) -> Result<Value> {
        let mut command = self.command(args);
        command.args(["-o", "json"]);
        let heard = listen(command, false)?;
        serde_json::from_str(&heard.out)
            .with_context(|| format!("`muster {}` said {:?}", args.join(" "), heard.out))
    }

    /// Waits until it holds, telling every 10 s.
    pub fn until(&self, what: &str, patience: u64, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let (began, mut told) = (Instant::now(), Instant::now());
        while !holds()? {
            if began.elapsed() > Duration::from_secs(patience) {
                bail!("not so within {patience} s: {what}");
            }
            if told.elapsed() > TICK {
                println!("  … {:.0} s: until {what}", began.elapsed().as_secs_f64());
                told = Instant::now();
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Writes a file of the demo and shows its path.
    pub fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.dir.join(name);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path.display().to_string())
    }

    /// The pid of a process that the supervisor keeps, if it runs now.
    pub fn pid(&self, name: &str) -> Result<Option<i32>> {
        let state = std::fs::read(self.data().join("run/state.json"))?;
        let state: Value = serde_json::from_slice(&state)?;
        let all = state["processes"].as_array().context("state.json")?;
        let one = all.iter().find(|one| one["name"] == name);
        Ok(one.and_then(|one| one["pid"].as_i64()).and_then(|pid| i32::try_from(pid).ok()))
    }
}

/// Runs a command to its end, printing its lines as they come.
fn listen(mut command: Command, show: bool) -> Result<Heard> {
    let program = Path::new(command.get_program()).display().to_string();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context(program)?;
    let (sender, lines) = mpsc::channel();
    let pipes: [(bool, Option<Box<dyn Read + Send>>); 2] = [
        (true, child.stdout.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>)),
        (false, child.stderr.take().map(|pipe| Box::new(pipe) as Box<dyn Read + Send>)),
    ];
    for (is_out, pipe) in pipes {
        let (sender, Some(pipe)) = (sender.clone(), pipe) else { continue };
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                // Nobody listens any more: the demo ends.
                let _ = sender.send((is_out, line));
            }
        });
    }
    drop(sender);
    let (began, mut out) = (Instant::now(), String::new());
    loop {
        match lines.recv_timeout(TICK) {
            Ok((is_out, line)) => {
                if show {
                    println!("  {line}");
                }
                if is_out {
                    out += &line;
                    out.push('\n');
                }
            }
            Err(mpsc::RecvTimeoutError::Timeout) => println!("  … {:.0} s", began.elapsed().as_secs_f64()),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(Heard { code: child.wait()?.code().unwrap_or(-1), out })
}
