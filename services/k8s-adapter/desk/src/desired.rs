//! What the cluster shall hold, and when to say so again.

use std::collections::BTreeSet;

use muster_core::{Outgoing, Timestamp};
use muster_model::lifecycle::{LegState, Workload};
use muster_proto::{Desired, DesiredLeg, LegSpec, Phase, ResourceFlavor, Verb};
use prost::Message;

use crate::{
    Config, DeskState, Inbox,
    ghosts::{Name, ghosts},
    inbox::Body,
};

pub(crate) fn outbox(config: &Config, state: &DeskState, inbox: &Inbox, now: Timestamp) -> Vec<Outgoing> {
    if state.lifecycle.generation() == 0 || now < inbox.not_before {
        return Vec::new();
    }
    let missing = inbox.missing(state, &config.cluster);
    let mut wishes: Vec<_> = missing.into_iter().map(|seq| Outgoing::FetchBody { seq }).collect();
    if is_news(config, state, inbox) || now >= repeat_at(config, state, inbox) {
        wishes.push(Outgoing::SendDesired { desired: desired(config, state, inbox) });
    }
    wishes
}

/// When [`outbox`] may have more to say although nothing arrives.
pub(crate) fn wake_at(config: &Config, state: &DeskState, inbox: &Inbox, now: Timestamp) -> Timestamp {
    if now < inbox.not_before {
        return inbox.not_before;
    }
    match repeat_at(config, state, inbox) {
        at if at > now => at,
        _ => now.plus_us(config.repeat_us), // it is under way
    }
}

/// Whether the agent has not been told of something.
fn is_news(config: &Config, state: &DeskState, inbox: &Inbox) -> bool {
    let Some(sent) = inbox.sent else { return true };
    let row = state.cluster(&config.cluster);
    if inbox.again > 0 || row.urgent > sent.seq {
        return true;
    }
    // An offer whose body is not here yet is no news: it could not be created.
    row.seq > sent.seq
        && inbox.window(state, &config.cluster).any(|((id, _), spec)| {
            let leg = state.legs.get(&(config.cluster.clone(), id));
            leg.is_some_and(|leg| leg.changed > sent.seq) && matches!(inbox.body(spec), Body::Here(_))
        })
}

fn repeat_at(config: &Config, state: &DeskState, inbox: &Inbox) -> Timestamp {
    let Some(sent) = inbox.sent else { return Timestamp(i64::MIN) };
    let every = if is_awaited(config, state, inbox) { config.repeat_us } else { config.heartbeat_us };
    sent.at.plus_us(every)
}

/// Whether the latest report differs from what the cluster shall hold, or there is none of late.
fn is_awaited(config: &Config, state: &DeskState, inbox: &Inbox) -> bool {
    let Some(heard) = inbox.report(state, &config.cluster) else { return true };
    let row = state.cluster(&config.cluster);
    if heard.echo < row.seq.max(row.away) || !ghosts(state, heard).is_empty() {
        return true;
    }
    state.lifecycle.legs_in(&config.cluster).any(|id| {
        let Some(row) = state.lifecycle.workload(id) else { return false };
        let Some(attempt) = row.live() else { return false };
        let phase = heard.legs.get(&(*id, attempt.no)).map(|object| object.phase());
        let is_held = attempt.all_granted() && !attempt.committed && phase == Some(Phase::Stopped);
        !is_held && (row.stopping() || !matches!(phase, Some(Phase::Running | Phase::Ready)))
    })
}

fn desired(config: &Config, state: &DeskState, inbox: &Inbox) -> Desired {
    let cluster = &config.cluster;
    let create = inbox.window(state, cluster).filter_map(|(name, spec)| match inbox.body(spec) {
        Body::Here(manifest) => Some(DesiredLeg {
            spec: spec_of(state, cluster, &name, manifest),
            ..leg(name, Verb::Create, String::new())
        }),
        _ => None,
    });
    let keep = state.lifecycle.legs_in(cluster).filter_map(|id| {
        let row = state.lifecycle.workload(id)?;
        verb(row, cluster).map(|(no, verb, uid)| leg((*id, no), verb, uid))
    });
    let heard = inbox.report(state, cluster);
    let ghosts = heard.map(|heard| ghosts(state, heard)).unwrap_or_default();
    let remove = ghosts.into_iter().map(|(name, uid)| leg(name, Verb::Remove, uid));
    let legs = remove.chain(keep).chain(create).collect();
    let row = state.cluster(cluster);
    Desired {
        generation: state.lifecycle.generation(),
        cluster: cluster.clone(),
        seq: row.seq.max(row.away),
        epoch: state.lifecycle.cluster(cluster).map_or(0, |row| row.epoch),
        legs,
    }
}

/// What shall be done with the granted object of a leg that is not over.
fn verb(row: &Workload, cluster: &str) -> Option<(u32, Verb, String)> {
    let attempt = row.live()?;
    let leg = attempt.leg(cluster).filter(|leg| leg.state == LegState::Granted)?;
    let verb = match (attempt.committed, row.stopping()) {
        (_, true) => Verb::Remove,
        (true, false) => Verb::Start,
        (false, false) => Verb::Hold,
    };
    Some((attempt.no, verb, leg.uid.clone()))
}

fn leg((id, attempt): Name, verb: Verb, uid: String) -> DesiredLeg {
    DesiredLeg { workload: Some(id.into()), attempt, verb: verb.into(), uid, spec: None }
}

fn spec_of(state: &DeskState, cluster: &str, name: &Name, manifest: bytes::Bytes) -> Option<LegSpec> {
    let spec = state.specs.get(&name.0)?;
    let pods = state.legs.get(&(cluster.to_owned(), name.0)).filter(|leg| leg.attempt == name.1)?;
    let spec = LegSpec::decode(spec.spec.as_slice()).ok()?;
    let LegSpec { pods, .. } = LegSpec::decode(pods.pods.as_slice()).ok()?;
    let mut spec = LegSpec { pods, manifest, ..spec };
    bind_to_flavors(state, &mut spec);
    Some(spec)
}

/// Pods run on nodes of the flavors that they hold quota of, as Kueue has it: the flavor's node
/// labels join the node selector, its tolerations the pods' own.
fn bind_to_flavors(state: &DeskState, spec: &mut LegSpec) {
    for range in &spec.pods {
        let Some(set) = spec.pod_sets.iter_mut().find(|set| set.name == range.pod_set) else { continue };
        for name in range.flavors.values().collect::<BTreeSet<_>>() {
            let row = state.flavors.get(name).map(Vec::as_slice);
            let Some(flavor) = row.and_then(|row| ResourceFlavor::decode(row).ok()) else { continue };
            set.node_selector.extend(flavor.node_labels);
            set.tolerations.extend(flavor.tolerations);
        }
    }
}
