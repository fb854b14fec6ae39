//! Whatever others say, in whatever order: nothing is offered twice, the decider rests, an image
//! is the state.

use std::collections::BTreeMap;

use muster_core::{State as _, WorkloadId, WriteSet, hash_of};
use muster_model::lifecycle::LegState;
use muster_proto::{Kind, Outcome};
use proptest::prelude::*;

use super::world::*;
use crate::State;

#[derive(Clone, Debug)]
enum Step {
    Gang { count: u32, gpus: i64, flavor: usize, priority: i32 },
    Reserve(usize, usize),
    Release(usize),
    Grant(usize),
    Refuse(usize),
    End(usize, Outcome),
    Cancel(usize),
    Requeue(usize),
    Plan(usize, Option<usize>),
    Capacity { cluster: usize, a100: u32, h100: u32 },
    Agent(usize),
    Suspect(usize),
    DeclareDead(usize),
    Reconcile(usize),
    Pass(i64),
}

const CLUSTERS: [&str; 3] = ["c0", "c1", "c2"];
const FLAVORS: [&str; 3] = ["a100", "h100", "any"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        Just(Outcome::Succeeded),
        Just(Outcome::UserFailed),
        Just(Outcome::NodeFailed),
        Just(Outcome::Stopped)
    ];
    let (id, cluster) = (0usize..12, 0usize..3);
    let step = prop_oneof![
        6 => (1u32..4, 0i64..6, 0usize..3, -1i32..2)
            .prop_map(|(count, gpus, flavor, priority)| Step::Gang { count, gpus, flavor, priority }),
        2 => (id.clone(), 0usize..3).prop_map(|(n, flavor)| Step::Reserve(n, flavor)),
        2 => id.clone().prop_map(Step::Release),
        6 => id.clone().prop_map(Step::Grant),
        2 => id.clone().prop_map(Step::Refuse),
        3 => (id.clone(), outcome).prop_map(|(n, outcome)| Step::End(n, outcome)),
        1 => id.clone().prop_map(Step::Cancel),
        2 => id.clone().prop_map(Step::Requeue),
        2 => (id, proptest::option::of(cluster.clone())).prop_map(|(n, avoid)| Step::Plan(n, avoid)),
        2 => (cluster.clone(), 0u32..4, 0u32..3)
            .prop_map(|(cluster, a100, h100)| Step::Capacity { cluster, a100, h100 }),
        1 => cluster.clone().prop_map(Step::Agent),
        1 => cluster.clone().prop_map(Step::Suspect),
        1 => cluster.clone().prop_map(Step::DeclareDead),
        1 => cluster.prop_map(Step::Reconcile),
        2 => (0i64..40).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..60)
}

struct Run {
    world: World,
    ids: Vec<WorkloadId>,
    /// Of every offer: what it asked of the whole cluster, in GPUs.
    offered: BTreeMap<(WorkloadId, u32), i128>,
    gpus: BTreeMap<WorkloadId, i64>,
}

impl Run {
    fn new() -> Self {
        let mut world = World::new();
        for cluster in CLUSTERS {
            world.join(cluster, vec![nodes("a100", 2, 4), nodes("h100", 1, 4)]);
        }
        Self { world, ids: vec![], offered: BTreeMap::new(), gpus: BTreeMap::new() }
    }

    fn take(&mut self, step: &Step) {
        let world = &mut self.world;
        let pick = |n: usize| self.ids.get(n).copied();
        match *step {
            Step::Gang { count, gpus, flavor, priority } => {
                let id = world.submit(priority, vec![pods(count, gpus)]);
                world.reserve(id, &[(GPU, FLAVORS[flavor])]);
                self.ids.push(id);
                self.gpus.insert(id, gpus);
            }
            Step::Reserve(n, flavor) => _ = pick(n).map(|id| world.reserve(id, &[(GPU, FLAVORS[flavor])])),
            Step::Release(n) => _ = pick(n).map(|id| world.release(id)),
            Step::Grant(n) => _ = pick(n).map(|id| world.grant(id)),
            Step::Refuse(n) => _ = pick(n).map(|id| world.refuse(id)),
            Step::End(n, outcome) => _ = pick(n).map(|id| world.end(id, outcome)),
            Step::Cancel(n) => _ = pick(n).map(|id| world.cancel(id)),
            Step::Requeue(n) => _ = pick(n).map(|id| world.requeue(id)),
            Step::Plan(n, avoid) => {
                let avoid: Vec<&str> = avoid.iter().map(|cluster| CLUSTERS[*cluster]).collect();
                _ = pick(n).map(|id| world.plan(id, &avoid));
            }
            Step::Capacity { cluster, a100, h100 } => {
                let groups = vec![nodes("a100", a100, 4), nodes("h100", h100, 4)];
                world.capacity(
                    CLUSTERS[cluster],
                    groups.into_iter().filter(|group| group.nodes > 0).collect(),
                );
            }
            Step::Agent(cluster) => world.agent(CLUSTERS[cluster]),
            Step::Suspect(cluster) => world.suspect(CLUSTERS[cluster]),
            Step::DeclareDead(cluster) => world.declare_dead(CLUSTERS[cluster]),
            Step::Reconcile(cluster) => world.reconcile(CLUSTERS[cluster]),
            Step::Pass(seconds) => world.pass(seconds),
        }
    }

