//! Whatever arrives, in whatever order: each command is answered exactly once.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::{At, Event, Incoming, WorkloadId};
use muster_model::Lifecycle;
use muster_proto::*;
use proptest::prelude::*;

use super::replay::replays_alike;
use super::world::*;

#[derive(Clone, Debug)]
enum Ask {
    Good,
    ForeignNamespace,
    BadManifest,
    Cancel(usize),
    Erase(usize),
    Class,
    Tenant(bool),
    Nothing,
}

#[derive(Clone, Debug)]
enum Op {
    Send {
        tenant: usize,
        key: usize,
        asks: Vec<Ask>,
    },
    Garbage(Vec<u8>),
    Lose(u64),
    /// Some wish is carried out, or fails.
    Serve(usize, bool),
    Decide,
    /// A decision is recorded after another service's fact.
    DecideLate(usize, u8),
    Life(usize, u8),
    Pass(i64),
    /// The process is killed: its inbox is gone, its wishes may have been carried out.
    Restart,
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        4 => Just(Ask::Good),
        1 => Just(Ask::ForeignNamespace),
        1 => Just(Ask::BadManifest),
        2 => (0..8usize).prop_map(Ask::Cancel),
        1 => (0..8usize).prop_map(Ask::Erase),
        1 => Just(Ask::Class),
        1 => any::<bool>().prop_map(Ask::Tenant),
        1 => Just(Ask::Nothing),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0..3usize, 0..4usize, prop::collection::vec(ask(), 0..4))
            .prop_map(|(tenant, key, asks)| Op::Send { tenant, key, asks }),
        1 => prop::collection::vec(any::<u8>(), 0..20).prop_map(Op::Garbage),
        1 => (1..4u64).prop_map(Op::Lose),
        8 => (0..8usize, prop::bool::weighted(0.1)).prop_map(|(nth, fails)| Op::Serve(nth, fails)),
        4 => Just(Op::Decide),
        1 => (0..8usize, 0..12u8).prop_map(|(nth, fact)| Op::DecideLate(nth, fact)),
        8 => (0..8usize, 0..12u8).prop_map(|(nth, fact)| Op::Life(nth, fact)),
        2 => (0..30i64).prop_map(|seconds| Op::Pass(seconds * SECOND)),
        1 => Just(Op::Restart),
    ]
}

const TENANTS: [&str; 3] = ["default", "team", "_ops"];

fn nth(world: &World, nth: usize) -> WorkloadId {
    let known: Vec<_> = world.queue.state.lifecycle().workloads().map(|(id, _)| *id).collect();
    if known.is_empty() { id(1, 0) } else { known[nth % known.len()] }
}

fn command(world: &World, ask: &Ask) -> Command {
    let kind = match ask {
        Ask::Good => submit("good"),
        Ask::ForeignNamespace => {
            command::Kind::Submit(Submit { namespace: "elsewhere".into(), ..job("foreign") })
        }
        Ask::BadManifest => command::Kind::Submit(Submit { manifest: "kind: [".into(), ..Submit::default() }),
        Ask::Cancel(n) => cancel(nth(world, *n)),
        Ask::Erase(n) => erase(nth(world, *n)),
        Ask::Class => class("high", 5),
        Ask::Tenant(takes) => tenant("team", if *takes { "research" } else { "research, lab" }),
        Ask::Nothing => return Command { kind: None },
    };
    Command { kind: Some(kind) }
}

