//! Whatever the desk asks of whatever is there: few words that must always hold.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod world;

use std::collections::BTreeMap;

use muster_plan::{Action, actions};
use muster_proto::{Phase, Verb};
use proptest::prelude::*;
use world::{World, desired, key, leg};

const PHASES: [Phase; 3] = [Phase::Stopped, Phase::Running, Phase::Succeeded];
const VERBS: [Verb; 4] = [Verb::Create, Verb::Hold, Verb::Start, Verb::Remove];

/// (phase of the object, if any; verb, if listed; which uid is named: none, the object's, another)
type Case = (Option<usize>, Option<usize>, usize);

fn world_and_wish(cases: &[Case]) -> (World, muster_proto::Desired) {
    let mut w = World::with_cpu(3000);
    let mut legs = Vec::new();
    for (request, (phase, verb, named)) in cases.iter().enumerate() {
        let uid = phase.map(|phase| w.put(key(request as u64), PHASES[phase])).unwrap_or_default();
        let uid = ["", uid.as_str(), "another"][*named];
        legs.extend(verb.map(|verb| leg(request as u64, VERBS[verb], uid)));
    }
    (w, desired(1, 1, legs))
}

proptest! {
    #[test]
    fn one_round_settles_it_and_touches_only_what_is_listed(
        cases in prop::collection::vec(
            (prop::option::of(0..3usize), prop::option::of(0..4usize), 0..3usize), 0..12)
    ) {
        let (mut w, wish) = world_and_wish(&cases);
        let before = w.seen.objects.clone();
        let plan = actions(&wish, &w.seen, &BTreeMap::new());
        for action in &plan.actions {
            w.act(action);
        }

        // Settled: nothing more to do.
        let again = actions(&wish, &w.seen, &plan.refused);
        prop_assert_eq!(again.actions, vec![]);
        prop_assert_eq!(&again.refused, &plan.refused);

        for (request, (phase, verb, named)) in cases.iter().enumerate() {
            let key = key(request as u64);
            let (was, is) = (before.get(&key), w.seen.objects.get(&key));
            match verb.map(|verb| VERBS[verb]) {
                None | Some(Verb::Hold) => prop_assert_eq!(was, is),
                Some(Verb::Create) => {
                    prop_assert!(is.is_some() != plan.refused.contains_key(&key));
                    prop_assert!(was.is_none() || was == is);
                }
                Some(Verb::Start) => {
                    let due = *phase == Some(0) && *named == 1;
                    prop_assert_eq!(w.started.iter().any(|(started, _)| *started == key), due);
                }
                Some(_) => prop_assert_eq!(is.is_none(), was.is_none() || *named != 2),
            }
        }
    }

    #[test]
    fn never_creates_more_than_fits(cpus in prop::collection::vec(1..1500i64, 0..10)) {
        let w = World::with_cpu(3000);
        let mut legs: Vec<_> = (0..cpus.len()).map(|r| leg(r as u64, Verb::Create, "")).collect();
        for (leg, cpu) in legs.iter_mut().zip(&cpus) {
            leg.spec = Some(world::spec(2, *cpu));
        }
        let plan = actions(&desired(1, 1, legs), &w.seen, &BTreeMap::new());
        let taken: i64 = plan.actions.iter().map(|action| match action {
            Action::Create { key, .. } => 2 * cpus[key.request as usize],
            _ => 0,
        }).sum();
        prop_assert!(taken <= 3000);
        prop_assert_eq!(plan.actions.len() + plan.refused.len(), cpus.len());
    }
}
