//! First-fit of a leg's pods on the nodes' free allocatable.
//!
//! Federation counted with whole groups of nodes; here, on real nodes, fragments show. A leg that does not fit is
//! refused with a reason that says what was missing where.

use std::collections::BTreeMap;

use muster_proto::{LegSpec, NodeAffinityTerm, NodeRequirement, PodSet, Taint, Toleration};

use crate::{Binding, Node};

/// Binds every pod of the leg, taking its requests from `nodes[..].free`, or leaves `nodes` as they were and says
/// why not.
///
/// # Errors
/// The reason, for users: which pod fits nowhere, and what each node lacked.
pub fn place(spec: &LegSpec, nodes: &mut [Node]) -> Result<Vec<Binding>, String> {
    let before: Vec<_> = nodes.iter().map(|node| node.free.clone()).collect();
    let placed = try_place(spec, nodes);
    if placed.is_err() {
        nodes.iter_mut().zip(before).for_each(|(node, free)| node.free = free);
    }
    placed
}

fn try_place(spec: &LegSpec, nodes: &mut [Node]) -> Result<Vec<Binding>, String> {
    let mut bindings = Vec::new();
    for range in &spec.pods {
        let pods = spec.pod_sets.iter().find(|set| set.name == range.pod_set);
        let Some(pods) = pods else {
            return Err(format!("the leg names an unknown pod set {:?}", range.pod_set));
        };
        let mut at = 0; // pods of one shape: a node that was too small stays too small
        for index in range.first..range.first.saturating_add(range.count) {
            while nodes.get(at).is_some_and(|node| misfit(pods, node).is_some()) {
                at += 1;
            }
            let Some(node) = nodes.get_mut(at) else { return Err(explain(pods, index, nodes)) };
            for (resource, amount) in &pods.requests {
                if *amount > 0 {
                    *node.free.entry(resource.clone()).or_default() -= amount;
                }
            }
            bindings.push(Binding { pod_set: pods.name.clone(), index, node: node.name.clone() });
        }
    }
    Ok(bindings)
}

/// Why a pod of this set can't go to this node now; `None` when it can.
fn misfit(pods: &PodSet, node: &Node) -> Option<String> {
    if let Some((key, value)) =
        pods.node_selector.iter().find(|(key, value)| node.labels.get(*key) != Some(*value))
    {
        return Some(format!("not labelled {key}={value}"));
    }
    if !pods.affinity.is_empty() && !pods.affinity.iter().any(|term| term_holds(term, &node.labels)) {
        return Some("node affinity does not match".into());
    }
    if let Some(taint) = node.taints.iter().find(|taint| repels(taint, &pods.tolerations)) {
        return Some(format!("untolerated taint {}={}:{}", taint.key, taint.value, taint.effect));
    }
    let short = pods.requests.iter().find(|(resource, amount)| {
        **amount > 0 && node.free.get(*resource).copied().unwrap_or_default() < **amount
    });
    short.map(|(resource, _)| format!("insufficient {resource}"))
}

fn repels(taint: &Taint, tolerations: &[Toleration]) -> bool {
    let hard = matches!(taint.effect.as_str(), "NoSchedule" | "NoExecute");
    hard && !tolerations.iter().any(|toleration| tolerates(toleration, taint))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.is_empty() || toleration.effect == taint.effect;
    let exists = toleration.operator == "Exists";
    let key = if toleration.key.is_empty() { exists } else { toleration.key == taint.key };
    effect && key && (exists || toleration.value == taint.value)
}

/// As in Kubernetes, a term without requirements matches nothing.
fn term_holds(term: &NodeAffinityTerm, labels: &BTreeMap<String, String>) -> bool {
    !term.requirements.is_empty() && term.requirements.iter().all(|requirement| holds(requirement, labels))
}

fn holds(requirement: &NodeRequirement, labels: &BTreeMap<String, String>) -> bool {
    let label = labels.get(&requirement.key);
    let listed = label.is_some_and(|label| requirement.values.contains(label));
    let number = |text: &String| text.parse::<i64>().ok();
    let pair = label.and_then(number).zip(requirement.values.first().and_then(number));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        "Gt" => pair.is_some_and(|(label, bound)| label > bound),
        "Lt" => pair.is_some_and(|(label, bound)| label < bound),
        _ => false,
    }
}

fn explain(pods: &PodSet, index: u32, nodes: &[Node]) -> String {
    let mut causes = BTreeMap::<String, usize>::new();
    for node in nodes {
        *causes.entry(misfit(pods, node).unwrap_or_default()).or_default() += 1;
    }
    let causes: Vec<_> = causes.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    let wanted: Vec<_> =
        pods.requests.iter().map(|(resource, amount)| format!("{resource} {amount}")).collect();
    let (name, wanted) = (&pods.name, wanted.join(", "));
    format!("pod {name}-{index} ({wanted}) fits on none of {} nodes: {}", nodes.len(), causes.join(", "))
}