/// Some fact of another service about a workload; it may well be void.
fn life(world: &World, nth_workload: usize, which: u8) -> Option<(&'static str, &'static str, Kind)> {
    let id = nth(world, nth_workload);
    let row = world.queue.state.lifecycle().workload(&id)?;
    let workload = Some(id.into());
    let (attempt, cluster) = (row.attempts, "c".to_owned());
    let reservation = row.reservation.unwrap_or(0);
    let ended = |outcome: Outcome| {
        let (cluster, reason) = (cluster.clone(), "Because".to_owned());
        let exit_code = Some(outcome as i32);
        Kind::LegEnded(LegEnded { workload, attempt, cluster, outcome: outcome.into(), reason, exit_code })
    };
    Some(match which {
        0 => {
            let round = row.round;
            ("admission", "0", Kind::QuotaReserved(QuotaReserved { workload, round, ..Default::default() }))
        }
        1 => (
            "admission",
            "0",
            Kind::WorkloadPreempted(WorkloadPreempted { workload, reservation, ..Default::default() }),
        ),
        2 => {
            let legs = vec![Leg { cluster, pods: vec![] }];
            let offer =
                PlacementOffered { workload, reservation, attempt: attempt + 1, legs, commit_on_grant: true };
            ("federation", "0", Kind::PlacementOffered(offer))
        }
        3 | 4 => ("desk", "c", Kind::LegGranted(LegGranted { workload, attempt, cluster, uid: "u".into() })),
        5 => (
            "federation",
            "0",
            Kind::PlacementWithdrawn(PlacementWithdrawn { workload, attempt, ..Default::default() }),
        ),
        6 => ("desk", "c", ended(Outcome::Succeeded)),
        7 => ("desk", "c", ended(Outcome::UserFailed)),
        8 => ("desk", "c", ended(Outcome::NodeFailed)),
        9 => ("desk", "c", ended(Outcome::Stopped)),
        10 => (
            "failover",
            "0",
            Kind::RecoveryPlanned(RecoveryPlanned { workload, attempt, ..Default::default() }),
        ),
        _ => (
            "queue",
            "0",
            Kind::RecoveryDeclined(RecoveryDeclined { workload, attempt, ..Default::default() }),
        ),
    })
}

fn apply_op(world: &mut World, op: &Op) {
    match op {
        Op::Send { tenant, key, asks } => {
            let commands = asks.iter().map(|ask| command(world, ask)).collect();
            let key = ["", "", "k1", "k2"][*key].to_owned();
            world.send(TENANTS[*tenant], prost::Message::encode_to_vec(&Request { commands, key }).into());
        }
        Op::Garbage(bytes) => _ = world.send("default", bytes.clone().into()),
        Op::Lose(count) => world.next += count,
        Op::Serve(nth, fails) => {
            let wishes = world.wishes();
            let Some(wish) = wishes.get(nth % wishes.len().max(1)).cloned() else { return };
            let key = wish.key();
            let answer = match fails {
                true => Incoming::Failed { key, reason: "no answer".into() },
                false => world.carry_out(wish),
            };
            world.absorb(answer);
        }
        Op::Decide => {
            let facts = world.decided();
            assert_effective(world, &facts);
            if !facts.is_empty() {
                world.fold("queue", "0", facts);
            }
        }
        Op::DecideLate(nth, which) => {
            let facts = world.decided();
            if let Some((service, partition, fact)) =
                life(world, *nth, *which).filter(|late| late.0 != "queue")
            {
                world.fold(service, partition, [fact]);
            }
            if !facts.is_empty() {
                world.fold("queue", "0", facts);
            }
        }
        Op::Life(nth, which) => {
            if let Some((service, partition, fact)) = life(world, *nth, *which) {
                world.fold(service, partition, [fact]);
            }
        }
        Op::Pass(span_us) => world.pass(*span_us),
        Op::Restart => {
            world.queue.inbox = Default::default();
            let cursor = world.cursor().0;
            for request in world.sent.clone().into_iter().filter(|request| request.seq > cursor) {
                world.absorb(Incoming::Request(request));
            }
        }
    }
}

/// No decision holds a fact that is void where nothing came in between.
fn assert_effective(world: &World, facts: &[Kind]) {
    let mut lifecycle: Lifecycle = world.queue.state.lifecycle().clone();
    for fact in facts {
        let at = At { seq: world.queue.seq + 1, time: world.queue.now };
        let event = Event { service: "queue".into(), partition: "0".into(), fact: fact.clone() };
        let verdict = lifecycle.apply(at, &event);
        assert!(verdict.is_effective(), "{verdict:?}: {fact:?}");
    }
}

