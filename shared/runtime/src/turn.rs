//! One turn of the event loop: wait, take all that has arrived, conclude, carry out.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use futures::FutureExt as _;
use muster_bus::{Bus, BusError, Incoming as FromStream, Log, Record, names};
use muster_core::{Driver, Effect, Incoming, Input, Outcome, RequestMessage, Seq, Service, Timestamp};
use muster_proto::Report;
use muster_store::StoreError;
use prost::Message;
use tokio::time::{Instant, Interval, sleep_until};

use crate::RunError;
use crate::answers::{Answers, Pending};
use crate::clock::Clock;
use crate::error::of_requests;
use crate::feed::Feed;
use crate::image::ImageWriter;
use crate::outbox::{Done, Outbox};
use crate::publish::{Publisher, Publishing};
use crate::source::{FromLog, LogSource};
use crate::status::Status;

/// Records that are folded before the driver concludes: bounds how long a turn takes while catching up.
const MANY: usize = 8192;
/// How often the server's time is asked for; an idle log teaches none.
const ASK_TIME: u32 = 10;
/// The shortest nap before a decider that wants to be woken.
const NAP: Duration = Duration::from_millis(1);

pub(crate) type Task<T> = Option<Pin<Box<dyn Future<Output = Result<T, BusError>>>>>;

/// A service at work.
pub(crate) struct Host<S: Service> {
    pub bus: Bus,
    pub driver: Driver<S>,
    pub clock: Clock,
    pub status: Status,
    pub source: LogSource,
    pub publisher: Publisher,
    pub publishing: Option<Publishing>,
    pub outbox: Outbox,
    pub image: ImageWriter,
    pub answers: Answers<S>,
    /// The durable's name, in every stream that is read.
    pub durable: String,
    pub requests: Option<Feed>,
    /// Requests that the inbox has no room for yet.
    pub waiting: VecDeque<RequestMessage>,
    pub reads_reports: bool,
    pub reports: Option<Feed>,
    pub wake: Option<Instant>,
    pub second: Interval,
    pub seconds: u32,
    pub timing: Task<i64>,
    pub purging: Task<()>,
    /// What lies up to here in REQUESTS was purged.
    pub purged: Seq,
    pub shutdown: Pin<Box<dyn Future<Output = ()>>>,
}

pub(crate) enum Event {
    FromLog(FromLog),
    Requests(FromStream),
    Reports(FromStream),
    Published(Outcome),
    Done(Done),
    Ask(Pending),
    Wake,
    Second,
    Time(Result<i64, BusError>),
    Purged(Result<(), BusError>),
    ImageFailed(StoreError),
    Shutdown,
}

impl<S: Service> Host<S> {
    /// One turn; false when it was the last.
    pub async fn turn(&mut self) -> Result<bool, RunError> {
        let mut event = self.next_event().await?;
        let began = Instant::now();
        let mut records = 0;
        loop {
            match event {
                Event::Shutdown => return Ok(false),
                Event::ImageFailed(error) => return Err(error.into()),
                event => records += self.take(event),
            }
            if records >= MANY {
                break;
            }
            match self.next_event().now_or_never() {
                Some(next) => event = next?,
                None => break,
            }
        }
        self.absorb_requests();
        let now = self.now();
        let effects = self.driver.conclude(now);
        if now.is_some() {
            self.wake = None;
        }
        self.carry_out(now, effects).await?;
        self.after_turn();
        self.status.meters.step.record(began.elapsed());
        Ok(true)
    }

    /// Whatever happens next. Nothing is lost when this is dropped while it waits.
    async fn next_event(&mut self) -> Result<Event, RunError> {
        let takes_requests = self.waiting.is_empty() && S::has_room(self.driver.inbox());
        let event = tokio::select! {
            () = &mut self.shutdown => Event::Shutdown,
            error = self.image.failed() => Event::ImageFailed(error),
            outcome = outcome(&mut self.publishing) => Event::Published(outcome?),
            from_log = self.source.next(self.driver.meta()) => Event::FromLog(from_log?),
            requests = from_feed(&mut self.requests), if takes_requests => Event::Requests(requests.map_err(of_requests)?),
            reports = from_feed(&mut self.reports) => Event::Reports(reports?),
            done = self.outbox.next() => Event::Done(done),
            pending = self.answers.next() => Event::Ask(pending),
            () = wake(self.wake) => Event::Wake,
            _ = self.second.tick() => Event::Second,
            time = result(&mut self.timing) => Event::Time(time),
            purged = result(&mut self.purging) => Event::Purged(purged),
        };
        Ok(event)
    }

    /// Takes one event, deciding nothing; says how many records it held.
    fn take(&mut self, event: Event) -> usize {
        match event {
            Event::FromLog(FromLog::Records(records)) => return self.fold(records),
            Event::FromLog(FromLog::Checked(checked)) => {
                self.clock.learn(checked.time);
                self.status.head = self.status.head.max(checked.last);
                self.driver.take(None, Input::Head(checked.last));
            }
            Event::Published(outcome) => {
                if let Some(publishing) = self.publishing.take() {
                    self.status.meters.published(outcome, publishing.age());
                }
                self.driver.take(None, Input::Published(outcome));
            }
            Event::Done(Done { key, answer }) => {
                let now = self.now();
                self.driver.take(now, Input::Done { key, answer: Some(answer) });
            }
            Event::Requests(FromStream::Batch(records)) => self.request(records),
            Event::Reports(FromStream::Batch(records)) => self.report(records),
            Event::Ask(pending) => {
                let now = self.now_or_last();
                self.answers.take(&mut self.driver, now, pending);
            }
            Event::Wake => self.wake = None,
            Event::Second => self.every_second(),
            Event::Time(time) => {
                self.timing = None;
                match time {
                    Ok(time_us) => self.clock.learn(Timestamp(time_us)),
                    Err(error) => tracing::debug!(%error, "the server's time is not known"),
                }
            }
            Event::Purged(result) => {
                self.purging = None;
                if let Err(error) = result {
                    tracing::warn!(%error, "requests that were dealt with could not be purged");
                }
            }
            Event::Requests(FromStream::Reconnected) | Event::Reports(FromStream::Reconnected) => {}
            Event::ImageFailed(_) | Event::Shutdown => {}
        }
        0
    }

