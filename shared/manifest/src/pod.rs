//! A pod template, read into what a pod set says about its pods.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{NodeSelectorTerm, PodSpec, PodTemplateSpec};
use muster_proto::{NodeAffinityTerm, NodeRequirement, PodSet, Toleration};
use serde::Deserialize;

use crate::names;
use crate::node::{Faults, Node, is_secret};
use crate::requests;

const TOPOLOGY: [&str; 2] =
    ["kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-slice-required-topology"];

/// Reads the template at `node` with Kubernetes' own types. A wrong type is one fault.
pub(crate) fn template(node: &Node<'_>) -> Option<PodTemplateSpec> {
    node.object()?;
    let template: PodTemplateSpec = decode(node)?;
    let spec = node.field("spec").require();
    spec.object()?;
    check_containers(&spec, template.spec.as_ref()?);
    check_supported(node);
    Some(template)
}

/// What would change where or whether a pod may run, and muster does not know.
fn check_supported(node: &Node<'_>) {
    let annotations = node.field("metadata").field("annotations");
    for topology in TOPOLOGY {
        annotations
            .entry(topology)
            .refuse("required topologies are not supported by muster yet; leave it out");
    }
    let spec = node.field("spec");
    spec.field("nodeName").refuse("must be left out: muster chooses where a pod runs; use nodeSelector");
    spec.field("resourceClaims")
        .refuse("is not supported by muster yet: quota could not count what it claims");
}

/// Decodes a value of one of Kubernetes' types, or records where its type was not right.
pub(crate) fn decode<'a, T: Deserialize<'a>>(node: &Node<'a>) -> Option<T> {
    let wrong = match serde_path_to_error::deserialize(node.raw()?) {
        Ok(value) => return Some(value),
        Err(wrong) => wrong,
    };
    let inner = wrong.path().to_string();
    let path = match (inner.as_str(), node.path()) {
        (".", path) => path.to_owned(),
        (inner, "") => inner.to_owned(),
        (inner, path) => format!("{path}.{inner}"),
    };
    // The decoder's message quotes the value.
    let message = match is_secret(&path) {
        true => "is not of the type that Kubernetes expects here (strings must be in quotes)".to_owned(),
        false => wrong.inner().to_string(),
    };
    node.faults().push(&path, "", message);
    None
}

fn check_containers(node: &Node<'_>, spec: &PodSpec) {
    if spec.containers.is_empty() {
        node.field("containers").fault("must name at least one container");
    }
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let named = [("containers", Some(&spec.containers)), ("initContainers", spec.init_containers.as_ref())];
    for (field, containers) in named {
        for (item, container) in node.field(field).items().iter().zip(containers.into_iter().flatten()) {
            let name = item.field("name").require();
            if names::label(&name).is_some() && !seen.insert(&container.name) {
                name.fault("is the name of another container of this pod");
            }
        }
    }
}

/// A pod set of `count` pods of this template. `node` is the template's place.
pub(crate) fn pod_set(name: &str, count: u32, template: &PodTemplateSpec, node: &Node<'_>) -> PodSet {
    let node = node.field("spec");
    let Some(spec) = &template.spec else { return PodSet::default() };
    PodSet {
        name: name.into(),
        count,
        min_count: 0,
        requests: requests::of_pod(spec, node.path(), node.faults()),
        node_selector: names::labels(&node.field("nodeSelector")),
        tolerations: tolerations(&node.field("tolerations")),
        affinity: affinity(spec, &node),
    }
}

/// Tolerations of a pod or of a flavor, each by Kubernetes' rules. An operator left out is `Equal`.
pub(crate) fn tolerations(list: &Node<'_>) -> Vec<Toleration> {
    list.items().iter().filter_map(toleration).collect()
}

