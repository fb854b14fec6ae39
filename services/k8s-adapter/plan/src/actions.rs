//! Desired against observed.

use std::collections::BTreeMap;

use muster_proto::{Desired, DesiredLeg, LegSpec, Phase, Verb};

use crate::{Binding, Key, Object, Observed, fit};

/// One call to the backend.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the object, stopped, unless the name is taken.
    Create { key: Key, spec: LegSpec, bindings: Vec<Binding> },
    /// Start the object if it bears this uid; the backend checks it too, at the moment of the start.
    Start { key: Key, uid: String },
    /// Stop and remove the object if it bears this uid, or whatever bears the name.
    Remove { key: Key, uid: Option<String> },
}

impl Action {
    pub fn key(&self) -> Key {
        match self {
            Self::Create { key, .. } | Self::Start { key, .. } | Self::Remove { key, .. } => *key,
        }
    }
}

/// What to do about one `Desired`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub actions: Vec<Action>,
    /// Legs asked for that have no object and get none, with the reason. Those of an earlier plan stay refused
    /// until the desk stops asking: the desk may have read the refusal already.
    pub refused: BTreeMap<Key, String>,
}

/// Compares. `refused`: of the plan before this one.
pub fn actions(desired: &Desired, observed: &Observed, refused: &BTreeMap<Key, String>) -> Plan {
    let mut nodes = observed.nodes.clone();
    let mut plan = Plan::default();
    for leg in &desired.legs {
        let Some(workload) = &leg.workload else { continue };
        let key = Key::new(workload, leg.attempt);
        let object = observed.objects.get(&key);
        match (leg.verb(), object, &leg.spec) {
            (Verb::Create, None, Some(spec)) => match refused.get(&key) {
                Some(reason) => drop(plan.refused.insert(key, reason.clone())),
                None => match fit::place(spec, &mut nodes) {
                    Ok(bindings) => plan.actions.push(Action::Create { key, spec: spec.clone(), bindings }),
                    Err(reason) => drop(plan.refused.insert(key, reason)),
                },
            },
            (Verb::Start, Some(object), _) if startable(leg, object) => {
                plan.actions.push(Action::Start { key, uid: object.uid.clone() });
            }
            (Verb::Remove, Some(object), _) if leg.uid.is_empty() || leg.uid == object.uid => {
                let uid = (!leg.uid.is_empty()).then(|| leg.uid.clone());
                plan.actions.push(Action::Remove { key, uid });
            }
            _ => {}
        }
    }
    plan
}

fn startable(leg: &DesiredLeg, object: &Object) -> bool {
    #[cfg(feature = "defects")]
    if crate::defect::is(crate::defect::Defect::StartWithoutUid) {
        return object.phase == Phase::Stopped;
    }
    object.phase == Phase::Stopped && !leg.uid.is_empty() && leg.uid == object.uid
}
