//! Whatever others say, in whatever order: quota holds, the decider rests, an image is the state.

use std::collections::BTreeMap;

use muster_core::{Service, State as _, Table, Timestamp, WorkloadId, WriteSet, hash_of};
use muster_proto::{self as proto, Kind, Outcome, command_accepted::Command, policy::Object};
use proptest::prelude::*;

use super::world::*;
use crate::{Admission, Inbox, State};

#[derive(Clone, Debug)]
enum Step {
    Submit { queue: usize, priority: i32, count: u32, gpus: i64, cpu: i64 },
    Cancel(usize),
    Preempt(usize),
    Exhaust(usize),
    Run(usize),
    End(usize, Outcome),
    Requeue(usize, i64),
    Finish(usize, proto::Result),
    Hold(usize, bool),
    Nominal { queue: usize, a100: i64, h100: i64, strict: bool, stopped: bool },
    Flavor { h100: bool, deleted: bool },
    Route { queue: usize, to: usize, deleted: bool },
    Agent,
    Pass(i64),
}

const QUEUES: [&str; 2] = ["cq0", "cq1"];
const LOCAL_QUEUES: [&str; 2] = ["lq0", "lq1"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let outcome = prop_oneof![
        Just(Outcome::Succeeded),
        Just(Outcome::UserFailed),
        Just(Outcome::Gone),
        Just(Outcome::Stopped)
    ];
    let result = prop_oneof![
        Just(proto::Result::Succeeded),
        Just(proto::Result::Failed),
        Just(proto::Result::Cancelled)
    ];
    let which = 0usize..12;
    let step = prop_oneof![
        6 => (0usize..2, -1i32..2, 1u32..4, 0i64..4, 0i64..3).prop_map(|(queue, priority, count, gpus, cpu)| {
            Step::Submit { queue, priority, count, gpus, cpu }
        }),
        1 => which.clone().prop_map(Step::Cancel),
        1 => which.clone().prop_map(Step::Preempt),
        2 => which.clone().prop_map(Step::Exhaust),
        4 => which.clone().prop_map(Step::Run),
        3 => (which.clone(), outcome).prop_map(|(n, outcome)| Step::End(n, outcome)),
        3 => (which.clone(), 0i64..20).prop_map(|(n, seconds)| Step::Requeue(n, seconds)),
        3 => (which.clone(), result).prop_map(|(n, result)| Step::Finish(n, result)),
        1 => (which, any::<bool>()).prop_map(|(n, held)| Step::Hold(n, held)),
        1 => (0usize..2, 0i64..12, 0i64..12, any::<bool>(), any::<bool>()).prop_map(
            |(queue, a100, h100, strict, stopped)| Step::Nominal { queue, a100, h100, strict, stopped }
        ),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(h100, deleted)| Step::Flavor { h100, deleted }),
        1 => (0usize..2, 0usize..2, any::<bool>())
            .prop_map(|(queue, to, deleted)| Step::Route { queue, to, deleted }),
        1 => Just(Step::Agent),
        2 => (0i64..15).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..60)
}

struct Run {
    world: World,
    ids: Vec<WorkloadId>,
    epoch: u64,
    /// The highest nominal quota ever of each queue and flavor: it may be cut below usage.
    highest: BTreeMap<(usize, &'static str), i64>,
    /// What each workload's last reservation said.
    reserved: BTreeMap<WorkloadId, proto::QuotaReserved>,
    pods: BTreeMap<WorkloadId, (i64, i64)>,
}

impl Run {
    fn new() -> Self {
        let mut world = World::with_gpus(0);
        world.policy(Object::ResourceFlavor(flavor("h100")));
        let mut run = Self {
            world,
            ids: vec![],
            epoch: 1,
            highest: BTreeMap::new(),
            reserved: BTreeMap::new(),
            pods: BTreeMap::new(),
        };
        for queue in 0..2 {
            run.nominal(queue, 6, 4, queue == 1, false);
            run.world.policy(Object::LocalQueue(local_queue(LOCAL_QUEUES[queue], QUEUES[queue])));
        }
        run
    }

    fn nominal(&mut self, queue: usize, a100: i64, h100: i64, strict: bool, stopped: bool) {
        let groups =
            vec![group(&["cpu", "nvidia.com/gpu"], &[("a100", &[a100, a100]), ("h100", &[h100, h100])])];
        let row = proto::ClusterQueue {
            queueing_strategy: if strict { "StrictFIFO" } else { "BestEffortFIFO" }.to_owned(),
            stop_policy: if stopped { "Hold" } else { "None" }.to_owned(),
            ..cluster_queue(QUEUES[queue], groups)
        };
        self.world.policy(Object::ClusterQueue(row));
        for (flavor, amount) in [("a100", a100), ("h100", h100)] {
            let highest = self.highest.entry((queue, flavor)).or_default();
            *highest = amount.max(*highest);
        }
    }

