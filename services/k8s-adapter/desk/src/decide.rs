//! From a report to facts.

use muster_core::{Seq, WorkloadId, defect, defect::Defect};
use muster_model::lifecycle::{Attempt, Leg, LegState, Workload};
use muster_proto::{self as proto, Fact, Kind, ObservedLeg, Outcome, Phase};

use crate::{
    Config, DeskState, Inbox,
    ghosts::{ghosts, is_running},
    inbox::{Body, Heard},
};

/// Facts of one decision: far below the limit of a message. The rest follows in the next.
const MAX_FACTS: usize = 1_000;
/// A reason is for people; a whole log does not belong into EVENTS.
const MAX_REASON: usize = 256;

pub(crate) fn decide(config: &Config, state: &DeskState, inbox: &Inbox) -> Vec<Fact> {
    if state.lifecycle.generation() == 0 {
        return Vec::new();
    }
    let heard = inbox.report(state, &config.cluster);
    let mut facts = heard.map(|heard| cluster_facts(state, inbox, heard)).unwrap_or_default();
    for id in state.lifecycle.legs_in(&config.cluster) {
        if facts.len() >= MAX_FACTS {
            break;
        }
        facts.extend(leg_fact(config, state, inbox, heard, id));
    }
    facts.into_iter().map(|kind| Fact { kind: Some(kind) }).collect()
}

/// What the report says of the cluster itself.
fn cluster_facts(state: &DeskState, inbox: &Inbox, heard: &Heard) -> Vec<Kind> {
    let cluster = &heard.cluster;
    let row = state.lifecycle.cluster(cluster);
    let folded = state.cluster(cluster);
    let mut facts = Vec::new();
    if row.is_none() {
        let backend = heard.backend.clone();
        facts.push(Kind::ClusterJoined(proto::ClusterJoined { cluster: cluster.clone(), backend }));
    }
    if row.is_none_or(|row| heard.epoch > row.epoch) {
        let (epoch, agent) = (heard.epoch, heard.agent.clone());
        facts.push(Kind::AgentJoined(proto::AgentJoined { cluster: cluster.clone(), epoch, agent }));
    }
    // Who was refused while something of no fact took the room is tried again when it is gone.
    let freed = inbox.freed == Some(folded.reported) && folded.refused > folded.reported;
    if folded.capacity != heard.capacity || freed {
        let groups = heard.nodes.clone();
        facts.push(Kind::CapacityReported(proto::CapacityReported { cluster: cluster.clone(), groups }));
    }
    if let Some(row) = row {
        // An agent that echoes the suspicion hears the hub and is heard. A dead cluster is clean first.
        let suspected = row.suspected.is_some();
        let clean = || ghosts(state, heard).is_empty();
        if heard.echo >= folded.away && (suspected || (row.dead && clean())) {
            facts.push(Kind::ClusterReconciled(proto::ClusterReconciled { cluster: cluster.clone() }));
        }
    }
    facts
}

fn leg_fact(
    config: &Config,
    state: &DeskState,
    inbox: &Inbox,
    heard: Option<&Heard>,
    id: &WorkloadId,
) -> Option<Kind> {
    let row = state.lifecycle.workload(id)?;
    let attempt = row.live()?;
    let leg = attempt.leg(&config.cluster)?;
    let about = About { id, attempt, leg };
    if leg.state == LegState::Asked
        && let Some(spec) = state.specs.get(id)
        && let Body::Lost(why) = inbox.body(spec)
    {
        return Some(about.refused(why));
    }
    let heard = heard?;
    let object = heard.legs.get(&(*id, attempt.no));
    let fresh = is_fresh(heard.echo, leg.last);
    match leg.state {
        LegState::Asked => about.answered(object?, fresh),
        LegState::Granted if attempt.committed => about.ran(row, object, fresh),
        _ => None,
    }
}

/// Only a report that echoes the leg's last fact, or a later one, knows the leg.
fn is_fresh(echo: Seq, last: Seq) -> bool {
    echo >= last || defect::on(Defect::ReportsWithoutEcho)
}

struct About<'a> {
    id: &'a WorkloadId,
    attempt: &'a Attempt,
    leg: &'a Leg,
}

impl About<'_> {
    /// The agent's answer to an offer.
    fn answered(&self, object: &ObservedLeg, fresh: bool) -> Option<Kind> {
        if !fresh {
            return None;
        }
        match object.phase() {
            Phase::Stopped if !object.uid.is_empty() => Some(Kind::LegGranted(proto::LegGranted {
                workload: Some((*self.id).into()),
                attempt: self.attempt.no,
                cluster: self.leg.cluster.clone(),
                uid: object.uid.clone(),
            })),
            Phase::Refused => Some(self.refused(&object.reason)),
            _ if is_running(object) => {
                Some(self.refused("an object of this name runs that the log never granted"))
            }
            Phase::Unspecified | Phase::Stopped => None,
            _ => Some(self.refused("an object of this name ended that the log never granted")),
        }
    }

    /// What became of the granted object since it may run.
    fn ran(&self, row: &Workload, object: Option<&ObservedLeg>, fresh: bool) -> Option<Kind> {
        let stopping = row.stopping();
        let Some(object) = object.filter(|object| object.uid == self.leg.uid) else {
            let outcome = if stopping { Outcome::Stopped } else { Outcome::Gone };
            return fresh.then(|| self.ended(outcome, None));
        };
        let failed = |outcome| if stopping { Outcome::Stopped } else { outcome };
        match object.phase() {
            Phase::Succeeded => Some(self.ended(Outcome::Succeeded, Some(object))),
            Phase::Failed => Some(self.ended(failed(Outcome::UserFailed), Some(object))),
            Phase::Lost => Some(self.ended(failed(Outcome::NodeFailed), Some(object))),
            Phase::Ready if !stopping && (!self.leg.ready || self.leg.address != object.address) => {
                Some(Kind::LegReady(proto::LegReady {
                    workload: Some((*self.id).into()),
                    attempt: self.attempt.no,
                    cluster: self.leg.cluster.clone(),
                    address: object.address.clone(),
                }))
            }
            _ => None,
        }
    }

    fn refused(&self, reason: &str) -> Kind {
        Kind::LegRefused(proto::LegRefused {
            workload: Some((*self.id).into()),
            attempt: self.attempt.no,
            cluster: self.leg.cluster.clone(),
            reason: short(reason),
        })
    }

    fn ended(&self, outcome: Outcome, object: Option<&ObservedLeg>) -> Kind {
        Kind::LegEnded(proto::LegEnded {
            workload: Some((*self.id).into()),
            attempt: self.attempt.no,
            cluster: self.leg.cluster.clone(),
            outcome: outcome.into(),
            reason: object.map(|object| short(&object.reason)).unwrap_or_default(),
            exit_code: object.and_then(|object| object.exit_code),
        })
    }
}

fn short(reason: &str) -> String {
    reason.chars().take(MAX_REASON).collect()
}
