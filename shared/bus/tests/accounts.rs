//! What each user may and may not, on a real server with the configuration that this crate writes.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may fail")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::Cell;
use futures::StreamExt as _;
use muster_bus::{Bus, BusError, Incoming, Log, Outcome, Reader, Record, names};
use muster_testkit::eventually;

/// Above the 5 s of silence after which a reader gives a pull up: right after a restart the server may take one
/// from another account before that account's imports reach it.
const WAIT: Duration = Duration::from_secs(20);

fn bytes(text: &'static str) -> Bytes {
    Bytes::from_static(text.as_bytes())
}

async fn batch(reader: &mut Reader) -> Vec<Record> {
    loop {
        match tokio::time::timeout(WAIT, reader.next()).await.expect("a message").unwrap() {
            Incoming::Batch(batch) => return batch,
            Incoming::Reconnected => {}
        }
    }
}

/// Calls JetStream's API without this crate; the answer's text, `None` when there is none.
async fn api(cell: &Cell, user: &str, call: &str, body: &'static str) -> Option<String> {
    let client = outsider(cell, user).await;
    let inbox = format!("{}.api", muster_bus::inbox_prefix(user));
    let request = async_nats::Request::new().payload(body.into()).inbox(inbox);
    let answer = client.send_request(format!("$JS.API.{call}"), request).await.ok()?;
    Some(String::from_utf8_lossy(&answer.payload).into())
}

/// A plain client, as an outsider would use one.
async fn outsider(cell: &Cell, user: &str) -> async_nats::Client {
    let text = std::fs::read_to_string(&cell.files.credentials[user]).unwrap();
    let file: muster_bus::CredentialsFile = serde_json::from_str(&text).unwrap();
    async_nats::ConnectOptions::with_user_and_password(file.user, file.password)
        .request_timeout(Some(Duration::from_millis(700)))
        .connect(cell.server.url())
        .await
        .unwrap()
}

#[tokio::test]
async fn a_tenant_sends_requests_follows_its_notices_and_asks_the_ledger() {
    let cell = Cell::start().await;
    let (alice, queue, ledger) =
        tokio::join!(cell.login("acme/alice"), cell.login("queue"), cell.login("ledger"));
    // a request, acknowledged across accounts, read by the queue
    let subject = names::request("acme", "alice", "submit").unwrap();
    assert_eq!(alice.submit(&subject, bytes("run this"), Some("key 1")).await.unwrap(), 1);
    let mut requests = Reader::open(&queue, names::REQUESTS, "queue-0-0", 0).await.unwrap();
    let read = batch(&mut requests).await;
    assert_eq!((&*read[0].subject, read[0].payload.as_ref()), (subject.as_str(), b"run this".as_slice()));
    assert_eq!(read[0].headers.get(muster_bus::HEADER_KEY), Some("key 1"));
    queue.purge_below(&subject, 2).await.unwrap();
    // notices of both writers
    let mut notices = Reader::follow(&alice, names::OUT, "out-acme").await.unwrap();
    queue.notify("acme", "rejected", bytes("no")).await.unwrap();
    ledger.notify("rival", "finished", bytes("not yours")).await.unwrap();
    ledger.notify("acme", "finished", bytes("done")).await.unwrap();
    let mut got = Vec::new();
    while got.len() < 2 {
        got.extend(batch(&mut notices).await.into_iter().map(|record| record.payload));
    }
    assert_eq!(got, ["no", "done"]);
    // when it comes for more, the two are acknowledged
    assert!(tokio::time::timeout(Duration::from_millis(100), notices.next()).await.is_err());
    eventually(WAIT, || async {
        let info = api(&cell, "operator", "CONSUMER.INFO.OUT.out-acme", "").await.unwrap();
        info.contains("\"num_ack_pending\":0")
    })
    .await;
    // an ask
    let _serving = ledger
        .serve(names::ASK_LEDGER_TENANTS, Some("ledger"), |ask| async move {
            let tenant = ask.subject.rsplit('.').next().unwrap_or_default().to_owned();
            Ok(Bytes::from(format!("for {tenant}")))
        })
        .await
        .unwrap();
    let answer = alice.ask(&names::ask_ledger("acme").unwrap(), bytes("?"), WAIT).await.unwrap();
    assert_eq!(answer, "for acme");
}