    /// Decides until content, message by message; after each, what it offered must be there.
    fn decide(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..50 {
            let facts: Vec<Kind> =
                self.world.given.decide().into_iter().filter_map(|fact| fact.kind).collect();
            if facts.is_empty() {
                return Ok(());
            }
            self.world.given.fold("federation", "0", facts.clone());
            let checked = self.world.given.state.check();
            prop_assert!(checked.is_ok(), "{checked:?}");
            let mut clusters = Vec::new();
            for fact in &facts {
                let Kind::PlacementOffered(fact) = fact else { continue };
                let id = WorkloadId::of(fact.workload.as_ref());
                let leg = &fact.legs[0];
                let pods: u32 = leg.pods.iter().map(|range| range.count).sum();
                let gpus = i128::from(self.gpus[&id]) * i128::from(pods);
                self.offered.insert((id, fact.attempt), gpus);
                // What needs no GPU may go where they are all taken.
                if gpus > 0 {
                    clusters.push(leg.cluster.clone());
                }
            }
            for cluster in clusters {
                let occupied = self.occupied(&cluster);
                let capacity = self.world.given.state.nodes.capacity(&cluster, None, GPU);
                prop_assert!(occupied <= capacity, "{cluster}: {occupied} of {capacity}");
            }
        }
        Err(TestCaseError::fail("federation does not come to rest"))
    }

    /// GPUs that live legs occupy, counted from the offers and the lifecycle alone.
    fn occupied(&self, cluster: &str) -> i128 {
        let legs = self.world.given.state.lifecycle.workloads().filter_map(|(id, row)| {
            let attempt = row.live()?;
            let leg = attempt.leg(cluster)?;
            let occupies = !leg.is_over() && leg.state != LegState::Refused;
            occupies.then(|| self.offered.get(&(*id, attempt.no)).copied().unwrap_or(0))
        });
        legs.sum()
    }
}

fn restored(state: &State) -> State {
    let mut writes = WriteSet::default();
    state.clone().tables(&mut |table| {
        if table.is_stored() {
            table.drain(&mut writes);
        }
    });
    let mut loaded = State::default();
    loaded.tables(&mut |table| {
        for (name, key, row) in &writes.rows {
            if let (true, Some(row)) = (*name == table.name(), row) {
                table.load(key, row).unwrap();
            }
        }
    });
    loaded.reindex();
    loaded
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..Default::default() })]

    #[test]
    fn nothing_is_offered_twice_and_the_image_is_the_state(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            run.decide()?;
            for cluster in CLUSTERS {
                let key = (cluster.to_owned(), String::new(), GPU.to_owned());
                prop_assert_eq!(run.world.given.state.usage.of(&key).total(), run.occupied(cluster));
            }
        }
        let mut state = run.world.given.state.clone();
        let mut loaded = restored(&state);
        prop_assert_eq!(hash_of(&mut loaded), hash_of(&mut state));
        prop_assert_eq!(loaded.indexes(), state.indexes());
    }

    #[test]
    fn with_time_alone_the_log_stops_growing(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            run.decide()?;
        }
        let mut facts = 0;
        for _ in 0..20 {
            run.world.pass(60);
            facts = run.world.given.decide().len();
            run.decide()?;
        }
        prop_assert_eq!(facts, 0);
    }

    #[test]
    fn a_decision_tried_on_an_overlay_leaves_nothing(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            let facts: Vec<Kind> = run.world.given.decide().into_iter().filter_map(|fact| fact.kind).collect();
            let state = &mut run.world.given.state;
            let (indexes, hash) = (state.indexes(), hash_of(state));
            state.tables(&mut |table| table.begin());
            run.world.given.fold("federation", "0", facts);
            run.world.given.state.tables(&mut |table| table.rollback());
            prop_assert_eq!(run.world.given.state.indexes(), indexes);
            prop_assert_eq!(hash_of(&mut run.world.given.state), hash);
            run.decide()?;
        }
    }
}
