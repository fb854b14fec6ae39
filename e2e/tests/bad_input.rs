//! What outsiders may send: each wrong request is rejected with every reason, and the services go on.

use std::time::Duration;

use anyhow::{Result, bail};
use bytes::Bytes;
use muster_bus::{Bus, Incoming, Reader, names};
use muster_e2e::{Cell, Setup, foreign::notices, manifest};
use muster_proto::{Cancel, Command, EraseRequest, Rejected, Request, Submit, WorkloadRef, command};
use prost::Message as _;

/// A tenant's user that speaks bytes.
struct Outsider {
    bus: Bus,
    notices: Reader,
    heard: Vec<Rejected>,
}

impl Outsider {
    async fn of(cell: &Cell) -> Result<Self> {
        let bus = cell.connect("default/user").await?;
        Ok(Self { notices: notices(&bus).await?, bus, heard: Vec::new() })
    }

    async fn send(&self, payload: Vec<u8>) -> Result<u64> {
        let subject = names::request("default", "user", "submit")?;
        Ok(self.bus.submit(&subject, payload.into(), None).await?)
    }

    /// Every fault that was found in the request of this sequence, as one text.
    async fn rejected(&mut self, request: u64) -> Result<String> {
        loop {
            let of = |one: &Rejected| one.request.as_ref().is_some_and(|at| at.seq == request);
            if let Some(found) = self.heard.iter().find(|one| of(one)) {
                let faults = found.faults.iter();
                return Ok(faults.map(|f| format!("{} ({}): {}\n", f.field, f.value, f.message)).collect());
            }
            match tokio::time::timeout(Duration::from_secs(30), self.notices.next()).await {
                Ok(Ok(Incoming::Batch(records))) => {
                    for record in records {
                        self.heard.push(Rejected::decode(record.payload)?);
                    }
                }
                Ok(Ok(Incoming::Reconnected)) => {}
                Ok(Err(error)) => bail!("{error}"),
                Err(_) => bail!("no notice about request {request}; heard {:?}", self.heard),
            }
        }
    }
}

fn request(commands: impl IntoIterator<Item = command::Kind>) -> Vec<u8> {
    let commands = commands.into_iter().map(|kind| Command { kind: Some(kind) }).collect();
    Request { commands, key: String::new() }.encode_to_vec()
}

fn submit(manifest: &str) -> command::Kind {
    let manifest = Bytes::copy_from_slice(manifest.as_bytes());
    command::Kind::Submit(Submit { manifest, namespace: "default".to_owned(), ..Submit::default() })
}

/// What is sent, and words that its rejection must hold, all of them.
fn wrong() -> Vec<(&'static str, Vec<u8>, Vec<&'static str>)> {
    let job = |from: &str, to: &str| {
        let good = manifest::job("good", "default", "1", "true");
        assert!(good.contains(from), "{from}");
        request([submit(&good.replace(from, to))])
    };
    let long = "x".repeat(300);
    let nowhere = Some(WorkloadRef { generation: 1, request: 999_999, index: 0 });
    vec![
        ("no protobuf", b"\xff\xfe\xfd this is no protobuf".to_vec(), vec!["protobuf"]),
        ("a cut message", job("true", "true")[..40].to_vec(), vec!["protobuf"]),
        ("nothing", Vec::new(), vec![]),
        (
            "a command without a kind",
            Request { commands: vec![Command::default()], key: String::new() }.encode_to_vec(),
            vec![],
        ),
        ("no YAML", request([submit("{[}")]), vec![]),
        ("a list", request([submit("[1, 2]")]), vec![]),
        ("an unknown kind", job("kind: Job", "kind: Jbo"), vec!["kind", "Jbo"]),
        ("a wrong type", job("backoffLimit: 0", "backoffLimit: many"), vec!["backoffLimit"]),
        ("a negative quantity", job("cpu: \"1\"", "cpu: \"-1\""), vec!["cpu", "-1"]),
        ("an absurd quantity", job("cpu: \"1\"", "cpu: \"1e30\""), vec!["cpu", "1e30"]),
        ("no quantity", job("cpu: \"1\"", "cpu: lots"), vec!["cpu", "lots"]),
        (
            "a name beyond Kubernetes' limits",
            job("name: good", &format!("name: {long}")),
            vec!["metadata.name"],
        ),
        (
            "a name of other letters",
            job("name: good", "name: \"Good_Name!\""),
            vec!["metadata.name", "Good_Name!"],
        ),
        (
            "several faults at once",
            request([submit(
                &manifest::job("Good_Name!", "default", "-1", "true")
                    .replace("backoffLimit: 0", "backoffLimit: -3"),
            )]),
            vec!["metadata.name", "backoffLimit", "cpu"],
        ),
        (
            "a cancel of nothing",
            request([command::Kind::Cancel(Cancel { workload: nowhere, reason: String::new() })]),
            vec![],
        ),
        ("an erase of nothing", request([command::Kind::Erase(EraseRequest { workload: nowhere })]), vec![]),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wrong_request_is_rejected_with_its_reasons_and_nothing_falls_over() {
    let cell = Cell::start(&Setup::default()).unwrap();
    let before = cell.processes().unwrap();
    let mut outsider = Outsider::of(&cell).await.unwrap();
    let mut sent = Vec::new();
    for (what, payload, words) in wrong() {
        sent.push((what, outsider.send(payload).await.unwrap(), words));
    }
    for (what, request, words) in sent {
        let faults = outsider.rejected(request).await.unwrap_or_else(|error| panic!("{what}: {error:#}"));
        println!("{what}:\n{faults}");
        assert!(!faults.is_empty(), "{what}: rejected without a reason");
        for word in words {
            assert!(faults.contains(word), "{what}: {word:?} is not in {faults}");
        }
    }

    // One good command among bad ones is taken.
    let good = manifest::job("among-bad", "default", "1", "true");
    let mixed = request([submit("{["), submit(&good), submit("[]")]);
    let request = outsider.send(mixed).await.unwrap();
    assert!(!outsider.rejected(request).await.unwrap().is_empty());
    let done =
        cell.reach("among-bad", "Succeeded").or_else(|_| cell.reach("among-bad", "Succeeded")).unwrap();
    assert!(done["id"].as_str().unwrap().ends_with(&format!("-{request}-1")), "{done}");
    assert_eq!(cell.processes().unwrap(), before, "a process was started anew");
    cell.run(&["replay", "--verify"]).unwrap().ok().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_large_or_not_allowed_is_refused_by_the_server() {
    let cell = Cell::start(&Setup::default()).unwrap();
    let outsider = Outsider::of(&cell).await.unwrap();
    let large = manifest::job("large", "default", "1", &format!("true # {}", "x".repeat(300 << 10)));
    let error = outsider.send(request([submit(&large)])).await.unwrap_err().to_string();
    assert!(error.contains("size") || error.contains("more than"), "{error}");

    let subject = names::request("default", "somebody-else", "submit").unwrap();
    let other = outsider.bus.submit(&subject, request([submit("{}")]).into(), None).await;
    assert!(other.unwrap_err().to_string().contains("not permitted"));

    // The command line says it before anything is sent.
    let said = cell.run_with(&["submit", "-f", "-"], &large).unwrap();
    assert!(said.ended(4).is_ok() && said.err.contains("256 KiB"), "{said:?}");
    let bad = manifest::job("Bad_Name", "default", "-1", "true");
    let said = cell.run_with(&["submit", "-f", "-"], &bad).unwrap();
    said.ended(4).unwrap();
    assert!(said.err.contains("metadata.name") && said.err.contains("cpu"), "{}", said.err);
}
