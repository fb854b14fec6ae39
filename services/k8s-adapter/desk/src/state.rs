//! What the desk folds: the lifecycle, and what a leg's specification needs.
//!
//! `evolve` knows no configuration, so every desk keeps the legs of all clusters; deciding filters.

use borsh::{BorshDeserialize, BorshSerialize};
use muster_core::{AnyTable, At, Broken, Event, Seq, State, Table, WorkloadId, sha256};
use muster_model::Lifecycle;
use muster_proto::{self as proto, Kind, LegSpec};
use prost::Message;

/// A workload that is not at its end: what a leg's specification takes from its request.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SpecRow {
    /// An encoded `LegSpec` without manifest and pods.
    pub spec: Vec<u8>,
    /// Sequence in BODIES; 0: the workload has no body.
    pub body: u64,
    pub body_sha256: Vec<u8>,
    pub body_bytes: u32,
    pub erased: bool,
}

/// A leg that is not over.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct LegRow {
    pub attempt: u32,
    /// An encoded `LegSpec` with nothing but pods.
    pub pods: Vec<u8>,
    /// The last fact that may have changed what the agent shall do with it.
    pub changed: Seq,
}

/// What the desks know of a cluster beyond its lifecycle.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct ClusterRow {
    /// The last fact about any leg here: at least every leg's `last`, so an echo of it is new enough for all.
    pub seq: Seq,
    /// As `seq`, but offers don't count: they may have to wait for a body first.
    pub urgent: Seq,
    /// When the cluster was last suspected or declared dead.
    pub away: Seq,
    /// SHA-256 of the last capacity reported, encoded, and where that stands.
    pub capacity: Vec<u8>,
    pub reported: Seq,
    /// The last refusal.
    pub refused: Seq,
}

/// The desk's state.
#[derive(Clone, Debug)]
pub struct DeskState {
    pub lifecycle: Lifecycle,
    pub specs: Table<WorkloadId, SpecRow>,
    pub legs: Table<(String, WorkloadId), LegRow>,
    pub clusters: Table<String, ClusterRow>,
    /// Encoded `ResourceFlavor`s: the nodes that a leg's pods were given quota for.
    pub flavors: Table<String, Vec<u8>>,
    /// Attempts whose end was declared, not seen: these uids may still run when the cluster comes back.
    pub dead: Table<(String, WorkloadId, u32), String>,
}

impl Default for DeskState {
    fn default() -> Self {
        Self {
            lifecycle: Lifecycle::default(),
            specs: Table::stored("desk.specs"),
            legs: Table::stored("desk.legs"),
            clusters: Table::stored("desk.clusters"),
            flavors: Table::stored("desk.flavors"),
            dead: Table::stored("desk.dead"),
        }
    }
}

impl State for DeskState {
    const SCHEMA: u32 = 1;

    fn tables(&mut self, visit: &mut dyn FnMut(&mut dyn AnyTable)) {
        self.lifecycle.tables(visit);
        visit(&mut self.specs);
        visit(&mut self.legs);
        visit(&mut self.clusters);
        visit(&mut self.flavors);
        visit(&mut self.dead);
    }

    fn reindex(&mut self) {
        self.lifecycle.reindex();
    }
}

impl DeskState {
    pub(crate) fn fold(&mut self, at: At, event: &Event) {
        let declared = self.legs_declared_dead(event);
        let verdict = self.lifecycle.apply(at, event);
        if !verdict.is_effective() {
            return;
        }
        match &event.fact {
            Kind::PolicyApplied(fact) => self.policy(fact),
            Kind::WorkloadQueued(fact) => self.queued(fact),
            Kind::WorkloadFinished(fact) => _ = self.specs.remove(&WorkloadId::of(fact.workload.as_ref())),
            Kind::BodyErased(fact) => {
                self.specs.update(&WorkloadId::of(fact.workload.as_ref()), |row| row.erased = true);
            }
            Kind::WorkloadsForgotten(fact) => self.forget(WorkloadId::of(fact.up_to.as_ref())),
            Kind::PlacementOffered(fact) => self.offered(fact),
            Kind::CapacityReported(fact) => {
                let hash = capacity_hash(&fact.groups);
                self.cluster_mut(&fact.cluster, |row| (row.capacity, row.reported) = (hash, at.seq));
            }
            Kind::LegRefused(fact) => self.cluster_mut(&fact.cluster, |row| row.refused = at.seq),
            Kind::ClusterSuspected(fact) => self.cluster_mut(&fact.cluster, |row| row.away = at.seq),
            Kind::ClusterDeclaredDead(fact) => self.cluster_mut(&fact.cluster, |row| row.away = at.seq),
            Kind::ClusterReconciled(fact) => self.reconciled(&fact.cluster),
            _ => {}
        }
        for (key, uid) in declared {
            self.dead.put(key, uid);
        }
        let is_offer = matches!(event.fact, Kind::PlacementOffered(_));
        for id in verdict.touched() {
            self.touch(at.seq, id, is_offer);
        }
    }

