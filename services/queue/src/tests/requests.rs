use muster_core::{Incoming, Outgoing};
use muster_proto::*;

use super::world::*;

/// The only rejection that was sent, as one text.
fn only_told(world: &World) -> String {
    assert_eq!(world.told.len(), 1, "{:?}", world.told);
    let faults = world.told[0].1.faults.iter().map(|fault| format!("{} {}", fault.field, fault.message));
    faults.collect::<Vec<_>>().join("\n")
}

fn rejected(facts: &[Kind]) -> &RequestsRejected {
    match facts {
        [Kind::RequestsRejected(fact)] => fact,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_job_is_queued_once_its_body_is_stored() {
    let mut world = World::new();
    let seq = world.ask([submit("train")]);
    assert_eq!(world.reason(id(seq, 0)), Some("WaitingForBody"));
    assert!(world.decided().is_empty(), "a fact without a body would name nothing");
    world.serve();
    let facts = world.settle();
    let [Kind::WorkloadQueued(fact)] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!(fact.request, Some(RequestRef { seq, index: 0, of: 1 }));
    assert_eq!(fact.workload, Some(id(seq, 0).into()));
    assert_eq!((fact.tenant.as_str(), fact.namespace.as_str()), ("default", "default"));
    assert_eq!((fact.name.as_str(), fact.kind.as_str(), fact.local_queue.as_str()), ("train", "Job", "main"));
    assert_eq!((fact.max_retries, fact.recovery_deadline_us), (1, 10 * SECOND));
    assert_eq!(fact.pod_sets[0].requests["cpu"], 500);
    assert_eq!(fact.body.as_ref().unwrap().seq, 1);
    assert!(!format!("{fact:?}").contains("hush"), "nothing of env enters the log");
    assert_eq!(world.bodies[0].1, job("train").manifest);
    assert_eq!(world.cursor(), (seq, 0));
    assert_eq!(world.reason(id(seq, 0)), None, "admission holds it now");
}

#[test]
fn submits_fields_win_over_the_manifest() {
    let mut world = World::new();
    let fields =
        Submit { max_retries: Some(5), queue: "other".into(), name: "renamed".into(), ..job("train") };
    world.ask([command::Kind::Submit(fields)]);
    let facts = world.settle();
    let [Kind::WorkloadQueued(fact)] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!((fact.max_retries, fact.local_queue.as_str(), fact.name.as_str()), (5, "other", "renamed"));
}

#[test]
fn nothing_overtakes_a_request_whose_body_is_not_stored() {
    let mut world = World::new();
    world.ask([submit("a")]);
    world.ask([submit("b")]);
    let wishes = world.wishes();
    assert_eq!(wishes.len(), 2);
    let second = world.carry_out(wishes[1].clone());
    world.absorb(second);
    assert!(world.decided().is_empty());
    assert_eq!(world.reason(id(2, 0)), Some("WaitingForTurn"));
    assert_eq!(names(&world.settle()), ["WorkloadQueued", "WorkloadQueued"]);
    assert_eq!(world.bodies.len(), 2, "a body that is stored is not stored again");
}

#[test]
fn a_sender_is_told_every_fault_before_the_rejection_is_recorded() {
    let mut world = World::new();
    let manifest = "{apiVersion: batch/v1, kind: Job, metadata: {name: Bad_Name}, spec: {backoffLimit: -1, \
                    template: {spec: {containers: []}}}}";
    world.ask([command::Kind::Submit(Submit { manifest: manifest.into(), ..Submit::default() })]);
    assert!(world.decided().is_empty(), "a crash now must not lose the notice");
    let facts = world.settle();
    let told = only_told(&world);
    for field in ["metadata.name", "backoffLimit", "queue-name"] {
        assert!(told.contains(field), "{field} in {told}");
    }
    let fact = rejected(&facts);
    assert_eq!((fact.count, fact.tenant.as_str()), (1, "default"));
    assert!(fact.reasons[0].starts_with("InvalidManifest: "), "{:?}", fact.reasons);
    assert!(world.bodies.is_empty());
}

#[test]
fn broken_messages_are_rejected_as_a_whole_and_the_next_is_served() {
    let mut world = World::new();
    for (payload, code) in [
        (bytes::Bytes::from_static(b"\xff\xff\xff"), "MalformedRequest"),
        (bytes::Bytes::new(), "EmptyRequest"),
        (vec![0u8; 256 * 1024 + 1].into(), "RequestTooLarge"),
        (Request { commands: vec![Command { kind: None }; 1_001], key: String::new() }, "TooManyCommands")
            .encode(),
        (Request { commands: vec![Command { kind: None }], key: String::new() }, "UnknownCommand").encode(),
        (encoded(&"k".repeat(201), [submit("a")]), "InvalidKey"),
        (encoded("a\nb", [submit("a")]), "InvalidKey"),
    ] {
        world.told.clear();
        let seq = world.send("default", payload);
        let facts = world.settle();
        assert!(only_told(&world).contains(code), "{code}: {}", only_told(&world));
        assert_eq!(rejected(&facts).through.unwrap().seq, seq);
        assert_eq!(world.cursor(), (seq, 0));
    }
    world.ask([submit("good")]);
    assert_eq!(names(&world.settle()), ["WorkloadQueued"]);
}

trait Encode {
    fn encode(self) -> (bytes::Bytes, &'static str);
}

impl Encode for (Request, &'static str) {
    fn encode(self) -> (bytes::Bytes, &'static str) {
        (prost::Message::encode_to_vec(&self.0).into(), self.1)
    }
}

#[test]
fn a_key_in_the_header_counts_and_must_not_differ_from_the_field() {
    let mut world = World::new();
    for (seq, field) in [(1, ""), (2, "other")] {
        let payload = encoded(field, [submit("a")]);
        let (tenant, principal) = ("default".to_owned(), "ada".to_owned());
        let key = Some("mine".to_owned());
        let request = muster_core::RequestMessage { seq, tenant, principal, time: START, key, payload };
        world.absorb(Incoming::Request(request));
    }
    let facts = world.settle();
    assert_eq!(names(&facts), ["WorkloadQueued", "RequestsRejected"]);
    let Kind::WorkloadQueued(fact) = &facts[0] else { panic!() };
    assert_eq!(fact.key, "mine");
    assert!(only_told(&world).contains("InvalidKey"));
}

#[test]
fn a_request_sent_again_makes_no_second_workload_for_8_days() {
    let mut world = World::new();
    world.send("default", encoded("nightly", [submit("a"), submit("b")]));
    world.send("default", encoded("nightly", [submit("a")]));
    let facts = world.settle();
    assert_eq!(names(&facts), ["WorkloadQueued", "WorkloadQueued", "RequestsRejected"]);
    assert!(only_told(&world).contains(&format!("AlreadyQueued: this key made {}", id(1, 0))));
    world.pass(8 * 86_400 * SECOND);
    world.send("default", encoded("nightly", [submit("a")]));
    assert_eq!(names(&world.settle()), ["WorkloadQueued"]);
    assert_eq!(world.queue.state.keys.len(), 1);
}

#[test]
fn a_key_is_a_tenants_own() {
    let mut world = World::new();
    world.send("_ops", encoded("", [tenant("team", "research")]));
    world.send("default", encoded("k", [submit("a")]));
    let fields = Submit { namespace: "research".into(), ..job("a") };
    world.send("team", encoded("k", [command::Kind::Submit(fields)]));
    assert_eq!(names(&world.settle()), ["PolicyApplied", "WorkloadQueued", "WorkloadQueued"]);
}

#[test]
fn old_keys_are_dropped() {
    let mut world = World::new();
    for n in 0..20 {
        world.send("default", encoded(&format!("k{n}"), [submit("a")]));
    }
    world.settle();
    assert_eq!(world.queue.state.keys.len(), 20);
    world.pass(9 * 86_400 * SECOND);
    world.ask([submit("b"), submit("c")]);
    world.settle();
    assert_eq!(world.queue.state.keys.len(), 0);
}

#[test]
fn only_operators_change_policies() {
    let mut world = World::new();
    world.ask([class("high", 100)]);
    world.ask([command::Kind::DeclareDead(DeclareDeadRequest { cluster: "c".into() })]);
    let facts = world.settle();
    assert_eq!(rejected(&facts).count, 2);
    assert!(world.told.iter().all(|told| told.1.faults[0].message.starts_with("OperatorsOnly")));
    world.send("_ops", encoded("", [class("high", 100)]));
    let facts = world.settle();
    let [Kind::PolicyApplied(fact)] = &facts[..] else { panic!("{facts:?}") };
    assert_eq!((fact.source.as_str(), fact.principal.as_str()), ("policies.yaml", "ada"));
}

#[test]
fn a_namespace_belongs_to_one_tenant() {
    let mut world = World::new();
    world.send("team", encoded("", [submit("a")]));
    assert_eq!(names(&world.settle()), ["RequestsRejected"]);
    assert!(only_told(&world).contains("ForeignNamespace: tenant team owns no namespace"));

    world.send("_ops", encoded("", [tenant("team", "research, default")]));
    world.send("team", encoded("", [submit("a")]));
    world.ask([submit("b")]);
    assert_eq!(names(&world.settle()), ["PolicyApplied", "WorkloadQueued", "RequestsRejected"]);

    world.told.clear();
    world.send("_ops", encoded("", [tenant("other", "mine, research")]));
    assert_eq!(names(&world.settle()), ["RequestsRejected"]);
    assert!(only_told(&world).contains("NamespaceTaken: it belongs to tenant team"));
}

#[test]
fn a_policy_counts_for_the_requests_after_it_in_the_same_message() {
    let mut world = World::new();
    world.send("_ops", encoded("", [class("high", 100), tenant("team", "x")]));
    let fields = Submit { priority_class: "high".into(), ..job("a") };
    world.ask([command::Kind::Submit(fields.clone())]);
    let facts = world.settle();
    let queued = facts.iter().find_map(|fact| match fact {
        Kind::WorkloadQueued(fact) => Some(fact),
        _ => None,
    });
    assert_eq!(queued.unwrap().priority, 100);
    assert_eq!(world.queue.state.owner_of("x"), Some("team"));
    let fields = Submit { priority_class: "hihg".into(), ..fields };
    world.told.clear();
    world.ask([command::Kind::Submit(fields)]);
    assert_eq!(names(&world.settle()), ["RequestsRejected"]);
    assert!(only_told(&world).contains("UnknownPriorityClass: no such WorkloadPriorityClass; known: high"));
}

#[test]
fn a_policy_that_aliases_blow_up_is_rejected() {
    let name =
        |n: usize| format!("{}{n}/{}", "a".repeat(240).replace("aaaaaaaaaa", "aaaaaaaaa."), "b".repeat(60));
    let mut text = String::from(
        "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: big}\nspec:\n  namespaceSelector: {}\n  resourceGroups:\n",
    );
    for group in 0..3 {
        let names: Vec<String> = (0..64).map(|n| name(group * 64 + n)).collect();
        text += &format!("  - coveredResources: [{}]\n    flavors:\n", names.join(", "));
        let quotas: Vec<String> =
            names.iter().map(|name| format!("{{name: {name}, nominalQuota: 1}}")).collect();
        text += &format!("    - {{name: f{group}, resources: &r{group} [{}]}}\n", quotas.join(", "));
        for flavor in 1..6 {
            text += &format!("    - {{name: f{group}-{flavor}, resources: *r{group}}}\n");
        }
    }
    let mut world = World::new();
    world.send("_ops", encoded("", [apply(&text)]));
    assert_eq!(names(&world.settle()), ["RequestsRejected"]);
    assert!(only_told(&world).contains("PolicyTooLarge"), "{}", only_told(&world));
}

#[test]
fn a_workload_is_cancelled_by_its_own_tenant_or_an_operator() {
    let mut world = World::new();
    world.ask([submit("a"), submit("b")]);
    world.settle();
    world.send("team", encoded("", [cancel(id(1, 0))]));
    world.ask([cancel(id(9, 9))]);
    assert!(world.settle().iter().all(|fact| matches!(fact, Kind::RequestsRejected(_))));
    assert!(world.told.iter().all(|told| told.1.faults[0].message.starts_with("UnknownWorkload")));
    world.ask([cancel(id(1, 0))]);
    world.send("_ops", encoded("", [cancel(id(1, 1))]));
    let facts = world.settle();
    let kinds = names(&facts);
    assert_eq!(kinds.iter().filter(|name| *name == "WorkloadCancelled").count(), 2);
    assert_eq!(kinds.iter().filter(|name| *name == "WorkloadFinished").count(), 2);
    assert_eq!(world.reason(id(1, 0)), Some("Cancelled"));
    world.told.clear();
    world.ask([cancel(id(1, 0))]);
    world.settle();
    assert!(only_told(&world).contains("AlreadyOver"));
}

#[test]
fn submit_and_cancel_twice_in_one_message() {
    let mut world = World::new();
    let seq = world.next;
    world.ask([submit("a"), cancel(id(seq, 0)), cancel(id(seq, 0))]);
    let facts = world.settle();
    assert_eq!(names(&facts)[..2], ["WorkloadQueued", "WorkloadCancelled"]);
    assert_eq!(facts.iter().filter(|fact| matches!(fact, Kind::RequestsRejected(_))).count(), 1);
    assert_eq!(world.cursor(), (seq, 0));
}

#[test]
fn a_gap_in_requests_is_passed_over() {
    let mut world = World::new();
    world.ask([submit("a")]);
    world.next = 5;
    world.ask([submit("b")]);
    let facts = world.settle();
    assert_eq!(names(&facts), ["WorkloadQueued", "RequestsRejected", "WorkloadQueued"]);
    assert_eq!(rejected(&facts[1..2]).count, 3);
    assert_eq!(world.cursor(), (5, 0));
}

#[test]
fn the_rest_of_a_message_that_vanished_is_passed_over() {
    let mut world = World::new();
    world.ask([submit("a"), submit("b")]);
    world.serve();
    let facts = world.decided();
    world.fold("queue", "0", facts[..1].to_vec());
    assert_eq!(world.cursor(), (0, 1));
    world.queue.inbox = Default::default();
    world.next = 3;
    world.ask([submit("c")]);
    assert_eq!(names(&world.settle()), ["RequestsRejected", "WorkloadQueued"]);
    assert_eq!(world.cursor(), (3, 0));
}

#[test]
fn rejections_in_a_row_are_summed_up_and_ten_a_minute_have_reasons() {
    let mut world = World::new();
    for _ in 0..25 {
        world.send("default", bytes::Bytes::new());
    }
    let facts = world.settle();
    let summed: u32 = facts.iter().map(|fact| rejected(std::slice::from_ref(fact)).count).sum();
    let reasons: usize = facts.iter().map(|fact| rejected(std::slice::from_ref(fact)).reasons.len()).sum();
    assert_eq!((summed, reasons, facts.len(), world.told.len()), (25, 10, 1, 25));
    world.send("default", bytes::Bytes::new());
    assert!(rejected(&world.settle()).reasons.is_empty());
    world.send("team", bytes::Bytes::new());
    assert_eq!(rejected(&world.settle()).reasons, ["EmptyRequest: commands"]);
    world.pass(60 * SECOND);
    world.send("default", bytes::Bytes::new());
    assert_eq!(rejected(&world.settle()).reasons.len(), 1);
}

#[test]
fn a_decision_is_bounded() {
    let mut world = World::new();
    world.ask((0..250).map(|n| submit(&format!("j{n}"))));
    while world.serve() {}
    assert!(world.decided().len() <= 200);
    assert_eq!(world.settle().len(), 250);
    assert_eq!(world.cursor(), (1, 0));
}

#[test]
fn a_wish_that_failed_is_made_again_after_a_second() {
    let mut world = World::new();
    world.ask([submit("a")]);
    let key = world.wishes()[0].key();
    world.absorb(Incoming::Failed { key, reason: "no answer".into() });
    assert!(world.wishes().is_empty());
    assert_eq!(world.wake(), Some(START.plus_us(SECOND)));
    world.pass(SECOND);
    assert_eq!(names(&world.settle()), ["WorkloadQueued"]);
}

#[test]
fn a_body_that_no_fact_names_is_deleted() {
    let mut world = World::new();
    world.ask([submit("a")]);
    world.serve();
    // Another replica was faster, with a body of its own.
    let mut facts = world.decided();
    let Kind::WorkloadQueued(fact) = &mut facts[0] else { panic!() };
    fact.body = Some(BodyRef { seq: 99, ..BodyRef::default() });
    world.fold("queue", "0", facts);
    assert_eq!(world.wishes(), [Outgoing::DeleteBody { seq: 1 }]);
    assert!(world.settle().is_empty());
    // The same, when the answer comes later still.
    let body = BodyRef { seq: 2, ..BodyRef::default() };
    world.absorb(Incoming::BodyStored { request: 1, index: 0, body });
    world.absorb(Incoming::BodyStored {
        request: 1,
        index: 0,
        body: BodyRef { seq: 99, ..BodyRef::default() },
    });
    world.settle();
    assert_eq!(world.deleted, [1, 2]);
}

#[test]
fn a_manifest_is_erased_when_its_workload_is_over() {
    let mut world = World::new();
    world.ask([submit("a")]);
    world.ask([erase(id(1, 0))]);
    assert_eq!(names(&world.settle()), ["WorkloadQueued", "CommandAccepted"]);
    assert!(world.deleted.is_empty(), "it may be placed yet");
    world.ask([erase(id(1, 0)), cancel(id(1, 0))]);
    let facts = world.settle();
    assert!(only_told(&world).contains("AlreadyErased"));
    assert_eq!(names(&facts).last().unwrap(), "BodyErased");
    assert_eq!(world.deleted, [1]);
    assert!(world.wishes().is_empty());
    assert!(world.queue.inbox.deleted.is_empty(), "the inbox forgets what is recorded");
}

#[test]
fn only_a_suspected_cluster_is_declared_dead() {
    let mut world = World::new();
    let dead = || encoded("", [command::Kind::DeclareDead(DeclareDeadRequest { cluster: "c".into() })]);
    world.send("_ops", dead());
    world.settle();
    assert!(only_told(&world).contains("UnknownCluster"));
    world.fold(
        "desk",
        "c",
        [Kind::ClusterJoined(ClusterJoined { cluster: "c".into(), ..Default::default() })],
    );
    world.send("_ops", dead());
    world.settle();
    assert!(world.told[1].1.faults[0].message.starts_with("NotSuspected"));
    let suspected = ClusterSuspected { cluster: "c".into(), ..ClusterSuspected::default() };
    world.fold("federation", "0", [Kind::ClusterSuspected(suspected)]);
    world.send("_ops", dead());
    assert_eq!(names(&world.settle()), ["CommandAccepted"]);
    assert!(world.queue.state.lifecycle().cluster("c").unwrap().oath.is_some());
}

#[test]
fn the_body_of_a_workload_of_an_earlier_generation_is_not_deleted() {
    // given a body stored here, and its workload queued
    let mut world = World::new();
    world.ask([submit("a")]);
    world.serve();
    let facts = world.decided();
    world.queue.fold("queue", "0", facts);
    // when a new generation starts before the queue looks at what it has stored
    let started = GenerationStarted { generation: 8, replaces: GENERATION, ..Default::default() };
    world.fold("cell", "0", [Kind::GenerationStarted(started)]);
    // then the body stays
    assert_eq!(world.wishes(), vec![]);
}
