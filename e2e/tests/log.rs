//! The log is the truth: what is changed, lost or erased in it is noticed, and everything else follows from it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use muster_e2e::{Cell, Setup, eventually, manifest};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Every file below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for file in files(from) {
        let target = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(target.parent().context("a parent")?)?;
        fs::copy(file, target)?;
    }
    Ok(())
}

/// One job from its submission to its end; its id.
fn run(cell: &Cell, name: &str, script: &str) -> Result<String> {
    let ids = cell.submit(&manifest::job(name, "default", "1", script), &["--wait"])?;
    ids.into_iter().next().context("an id")
}

#[test]
fn any_flipped_byte_of_an_exported_log_is_found() {
    let cell = Cell::start(&Setup::default()).unwrap();
    run(&cell, "one", "echo one").unwrap();
    let file = cell.dir().join("exported");
    let path = file.display().to_string();
    cell.ok(&["log", "export", &path]).unwrap();
    cell.ok(&["replay", "--verify", "--file", &path]).unwrap();
    let whole = fs::read(&file).unwrap();
    let read = |bytes: &[u8]| -> Result<usize, String> {
        fs::write(&file, bytes).unwrap();
        let records = muster_runtime::export::open(&file).map_err(|error| error.to_string())?;
        let all: Result<Vec<_>, _> = records.collect();
        all.map(|all| all.len()).map_err(|error| error.to_string())
    };
    assert!(read(&whole).unwrap() > 5);
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        assert!(read(&bytes).is_err(), "byte {at} of {} was changed and not noticed", whole.len());
    }
    for cut in [1, 40, whole.len() / 2] {
        assert!(read(&whole[..whole.len() - cut]).is_err(), "{cut} bytes were cut and not noticed");
    }
    // The same as a user sees it.
    for at in (0..whole.len()).step_by(whole.len() / 10) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(&file, bytes).unwrap();
        let said = cell.run(&["replay", "--verify", "--file", &path]).unwrap();
        assert!(said.code != 0 && !said.err.is_empty(), "byte {at}: {said:?}");
    }
}

#[test]
fn a_log_shorter_than_the_images_is_refused_until_the_loss_is_accepted() {
    let mut cell = Cell::start(&Setup::default()).unwrap();
    let first = run(&cell, "first", "echo first").unwrap();
    assert!(cell.down().unwrap().success(), "SIGTERM is a clean end");
    let (streams, earlier) = (cell.data().join("nats/streams"), cell.dir().join("earlier"));
    copy(&streams, &earlier).unwrap();

    cell.up().unwrap();
    cell.ready().unwrap();
    let lost = cell.submit(&manifest::job("lost", "default", "1", "sleep 1000"), &[]).unwrap().remove(0);
    cell.reach(&lost, "Running").unwrap();
    let pods = || muster_agent::proc::carrying(&[format!("MUSTER_WORKLOAD={lost}")]);
    eventually("the pod runs", || Ok(!pods()?.is_empty())).unwrap();
    let before = pods().unwrap();
    assert!(cell.down().unwrap().success());

    fs::remove_dir_all(&streams).unwrap();
    copy(&earlier, &streams).unwrap();
    cell.up().unwrap();
    let refuses = |service: &str| {
        let log = fs::read_to_string(cell.data().join(format!("log/{service}.log"))).unwrap_or_default();
        log.contains("the log ends at sequence") && log.contains("muster log accept-loss")
    };
    for service in ["queue-0", "admission-0", "federation-0", "desk-0", "ledger-0"] {
        eventually(&format!("{service} refuses"), || Ok(refuses(service))).unwrap();
    }
    assert_eq!(pods().unwrap(), before, "a running pod was touched");

    cell.ok(&["log", "accept-loss", "--reason", "restored from a copy"]).unwrap();
    cell.ready().unwrap();
    assert_eq!(cell.workload(&first).unwrap()["phase"], "Succeeded");
    cell.run(&["get", "workload", &lost]).unwrap().ended(3).unwrap();
    run(&cell, "after", "echo after").unwrap();
    assert_eq!(pods().unwrap(), before, "what runs but is not in the log was killed without a verdict");
    let events = cell.ok(&["events"]).unwrap();
    assert!(events.matches("GenerationStarted").count() == 2, "{events}");
    cell.ok(&["replay", "--verify"]).unwrap();
}

