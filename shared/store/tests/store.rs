//! What an image promises while nothing is broken, and who may open it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::io::{BufRead, BufReader};

use common::{child, files, fill, given_path, is_whole, read, writes};
use muster_core::{ImageMeta, WriteSet};
use muster_store::{Store, StoreError, rebuild};

#[test]
fn what_was_committed_is_there_at_the_next_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("made/on/the/way");
    assert!(read(&path).unwrap().is_none());
    for end in [1, 2, 5] {
        fill(&path, 1..=end);
        let image = read(&path).unwrap().unwrap();
        assert_eq!(image.meta.position, end);
        assert!(is_whole(&image), "{image:?}");
    }
}

#[test]
fn the_meta_says_which_schema_the_rows_are_of_and_a_rebuild_forgets_them() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path(), 1..=3);
    assert_eq!(read(dir.path()).unwrap().unwrap().meta.schema, 3);
    let mut store = rebuild(dir.path()).unwrap();
    let meta = ImageMeta { schema: 4, position: 1, ..ImageMeta::default() };
    store.commit(&WriteSet { rows: vec![("other", vec![], Some(vec![1]))], meta }).unwrap();
    drop(store);
    let image = read(dir.path()).unwrap().unwrap();
    assert_eq!((image.meta.schema, image.rows), (4, vec![("other".to_owned(), vec![], vec![1])]));
}

#[test]
fn one_image_is_open_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = Store::open(dir.path()).unwrap();
    let error = read(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Locked { .. }), "{error}");
    assert!(matches!(rebuild(dir.path()), Err(StoreError::Locked { .. })));
    // and by another process
    let out = child("child_opens", dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("in use by another process"), "{said}");
    drop(open);
    assert!(read(dir.path()).is_ok());
}

#[test]
#[ignore = "run as a child"]
fn child_opens() {
    if let Some(Err(error)) = given_path().map(|path| read(&path)) {
        println!("{error}");
    }
}

#[test]
fn a_kill_leaves_rows_and_position_of_one_commit() {
    let dir = tempfile::tempdir().unwrap();
    let mut before = 0;
    for round in 0..4 {
        let mut writer = child("child_commits", dir.path()).spawn().unwrap();
        let mut lines = BufReader::new(writer.stdout.take().unwrap()).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("committed 500")), "round {round}: the child commits");
        // kill -9 while it goes on committing
        writer.kill().unwrap();
        writer.wait().unwrap();
        let image = read(dir.path()).unwrap().unwrap();
        assert!(image.meta.position >= before + 500, "what was committed before the kill is there");
        assert!(is_whole(&image), "{image:?}");
        before = image.meta.position;
    }
}

#[test]
#[ignore = "run as a child"]
fn child_commits() {
    let Some(path) = given_path() else { return };
    let (mut store, image) = Store::open(&path).unwrap();
    let start = image.map_or(0, |image| image.meta.position);
    for n in 1.. {
        store.commit(&writes(start + n)).unwrap();
        if n == 500 {
            println!("\ncommitted 500");
        }
    }
}

#[test]
fn no_room_is_said_and_nothing_is_half_written() {
    let dir = tempfile::tempdir().unwrap();
    // A limit on the size of files fails a write half-way, as a full disk does.
    let child = child("child_fills_the_disk", dir.path());
    let program = child.get_program().to_str().unwrap().to_owned();
    let arguments: Vec<_> = child.get_args().map(|argument| argument.to_str().unwrap()).collect();
    let out = std::process::Command::new("sh")
        .args(["-c", &format!("trap '' XFSZ; ulimit -f 200; exec {program} {}", arguments.join(" "))])
        .env("STORE_PATH", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("no room for the image in"), "{said} {}", String::from_utf8_lossy(&out.stderr));
    let last: u64 =
        said.split("last good ").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    // with room again it goes on from the last commit that succeeded
    let image = read(dir.path()).unwrap().unwrap();
    assert_eq!(image.meta.position, last);
    assert!(is_whole(&image), "{image:?}");
    fill(dir.path(), last + 1..=last + 1);
    assert_eq!(read(dir.path()).unwrap().unwrap().meta.position, last + 1);
}

#[test]
#[ignore = "run as a child"]
fn child_fills_the_disk() {
    let Some(path) = given_path() else { return };
    let (mut store, _) = Store::open(&path).unwrap();
    for position in 1..100_000 {
        if let Err(error) = store.commit(&writes(position)) {
            println!("\nlast good {} : {error}", position - 1);
            // once failed it stays failed, and is no panic
            assert!(store.commit(&writes(position)).is_err());
            return;
        }
    }
    println!("never full: {:?}", files(&path, ""));
}