    fn policy(&mut self, fact: &proto::PolicyApplied) {
        let object = fact.policy.as_ref().and_then(|policy| policy.object.as_ref());
        let Some(proto::policy::Object::ResourceFlavor(flavor)) = object else { return };
        if fact.deleted {
            self.flavors.remove(&flavor.name);
        } else {
            self.flavors.put(flavor.name.clone(), flavor.encode_to_vec());
        }
    }

    fn queued(&mut self, fact: &proto::WorkloadQueued) {
        let spec = LegSpec {
            tenant: fact.tenant.clone(),
            namespace: fact.namespace.clone(),
            name: fact.name.clone(),
            kind: fact.kind.clone(),
            pod_sets: fact.pod_sets.clone(),
            labels: fact.labels.clone(),
            ..LegSpec::default()
        };
        let body = fact.body.clone().unwrap_or_default();
        let row = SpecRow {
            spec: spec.encode_to_vec(),
            body: body.seq,
            body_sha256: body.sha256.to_vec(),
            body_bytes: body.size_bytes,
            erased: false,
        };
        self.specs.put(WorkloadId::of(fact.workload.as_ref()), row);
    }

    fn offered(&mut self, fact: &proto::PlacementOffered) {
        let id = WorkloadId::of(fact.workload.as_ref());
        for leg in &fact.legs {
            let pods = LegSpec { pods: leg.pods.clone(), ..LegSpec::default() }.encode_to_vec();
            self.legs.put((leg.cluster.clone(), id), LegRow { attempt: fact.attempt, pods, changed: 0 });
        }
    }

    /// A workload changed: so did what the agents shall do with its legs.
    fn touch(&mut self, seq: Seq, id: &WorkloadId, is_offer: bool) {
        let Some(attempt) = self.lifecycle.workload(id).and_then(|row| row.last.clone()) else { return };
        for leg in attempt.legs {
            let key = (leg.cluster, *id);
            let open = !attempt.over && !leg_is_over(leg.state);
            let had = if open {
                self.legs.update(&key, |row| row.changed = seq).is_some()
            } else {
                self.legs.remove(&key)
            };
            if had {
                self.cluster_mut(&key.0, |row| {
                    row.seq = seq;
                    row.urgent = if is_offer { row.urgent } else { seq };
                });
            }
        }
    }

    /// Granted legs that this fact, if it holds, declares dead.
    fn legs_declared_dead(&self, event: &Event) -> Vec<((String, WorkloadId, u32), String)> {
        let Kind::ClusterDeclaredDead(fact) = &event.fact else { return Vec::new() };
        let legs = self.lifecycle.legs_in(&fact.cluster).filter_map(|id| {
            let attempt = self.lifecycle.workload(id)?.live()?;
            let leg = attempt.leg(&fact.cluster).filter(|leg| !leg.uid.is_empty())?;
            Some(((fact.cluster.clone(), *id, attempt.no), leg.uid.clone()))
        });
        legs.collect()
    }

    fn reconciled(&mut self, cluster: &str) {
        let gone: Vec<_> =
            self.dead.iter().map(|(key, _)| key.clone()).filter(|key| key.0 == cluster).collect();
        for key in gone {
            self.dead.remove(&key);
        }
    }

    fn forget(&mut self, up_to: WorkloadId) {
        let gone: Vec<_> =
            self.dead.iter().map(|(key, _)| key.clone()).filter(|key| key.1 <= up_to).collect();
        for key in gone {
            self.dead.remove(&key);
        }
    }

    fn cluster_mut(&mut self, cluster: &str, change: impl FnOnce(&mut ClusterRow)) {
        let mut row = self.clusters.get(&cluster.to_owned()).cloned().unwrap_or_default();
        change(&mut row);
        self.clusters.put(cluster.to_owned(), row);
    }

    /// What is known of a cluster; of an unknown one, nothing.
    #[must_use]
    pub fn cluster(&self, name: &str) -> ClusterRow {
        self.clusters.get(&name.to_owned()).cloned().unwrap_or_default()
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        for ((cluster, id), leg) in self.legs.iter() {
            let live = self.lifecycle.workload(id).and_then(|row| row.live());
            let open = live.is_some_and(|attempt| {
                attempt.no == leg.attempt && attempt.leg(cluster).is_some_and(|leg| !leg.is_over())
            });
            if !open {
                let detail = format!("{id} attempt {} in {cluster} is over", leg.attempt);
                return Err(Broken { invariant: "every leg of the desk is open", detail });
            }
        }
        Ok(())
    }
}

fn leg_is_over(state: muster_model::lifecycle::LegState) -> bool {
    matches!(state, muster_model::lifecycle::LegState::Over(_))
}

/// Two capacities are the same when their encodings are: maps are ordered, so that is canonical.
pub(crate) fn capacity_hash(groups: &[proto::NodeGroup]) -> Vec<u8> {
    let capacity = proto::CapacityReported { cluster: String::new(), groups: groups.to_vec() };
    sha256(&capacity.encode_to_vec()).to_vec()
}