#[tokio::test]
async fn a_tenant_needs_no_more_than_a_plain_nats_client() {
    let cell = Cell::start().await;
    let client = outsider(&cell, "acme/alice").await;
    let ack = client.request("muster.req.acme.alice.submit", bytes("run this")).await.unwrap();
    let ack: serde_json::Value = serde_json::from_slice(&ack.payload).unwrap();
    assert_eq!((ack["stream"].as_str(), ack["seq"].as_u64()), (Some("REQUESTS"), Some(1)));
    cell.login("ledger").await.notify("acme", "finished", bytes("done")).await.unwrap();
    let js = async_nats::jetstream::with_prefix(client, names::TENANT_API);
    let out = js.get_stream_no_info("OUT").await.unwrap();
    let consumer: async_nats::jetstream::consumer::PullConsumer = out.get_consumer("out-acme").await.unwrap();
    let mut messages = consumer.fetch().max_messages(1).messages().await.unwrap();
    let message = messages.next().await.unwrap().unwrap();
    assert_eq!(message.payload, "done");
    message.double_ack().await.unwrap();
}

#[tokio::test]
async fn a_tenant_reaches_nothing_else() {
    let cell = Cell::start().await;
    let alice = cell.login("acme/alice").await;
    let start = Instant::now();
    for subject in ["muster.evt.queue.0", "muster.req.rival.alice.submit", "muster.req.acme.bob.submit"] {
        let error = alice.submit(subject, bytes("x"), None).await.unwrap_err();
        assert!(matches!(error, BusError::Denied { .. }), "{subject}: {error}");
    }
    let error = alice.ask("muster.ask.ledger.rival", bytes("?"), WAIT).await.unwrap_err();
    assert!(matches!(error, BusError::Denied { .. }), "{error}");
    let error = Log::new(&alice).ends().await.unwrap_err();
    assert!(matches!(error, BusError::Denied { .. }), "{error}");
    let mut stolen = Reader::follow(&alice, names::OUT, "out-rival").await.unwrap();
    let error = stolen.next().await.unwrap_err();
    assert!(matches!(error, BusError::Denied { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(3), "denials come at once, not as timeouts");
    // the server's own acknowledgement sent to a subject of the log
    let client = outsider(&cell, "acme/alice").await;
    client
        .publish_with_reply("muster.req.acme.alice.submit", "muster.evt.queue.0", bytes("x"))
        .await
        .unwrap();
    client.flush().await.unwrap();
    let operator = cell.login("operator").await;
    eventually(WAIT, || async {
        let last = r#"{"last_by_subj":"muster.req.acme.alice.submit"}"#;
        let answer = api(&cell, "operator", "STREAM.MSG.GET.REQUESTS", last).await.unwrap();
        !answer.contains("\"error\"")
    })
    .await;
    assert_eq!(Log::new(&operator).last_seq().await.unwrap(), 1, "the request is stored, the log untouched");
}

#[tokio::test]
async fn services_write_their_own_facts_and_delete_nothing() {
    let cell = Cell::start().await;
    let queue = cell.login("queue").await;
    let log = Log::new(&queue);
    assert_eq!(log.publish("muster.evt.queue.0", 0, bytes("mine")).await.unwrap(), Outcome::Stored(2));
    let mut reader = Reader::open(&queue, names::EVENTS, "queue-0-0", 0).await.unwrap();
    assert_eq!(batch(&mut reader).await.len(), 2);
    assert!(log.last_on("muster.evt.queue.0").await.unwrap().is_some());
    let start = Instant::now();
    for subject in ["muster.evt.admission.0", names::CELL] {
        let error = log.publish(subject, 0, bytes("not mine")).await.unwrap_err();
        assert!(matches!(error, BusError::Denied { .. }), "{subject}: {error}");
    }
    let error = Reader::open(&queue, names::EVENTS, "admission-0-0", 0).await.err().unwrap();
    assert!(matches!(error, BusError::Denied { .. }), "{error}");
    assert!(start.elapsed() < Duration::from_secs(2), "denials come at once");
    for call in ["STREAM.DELETE.EVENTS", "STREAM.PURGE.EVENTS", "STREAM.UPDATE.EVENTS", "STREAM.CREATE.MINE"]
    {
        assert_eq!(api(&cell, "queue", call, "{}").await, None, "{call}");
    }
    assert_eq!(log.last_seq().await.unwrap(), 2);
}

#[tokio::test]
async fn a_cluster_hears_its_desk_reports_and_answers_for_logs() {
    let mut cell = Cell::start().await;
    let (agent, desk, federation, ledger) = tokio::join!(
        cell.login("cluster/west"),
        cell.login("desk"),
        cell.login("federation"),
        cell.login("ledger")
    );
    // orders
    let mut orders = Reader::follow(&agent, names::CLUSTERS, "agent-west-0").await.unwrap();
    desk.send_to_cluster("east", bytes("not yours")).await.unwrap();
    for order in ["first", "second"] {
        desk.send_to_cluster("west", bytes(order)).await.unwrap();
        assert_eq!(batch(&mut orders).await[0].payload, order);
    }
    // reports reach the cluster's desk and federation
    agent.send_from_cluster("west", bytes("alive")).await.unwrap();
    let mut desk_reads = Reader::open(&desk, names::CLUSTERS, "desk-west-0", 0).await.unwrap();
    let mut federation_reads = Reader::open(&federation, names::CLUSTERS, "federation-0-0", 0).await.unwrap();
    for reader in [&mut desk_reads, &mut federation_reads] {
        let read = batch(reader).await;
        assert_eq!((&*read[0].subject, read[0].payload.as_ref()), ("muster.from.west", b"alive".as_slice()));
    }
    agent.send_signal("west", "nodes", bytes("s")).await.unwrap();
    // logs
    let ask = names::ask_agent("west").unwrap();
    let _serving = agent.serve(&ask, None, |_| async { Ok(bytes("a log line")) }).await.unwrap();
    assert_eq!(ledger.ask(&ask, bytes("?"), WAIT).await.unwrap(), "a log line");
    // and nothing else
    for result in [
        agent.send_from_cluster("east", bytes("x")).await,
        agent.send_to_cluster("west", bytes("x")).await,
        agent.send_signal("east", "nodes", bytes("x")).await,
        agent.submit("muster.req.acme.alice.submit", bytes("x"), None).await,
    ] {
        assert!(matches!(result, Err(BusError::Denied { .. })), "{result:?}");
    }
    let mut stolen = Reader::follow(&agent, names::CLUSTERS, "agent-east-0").await.unwrap();
    assert!(matches!(stolen.next().await, Err(BusError::Denied { .. })));
    // the server's death is nothing to either side
    cell.server.kill();
    assert!(tokio::time::timeout(Duration::from_millis(300), orders.next()).await.is_err());
    cell.server.restart();
    desk.send_to_cluster("west", bytes("third")).await.unwrap();
    assert_eq!(batch(&mut orders).await[0].payload, "third");
}

#[tokio::test]
async fn bodies_are_stored_read_and_erased_from_the_disk() {
    let cell = Cell::start().await;
    let (queue, desk, operator) =
        tokio::join!(cell.login("queue"), cell.login("desk"), cell.login("operator"));
    let secret = "the-secret-of-the-manifest";
    let seq = queue.store_body("acme", "7/0", Bytes::from(secret)).await.unwrap();
    let body = desk.fetch_body(seq).await.unwrap().unwrap();
    assert_eq!((body.payload.as_ref(), &*body.subject), (secret.as_bytes(), "muster.body.acme"));
    assert_eq!(body.headers.get(muster_bus::HEADER_REQUEST), Some("7/0"));
    assert!(on_disk(&cell, secret), "the test looks where the bytes are");
    // Only who accepts the command to erase, and operators, may.
    assert!(matches!(desk.erase_body(seq).await, Err(BusError::Denied { .. })));
    assert!(queue.erase_body(seq).await.unwrap());
    assert!(!operator.erase_body(seq).await.unwrap());
    assert_eq!(desk.fetch_body(seq).await.unwrap(), None);
    assert!(!on_disk(&cell, secret));
}

fn on_disk(cell: &Cell, needle: &str) -> bool {
    let mut folders = vec![cell.server.dir().join("data")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if std::fs::read(&path)
                .unwrap_or_default()
                .windows(needle.len())
                .any(|w| w == needle.as_bytes())
            {
                return true;
            }
        }
    }
    false
}

#[tokio::test]
async fn operators_ask_replay_and_are_told_what_went_wrong() {
    let cell = Cell::start().await;
    let (operator, queue) = tokio::join!(cell.login("operator"), cell.login("queue"));
    let ask = names::ask("queue", "0").unwrap();
    let error = operator.ask(&ask, bytes("why"), WAIT).await.unwrap_err();
    assert!(matches!(error, BusError::NobodyAnswers { .. }), "{error}");
    let _serving = queue
        .serve(&ask, None, |ask| async move {
            match ask.payload.as_ref() {
                b"large" => Ok(vec![0; 2 << 20].into()),
                b"bad" => Err("no such\nworkload".to_owned()),
                _ => Ok(bytes("because")),
            }
        })
        .await
        .unwrap();
    assert_eq!(operator.ask(&ask, bytes("why"), WAIT).await.unwrap(), "because");
    let error = operator.ask(&ask, bytes("bad"), WAIT).await.unwrap_err().to_string();
    assert_eq!(error, "muster.ask.queue.0 answered: no such workload");
    let error = operator.ask(&ask, bytes("large"), WAIT).await.unwrap_err().to_string();
    assert!(error.contains("2097152 bytes, more than"), "{error}");
    let mut replay = Reader::scan(&operator, names::EVENTS, None, 0).await.unwrap();
    assert_eq!(batch(&mut replay).await[0].payload, "generation 1");
    Log::new(&queue).publish("muster.evt.queue.0", 0, bytes("q")).await.unwrap();
    let mut some = Reader::scan(&operator, names::EVENTS, Some("muster.evt.queue.*"), 0).await.unwrap();
    assert_eq!(batch(&mut some).await[0].payload, "q");
    operator.submit("muster.req._ops.operator.apply", bytes("x"), None).await.unwrap();
}

#[tokio::test]
async fn files_are_the_owners_alone_and_a_wrong_password_is_refused_at_once() {
    let cell = Cell::start().await;
    for file in cell.files.credentials.values().chain([&cell.files.config]) {
        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", file.display());
    }
    let credentials = muster_bus::Credentials::Password { user: "queue".into(), password: "guess".into() };
    let options = muster_bus::Options::new(cell.server.url(), "test").with(credentials);
    let result = tokio::time::timeout(WAIT, Bus::connect(&options)).await.expect("does not wait for ever");
    assert!(matches!(result.err().unwrap(), BusError::Unauthorized { .. }));
}

#[tokio::test]
async fn a_new_tenant_and_cluster_come_in_without_a_restart() {
    let mut cell = Cell::start().await;
    let queue = cell.login("queue").await;
    let mut requests = Reader::open(&queue, names::REQUESTS, "queue-0-0", 0).await.unwrap();
    let mut layout = common::layout();
    let principals = vec!["carol".to_owned()];
    layout.tenants.push(muster_bus::layout::TenantLayout { name: "newco".into(), principals });
    layout.clusters.push(muster_bus::layout::ClusterLayout { name: "north".into(), agents: 1 });
    let desk = layout.services.iter_mut().find(|service| service.name == "desk").unwrap();
    desk.partitions.push("north".into());
    let pid = cell.server.pid();
    cell.change(&layout).await;
    // then the new ones work, and those who were connected go on
    let carol = cell.login("newco/carol").await;
    carol.submit("muster.req.newco.carol.submit", bytes("hello"), None).await.unwrap();
    assert_eq!(batch(&mut requests).await[0].payload, "hello");
    let (agent, desk) = tokio::join!(cell.login("cluster/north"), cell.login("desk"));
    let mut orders = Reader::follow(&agent, names::CLUSTERS, "agent-north-0").await.unwrap();
    desk.send_to_cluster("north", bytes("first")).await.unwrap();
    assert_eq!(batch(&mut orders).await[0].payload, "first");
    assert_eq!(cell.server.pid(), pid);
}
