//! From a configuration to a service at work, and to its end.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use muster_bus::{Bus, BusError, names};
use muster_core::{Service, Timestamp};
use muster_observe::{Health, Server, metrics, serve};
use muster_store::StoreError;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::answers::{Answerer, Answers};
use crate::clock::Clock;
use crate::image::ImageWriter;
use crate::meters::Meters;
use crate::open::{Opened, open_driver, open_image};
use crate::outbox::Outbox;
use crate::publish::Publisher;
use crate::source::LogSource;
use crate::status::Status;
use crate::turn::Host;
use crate::{HostConfig, RunError, Shutdown};

/// How long the end waits for the answer to a publish under way.
const LAST_ANSWER: Duration = Duration::from_secs(6);
const LAST_FLUSH: Duration = Duration::from_secs(1);
const SECOND: Duration = Duration::from_secs(1);

/// Runs a service until it is asked to end; then the step in hand is finished first.
///
/// Waits for NATS and for provisioning, and says so. All of it happens on the caller's thread (and one that
/// writes the image): run it within a current-thread Tokio runtime.
///
/// # Errors
/// See [`RunError`]: each says what to do. Its exit code is [`RunError::exit_code`].
pub async fn run<S: Service>(
    config: S::Config,
    host: HostConfig,
    shutdown: Shutdown,
) -> Result<(), RunError> {
    run_with::<S>(config, host, shutdown, None).await
}

/// As [`run`], answering asks on further subjects too.
///
/// # Errors
/// As [`run`].
pub async fn run_with<S: Service>(
    config: S::Config,
    host: HostConfig,
    shutdown: Shutdown,
    answerer: Option<Rc<dyn Answerer<S>>>,
) -> Result<(), RunError> {
    let health = Health::starting("start", "connecting to NATS");
    let server = match &host.http {
        Some(http) => Some(serve(http, health.clone(), metrics()).await?),
        None => None,
    };
    tracing::info!(
        service = S::NAME,
        partition = host.partition,
        slot = host.slot,
        instance = host.instance,
        http = server.as_ref().map(|server| server.address().to_string()),
        "starting"
    );
    let result = tokio::select! {
        opened = open::<S>(config, &host, &health, &shutdown, answerer) => match opened {
            Ok(host) => work(host).await,
            Err(error) => Err(error),
        },
        () = shutdown.requested() => Ok(()),
        () = beat(&health) => Ok(()),
    };
    match &result {
        Ok(()) => tracing::info!(service = S::NAME, "ended as asked"),
        Err(error) => tracing::error!(service = S::NAME, "{error}"),
    }
    if let Some(server) = server {
        Server::shutdown(server).await;
    }
    result
}

/// Shows life while NATS is waited for.
async fn beat(health: &Health) {
    loop {
        health.beat();
        tokio::time::sleep(SECOND).await;
    }
}

async fn open<S: Service>(
    config: S::Config,
    host: &HostConfig,
    health: &Health,
    shutdown: &Shutdown,
    answerer: Option<Rc<dyn Answerer<S>>>,
) -> Result<Host<S>, RunError> {
    let image = open_image::<S>(host)?;
    let bus = Bus::connect(&host.bus).await?;
    let durable = names::durable(S::NAME, &host.partition, host.slot).map_err(BusError::from)?;
    let Opened { driver, store, log } = open_driver::<S>(&bus, config, host, image).await?;
    let mut clock = Clock::new(host.wall);
    clock.learn(log.time);
    clock.not_before(Timestamp(driver.meta().last_now_us));
    let source = LogSource::open(&bus, durable.clone(), driver.meta());
    let identity = (host.partition.clone(), host.instance.clone(), host.build.clone());
    let answers = Answers::serve(&bus, health, identity, answerer).await?;
    let image = ImageWriter::start(store, driver.meta().position)
        .map_err(|error| StoreError::Io { path: host.image.clone(), reason: error.to_string() })?;
    let mut second = interval(SECOND);
    second.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let requested = shutdown.clone();
    Ok(Host {
        status: Status::new(health.clone(), Meters::new(S::NAME, &host.partition), log.last),
        publisher: Publisher::new(&bus, source.verified()),
        publishing: None,
        outbox: Outbox::new(&bus),
        driver,
        clock,
        source,
        image,
        answers,
        durable,
        requests: None,
        waiting: VecDeque::new(),
        reads_reports: host.reports,
        reports: None,
        wake: None,
        second,
        seconds: 0,
        timing: None,
        purging: None,
        purged: 0,
        shutdown: Box::pin(async move { requested.requested().await }),
        bus,
    })
}

async fn work<S: Service>(mut host: Host<S>) -> Result<(), RunError> {
    let ended = loop {
        match host.turn().await {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let Host { bus, publishing, image, mut driver, .. } = host;
    if let Some(writes) = driver.flush().filter(|_| ended.is_ok()) {
        image.commit(writes).await;
    }
    if let Some(mut publishing) = publishing.filter(|publishing| ended.is_ok() && publishing.is_sent()) {
        match timeout(LAST_ANSWER, publishing.outcome()).await {
            Ok(Ok(outcome)) => tracing::info!(?outcome, "the last decision"),
            Ok(Err(error)) => tracing::warn!(%error, "the last decision was not recorded"),
            Err(_) => tracing::warn!("no answer to the last decision: it may be on the log or not"),
        }
    }
    let written = image.finish().await;
    // An end in order tells the server so; a server that is away is not waited for.
    let _ = timeout(LAST_FLUSH, bus.flush()).await;
    ended.and(written.map_err(RunError::from))
}
