//! Guards over the whole repository: what no compiler checks, and what a review would miss sooner or later.
//!
//! [`layers`] holds the packages to the layers of the design; [`files`] holds files to size, opening words and
//! place. Each rule is a pure function over small data with tests that break it, so that a guard that has
//! stopped to guard is noticed.

mod files;
mod layers;

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    // xtask lies in shared/xtask.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_workspace_keeps_its_layers() {
    let metadata = cargo_metadata::MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata");
    let packages: Vec<layers::Package> =
        metadata.workspace_packages().into_iter().map(layers::package).collect();
    let broken = layers::broken(&packages);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn files_are_small_introduced_and_in_their_place() {
    let files = files::read(&root());
    assert!(files.len() > 40, "only {} files were found below {}", files.len(), root().display());
    let broken = files::broken(&files);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}

#[test]
fn pure_crates_share_one_clippy_configuration() {
    let read =
        |folder: &str| std::fs::read_to_string(root().join(folder).join("clippy.toml")).unwrap_or_default();
    let folders: Vec<(&str, String)> = layers::PURE_FOLDERS.iter().map(|f| (*f, read(f))).collect();
    let broken = files::unlike(&read("."), &folders);
    assert!(broken.is_empty(), "\n{}\n", broken.join("\n"));
}
