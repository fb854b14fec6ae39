//! Whatever byte is changed on disk: it is said, or the rows are those of some commit.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::fs;
use std::path::Path;

use common::{copy, files, fill, is_whole, read};
use muster_store::{Store, StoreError, rebuild};

/// An image with rows in a data file and in the write-ahead log.
fn image(dir: &Path) {
    fill(dir, 1..=20);
    // opening writes what the log holds into a data file
    drop(Store::open(dir).unwrap());
    fill(dir, 21..=24);
    assert!(
        !files(dir, ".sst").is_empty() && files(dir, ".log").iter().any(|f| f.metadata().unwrap().len() > 0)
    );
}

#[test]
fn a_log_cut_at_any_byte_leaves_the_last_whole_commit() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, cut) = (dir.path().join("whole"), dir.path().join("cut"));
    image(&whole);
    let log = files(&whole, ".log").pop().unwrap();
    let bytes = fs::read(&log).unwrap();
    let mut positions = Vec::new();
    for end in (0..=bytes.len()).rev().take(400) {
        copy(&whole, &cut);
        fs::write(cut.join(log.file_name().unwrap()), &bytes[..end]).unwrap();
        let image = read(&cut).unwrap().unwrap();
        assert!(is_whole(&image), "cut at {end}: {image:?}");
        positions.push(image.meta.position);
    }
    assert!(positions.is_sorted_by(|a, b| a >= b), "{positions:?}");
    assert_eq!(positions[0], 24);
    assert!(positions.contains(&23) && positions.contains(&22), "the cuts went through whole records");
}

#[test]
fn a_flipped_byte_in_any_file_is_said_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let (whole, flipped) = (dir.path().join("whole"), dir.path().join("flipped"));
    image(&whole);
    let (mut said, mut older, mut harmless) = (0, 0, 0);
    for part in [".sst", "MANIFEST", ".log", "CURRENT"] {
        for file in files(&whole, part) {
            let bytes = fs::read(&file).unwrap();
            for at in (0..bytes.len()).step_by(bytes.len() / 60 + 1) {
                copy(&whole, &flipped);
                let mut bytes = bytes.clone();
                bytes[at] ^= 0x41;
                fs::write(flipped.join(file.file_name().unwrap()), bytes).unwrap();
                match read(&flipped) {
                    Ok(image) => {
                        let image =
                            image.unwrap_or_else(|| panic!("{file:?} at {at}: taken for a new image"));
                        assert!(is_whole(&image), "{file:?} at {at}: {image:?}");
                        if image.meta.position < 24 { older += 1 } else { harmless += 1 }
                    }
                    Err(StoreError::Corrupt { path, .. }) => {
                        assert_eq!(path, flipped);
                        said += 1;
                    }
                    Err(other) => panic!("{file:?} at {at}: {other}"),
                }
            }
        }
    }
    println!("said {said}, an older commit {older}, harmless {harmless}");
    assert!(said > 50 && older > 20, "said {said}, older {older}");
}

#[test]
fn a_corrupt_image_names_its_folder_and_the_mend_which_works() {
    let dir = tempfile::tempdir().unwrap();
    image(dir.path());
    for file in files(dir.path(), ".sst") {
        fs::write(file, b"not a table").unwrap();
    }
    let error = read(dir.path()).unwrap_err().to_string();
    assert!(error.contains(dir.path().to_str().unwrap()) && error.contains("--rebuild"), "{error}");
    drop(rebuild(dir.path()).unwrap());
    assert!(read(dir.path()).unwrap().is_none());
}

#[test]
fn data_files_without_current_are_no_new_image() {
    let dir = tempfile::tempdir().unwrap();
    image(dir.path());
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let error = read(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    drop(rebuild(dir.path()).unwrap());
    assert!(read(dir.path()).unwrap().is_none());
}

#[test]
fn a_lost_data_file_is_said() {
    let dir = tempfile::tempdir().unwrap();
    image(dir.path());
    fs::remove_file(files(dir.path(), ".sst").pop().unwrap()).unwrap();
    let error = read(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}