/// Follows the cursor through the log: every command from the first to the last, each once.
fn answers(world: &World) -> BTreeMap<(u64, u32), &'static str> {
    let mut lifecycle = Lifecycle::default();
    let mut answers = BTreeMap::new();
    for (seq, (service, partition, time, facts)) in (1..).zip(&world.log) {
        for fact in facts {
            let before = lifecycle.cursor();
            let event = Event { service: service.clone(), partition: partition.clone(), fact: fact.clone() };
            lifecycle.apply(At { seq, time: *time }, &event);
            if lifecycle.cursor() == before {
                continue;
            }
            let (first, through, answer) = match fact {
                Kind::WorkloadQueued(fact) => (fact.request, fact.request, "queued"),
                Kind::WorkloadCancelled(fact) => (fact.request, fact.request, "cancelled"),
                Kind::CommandAccepted(fact) => (fact.request, fact.request, "accepted"),
                Kind::PolicyApplied(fact) => (fact.request, fact.request, "applied"),
                Kind::RequestsRejected(fact) if fact.tenant.is_empty() => (fact.first, fact.through, "gone"),
                Kind::RequestsRejected(fact) => (fact.first, fact.through, "rejected"),
                other => panic!("moves the cursor: {other:?}"),
            };
            let (first, through) = (first.unwrap(), through.unwrap());
            assert_eq!((first.seq, first.index), (before.seq + 1, before.index));
            for seq in first.seq..=through.seq {
                let of = of(world, seq).unwrap_or(1);
                let from = if seq == first.seq { first.index } else { 0 };
                let to = if seq == through.seq { through.index } else { of - 1 };
                for index in from..=to {
                    assert_eq!(answers.insert((seq, index), answer), None, "{seq}/{index} twice");
                }
            }
        }
    }
    answers
}

/// How many commands the queue sees in a message that was sent.
fn of(world: &World, seq: u64) -> Option<u32> {
    let request = world.sent.iter().find(|request| request.seq == seq)?;
    let commands =
        <Request as prost::Message>::decode(request.payload.clone()).map(|request| request.commands.len());
    Some(commands.unwrap_or(1).max(1) as u32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_command_is_answered_exactly_once(ops in prop::collection::vec(op(), 0..60)) {
        let mut world = World::new();
        let mut cursor = world.cursor();
        for op in &ops {
            apply_op(&mut world, op);
            prop_assert!(world.cursor() >= cursor, "the cursor went back");
            cursor = world.cursor();
        }
        replays_alike(&mut world);
        // Wishes that failed may be made again, and recovery deadlines have passed.
        world.pass(60 * SECOND);
        world.settle();
        prop_assert!(world.queue.decide_until_content("0", 1).is_empty(), "it rests");

        let answers = answers(&world);
        let told: BTreeSet<_> = world.told.iter()
            .map(|(_, rejected)| rejected.request.unwrap())
            .map(|request| (request.seq, request.index))
            .collect();
        for request in &world.sent {
            for index in 0..of(&world, request.seq).unwrap() {
                let at = (request.seq, index);
                let answer = answers.get(&at).copied();
                prop_assert!(answer.is_some_and(|answer| answer != "gone"), "{at:?} {answer:?}");
                prop_assert!(answer != Some("rejected") || told.contains(&at), "{at:?} was not told");
                prop_assert_eq!(answer == Some("queued"), world.queue.state.jobs.contains(&id(at.0, at.1)));
            }
            let whole = <Request as prost::Message>::decode(request.payload.clone()).unwrap_or_default();
            for (index, command) in whole.commands.iter().enumerate() {
                let good = matches!(&command.kind, Some(command::Kind::Submit(good)) if *good == job("good"));
                if good && request.tenant == "default" && whole.key.is_empty() {
                    prop_assert_eq!(answers[&(request.seq, index as u32)], "queued");
                }
            }
        }
        replays_alike(&mut world);
    }
}
