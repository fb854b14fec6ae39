//! Packages of Debian and Ubuntu, each found by what it brings, so that any other way to have it counts.

use super::{Log, Step};
use crate::context::{Context, find_program};
use crate::process::{Output, run};
use std::path::{Path, PathBuf};

pub const STEP: Step = Step {
    name: "debian-packages",
    why: "C++ compiler and libclang for RocksDB, ccache, Python",
    seconds: 60,
    megabytes: 600,
    missing,
    act,
};

struct Package {
    name: &'static str,
    present: fn() -> bool,
}

const PACKAGES: &[Package] = &[
    Package { name: "g++", present: || find_program("c++").is_some() },
    Package { name: "ccache", present: || find_program("ccache").is_some() },
    Package { name: "libclang-dev", present: has_libclang },
    Package { name: "python3-venv", present: || super::python::interpreter().is_some() },
    Package { name: "ca-certificates", present: || Path::new("/etc/ssl/certs/ca-certificates.crt").exists() },
];

fn names() -> Vec<&'static str> {
    PACKAGES.iter().filter(|p| !(p.present)()).map(|p| p.name).collect()
}

fn missing(_: &Context) -> Option<String> {
    Some(names()).filter(|names| !names.is_empty()).map(|names| names.join(" "))
}

fn act(context: &Context, log: &Log) -> Result<(), String> {
    let names = names();
    if find_program("apt-get").is_none() {
        return Err(format!("there is no apt-get here; install what these bring: {}", names.join(" ")));
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(format!(
            "needs root. Run this, then the same command again:\n\n  \
             sudo apt-get update && sudo apt-get install -y --no-install-recommends {}\n",
            names.join(" ")
        ));
    }
    let apt = |args: &[&str]| {
        let mut command = context.command("apt-get");
        command.env("DEBIAN_FRONTEND", "noninteractive").args(args);
        run(log.label, command, &Output::Logged(&log.path)).map(drop).map_err(|(_, reason)| reason)
    };
    // A list that can't be refreshed may still name what is wanted; the installation says what is wrong.
    if let Err(reason) = apt(&["update"]) {
        eprintln!("→ {}: apt-get update failed, trying on: {reason}", log.label);
    }
    apt(&[&["install", "-y", "--no-install-recommends"], names.as_slice()].concat())
}

/// Where clang-sys looks: LIBCLANG_PATH, LLVM's folders, the system's libraries.
fn has_libclang() -> bool {
    let set = std::env::var_os("LIBCLANG_PATH").map(PathBuf::from);
    let mut dirs: Vec<PathBuf> = set.into_iter().collect();
    let inside = |dir: &str| std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    dirs.extend(inside("/usr/lib").filter(|p| named(p, "llvm")).map(|p| p.join("lib")));
    dirs.extend(inside("/usr/lib").filter(|p| named(p, "-linux-gnu")));
    dirs.extend(["/usr/lib64", "/usr/local/lib"].map(PathBuf::from));
    dirs.iter().any(|dir| holds_libclang(dir))
}

fn named(path: &Path, part: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().contains(part))
}

/// `libclang.so` or `libclang-14.so` or one of these with a version behind; not `libclang-cpp.so`.
fn holds_libclang(dir: &Path) -> bool {
    std::fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((stem, _)) = name.split_once(".so") else { return false };
        let version = stem.strip_prefix("libclang").map(|v| v.strip_prefix('-').unwrap_or(v));
        version.is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.'))
    })
}
