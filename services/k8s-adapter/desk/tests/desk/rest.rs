//! Whatever is reported, the desk comes to rest: it never says the same thing twice.

use muster_core::{Seq, WorkloadId};
use muster_proto::{Kind, Phase, WorkloadRef};
use proptest::prelude::*;

use crate::common::*;

fn phases() -> impl Strategy<Value = Phase> {
    use Phase::*;
    prop::sample::select(vec![Unspecified, Stopped, Refused, Running, Ready, Succeeded, Failed, Lost])
}

proptest! {
    #[test]
    fn comes_to_rest_after_any_reports(
        reports in prop::collection::vec((1..4u64, 0..12 as Seq, prop::option::of((1..3u32, 0..3u8, phases()))), 0..12),
        commit: bool,
        cancel: bool,
    ) {
        let mut given = if commit { committed() } else { asked() };
        if cancel {
            given.fold("queue", "0", [cancelled(2)]);
        }
        for (epoch, echo, leg) in reports {
            let legs = leg.map(|(attempt, uid, phase)| object(attempt, &format!("u{uid}"), phase));
            given = given.incoming(report(epoch, echo, legs.into_iter().collect()));
            // A leg is granted, ready and ended at most once each; then the agent and its capacity.
            given.decide_until_content("c", 5);
            prop_assert_eq!(kinds(&given), vec![]);
        }
    }

    #[test]
    fn a_leg_ends_once(echo in 0..12u64, phase in phases()) {
        let mut given = committed();
        let mut ends = 0;
        for _ in 0..3 {
            given = given.incoming(report(1, echo, vec![object(1, "u1", phase)]));
            let facts = given.decide_until_content("c", 5);
            ends += facts.iter().filter(|fact| matches!(fact, Kind::LegEnded(_))).count();
        }
        prop_assert!(ends <= 1);
    }
}

#[test]
fn a_cluster_full_of_steady_legs_is_silent() {
    let mut given = joined();
    for request in 1..20 {
        given.fold("queue", "0", [queued(request)]);
        given.fold("admission", "0", [reserved(request)]);
        let reservation = given.seq;
        given.fold("federation", "0", [offered(request, reservation, 1)]);
    }
    assert_eq!(kinds(&given), vec![]);
    assert_eq!(given.state.lifecycle.legs_in("c").count(), 19);
    let id = WorkloadId::from(&WorkloadRef { request: 3, ..W });
    assert_eq!(given.state.legs.get(&("c".to_owned(), id)).map(|leg| leg.attempt), Some(1));
}
