//! The layers of the design, with packages as the unit.
//!
//! ```text
//! 0 pure    proto, shared/{model, core, manifest}
//! 1 domain  the deciders, each for itself
//! 2 edges   what touches network, disk, clock and processes
//! 3 wiring  puts them together
//! ```
//!
//! A package uses its own layer and lower ones. But domain packages never use each other, and edges use no
//! domain package, except that the agent executes what `muster-plan` says. Dev-dependencies may do as they
//! like, save with the crates in [`DOORS`].

use Layer::{Apart, Domain, Edge, Pure, Wiring};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    Pure,
    Domain,
    Edge,
    Wiring,
    /// Uses no package of the workspace, and none uses it.
    Apart,
}

/// Every package of the workspace. A new one has to be put here, and thereby into a layer.
const LAYERS: &[(&str, Layer)] = &[
    ("muster-proto", Pure),
    ("muster-model", Pure),
    ("muster-core", Pure),
    ("muster-manifest", Pure),
    ("muster-queue", Domain),
    ("muster-admission", Domain),
    ("muster-federation", Domain),
    ("muster-autotune", Domain),
    ("muster-failover", Domain),
    ("muster-desk", Domain),
    ("muster-plan", Domain),
    ("muster-bus", Edge),
    ("muster-store", Edge),
    ("muster-observe", Edge),
    ("muster-runtime", Edge),
    ("muster-agent", Edge),
    ("muster-ledger", Edge),
    ("muster-cli", Wiring),
    ("muster-sim", Wiring),
    ("muster-testkit", Wiring),
    ("muster-e2e", Wiring),
    ("xtask", Apart),
];

/// The pure and domain packages' folders, apart from `proto`, whose code is mostly generated.
pub const PURE_FOLDERS: &[&str] = &[
    "shared/model",
    "shared/core",
    "shared/manifest",
    "services/queue",
    "services/admission",
    "services/federation",
    "services/k8s-adapter/desk",
    "services/k8s-adapter/plan",
];

/// The one edge that may use one domain package.
const EDGE_USES_DOMAIN: (&str, &str) = ("muster-agent", "muster-plan");

/// Outside systems have one door each; here dev-dependencies count too.
const DOORS: &[(&str, &[&str])] = &[
    ("async-nats", &["muster-bus", "muster-e2e"]),
    ("rocksdb", &["muster-store"]),
    ("librocksdb-sys", &["muster-store"]),
    ("kube", &["muster-agent", "muster-e2e"]),
    ("kube-client", &["muster-agent", "muster-e2e"]),
    ("kube-runtime", &["muster-agent", "muster-e2e"]),
];

/// What brings IO, a clock, randomness or async into a package that must have none.
const IMPURE: &[&str] = &[
    "tokio",
    "futures",
    "async-trait",
    "rand",
    "rand_pcg",
    "chrono",
    "nix",
    "libc",
    "axum",
    "reqwest",
    "uuid",
];

/// What the rules need to know of a package.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    /// Normal and build dependencies.
    pub uses: Vec<String>,
    pub uses_in_tests: Vec<String>,
}

pub fn package(package: &cargo_metadata::Package) -> Package {
    use cargo_metadata::DependencyKind::Development;
    let names = |tests: bool| {
        let chosen = package.dependencies.iter().filter(|d| (d.kind == Development) == tests);
        chosen.map(|d| d.name.clone()).collect()
    };
    Package { name: package.name.to_string(), uses: names(false), uses_in_tests: names(true) }
}

/// One sentence for each broken rule.
pub fn broken(packages: &[Package]) -> Vec<String> {
    packages.iter().flat_map(broken_by).collect()
}

