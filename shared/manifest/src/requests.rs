//! What one pod asks for, as Kubernetes' scheduler counts it.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::names;
use crate::node::Faults;
use crate::quantity;

/// Amounts by resource, in the units of `PodSet.requests`.
pub(crate) type Amounts = BTreeMap<String, i64>;

/// The requests of a pod: the larger of all containers with their sidecars and of the hungriest
/// init container with the sidecars started before it; or what the pod as a whole declares; and overhead.
pub(crate) fn of_pod(spec: &PodSpec, path: &str, faults: &Faults) -> Amounts {
    let mut containers = Amounts::new();
    for (index, container) in spec.containers.iter().enumerate() {
        add(&mut containers, &of_container(container, &format!("{path}.containers[{index}]"), faults));
    }
    let mut sidecars = Amounts::new();
    let mut starting = Amounts::new();
    for (index, container) in spec.init_containers.iter().flatten().enumerate() {
        let own = of_container(container, &format!("{path}.initContainers[{index}]"), faults);
        if is_sidecar(container) {
            add(&mut sidecars, &own);
            raise(&mut starting, &sidecars);
        } else {
            let mut sum = sidecars.clone();
            add(&mut sum, &own);
            raise(&mut starting, &sum);
        }
    }
    add(&mut containers, &sidecars);
    raise(&mut containers, &starting);
    if let Some(resources) = &spec.resources {
        whole_pod(&mut containers, resources, &format!("{path}.resources"), faults);
    }
    if let Some(overhead) = &spec.overhead {
        add(&mut containers, &amounts(overhead, &format!("{path}.overhead"), faults));
    }
    containers.retain(|_, amount| *amount != 0);
    containers
}

pub(crate) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Adds up; sums that no machine has stop at [`quantity::MAX_TOTAL`] and are refused with the total.
pub(crate) fn add(sum: &mut Amounts, more: &Amounts) {
    for (resource, amount) in more {
        let entry = sum.entry(resource.clone()).or_default();
        *entry = entry.saturating_add(*amount);
    }
}

pub(crate) fn raise(least: &mut Amounts, to: &Amounts) {
    for (resource, amount) in to {
        let entry = least.entry(resource.clone()).or_default();
        *entry = (*entry).max(*amount);
    }
}

fn of_container(container: &Container, path: &str, faults: &Faults) -> Amounts {
    container
        .resources
        .as_ref()
        .map_or_else(Amounts::new, |resources| requested(resources, &format!("{path}.resources"), faults))
}

/// Requests; where one is missing, the limit takes its place.
pub(crate) fn requested(resources: &ResourceRequirements, path: &str, faults: &Faults) -> Amounts {
    let read = |map: &Option<BTreeMap<String, Quantity>>, field: &str| {
        map.as_ref().map_or_else(Amounts::new, |map| amounts(map, &format!("{path}.{field}"), faults))
    };
    let limits = read(&resources.limits, "limits");
    let mut requests = read(&resources.requests, "requests");
    for (resource, limit) in limits {
        let request = *requests.entry(resource.clone()).or_insert(limit);
        let field = format!("{path}.requests[{resource:?}]");
        let shown = quantity::format(&resource, request);
        if request > limit {
            faults.push(&field, &shown, format!("is above its limit {}", quantity::format(&resource, limit)));
        } else if request < limit && !may_overcommit(&resource) {
            let limit = quantity::format(&resource, limit);
            faults.push(
                &field,
                &shown,
                format!("must equal its limit {limit}: this resource cannot be shared"),
            );
        }
    }
    requests
}

fn may_overcommit(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory" | "ephemeral-storage")
}

/// Pod-level resources (Kubernetes 1.34): for cpu, memory and huge pages they stand in for the sum.
fn whole_pod(sum: &mut Amounts, resources: &ResourceRequirements, path: &str, faults: &Faults) {
    let explicit = resources.requests.clone().unwrap_or_default();
    for (resource, amount) in requested(resources, path, faults) {
        let of_pod = matches!(resource.as_str(), "cpu" | "memory") || resource.starts_with("hugepages-");
        let field = format!("{path}.requests[{resource:?}]");
        if !of_pod {
            faults.push(&field, "", "a pod as a whole may only ask for cpu, memory and huge pages");
        } else if explicit.contains_key(&resource) || !sum.contains_key(&resource) {
            let of_containers = sum.insert(resource.clone(), amount).unwrap_or(0);
            if of_containers > amount {
                let shown = quantity::format(&resource, amount);
                faults.push(&field, &shown, "is below the sum of the containers' requests");
            }
        }
    }
}

fn amounts(map: &BTreeMap<String, Quantity>, path: &str, faults: &Faults) -> Amounts {
    let mut amounts = Amounts::new();
    for (resource, Quantity(text)) in map {
        let field = format!("{path}[{resource:?}]");
        if let Some(mend) = wrong_resource(resource) {
            faults.push(&field, text, mend);
            continue;
        }
        match quantity::parse(resource, text) {
            Ok(amount) => {
                amounts.insert(resource.clone(), amount);
            }
            Err(wrong) => faults.push(&field, text, wrong.to_string()),
        }
    }
    amounts
}

/// Containers ask for Kubernetes' own resources or for those of a device's vendor.
fn wrong_resource(name: &str) -> Option<String> {
    let own = matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if own || (name.contains('/') && names::qualified(name)) {
        return None;
    }
    let mend = "is no resource of a container: cpu, memory, ephemeral-storage, hugepages-<size>, or <vendor>/<device>";
    Some(match name {
        "gpu" | "gpus" | "GPU" => format!("{mend}; did you mean nvidia.com/gpu?"),
        _ => mend.into(),
    })
}
