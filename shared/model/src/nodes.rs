//! Which nodes, and which flavors of nodes, a pod may use.
//!
//! For nodes the rules are Kubernetes' own. A flavor names only some labels of its nodes, so
//! there, as in Kueue, only what concerns the flavor's own keys is judged.

use std::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use muster_proto as proto;

use crate::{PodSet, Requirement, Toleration};

/// Labels of a node, or those that a flavor demands.
pub type Labels = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Taint {
    pub key: String,
    pub value: String,
    pub effect: String,
}

impl From<&proto::Taint> for Taint {
    fn from(wire: &proto::Taint) -> Self {
        let proto::Taint { key, value, effect } = wire.clone();
        Self { key, value, effect }
    }
}

impl Taint {
    /// Whether it keeps pods away that don't tolerate it: `PreferNoSchedule` does not.
    fn repels(&self) -> bool {
        self.effect == "NoSchedule" || self.effect == "NoExecute"
    }
}

impl Toleration {
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        let effect = self.effect.is_empty() || self.effect == taint.effect;
        let key = self.key == taint.key || (self.key.is_empty() && self.operator == "Exists");
        let value = match self.operator.as_str() {
            "Exists" => true,
            "" | "Equal" => self.value == taint.value,
            _ => false,
        };
        effect && key && value
    }
}

impl Requirement {
    /// Whether labels meet it. An operator unknown to Kubernetes is never met.
    #[must_use]
    pub fn is_met_by(&self, labels: &Labels) -> bool {
        let label = labels.get(&self.key);
        let number = |text: &String| text.parse::<i64>().ok();
        let compare = |holds: fn(&i64, &i64) -> bool| {
            let bound = self.values.first().and_then(number);
            label.and_then(number).zip(bound).is_some_and(|(label, bound)| holds(&label, &bound))
        };
        match self.operator.as_str() {
            "In" => label.is_some_and(|label| self.values.contains(label)),
            "NotIn" => label.is_none_or(|label| !self.values.contains(label)),
            "Exists" => label.is_some(),
            "DoesNotExist" => label.is_none(),
            "Gt" => compare(i64::gt),
            "Lt" => compare(i64::lt),
            _ => false,
        }
    }
}

/// The first taint that keeps a pod with these tolerations away.
pub fn repelled_by<'a, 'b>(
    taints: &'a [Taint],
    tolerations: impl Iterator<Item = &'b Toleration> + Clone,
) -> Option<&'a Taint> {
    taints.iter().find(|taint| taint.repels() && !tolerations.clone().any(|t| t.tolerates(taint)))
}

impl PodSet {
    /// Whether a pod of this set may be bound to a node with these labels.
    #[must_use]
    pub fn selects_node(&self, labels: &Labels) -> bool {
        let selected = self.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
        let any_term = self
            .affinity
            .iter()
            .any(|term| !term.is_empty() && term.iter().all(|requirement| requirement.is_met_by(labels)));
        selected && (self.affinity.is_empty() || any_term)
    }

    /// Whether the flavor's labels contradict this set: what concerns other keys is not judged,
    /// and a term about other keys alone may always be met.
    #[must_use]
    pub fn agrees_with_flavor(&self, labels: &Labels) -> bool {
        let selected =
            self.node_selector.iter().all(|(key, value)| labels.get(key).is_none_or(|label| label == value));
        let any_term = self.affinity.iter().any(|term| {
            let mut judged = term.iter().filter(|requirement| labels.contains_key(&requirement.key));
            judged.all(|requirement| requirement.is_met_by(labels))
        });
        selected && (self.affinity.is_empty() || any_term)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(list: &[(&str, &str)]) -> Labels {
        list.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn requirement(key: &str, operator: &str, values: &[&str]) -> Requirement {
        let values = values.iter().map(|value| (*value).to_owned()).collect();
        Requirement { key: key.to_owned(), operator: operator.to_owned(), values }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
        Toleration { key, operator, value, effect }
    }

    #[test]
    fn each_operator_of_kubernetes_is_judged_as_there() {
        let node = labels(&[("gpu", "a100"), ("cores", "64")]);
        for (key, operator, values, met) in [
            ("gpu", "In", &["h100", "a100"][..], true),
            ("gpu", "In", &["h100"], false),
            ("zone", "In", &["a"], false),
            ("gpu", "NotIn", &["a100"], false),
            ("zone", "NotIn", &["a"], true),
            ("gpu", "Exists", &[], true),
            ("zone", "Exists", &[], false),
            ("zone", "DoesNotExist", &[], true),
            ("gpu", "DoesNotExist", &[], false),
            ("cores", "Gt", &["32"], true),
            ("cores", "Gt", &["64"], false),
            ("cores", "Lt", &["65"], true),
            ("gpu", "Gt", &["1"], false),
            ("gpu", "Like", &["a*"], false),
        ] {
            assert_eq!(
                requirement(key, operator, values).is_met_by(&node),
                met,
                "{key} {operator} {values:?}"
            );
        }
    }

    #[test]
    fn a_taint_repels_whoever_does_not_tolerate_it() {
        let taint = |effect: &str| Taint {
            key: "gpu".to_owned(),
            value: "true".to_owned(),
            effect: effect.to_owned(),
        };
        let repels = |effect: &str, toleration: &Toleration| {
            repelled_by(&[taint(effect)], std::iter::once(toleration)).is_some()
        };
        assert!(!repels("NoSchedule", &toleration("gpu", "Equal", "true", "NoSchedule")));
        assert!(!repels("NoSchedule", &toleration("gpu", "", "true", "")));
        assert!(!repels("NoSchedule", &toleration("gpu", "Exists", "", "")));
        assert!(!repels("NoExecute", &toleration("", "Exists", "", "")));
        assert!(repels("NoSchedule", &toleration("gpu", "Equal", "false", "")));
        assert!(repels("NoExecute", &toleration("gpu", "Exists", "", "NoSchedule")));
        assert!(repels("NoSchedule", &toleration("", "Equal", "true", "")));
        assert!(!repels("PreferNoSchedule", &toleration("other", "Exists", "", "")));
    }

    #[test]
    fn a_flavor_is_judged_by_its_own_keys_alone() {
        let flavor = labels(&[("gpu", "a100")]);
        let set = |selector: &[(&str, &str)], affinity: Vec<Vec<Requirement>>| PodSet {
            node_selector: labels(selector),
            affinity,
            ..PodSet::default()
        };
        assert!(set(&[("zone", "a")], vec![]).agrees_with_flavor(&flavor));
        assert!(!set(&[("zone", "a")], vec![]).selects_node(&flavor));
        assert!(!set(&[("gpu", "h100")], vec![]).agrees_with_flavor(&flavor));
        let h100 = requirement("gpu", "In", &["h100"]);
        let zone = requirement("zone", "In", &["a"]);
        assert!(!set(&[], vec![vec![h100.clone(), zone.clone()]]).agrees_with_flavor(&flavor));
        assert!(set(&[], vec![vec![h100], vec![zone]]).agrees_with_flavor(&flavor));
    }

    #[test]
    fn a_term_without_requirements_selects_no_node() {
        let set = PodSet { affinity: vec![vec![]], ..PodSet::default() };
        assert!(!set.selects_node(&labels(&[("gpu", "a100")])));
    }
}
