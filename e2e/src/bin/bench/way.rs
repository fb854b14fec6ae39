//! A job's way from the request to the commit, one at a time and many at once.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use muster_bus::{Bus, BusError, names};
use muster_e2e::manifest;
use muster_proto::{Command, Request, Submit, command};
use prost::Message as _;
use tokio::sync::Semaphore;

use crate::{figures::Durations, watch::Watch};

/// Requests under way at a time when many are sent.
const AT_ONCE: usize = 64;

/// The request of a Job of one pod.
pub fn request(name: &str) -> Bytes {
    let manifest = manifest::job(name, "default", "1", "true").into_bytes().into();
    let submit = Submit { manifest, namespace: "default".to_owned(), ..Submit::default() };
    let commands = vec![Command { kind: Some(command::Kind::Submit(submit)) }];
    Request { commands, key: String::new() }.encode_to_vec().into()
}

pub fn subject() -> Result<String> {
    Ok(names::request("default", "user", "submit")?)
}

/// One job after the other, each until it is finished: time from the request to the commit.
pub async fn one_by_one(tenant: &Bus, watch: &mut Watch, jobs: u64, prefix: &str) -> Result<Durations> {
    let (mut durations, subject) = (Durations::default(), subject()?);
    for n in 0..jobs {
        let (payload, began, before) = (request(&format!("{prefix}-{n}")), Instant::now(), watch.finished);
        let id = tenant.submit(&subject, payload, None).await?;
        watch.until("its commit", |watch| watch.committed.contains_key(&id)).await?;
        if let Some(seen) = watch.committed.get(&id) {
            durations.add(seen.duration_since(began));
        }
        watch.until("its end", |watch| watch.finished > before).await?;
    }
    Ok(durations)
}

/// Many at once: jobs a second, from the first request to the last commit.
pub async fn many(tenant: &Bus, watch: &mut Watch, jobs: u64) -> Result<f64> {
    let (began, before) = (Instant::now(), watch.committed.len() as u64);
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let (tenant, subject) = (tenant.clone(), subject()?);
    let sender = tokio::spawn(async move {
        for n in 0..jobs {
            let permit = permits.clone().acquire_owned().await?;
            let (tenant, subject, payload) = (tenant.clone(), subject.clone(), request(&format!("many-{n}")));
            tokio::spawn(async move {
                // As many wait as may: the queue takes some first.
                while let Err(error) = tenant.submit(&subject, payload.clone(), None).await {
                    if !matches!(error, BusError::Full { .. }) {
                        eprintln!("a request was not stored: {error}");
                        break;
                    }
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                drop(permit);
            });
        }
        anyhow::Ok(())
    });
    watch.until("every commit", |watch| watch.committed.len() as u64 >= before + jobs).await?;
    let took = began.elapsed();
    sender.await??;
    watch.until("every end", |watch| watch.finished >= before + jobs).await?;
    Ok(jobs as f64 / took.as_secs_f64())
}

/// What each hop takes in the median, by the server's own times of storing, in milliseconds.
pub fn hops(watch: &Watch) -> Vec<(&'static str, f64)> {
    const HOPS: [&str; 5] = [
        "request → WorkloadQueued (a body between)",
        "WorkloadQueued → QuotaReserved",
        "QuotaReserved → PlacementOffered",
        "PlacementOffered → LegGranted",
        "LegGranted → PlacementCommitted",
    ];
    let hop = |n: usize| {
        let mut durations = Durations::default();
        for steps in watch.steps.values().filter(|steps| steps.len() == HOPS.len() + 1) {
            durations.add(Duration::from_micros(u64::try_from(steps[n + 1] - steps[n]).unwrap_or_default()));
        }
        durations.percentile_ms(0.5)
    };
    HOPS.into_iter().enumerate().map(|(n, name)| (name, hop(n))).collect()
}
