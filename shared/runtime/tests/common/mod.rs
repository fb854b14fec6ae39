//! A small service and what runs it in tests.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod toy;

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use muster_bus::layout::{Reads, ServiceLayout, TenantLayout};
use muster_bus::{Bus, Incoming, Layout, Log, Options, Reader, names, provision};
use muster_core::{Record, Service, Timestamp};
use muster_proto::{Envelope, Fact, GenerationStarted, Kind, Writer};
use muster_runtime::{Answer, HostConfig, Question, RunError, Shutdown, run};
use muster_testkit::NatsServer;
use prost::Message;
use toy::{Toy, ToyConfig};

pub fn layout() -> Layout {
    let toy = ServiceLayout {
        name: "toy".into(),
        partitions: vec!["0".into()],
        slots: 2,
        reads: vec![Reads::Requests, Reads::AllClusters],
    };
    let queue = ServiceLayout { name: "queue".into(), reads: vec![Reads::Requests], ..toy.clone() };
    let tenant = TenantLayout { name: "acme".into(), principals: vec!["alice".into()] };
    Layout { replicas: 1, services: vec![toy, queue], tenants: vec![tenant], clusters: Vec::new() }
}

pub fn generation_started(generation: u32, replaces: u32, prev: u64, prev_hash: Bytes) -> Bytes {
    let fact = GenerationStarted { generation, reason: "test".into(), replaces };
    let envelope = Envelope {
        generation,
        service: "cell".into(),
        partition: "0".into(),
        prev,
        prev_hash,
        writer: Some(Writer { instance: "test".into(), build: "test".into() }),
        facts: vec![Fact { kind: Some(Kind::GenerationStarted(fact)) }],
        ..Envelope::default()
    };
    envelope.encode_to_vec().into()
}

pub async fn connect(server: &NatsServer) -> Bus {
    let mut options = Options::new(server.url(), "test");
    options.wait = Some(Duration::from_secs(10));
    Bus::connect(&options).await.unwrap()
}

pub async fn provisioned(server: &NatsServer, generation: u32) -> Bus {
    let bus = connect(server).await;
    provision::provision(&bus, &layout(), || generation_started(generation, 0, 0, Bytes::new()))
        .await
        .unwrap();
    bus
}

/// A service that runs on a thread of its own.
pub struct Running {
    pub shutdown: Shutdown,
    thread: Option<JoinHandle<Result<(), RunError>>>,
}

pub fn host(server: &NatsServer, image: &Path, slot: u8) -> HostConfig {
    let mut host = HostConfig::new(Options::new(server.url(), format!("toy-{slot}")), image);
    host.slot = slot;
    host.instance = format!("toy-{slot}");
    host
}

pub fn start(config: ToyConfig, host: HostConfig) -> Running {
    start_service::<Toy>(move || config, host)
}

pub fn start_service<S: Service>(
    config: impl FnOnce() -> S::Config + Send + 'static,
    host: HostConfig,
) -> Running {
    let shutdown = Shutdown::default();
    let handle = shutdown.clone();
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run::<S>(config(), host, handle))
    });
    Running { shutdown, thread: Some(thread) }
}

impl Running {
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end, without asking for it.
    pub fn join(mut self) -> Result<(), RunError> {
        self.thread.take().unwrap().join().unwrap()
    }

    pub fn stop(self) -> Result<(), RunError> {
        self.shutdown.request();
        self.join()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub async fn submit(bus: &Bus, range: std::ops::Range<u64>) {
    for n in range {
        loop {
            // A repeat after a lost answer is a second request of the same number: the toy sees two.
            match bus.submit("muster.req.acme.alice.submit", Bytes::from(n.to_string()), None).await {
                Ok(_) => break,
                Err(error) => eprintln!("submit {n}: {error}"),
            }
        }
    }
}

/// The log, as it is now.
pub async fn log(bus: &Bus) -> Vec<Record> {
    let last = Log::new(bus).last_seq().await.unwrap();
    let mut reader = Reader::scan(bus, names::EVENTS, None, 0).await.unwrap();
    let mut records = Vec::new();
    while reader.position() < last {
        if let Incoming::Batch(batch) = reader.next().await.unwrap() {
            records.extend(batch.into_iter().map(|record| Record {
                seq: record.seq,
                subject: record.subject.to_string(),
                time: Timestamp(record.time_us),
                payload: record.payload,
            }));
        }
    }
    records
}

/// The requests that the log says were taken, in order.
pub async fn taken(bus: &Bus) -> Vec<u64> {
    let mut taken = Vec::new();
    for record in log(bus).await {
        for fact in Envelope::decode(record.payload).unwrap().facts {
            if let Some(Kind::CommandAccepted(fact)) = fact.kind {
                taken.push(fact.request.unwrap().seq);
            }
        }
    }
    taken
}

pub async fn stands(bus: &Bus, at_least: u64) -> Result<Answer, muster_bus::BusError> {
    let question = Question::Hash { at_least };
    muster_runtime::ask(bus, "toy", "0", &question, Duration::from_secs(20)).await
}

/// Waits until the toy has taken this many requests.
pub async fn until_taken(bus: &Bus, count: usize) {
    muster_testkit::eventually(Duration::from_secs(60), || async { taken(bus).await.len() >= count }).await;
}
