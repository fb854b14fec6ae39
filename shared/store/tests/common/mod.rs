//! What the tests of the store share.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use muster_core::{Image, ImageMeta, WriteSet};
use muster_store::{Store, StoreError};

/// A commit at `position`: row `position` is new, row `position - 1` holds it too, the one before is gone.
pub fn writes(position: u64) -> WriteSet {
    let key = |n: u64| n.to_be_bytes().to_vec();
    let row = |text: &str| Some(format!("{text} {position}").into_bytes());
    let mut rows = vec![("workloads", key(position), row("new at"))];
    if position > 1 {
        rows.push(("workloads", key(position - 1), row("old at")));
        rows.push(("workloads", key(position - 2), None));
    }
    rows.push(("queues", b"only".to_vec(), row("set at")));
    let meta = ImageMeta { schema: 3, generation: 7, position, ..ImageMeta::default() };
    WriteSet { rows, meta }
}

/// Whether an image is exactly what the commits up to its position make.
pub fn is_whole(image: &Image) -> bool {
    let position = image.meta.position;
    let key = |n: u64| n.to_be_bytes().to_vec();
    let text = |text: &str| format!("{text} {position}").into_bytes();
    let mut rows = vec![("queues".to_owned(), b"only".to_vec(), text("set at"))];
    if position > 1 {
        rows.push(("workloads".to_owned(), key(position - 1), text("old at")));
    }
    rows.push(("workloads".to_owned(), key(position), text("new at")));
    image.meta == writes(position).meta && image.rows == rows
}

pub fn fill(path: &Path, positions: std::ops::RangeInclusive<u64>) {
    let (mut store, _) = Store::open(path).unwrap();
    for position in positions {
        store.commit(&writes(position)).unwrap();
    }
}

pub fn read(path: &Path) -> Result<Option<Image>, StoreError> {
    Store::open(path).map(|(_, image)| image)
}

/// The files of an image with this beginning or end in their name.
pub fn files(path: &Path, part: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|file| {
            let name = file.file_name().unwrap().to_str().unwrap();
            name.starts_with(part) || name.ends_with(part)
        })
        .collect();
    found.sort();
    found
}

pub fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    std::fs::create_dir(to).unwrap();
    for file in files(from, "") {
        std::fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
    }
}

/// This test binary again, to run the test `name` as a child process.
pub fn child(name: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--ignored", "--nocapture"]).env("STORE_PATH", path);
    command.stdout(Stdio::piped());
    command
}

/// The folder that the parent gave; none when the test is run by itself.
pub fn given_path() -> Option<PathBuf> {
    std::env::var_os("STORE_PATH").map(PathBuf::from)
}
