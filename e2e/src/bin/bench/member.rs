//! The member cluster: the real agent on a cluster in memory, whose pods end as soon as they start. So the way is
//! measured and no process's start.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use bytes::Bytes;
use muster_agent::{Backend, Link, LogChunk, LogQuery, Remote};
use muster_bus::{Bus, Incoming, Reader, names};
use muster_plan::{Binding, Done, Key, Lease, Node, Object, Observed};
use muster_proto::{LegSpec, Phase};
use tokio::{sync::Notify, task::JoinHandle};

use crate::cell::CLUSTER;

/// The newest messages of either direction that named an object: what the raw measurement sends again.
#[derive(Default)]
pub struct Samples {
    pub desired: Mutex<Bytes>,
    pub report: Mutex<Bytes>,
}

struct World {
    seen: Mutex<Observed>,
    changed: Notify,
    uids: AtomicU64,
}

impl World {
    fn new() -> Self {
        let free = BTreeMap::from([("cpu".to_owned(), 1 << 40), ("memory".to_owned(), 1 << 60)]);
        let node = Node { name: "all".to_owned(), allocatable: free.clone(), free, ..Node::default() };
        let seen = Mutex::new(Observed { nodes: vec![node], ..Observed::default() });
        Self { seen, changed: Notify::new(), uids: AtomicU64::new(1) }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Observed) -> T) -> T {
        change(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Backend for World {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn create(&self, key: Key, _: LegSpec, _: Vec<Binding>) -> Done {
        let uid = format!("{:032x}", self.uids.fetch_add(1, Ordering::Relaxed));
        let (reason, address) = (String::new(), String::new());
        let object = Object { uid, phase: Phase::Stopped, reason, exit_code: None, address };
        self.with(|seen| _ = seen.objects.entry(key).or_insert(object));
        self.changed.notify_one();
        Done::Ok
    }

    async fn start(&self, key: Key, uid: String) -> Done {
        let done = self.with(|seen| match seen.objects.get_mut(&key) {
            Some(object) if object.uid == uid => {
                (object.phase, object.exit_code) = (Phase::Succeeded, Some(0));
                Done::Ok
            }
            _ => Done::Failed("no such object".to_owned()),
        });
        self.changed.notify_one();
        done
    }

    async fn remove(&self, key: Key, uid: Option<String>) -> Done {
        self.with(|seen| {
            if seen.objects.get(&key).is_some_and(|object| uid.is_none_or(|uid| uid == object.uid)) {
                seen.objects.remove(&key);
            }
        });
        self.changed.notify_one();
        Done::Ok
    }

    async fn observe(&self) -> Result<Observed, String> {
        Ok(self.with(|seen| seen.clone()))
    }

    async fn take_lease(&self, agent: String, at_least: u64, held: Option<u64>) -> Result<Lease, String> {
        Ok(self.with(|seen| {
            if held.is_none_or(|epoch| seen.lease.agent == agent && seen.lease.epoch == epoch) {
                seen.lease = Lease { epoch: at_least.max(seen.lease.epoch + 1), agent };
            }
            seen.lease.clone()
        }))
    }

    async fn changed(&self) {
        self.changed.notified().await;
    }

    async fn logs(&self, _: LogQuery) -> io::Result<LogChunk> {
        Ok(LogChunk::default())
    }
}

/// Runs until the handles are aborted.
pub async fn start(bus: &Bus, samples: Arc<Samples>) -> Result<Vec<JoinHandle<()>>> {
    let reader = Reader::follow(bus, names::CLUSTERS, &names::durable("agent", CLUSTER, 0)?).await?;
    let (link, remote) = Link::new();
    let agent = muster_agent::run(
        muster_agent::Config::new(CLUSTER),
        Arc::new(World::new()),
        link,
        std::future::pending(),
    );
    let agent = tokio::spawn(async move {
        if let Err(error) = agent.await {
            eprintln!("the agent ended: {error}");
        }
    });
    let bus = bus.clone();
    let carry = tokio::spawn(async move {
        if let Err(error) = carry(&bus, reader, remote, &samples).await {
            eprintln!("the agent's link ended: {error:#}");
        }
    });
    Ok(vec![agent, carry])
}

async fn carry(bus: &Bus, mut reader: Reader, mut remote: Remote, samples: &Samples) -> Result<()> {
    let keep = |kept: &Mutex<Bytes>, new: &Bytes| {
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        // The first that is about a job; later ones may be about its removal.
        if new.len() > kept.len() {
            *kept = new.clone();
        }
    };
    loop {
        tokio::select! {
            incoming = reader.next() => {
                let Incoming::Batch(records) = incoming? else { continue };
                for record in records {
                    keep(&samples.desired, &record.payload);
                    remote.desired.send(record.payload.to_vec()).await?;
                }
            }
            changed = remote.reports.changed() => {
                changed?;
                let report = Bytes::from(remote.reports.borrow_and_update().clone());
                keep(&samples.report, &report);
                bus.send_from_cluster(CLUSTER, report).await?;
            }
        }
    }
}
