//! ResourceFlavor.

use muster_proto::{ResourceFlavor, Taint};

use crate::names;
use crate::node::Node;
use crate::pod;

/// Kueue's limit for labels, taints and tolerations each.
const MOST: usize = 8;

pub(super) fn read(root: &Node<'_>) -> ResourceFlavor {
    let spec = root.field("spec");
    super::unsupported(&spec, &["topologyName"]);
    spec.field("taints").refuse("is called nodeTaints");
    spec.only(&["nodeLabels", "nodeTaints", "tolerations"]);
    let (labels, tolerations) = (spec.field("nodeLabels"), spec.field("tolerations"));
    let flavor = ResourceFlavor {
        name: super::name(root),
        node_labels: names::labels(&labels),
        node_taints: taints(&spec.field("nodeTaints")),
        tolerations: pod::tolerations(&tolerations),
    };
    for (node, count) in [(labels, flavor.node_labels.len()), (tolerations, flavor.tolerations.len())] {
        at_most(&node, count);
    }
    flavor
}

fn taints(list: &Node<'_>) -> Vec<Taint> {
    let mut taints: Vec<Taint> = Vec::new();
    for node in list.items() {
        node.only(&["key", "value", "effect", "timeAdded"]);
        if node.object().is_none() {
            continue;
        }
        let effect = node.field("effect").require();
        let taint = Taint {
            key: node.field("key").require().text().unwrap_or_default().into(),
            value: node.field("value").text().unwrap_or_default().into(),
            effect: effect
                .one_of(&["NoSchedule", "PreferNoSchedule", "NoExecute"])
                .unwrap_or_default()
                .into(),
        };
        if !taint.key.is_empty() && !names::qualified(&taint.key) {
            node.field("key").fault("must be `[domain/]name`");
        }
        if !names::label_value(&taint.value) {
            node.field("value").fault("has at most 63 letters, digits, `-`, `_` and `.`");
        }
        if taints.iter().any(|other| other.key == taint.key && other.effect == taint.effect) {
            node.fault("has the key and effect of another taint");
        }
        taints.push(taint);
    }
    at_most(list, taints.len());
    taints
}

fn at_most(node: &Node<'_>, count: usize) {
    if count > MOST {
        node.fault(format!("has {count} entries; at most {MOST} are allowed"));
    }
}