    fn fold(&mut self, records: Vec<muster_core::Record>) -> usize {
        let count = records.len();
        if let Some(last) = records.last() {
            self.clock.learn(last.time);
        }
        self.status.meters.messages.increment(count as u64);
        self.driver.take(None, Input::Records(records));
        self.clock.not_before(Timestamp(self.driver.meta().last_now_us));
        count
    }

    fn request(&mut self, records: Vec<Record>) {
        self.status.meters.requests.increment(records.len() as u64);
        for record in records {
            let Some(subject) = names::parse_request(&record.subject) else { continue };
            self.waiting.push_back(RequestMessage {
                seq: record.seq,
                tenant: subject.tenant.to_owned(),
                principal: subject.principal.to_owned(),
                time: Timestamp(record.time_us),
                key: record.headers.get(muster_bus::HEADER_KEY).map(str::to_owned),
                payload: record.payload,
            });
        }
    }

    fn absorb_requests(&mut self) {
        let now = self.now();
        while S::has_room(self.driver.inbox()) {
            let Some(request) = self.waiting.pop_front() else { return };
            self.driver.take(now, Input::Incoming(Incoming::Request(request)));
        }
    }

    fn report(&mut self, records: Vec<Record>) {
        self.status.meters.reports.increment(records.len() as u64);
        let now = self.now();
        for record in records {
            let cluster = record.subject.strip_prefix("muster.from.").unwrap_or_default();
            match Report::decode(record.payload) {
                // The subject is what the server has checked; the bytes are what an agent claims.
                Ok(report) if report.cluster == cluster => {
                    let time = Timestamp(record.time_us);
                    self.driver.take(now, Input::Incoming(Incoming::Report { report, time }));
                }
                other => {
                    self.status.meters.dropped.increment(1);
                    let claimed = other.map(|report| report.cluster);
                    tracing::warn!(cluster, ?claimed, seq = record.seq, "a report that is none was dropped");
                }
            }
        }
    }

    async fn carry_out(&mut self, now: Option<Timestamp>, effects: Vec<Effect>) -> Result<(), RunError> {
        for effect in effects {
            match effect {
                Effect::Publish { subject, expect, payload, .. } => {
                    let mut publishing = self.publisher.publish(subject, expect, payload);
                    publishing.send();
                    self.publishing = Some(publishing);
                    // The client's task puts it on the wire before the commit is looked at.
                    tokio::task::yield_now().await;
                }
                Effect::Commit(writes) => self.image.commit(writes).await,
                Effect::Do(wish) => self.outbox.push(wish),
                Effect::WakeAt(at) => {
                    let nap = now.map_or(0, |now| at.since(now));
                    let nap = Duration::from_micros(u64::try_from(nap).unwrap_or(0)).max(NAP);
                    self.wake = Instant::now().checked_add(nap);
                }
                Effect::Stop(stop) => return Err(stop.into()),
            }
        }
        Ok(())
    }

    fn after_turn(&mut self) {
        self.status.health.beat();
        self.status.folded(&self.driver);
        let now = self.now_or_last();
        self.answers.look_again(&mut self.driver, now);
        if !self.driver.is_caught_up() {
            return;
        }
        // What came from outside is judged by a state that knows the log.
        if let (None, Some(cursor)) = (&self.requests, S::requests_after(self.driver.state())) {
            self.requests = Some(Feed::open(&self.bus, names::REQUESTS, self.durable.clone(), cursor));
        }
        if self.reads_reports && self.reports.is_none() {
            // Beyond the end: only what comes from now on. Agents repeat what matters.
            self.reports = Some(Feed::open(&self.bus, names::CLUSTERS, self.durable.clone(), Seq::MAX));
        }
    }

    fn every_second(&mut self) {
        self.seconds = self.seconds.wrapping_add(1);
        self.status.connected(self.bus.is_connected());
        self.status.gauge(self.driver.meta().position, self.image.written());
        if self.seconds % ASK_TIME == 1 && self.timing.is_none() {
            let log = Log::new(&self.bus);
            self.timing = Some(Box::pin(async move { log.server_time().await }));
        }
        let cursor = S::requests_after(self.driver.state()).unwrap_or(0);
        if cursor > self.purged && self.purging.is_none() && self.driver.is_caught_up() {
            self.purged = cursor;
            let bus = self.bus.clone();
            self.purging = Some(Box::pin(async move { bus.purge_below(">", cursor + 1).await }));
        }
    }

    fn now(&mut self) -> Option<Timestamp> {
        self.status.trusted(self.clock.now())
    }

    fn now_or_last(&mut self) -> Timestamp {
        let last = Timestamp(self.driver.meta().last_now_us);
        self.now().unwrap_or(last)
    }
}

async fn outcome(publishing: &mut Option<Publishing>) -> Result<Outcome, BusError> {
    match publishing {
        Some(publishing) => publishing.outcome().await,
        None => std::future::pending().await,
    }
}

async fn from_feed(feed: &mut Option<Feed>) -> Result<FromStream, BusError> {
    match feed {
        Some(feed) => feed.next().await,
        None => std::future::pending().await,
    }
}

async fn result<T>(task: &mut Task<T>) -> Result<T, BusError> {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

async fn wake(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}
