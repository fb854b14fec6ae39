//! Files: none too long to read at once, each crate opened by its story, nothing in a folder of its own making.

use std::path::Path;

const LONGEST: usize = 600;
const SOURCES: &[&str] = &["rs", "proto", "sh", "py"];
/// `target` is cargo's, and not under version control.
const TOP_FOLDERS: &[&str] = &["services", "shared", "proto", "deploy", "e2e", "docs", "target"];

/// A source file, or (without text) a top-level folder.
#[derive(Debug)]
pub struct Entry {
    /// From the root, with `/`; folders end with it.
    pub path: String,
    pub text: String,
}

/// All source files below the root, and its top-level folders.
pub fn read(root: &Path) -> Vec<Entry> {
    let mut entries = Vec::new();
    walk(root, "", &mut entries);
    entries
}

fn walk(folder: &Path, prefix: &str, entries: &mut Vec<Entry>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if name.starts_with('.') {
            continue;
        }
        if entry.path().is_dir() {
            if prefix.is_empty() {
                entries.push(Entry { path: format!("{path}/"), text: String::new() });
            }
            if name != "target" {
                walk(&entry.path(), &format!("{path}/"), entries);
            }
        } else if SOURCES.iter().any(|end| name.rsplit_once('.').is_some_and(|(_, e)| e == *end)) {
            // A file that another process has just taken away is no finding.
            entries.extend(std::fs::read_to_string(entry.path()).ok().map(|text| Entry { path, text }));
        }
    }
}

/// One sentence for each broken rule.
pub fn broken(entries: &[Entry]) -> Vec<String> {
    entries.iter().filter_map(broken_by).collect()
}

fn broken_by(Entry { path, text }: &Entry) -> Option<String> {
    if let Some(folder) = path.strip_suffix('/') {
        let known = TOP_FOLDERS.contains(&folder);
        return (!known).then(|| format!("{folder}/: top-level folders are {}", TOP_FOLDERS.join(" ")));
    }
    let lines = text.lines().count();
    if lines > LONGEST {
        return Some(format!("{path}: {lines} lines; more than {LONGEST} are two files"));
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let opens_a_crate = ["lib.rs", "main.rs"].contains(&name);
    (opens_a_crate && !text.starts_with("//!"))
        .then(|| format!("{path}: opens with `//!` words that tell what the crate is for"))
}

/// Folders whose clippy.toml does not begin with the root's lines, or differs from the first one's.
pub fn unlike(root: &str, folders: &[(&str, String)]) -> Vec<String> {
    let first = folders.first().map(|(_, text)| text.as_str()).unwrap_or_default();
    let wrong = |text: &str| !text.starts_with(root) || text == root || text != first;
    let found = folders.iter().filter(|(_, text)| wrong(text));
    found
        .map(|(folder, _)| {
            format!("{folder}/clippy.toml: the root's lines, then the ones all pure crates share")
        })
        .collect()
}

fn found(path: &str, text: &str) -> Vec<String> {
    broken(&[Entry { path: path.into(), text: text.into() }])
}

#[test]
fn each_broken_rule_is_found() {
    let long = "//! x\n".repeat(LONGEST + 1);
    assert!(found("a/src/x.rs", &long)[0].contains("601 lines"));
    assert!(found("a/src/lib.rs", "use x;\n")[0].contains("opens with"));
    assert!(found("a/src/main.rs", "// not a doc\nfn main() {}\n")[0].contains("opens with"));
    assert!(found("tools/", "")[0].contains("top-level"));
}

#[test]
fn what_is_right_passes() {
    assert!(found("a/src/x.rs", &"\n".repeat(LONGEST)).is_empty());
    assert!(found("a/src/lib.rs", "//! The story.\n").is_empty());
    assert!(found("docs/", "").is_empty());
}

#[test]
fn a_clippy_configuration_of_its_own_is_found() {
    let pure = "a\nb\n".to_string();
    assert!(unlike("a\n", &[("x", pure.clone()), ("y", pure.clone())]).is_empty());
    assert_eq!(unlike("a\n", &[("x", pure.clone()), ("y", "a\nc\n".into())]).len(), 1);
    assert_eq!(unlike("a\n", &[("x", pure), ("y", String::new())]).len(), 1);
    assert_eq!(unlike("a\n", &[("x", "a\n".into())]).len(), 1);
}

#[test]
fn only_sources_and_top_folders_are_read() {
    let entries = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests"));
    let paths: Vec<&str> = entries.iter().map(|e| e.path.as_str()).collect();
    assert!(paths.contains(&"tidy/") && paths.contains(&"tidy/files.rs"), "{paths:?}");
}
