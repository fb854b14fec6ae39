//! The nodes that a local cluster declares. They bound what is placed here; nothing else makes them real, so virtual
//! GPUs are welcome.

use std::{collections::BTreeMap, fs, path::Path};

use muster_manifest::quantity;
use muster_plan::Node;
use muster_proto::Taint;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Declared {
    name: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    taints: Vec<DeclaredTaint>,
    allocatable: BTreeMap<String, Amount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclaredTaint {
    key: String,
    #[serde(default)]
    value: String,
    effect: String,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Whole(u64),
    Text(String),
}

/// Reads a file of declared nodes; see [`parse`].
///
/// # Errors
/// The file can't be read, or what is wrong in it, for people.
pub fn read(file: &Path) -> Result<Vec<Node>, String> {
    parse(&fs::read_to_string(file).map_err(|cause| cause.to_string())?)
}

/// Reads YAML: a list of `{name, labels, taints, allocatable}` with quantities as in Kubernetes.
///
/// # Errors
/// What is wrong, for people.
pub fn parse(text: &str) -> Result<Vec<Node>, String> {
    let declared: Vec<Declared> = serde_saphyr::from_str(text).map_err(|cause| cause.to_string())?;
    let mut nodes = BTreeMap::new();
    for one in declared {
        let name = one.name.clone();
        if nodes.insert(name.clone(), node(one)?).is_some() {
            return Err(format!("node {name} is declared twice"));
        }
    }
    Ok(nodes.into_values().collect())
}

fn node(declared: Declared) -> Result<Node, String> {
    let mut allocatable = BTreeMap::new();
    for (resource, amount) in declared.allocatable {
        let text = match amount {
            Amount::Whole(number) => number.to_string(),
            Amount::Text(text) => text,
        };
        let amount = quantity::parse_up_to(&resource, &text, quantity::MAX_TOTAL)
            .map_err(|wrong| format!("node {}: {resource} {text:?} {wrong}", declared.name))?;
        allocatable.insert(resource, amount);
    }
    let taints = declared.taints.into_iter();
    Ok(Node {
        name: declared.name,
        labels: declared.labels,
        taints: taints
            .map(|taint| Taint { key: taint.key, value: taint.value, effect: taint.effect })
            .collect(),
        free: allocatable.clone(),
        allocatable,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_quantities_and_sorts_by_name() {
        let nodes = parse("- {name: b, allocatable: {cpu: 1500m}}\n- name: a\n  labels: {zone: x}\n  taints: [{key: k, effect: NoSchedule}]\n  allocatable: {cpu: 2, memory: 1Gi, nvidia.com/gpu: 8}\n").unwrap();
        assert_eq!(nodes[0].name, "a");
        assert_eq!(nodes[0].allocatable["cpu"], 2000);
        assert_eq!(nodes[0].free["memory"], 1 << 30);
        assert_eq!(nodes[0].allocatable["nvidia.com/gpu"], 8);
        assert_eq!(nodes[1].allocatable["cpu"], 1500);
    }

    #[test]
    fn says_which_node_is_wrong() {
        assert!(
            parse("- {name: a, allocatable: {cpu: much}}").unwrap_err().starts_with("node a: cpu \"much\"")
        );
        assert!(
            parse("- {name: a, allocatable: {}}\n- {name: a, allocatable: {}}")
                .unwrap_err()
                .contains("twice")
        );
    }
}