fn toleration(node: &Node<'_>) -> Option<Toleration> {
    node.object()?;
    node.only(&["key", "operator", "value", "effect", "tolerationSeconds"]);
    let text = |field: &str| node.field(field).text().unwrap_or_default().to_owned();
    let toleration = Toleration {
        key: text("key"),
        operator: text("operator"),
        value: text("value"),
        effect: text("effect"),
    };
    let operator = match toleration.operator.as_str() {
        "" | "Equal" => "Equal",
        "Exists" => "Exists",
        _ => {
            node.field("operator").fault("must be Exists or Equal");
            return None;
        }
    };
    if toleration.key.is_empty() && operator == "Equal" {
        node.field("key").fault("without a key the operator must be Exists");
    } else if !toleration.key.is_empty() && !names::qualified(&toleration.key) {
        node.field("key").fault("must be `[domain/]name`, as the key of a taint");
    }
    if operator == "Exists" && !toleration.value.is_empty() {
        node.field("value").fault("must be left out: the operator is Exists");
    }
    if !matches!(toleration.effect.as_str(), "" | "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
        node.field("effect").fault("must be NoSchedule, PreferNoSchedule or NoExecute");
    }
    Some(Toleration { operator: operator.into(), ..toleration })
}

/// The required terms of node affinity; preferences do not decide where a pod may run.
fn affinity(spec: &PodSpec, node: &Node<'_>) -> Vec<NodeAffinityTerm> {
    let required = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let Some(required) =
        required.and_then(|nodes| nodes.required_during_scheduling_ignored_during_execution.as_ref())
    else {
        return Vec::new();
    };
    let path = format!(
        "{}.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
        node.path()
    );
    let terms: Vec<NodeAffinityTerm> = required
        .node_selector_terms
        .iter()
        .enumerate()
        .filter_map(|(index, term)| affinity_term(term, &format!("{path}[{index}]"), node.faults()))
        .collect();
    if terms.is_empty() {
        node.faults().push(
            &path,
            "",
            "has no term that a node could match; leave it out or give a matchExpression",
        );
    }
    terms
}

/// A term without expressions matches no node; the others decide.
fn affinity_term(term: &NodeSelectorTerm, path: &str, faults: &Faults) -> Option<NodeAffinityTerm> {
    if term.match_fields.as_ref().is_some_and(|fields| !fields.is_empty()) {
        faults.push(
            &format!("{path}.matchFields"),
            "",
            "is not supported: muster chooses by nodes' labels; use matchExpressions",
        );
    }
    let expressions = term.match_expressions.as_ref().filter(|list| !list.is_empty())?;
    let requirements = expressions.iter().enumerate().map(|(index, expression)| {
        let values = expression.values.clone().unwrap_or_default();
        if let Some(mend) = wrong_requirement(&expression.key, &expression.operator, &values) {
            let field = format!("{path}.matchExpressions[{index}]");
            faults.push(&field, &format!("{} {}", expression.key, expression.operator), mend);
        }
        NodeRequirement { key: expression.key.clone(), operator: expression.operator.clone(), values }
    });
    Some(NodeAffinityTerm { requirements: requirements.collect() })
}

/// What is wrong with `key operator values`, if anything.
pub(crate) fn wrong_requirement(key: &str, operator: &str, values: &[String]) -> Option<&'static str> {
    match (operator, values) {
        _ if !names::qualified(key) => Some("the key must be a label's key: `[domain/]name`"),
        ("In" | "NotIn", []) => Some("the operator needs values"),
        ("In" | "NotIn", values) if !values.iter().all(|value| names::label_value(value)) => {
            Some("a value is none of a label")
        }
        ("In" | "NotIn", _) | ("Exists" | "DoesNotExist", []) => None,
        ("Exists" | "DoesNotExist", _) => Some("the operator takes no values"),
        ("Gt" | "Lt", [value]) if value.parse::<i64>().is_ok() => None,
        ("Gt" | "Lt", _) => Some("the operator needs exactly one whole number"),
        _ => Some("the operator must be In, NotIn, Exists, DoesNotExist, Gt or Lt"),
    }
}
