//! One fenced publish at a time.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt as _;
use muster_bus::{Bus, BusError, Log};
use muster_core::{Outcome, Seq};
use tokio::sync::watch;

/// A decision older than this is not sent: the world has moved on.
const MAX_AGE: Duration = Duration::from_secs(1);
/// After the server said that the subject's last message is still on its way.
const IN_FLIGHT: Duration = Duration::from_millis(1);
/// After an error that may pass (no stream yet, disk full): nothing was written.
const AGAIN: Duration = Duration::from_secs(1);

/// Makes publishes that go only to a log that was compared with the image.
pub(crate) struct Publisher {
    bus: Bus,
    log: Log,
    verified: watch::Receiver<u64>,
}

/// A publish under way.
pub(crate) struct Publishing {
    future: Pin<Box<dyn Future<Output = Result<Outcome, BusError>>>>,
    sent: Rc<Cell<bool>>,
    began: Instant,
    /// The outcome, if it was there at once.
    ready: Option<Result<Outcome, BusError>>,
}

impl Publisher {
    pub fn new(bus: &Bus, verified: watch::Receiver<u64>) -> Self {
        Self { bus: bus.clone(), log: Log::new(bus), verified }
    }

    /// Begins; nothing is sent before the first poll.
    pub fn publish(&self, subject: String, expect: Seq, payload: Bytes) -> Publishing {
        let began = Instant::now();
        let sent = Rc::new(Cell::new(false));
        let (bus, log, verified) = (self.bus.clone(), self.log.clone(), self.verified.clone());
        let future =
            publish(bus, log, verified, Rc::clone(&sent), Decided { began, subject, expect, payload });
        Publishing { future: Box::pin(future), sent, began, ready: None }
    }
}

impl Publishing {
    /// Sends it now, if the connection is up.
    pub fn send(&mut self) {
        if self.ready.is_none() {
            self.ready = (&mut self.future).now_or_never();
        }
    }

    /// What became of it. Nothing is lost when this is dropped while it waits.
    pub async fn outcome(&mut self) -> Result<Outcome, BusError> {
        match self.ready.take() {
            Some(outcome) => outcome,
            None => (&mut self.future).await,
        }
    }

    /// Whether the server may have got it.
    pub fn is_sent(&self) -> bool {
        self.sent.get()
    }

    /// Since the decision was taken.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }
}

struct Decided {
    began: Instant,
    subject: String,
    expect: Seq,
    payload: Bytes,
}

async fn publish(
    bus: Bus,
    log: Log,
    mut verified: watch::Receiver<u64>,
    sent: Rc<Cell<bool>>,
    decided: Decided,
) -> Result<Outcome, BusError> {
    loop {
        same_log(&bus, &mut verified).await;
        if decided.began.elapsed() > MAX_AGE {
            return Ok(Outcome::Stale);
        }
        sent.set(true);
        match log.publish(&decided.subject, decided.expect, decided.payload.clone()).await {
            Ok(muster_bus::Outcome::Stored(seq)) => return Ok(Outcome::Stored(seq)),
            Ok(muster_bus::Outcome::Conflict) => return Ok(Outcome::Conflict),
            Ok(muster_bus::Outcome::Unknown) => return Ok(Outcome::Unknown),
            Ok(muster_bus::Outcome::InFlight) => tokio::time::sleep(IN_FLIGHT).await,
            Err(error) if may_pass(&error) => {
                tracing::error!(%error, "a decision could not be recorded; it will be taken again");
                tokio::time::sleep(AGAIN).await;
                return Ok(Outcome::Unknown);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Errors of the server's present state. All others come again, whatever is waited for.
fn may_pass(error: &BusError) -> bool {
    matches!(
        error,
        BusError::Api { .. }
            | BusError::DiskFull { .. }
            | BusError::Missing { .. }
            | BusError::Timeout { .. }
    )
}

/// Waits until the connection is up and its log is known to be ours.
async fn same_log(bus: &Bus, verified: &mut watch::Receiver<u64>) {
    loop {
        bus.connected().await;
        if *verified.borrow_and_update() == bus.connects() {
            return;
        }
        // The sender lives in the host, which drops this first.
        if verified.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
