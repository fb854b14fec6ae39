//! Resource groups: what a ClusterQueue or a Cohort has of which flavor.

use std::collections::BTreeSet;

use muster_proto::{FlavorQuotas, ResourceGroup, ResourceQuota};

use crate::names;
use crate::node::Node;
use crate::quantity;

/// Kueue's limits.
const MAX_GROUPS: usize = 16;
const MAX_IN_GROUP: usize = 64;
const MAX_OVER_GROUPS: usize = 256;
const MAX_CELLS: usize = 512;

/// Whose quotas these are: limits mean something only below a cohort.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    ClusterQueue { cohort: bool },
    Cohort { parent: bool },
}

/// What the groups read so far cover.
#[derive(Default)]
struct Seen {
    resources: BTreeSet<String>,
    flavors: BTreeSet<String>,
}

pub(super) fn groups(list: &Node<'_>, owner: Owner) -> Vec<ResourceGroup> {
    let mut seen = Seen::default();
    let groups: Vec<ResourceGroup> = list.items().iter().map(|node| group(node, owner, &mut seen)).collect();
    at_most(list, groups.len(), MAX_GROUPS, "groups");
    at_most(list, seen.flavors.len(), MAX_OVER_GROUPS, "flavors in all groups");
    at_most(list, seen.resources.len(), MAX_OVER_GROUPS, "resources in all groups");
    groups
}

fn group(node: &Node<'_>, owner: Owner, seen: &mut Seen) -> ResourceGroup {
    if node.object().is_none() {
        node.clone().require();
        return ResourceGroup::default();
    }
    node.field("resources")
        .refuse("is called coveredResources in Kueue: list the resources there, quotas below each flavor");
    node.only(&["coveredResources", "flavors"]);
    let covered = covered(&node.field("coveredResources").require(), seen);
    let list = node.field("flavors").require();
    let items = list.items();
    if list.exists() && items.is_empty() {
        list.fault("must name at least one flavor");
    }
    let flavors: Vec<FlavorQuotas> = items.iter().map(|item| flavor(item, &covered, owner, seen)).collect();
    at_most(&list, flavors.len(), MAX_IN_GROUP, "flavors");
    at_most(node, flavors.len().saturating_mul(covered.len()), MAX_CELLS, "pairs of flavor and resource");
    ResourceGroup { covered_resources: covered, flavors }
}

fn covered(list: &Node<'_>, seen: &mut Seen) -> Vec<String> {
    let mut covered = Vec::new();
    for item in list.items() {
        let Some(name) = item.text() else { continue };
        if !names::qualified(name) {
            item.fault("is no resource: a name like cpu, memory, pods or nvidia.com/gpu");
        } else if !seen.resources.insert(name.into()) {
            item.fault("is covered already: a resource may occur in one group only");
        }
        covered.push(name.to_owned());
    }
    if list.exists() && list.items().is_empty() {
        list.fault("must name at least one resource");
    }
    at_most(list, covered.len(), MAX_IN_GROUP, "resources");
    covered
}

fn flavor(node: &Node<'_>, covered: &[String], owner: Owner, seen: &mut Seen) -> FlavorQuotas {
    if node.object().is_none() {
        node.clone().require();
        return FlavorQuotas::default();
    }
    node.only(&["name", "resources"]);
    let name_node = node.field("name").require();
    let name = names::subdomain(&name_node).unwrap_or_default();
    if !name.is_empty() && !seen.flavors.insert(name.clone()) {
        name_node.fault("has quotas already: a flavor may occur once, in one group only");
    }
    let list = node.field("resources").require();
    let resources: Vec<ResourceQuota> = list.items().iter().map(|item| resource(item, owner)).collect();
    let listed: Vec<&str> = resources.iter().map(|resource| resource.name.as_str()).collect();
    if list.exists() && listed != covered.iter().map(String::as_str).collect::<Vec<_>>() {
        list.fault(format!("must name exactly the coveredResources, in their order: {}", covered.join(", ")));
    }
    FlavorQuotas { name, resources }
}

fn resource(node: &Node<'_>, owner: Owner) -> ResourceQuota {
    if node.object().is_none() {
        node.clone().require();
        return ResourceQuota::default();
    }
    node.field("quota").refuse("is called nominalQuota");
    node.field("min").refuse("is the form of v1alpha1; it is called nominalQuota now");
    node.field("max")
        .refuse("is the form of v1alpha1; it is borrowingLimit now: what may be borrowed above nominalQuota");
    node.only(&["name", "nominalQuota", "borrowingLimit", "lendingLimit"]);
    let name = node.field("name").require().text().unwrap_or_default().to_owned();
    let nominal = amount(&node.field("nominalQuota").require(), &name).unwrap_or(0);
    let (borrowing, lending) = (node.field("borrowingLimit"), node.field("lendingLimit"));
    let quota = ResourceQuota {
        borrowing_limit: amount(&borrowing, &name),
        lending_limit: amount(&lending, &name),
        nominal,
        name,
    };
    let alone = match owner {
        Owner::ClusterQueue { cohort: false } => Some("must be left out: the ClusterQueue is in no cohort"),
        Owner::Cohort { parent: false } => Some("must be left out: the cohort has no parent"),
        _ => None,
    };
    if let Some(message) = alone {
        borrowing.refuse(message);
        lending.refuse(message);
    } else if matches!(owner, Owner::ClusterQueue { .. })
        && quota.lending_limit.is_some_and(|limit| limit > nominal)
    {
        lending.fault("must not be above nominalQuota");
    }
    quota
}

fn amount(node: &Node<'_>, resource: &str) -> Option<i64> {
    let text = node.quantity()?;
    match quantity::parse_up_to(resource, &text, quantity::MAX_TOTAL) {
        Ok(amount) => Some(amount),
        Err(wrong) => {
            node.fault(wrong.to_string());
            None
        }
    }
}

fn at_most(node: &Node<'_>, count: usize, most: usize, what: &str) {
    if count > most {
        // The value would be the whole list.
        node.faults().push(
            node.path(),
            &count.to_string(),
            format!("has {count} {what}; at most {most} are allowed"),
        );
    }
}
