//! Label selectors in the canonical form of `ClusterQueue.namespaces_match`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::names;
use crate::node::Node;
use crate::pod;

/// The form of a selector that was left out: in Kueue it matches nothing.
pub const NOTHING: &str = "null";

/// Empty for `{}` (everything), [`NOTHING`] when absent, else JSON with sorted keys.
pub(crate) fn read(node: &Node<'_>) -> String {
    if !node.exists() {
        return NOTHING.into();
    }
    node.only(&["matchLabels", "matchExpressions"]);
    let labels = names::labels(&node.field("matchLabels"));
    let expressions: Vec<Value> =
        node.field("matchExpressions").items().iter().filter_map(expression).collect();
    let mut canonical = Map::new();
    if !expressions.is_empty() {
        canonical.insert("matchExpressions".into(), expressions.into());
    }
    if !labels.is_empty() {
        let labels = labels.into_iter().map(|(key, value)| (key, Value::String(value)));
        canonical.insert("matchLabels".into(), Value::Object(labels.collect()));
    }
    if canonical.is_empty() { String::new() } else { Value::Object(canonical).to_string() }
}

fn expression(node: &Node<'_>) -> Option<Value> {
    node.object()?;
    node.only(&["key", "operator", "values"]);
    let key = node.field("key").require().text()?;
    let operator = node.field("operator").require().one_of(&["In", "NotIn", "Exists", "DoesNotExist"])?;
    let values: Vec<String> =
        node.field("values").items().iter().filter_map(|item| item.text().map(str::to_owned)).collect();
    if let Some(mend) = pod::wrong_requirement(key, operator, &values) {
        node.fault(mend);
    }
    let mut canonical = Map::new();
    canonical.insert("key".into(), key.into());
    canonical.insert("operator".into(), operator.into());
    if !values.is_empty() {
        canonical.insert("values".into(), values.into());
    }
    Some(Value::Object(canonical))
}

/// Whether `labels` match a selector in canonical form. A text that is none matches nothing.
/// A namespace has at least the label `kubernetes.io/metadata.name`.
pub fn matches(canonical: &str, labels: &BTreeMap<String, String>) -> bool {
    if canonical.is_empty() {
        return true;
    }
    let Ok(Value::Object(selector)) = serde_json::from_str::<Value>(canonical) else { return false };
    let equal = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut equal = equal.map(|(key, value)| labels.get(key).map(String::as_str) == value.as_str());
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let mut expressions = expressions.map(|expression| holds(expression, labels));
    equal.all(|fits| fits) && expressions.all(|fits| fits)
}

fn holds(expression: &Value, labels: &BTreeMap<String, String>) -> bool {
    let text = |field: &str| expression.get(field).and_then(Value::as_str).unwrap_or_default();
    let own = labels.get(text("key"));
    let listed = || {
        let values = expression.get("values").and_then(Value::as_array);
        own.is_some_and(|own| values.is_some_and(|values| values.iter().any(|value| value == own.as_str())))
    };
    match text("operator") {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => own.is_some(),
        "DoesNotExist" => own.is_none(),
        _ => false,
    }
}