fn broken_by(package: &Package) -> Vec<String> {
    let name = &package.name;
    let Some(layer) = layer_of(name) else {
        return vec![format!("{name} is in no layer: add it to LAYERS in shared/xtask/tests/tidy/layers.rs")];
    };
    let mut found = Vec::new();
    for used in &package.uses {
        if let Some(reason) = layer_of(used).and_then(|below| against(name, layer, used, below)) {
            found.push(format!("{name} uses {used}: {reason}"));
        }
        if layer <= Domain && IMPURE.contains(&used.as_str()) {
            found.push(format!("{name} uses {used}: a pure package has no IO, clock, randomness or async"));
        }
    }
    for used in package.uses.iter().chain(&package.uses_in_tests) {
        let door = DOORS.iter().find(|(outside, _)| outside == used);
        if let Some((_, may)) = door.filter(|(_, may)| !may.contains(&name.as_str())) {
            found.push(format!("{name} uses {used}: only {} may", may.join(" and ")));
        }
    }
    found
}

fn against(name: &str, layer: Layer, used: &str, below: Layer) -> Option<&'static str> {
    match (layer, below) {
        (Apart, _) | (_, Apart) => Some("xtask stands apart"),
        (Edge, Domain) if (name, used) == EDGE_USES_DOMAIN => None,
        (Edge, Domain) => Some("edges use no domain package, except the agent its plan"),
        (Domain, Domain) => Some("domain packages never use each other; facts on the log pass between them"),
        _ if below > layer => Some("a lower layer does not use a higher one"),
        _ => None,
    }
}

fn layer_of(name: &str) -> Option<Layer> {
    LAYERS.iter().find(|(known, _)| *known == name).map(|(_, layer)| *layer)
}

fn found(name: &str, uses: &[&str], uses_in_tests: &[&str]) -> Vec<String> {
    let owned = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    broken(&[Package { name: name.into(), uses: owned(uses), uses_in_tests: owned(uses_in_tests) }])
}

#[test]
fn what_the_design_allows_passes() {
    for (name, uses) in [
        ("muster-model", ["muster-proto", "borsh"]),
        ("muster-queue", ["muster-core", "muster-manifest"]),
        ("muster-runtime", ["muster-bus", "tokio"]),
        ("muster-agent", ["muster-plan", "kube"]),
        ("muster-sim", ["muster-queue", "muster-desk"]),
        ("muster-cli", ["muster-runtime", "muster-plan"]),
        ("muster-e2e", ["async-nats", "muster-testkit"]),
    ] {
        assert_eq!(found(name, &uses, &["muster-testkit", "tokio"]), Vec::<String>::new());
    }
}

#[test]
fn each_broken_rule_is_found() {
    for (name, used, because) in [
        ("muster-model", "muster-queue", "lower layer"),
        ("muster-core", "muster-bus", "lower layer"),
        ("muster-store", "muster-cli", "lower layer"),
        ("muster-queue", "muster-runtime", "lower layer"),
        ("muster-queue", "muster-admission", "each other"),
        ("muster-desk", "muster-plan", "each other"),
        ("muster-agent", "muster-desk", "except the agent its plan"),
        ("muster-ledger", "muster-plan", "except the agent its plan"),
        ("muster-runtime", "muster-queue", "except the agent its plan"),
        ("muster-cli", "xtask", "stands apart"),
        ("xtask", "muster-proto", "stands apart"),
        ("muster-ledger", "async-nats", "only muster-bus"),
        ("muster-cli", "rocksdb", "only muster-store"),
        ("muster-desk", "kube", "only muster-agent"),
        ("muster-admission", "tokio", "no IO"),
        ("muster-proto", "rand", "no IO"),
    ] {
        let found = found(name, &[used], &[]);
        assert!(found.len() == 1 && found[0].contains(because), "{name} → {used}: {found:?}");
    }
}

#[test]
fn doors_hold_for_tests_too_and_layers_do_not() {
    assert_eq!(found("muster-testkit", &[], &["async-nats"]).len(), 1);
    assert_eq!(found("muster-model", &[], &["muster-sim"]).len(), 0);
}

#[test]
fn a_package_without_a_layer_is_found() {
    let found = found("muster-new", &[], &[]);
    assert!(found.len() == 1 && found[0].contains("in no layer"), "{found:?}");
}
