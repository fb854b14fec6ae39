//! What the cluster is told to hold.

use muster_core::{Outgoing, Timestamp};
use muster_proto::{self as proto, Kind, Phase, Verb};

use crate::common::*;

#[test]
fn a_create_waits_for_its_body_and_then_carries_it() {
    let given = asked();
    assert!(outbox(&given).contains(&Outgoing::FetchBody { seq: 41 }));
    let given = given.incoming(body(41));
    let desired = desired(&given).unwrap();
    let [leg] = &desired.legs[..] else { panic!("{desired:?}") };
    let spec = leg.spec.as_ref().unwrap();
    assert_eq!((leg.verb(), spec.manifest.as_ref(), spec.pods.len()), (Verb::Create, BODY, 1));
    assert_eq!((desired.seq, desired.epoch, spec.name.as_str()), (given.seq, 1, "train"));
}

#[test]
fn pods_run_on_nodes_of_the_flavor_that_they_hold_quota_of() {
    let labels = [("accelerator".to_owned(), "a100".to_owned())];
    let flavor = proto::ResourceFlavor {
        name: "gpu".into(),
        node_labels: labels.clone().into(),
        ..Default::default()
    };
    let policy = proto::PolicyApplied {
        request: Some(proto::RequestRef { seq: 1, index: 0, of: 1 }),
        policy: Some(proto::Policy { object: Some(proto::policy::Object::ResourceFlavor(flavor)) }),
        ..Default::default()
    };
    let given = joined().message("queue", "0", [Kind::PolicyApplied(policy), queued(2)]);
    let given = given.message("admission", "0", [reserved(2)]);
    let Kind::PlacementOffered(mut offer) = offered(2, given.seq, 1) else { unreachable!() };
    offer.legs[0].pods[0].flavors.insert("nvidia.com/gpu".into(), "gpu".into());
    let given = given.message("federation", "0", [Kind::PlacementOffered(offer)]).incoming(body(42));
    let spec = desired(&given).unwrap().legs.remove(0).spec.unwrap();
    assert_eq!(spec.pod_sets[0].node_selector, labels.into());
}

#[test]
fn what_was_sent_is_repeated_only_after_a_while() {
    let given = asked();
    let seq = given.seq;
    let given = given.incoming(body(41)).incoming(sent(seq)).incoming(sent(seq));
    assert_eq!(desired(&given), None);
    let later = given.now.plus_us(given.config.repeat_us);
    assert!(desired(&given.at(later)).is_some());
}

#[test]
fn a_commit_starts_the_granted_uid_and_a_cancel_removes_it() {
    let given = committed();
    let seq = given.seq;
    let leg = |given: &muster_core::harness::Given<muster_desk::Desk>| desired(given).unwrap().legs.remove(0);
    assert_eq!((leg(&given).verb(), leg(&given).uid), (Verb::Start, "u1".to_owned()));
    let given = given.incoming(sent(seq)).message("queue", "0", [cancelled(2)]);
    assert_eq!((leg(&given).verb(), leg(&given).uid), (Verb::Remove, "u1".to_owned()));
}

#[test]
fn a_stopped_ghost_is_removed_and_a_running_stranger_is_held() {
    let withdrawn = proto::PlacementWithdrawn { workload: Some(W), attempt: 1, ..Default::default() };
    let given = asked().message("federation", "0", [Kind::PlacementWithdrawn(withdrawn)]);
    let seq = given.seq;
    let late = given.incoming(report(1, 0, vec![object(1, "u1", Phase::Stopped)]));
    let [leg] = &desired(&late).unwrap().legs[..] else { panic!() };
    assert_eq!((leg.verb(), leg.uid.as_str()), (Verb::Remove, "u1"));
    assert_eq!(desired(&late_report(seq, object(1, "u1", Phase::Running))).unwrap().legs, vec![]);
    // Of an attempt unknown here: gone when nobody else can have asked for it.
    let unknown = object(2, "u2", Phase::Stopped);
    assert_eq!(desired(&late_report(seq + 1, unknown.clone())).unwrap().legs, vec![]);
    assert_eq!(desired(&late_report(seq, unknown)).unwrap().legs[0].verb(), Verb::Remove);
}

fn late_report(echo: u64, object: proto::ObservedLeg) -> muster_core::harness::Given<muster_desk::Desk> {
    let withdrawn = proto::PlacementWithdrawn { workload: Some(W), attempt: 1, ..Default::default() };
    let given = asked().message("federation", "0", [Kind::PlacementWithdrawn(withdrawn)]);
    given.incoming(report(1, echo, vec![object]))
}

#[test]
fn what_ran_in_a_cluster_declared_dead_is_removed_before_the_cluster_is_reconciled() {
    // given a dead cluster whose process still runs
    let declare = proto::CommandAccepted {
        request: Some(proto::RequestRef { seq: 2, index: 0, of: 1 }),
        command: Some(proto::command_accepted::Command::DeclareDead(proto::DeclareDead {
            cluster: "c".into(),
        })),
        ..Default::default()
    };
    let suspected = proto::ClusterSuspected { cluster: "c".into(), ..Default::default() };
    let given = committed().message("federation", "0", [Kind::ClusterSuspected(suspected)]).message(
        "queue",
        "0",
        [Kind::CommandAccepted(declare)],
    );
    let dead = proto::ClusterDeclaredDead { cluster: "c".into(), command: given.seq };
    let given = given.message("federation", "0", [Kind::ClusterDeclaredDead(dead)]);
    let seq = given.seq;
    // when it reports again, then the process goes first
    let given = given.incoming(report(1, seq, vec![object(1, "u1", Phase::Running)]));
    assert_eq!(kinds(&given), vec![]);
    assert_eq!(desired(&given).unwrap().legs[0].verb(), Verb::Remove);
    let given = given.incoming(report(1, seq, vec![]));
    assert!(matches!(&kinds(&given)[..], [Kind::ClusterReconciled(_)]));
}

#[test]
fn before_any_report_it_speaks_first_as_agents_learn_the_generation_from_it() {
    let given = desk();
    assert_eq!(desired(&given).map(|desired| desired.generation), Some(7));
    let given = given.incoming(sent(0)).at(Timestamp(1_000_001));
    assert_eq!(desired(&given), None);
}