#[test]
fn an_erased_body_is_gone_and_the_log_still_verifies() {
    const SECRET: &str = "hunter2-4711-correct-horse";
    let mut cell = Cell::start(&Setup::default()).unwrap();
    let id = run(&cell, "secret", &format!("true # {SECRET}")).unwrap();
    let streams = cell.data().join("nats/streams");
    let holds = |name: &str| {
        let all = files(&streams).into_iter();
        let mut of_stream = all.filter(|path| path.components().any(|part| part.as_os_str() == name));
        of_stream.any(|path| {
            let bytes = fs::read(path).unwrap_or_default();
            bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes())
        })
    };
    assert!(holds("BODIES") && !holds("EVENTS"), "only the body holds what the user wrote");
    cell.ok(&["erase", &id]).unwrap();
    for stream in ["BODIES", "REQUESTS"] {
        eventually(&format!("{stream} holds it no more"), || Ok(!holds(stream))).unwrap();
    }
    assert_eq!(cell.workload(&id).unwrap()["bodyErased"], true);
    cell.ok(&["replay", "--verify"]).unwrap();
    assert!(cell.down().unwrap().success());
    assert!(!holds("BODIES") && !holds("REQUESTS"), "it came back");
}

/// A second replica of admission on a folder of its own; gives its exit code and what it said, or none if it runs.
fn replica(cell: &Cell, data: &Path, more: &[&str]) -> Result<Option<(i32, String)>> {
    let log = data.join("output");
    let credentials = cell.credentials("admission");
    let mut command = cell.command(&["run", "admission", "--slot", "1", "--nats", &cell.url()?]);
    command.arg("--credentials").arg(credentials).arg("--data").arg(data).args(more);
    let file = fs::File::create(&log)?;
    let mut child = command.stdout(file.try_clone()?).stderr(file).spawn()?;
    let instance = format!("pid-{}", child.id());
    let mut code = None;
    eventually("the replica has ended, or is where the other one is", || {
        code = child.try_wait()?.map(|status| status.code().unwrap_or(-1));
        Ok(code.is_some() || hashes(cell)?.contains_key(&instance))
    })?;
    if let Some(code) = code {
        return Ok(Some((code, fs::read_to_string(&log)?)));
    }
    // Both replicas answer, at one sequence, with one hash.
    let mut seen = std::collections::BTreeMap::new();
    eventually("both replicas have answered", || {
        seen.extend(hashes(cell)?);
        Ok(seen.len() > 1)
    })?;
    let values: std::collections::BTreeSet<_> = seen.values().collect();
    ensure!(values.len() == 1, "one sequence, two hashes: {seen:?}");
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM)?;
    ensure!(child.wait()?.code() == Some(0), "SIGTERM is a clean end");
    Ok(None)
}

/// Position and hash by instance, of whichever replica answers first.
fn hashes(cell: &Cell) -> Result<std::collections::BTreeMap<String, (u64, String)>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let bus = cell.connect("operator").await?;
        let question = muster_runtime::Question::Hash { at_least: 0 };
        let mut found = std::collections::BTreeMap::new();
        for _ in 0..10 {
            let answer =
                muster_runtime::ask(&bus, "admission", "0", &question, Duration::from_secs(5)).await?;
            found.insert(answer.instance, (answer.position, answer.hash));
        }
        Ok(found)
    })
}

#[test]
fn a_damaged_image_is_reported_or_harmless_and_can_be_rebuilt() {
    let mut cell = Cell::start(&Setup::default()).unwrap();
    for n in 0..3 {
        run(&cell, &format!("job-{n}"), "true").unwrap();
    }
    assert!(cell.down().unwrap().success());
    let image = cell.data().join("services/admission-0");
    let kept = cell.dir().join("image");
    copy(&image, &kept).unwrap();
    cell.up().unwrap();
    cell.ready().unwrap();

    let rows: Vec<PathBuf> =
        files(&kept).into_iter().filter(|path| fs::metadata(path).unwrap().len() > 0).collect();
    let mut reported = 0;
    for (n, path) in rows.iter().enumerate() {
        let copied = cell.dir().join(format!("image-{n}"));
        copy(&kept, &copied).unwrap();
        let file = copied.join(path.strip_prefix(&kept).unwrap());
        let mut bytes = fs::read(&file).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 0x40;
        fs::write(&file, bytes).unwrap();
        if let Some((code, said)) = replica(&cell, &copied, &[]).unwrap() {
            assert!(code != 0 && said.contains("--rebuild"), "{}: {code} {said}", file.display());
            reported += 1;
            assert_eq!(replica(&cell, &copied, &["--rebuild"]).unwrap(), None, "{}", file.display());
        }
    }
    println!("of {} damaged files {reported} were reported, the others did no harm", rows.len());
    assert!(reported > 0);
}