    fn take(&mut self, step: &Step) {
        let pick = |n: usize| self.ids.get(n).copied();
        match *step {
            Step::Submit { queue, priority, count, gpus, cpu } => {
                let requests = vec![("nvidia.com/gpu", gpus), ("cpu", cpu)];
                let local_queue = LOCAL_QUEUES[queue];
                let id =
                    self.world.submit(Submit { local_queue, priority, count, requests, selector: vec![] });
                self.ids.push(id);
                self.pods.insert(id, (gpus, cpu));
            }
            Step::Nominal { queue, a100, h100, strict, stopped } => {
                self.nominal(queue, a100, h100, strict, stopped)
            }
            Step::Flavor { h100, deleted } => {
                let object = Object::ResourceFlavor(flavor(if h100 { "h100" } else { "a100" }));
                if deleted { self.world.delete(object) } else { self.world.policy(object) }
            }
            Step::Route { queue, to, deleted } => {
                let object = Object::LocalQueue(local_queue(LOCAL_QUEUES[queue], QUEUES[to]));
                if deleted { self.world.delete(object) } else { self.world.policy(object) }
            }
            Step::Agent => {
                self.epoch += 1;
                self.world.agent_joins(self.epoch);
            }
            Step::Pass(seconds) => self.world.pass(seconds),
            Step::Cancel(n) => _ = pick(n).map(|id| self.world.cancel(id)),
            Step::Preempt(n) => _ = pick(n).map(|id| self.world.preempt(id)),
            Step::Exhaust(n) => _ = pick(n).map(|id| self.world.exhaust(id)),
            Step::Run(n) => _ = pick(n).map(|id| self.world.run(id)),
            Step::End(n, outcome) => _ = pick(n).map(|id| self.world.end(id, outcome)),
            Step::Requeue(n, seconds) => {
                let until = self.world.given.now.plus_us(seconds * SECOND);
                _ = pick(n).map(|id| self.world.requeue(id, until.0));
            }
            Step::Finish(n, result) => _ = pick(n).map(|id| self.world.finish(id, result)),
            Step::Hold(n, held) => {
                if let Some(id) = pick(n) {
                    let workload = Some(id.into());
                    self.world.command(if held {
                        Command::Hold(proto::HoldWorkload { workload })
                    } else {
                        Command::Release(proto::ReleaseWorkload { workload })
                    });
                }
            }
        }
    }

    /// A kept inbox is a shortcut: it must find what a fresh one finds.
    fn admit(&mut self) -> Result<(), TestCaseError> {
        let given = &mut self.world.given;
        Admission::folded(&mut given.inbox, &given.state);
        let fresh = Admission::decide(&given.config, &given.state, &Inbox::default(), given.now);
        let kept = Admission::decide(&given.config, &given.state, &given.inbox, given.now);
        prop_assert_eq!(fresh, kept);
        for fact in self.world.given.decide_until_content("0", 50) {
            if let Kind::QuotaReserved(fact) = fact {
                self.reserved.insert(WorkloadId::of(fact.workload.as_ref()), fact);
            }
        }
        Ok(())
    }

    /// Usage counted from the facts and the lifecycle alone.
    fn usage(&self) -> BTreeMap<(String, String, String), i128> {
        let mut sums = BTreeMap::new();
        for (id, fact) in &self.reserved {
            if self.world.row(*id).reservation.is_none() {
                continue;
            }
            let (gpus, cpu) = self.pods[id];
            for set in &fact.assignments {
                for (resource, flavor) in &set.flavors {
                    let each = if resource == "cpu" { cpu } else { gpus };
                    let key = (fact.cluster_queue.clone(), flavor.clone(), resource.clone());
                    *sums.entry(key).or_default() += i128::from(each) * i128::from(set.count);
                }
            }
        }
        sums
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
    fn quota_holds_and_the_image_is_the_state(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            run.admit()?;
            let counted = run.usage();
            let state = &run.world.given.state;
            let used: BTreeMap<_, _> = state.usage.used.iter().map(|(key, sum)| (key.clone(), *sum)).collect();
            prop_assert_eq!(&used, &counted);
            for ((queue, flavor, _), sum) in &counted {
                let queue = QUEUES.iter().position(|name| name == queue).unwrap();
                let highest = run.highest.iter().find(|((q, f), _)| *q == queue && f == flavor).unwrap().1;
                prop_assert!(*sum <= i128::from(*highest), "{queue} {flavor}: {sum} of {highest}");
            }
        }
        let mut state = run.world.given.state.clone();
        let mut loaded = restored(&state);
        prop_assert_eq!(hash_of(&mut loaded), hash_of(&mut state));
        prop_assert_eq!(loaded.indexes(), state.indexes());
    }

    #[test]
    fn a_decision_tried_on_an_overlay_leaves_nothing(steps in steps()) {
        let mut run = Run::new();
        for step in &steps {
            run.take(step);
            let facts: Vec<Kind> = run.world.given.decide().into_iter().filter_map(|fact| fact.kind).collect();
            let (indexes, hash) = {
                let state = &mut run.world.given.state;
                (state.indexes(), hash_of(state))
            };
            run.world.given.state.tables(&mut |table| table.begin());
            run.world.given.fold("admission", "0", facts);
            run.world.given.state.tables(&mut |table| table.rollback());
            prop_assert_eq!(run.world.given.state.indexes(), indexes);
            prop_assert_eq!(hash_of(&mut run.world.given.state), hash);
        }
    }
}

/// A million that wait cost a step no more than one: they are of few shapes.
#[test]
fn what_does_not_fit_is_looked_at_once_per_shape() {
    let mut world = World::with_gpus(1);
    for n in 0..2_000 {
        world.submit(gpus(2 + n % 3));
    }
    let waiting: &Table<_, _> = &world.given.state.waiting;
    assert_eq!(waiting.len(), 2_000);
    let mut walk = crate::order::Walk::new(waiting, "cq");
    let mut looked_at = 0;
    while walk.head().is_some() {
        walk.drop_shape();
        looked_at += 1;
    }
    assert_eq!(looked_at, 3);
    assert_eq!(world.given.now, Timestamp(1_000 * SECOND));
    assert_eq!(world.admit(), []);
}
