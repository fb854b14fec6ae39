//! Replicas of services: what drives a pure driver, with everything that can go wrong around it.

use muster_core::{Effect, Incoming, Input, Outcome, Outgoing, Refused, Timestamp, clock::HostClock, verify};
use muster_proto::BodyRef;

use crate::{
    disk::{Disk, Found},
    host,
    host::{Host, Kind},
    options::{MS, SECOND},
    oracle::Violation,
    world::{Event, Publish, ToReplica, World},
};

/// Without an answer to a publish for so long, its outcome is unknown.
const ACK_TIMEOUT_US: i64 = 2 * SECOND;
/// A decision older than this is not sent any more.
const STALE_US: i64 = SECOND;
const HOUR_US: i64 = 3_600 * SECOND;

/// One process slot: the process in it comes and goes, its disk stays.
pub struct Replica {
    pub kind: usize,
    pub host: Option<Box<dyn Host>>,
    /// Grows at every end: what was meant for an earlier process does not arrive.
    pub life: u32,
    pub disk: Disk,
    /// The image and the log don't belong together: an operator has to say what to do.
    pub refused: bool,
    pub paused_until: i64,
    clock: HostClock,
    booted: i64,
    /// How far the wall clock is off.
    wall_off: i64,
    reading: bool,
    asking: bool,
    tick_at: Option<i64>,
    requests_read: u64,
    publish: u64,
}

impl Replica {
    #[must_use]
    pub fn new(kind: usize) -> Self {
        Self {
            kind,
            host: None,
            life: 0,
            disk: Disk::default(),
            refused: false,
            paused_until: 0,
            clock: HostClock::default(),
            booted: 0,
            wall_off: 0,
            reading: false,
            asking: false,
            tick_at: None,
            requests_read: 0,
            publish: 0,
        }
    }

    /// The clock is right again.
    pub const fn set_clock(&mut self) {
        self.wall_off = 0;
    }
}

impl World {
    pub fn to_replica(&mut self, r: usize, life: u32, what: ToReplica) -> Result<(), Violation> {
        let Some(replica) = self.replicas.get_mut(r) else { return Ok(()) };
        if replica.life != life || replica.host.is_none() {
            return Ok(());
        }
        if replica.paused_until > self.now {
            let until = replica.paused_until;
            self.at(until, Event::Replica { r, life, what });
            return Ok(());
        }
        match what {
            ToReplica::Deliver => self.deliver(r),
            ToReplica::Requests => self.deliver_requests(r),
            ToReplica::Tick => {
                replica.tick_at = None;
                self.step(r, Input::Tick)
            }
            ToReplica::Send(publish) => self.send(r, publish),
            ToReplica::Ack { id, outcome } => {
                if replica.publish != id {
                    return Ok(());
                }
                replica.publish = 0;
                self.step(r, Input::Published(outcome))
            }
            ToReplica::Input(input) => self.step(r, input),
        }
    }

    fn tell(&mut self, r: usize, delay: i64, what: ToReplica) {
        let life = self.replicas.get(r).map_or(0, |replica| replica.life);
        self.after(delay, Event::Replica { r, life, what });
    }

    /// There is more to read.
    pub fn wake_reader(&mut self, r: usize) {
        let Some(replica) = self.replicas.get_mut(r) else { return };
        if replica.host.is_some() && !replica.reading {
            replica.reading = true;
            let delay = self.hop(self.options.slow_read, "fault: read late");
            self.tell(r, delay, ToReplica::Deliver);
        }
    }

    fn deliver(&mut self, r: usize) -> Result<(), Violation> {
        let most = if self.dice.below(4) == 0 { 1 } else { 32 };
        let Some(replica) = self.replicas.get_mut(r) else { return Ok(()) };
        replica.reading = false;
        let Some(host) = &replica.host else { return Ok(()) };
        let from = host.meta().position + 1;
        let records = self.log.read(from, most);
        let mono = self.now - replica.booted;
        for record in &records {
            replica.clock.learn(record.time, mono);
        }
        if records.is_empty() {
            return Ok(());
        }
        let life = replica.life;
        self.step(r, Input::Records(records))?;
        let Some(replica) = self.replicas.get_mut(r).filter(|replica| replica.life == life) else {
            return Ok(());
        };
        if let Some(host) = &mut replica.host {
            replica.clock.not_before(Timestamp(host.meta().last_now_us));
            let position = host.position();
            self.hashes.saw(replica.kind, position.seq, position.hash)?;
            if position.seq < self.log.head() {
                self.wake_reader(r);
            }
        }
        Ok(())
    }

    /// There are requests to read.
    pub fn wake_requests(&mut self, r: usize) {
        let Some(replica) = self.replicas.get_mut(r) else { return };
        if replica.host.is_some() && !replica.asking && self.kinds.get(replica.kind) == Some(&Kind::Queue) {
            replica.asking = true;
            let delay = self.hop(self.options.slow_read, "fault: read late");
            self.tell(r, delay, ToReplica::Requests);
        }
    }

    fn deliver_requests(&mut self, r: usize) -> Result<(), Violation> {
        let double = self.dice.chance(self.options.double_mail);
        let Some(replica) = self.replicas.get_mut(r) else { return Ok(()) };
        replica.asking = false;
        let Some(after) = replica.host.as_ref().and_then(|host| host.requests_after()) else {
            return Ok(());
        };
        let mut next = replica.requests_read.max(after);
        if double && next > 0 {
            self.stats.count("request: delivered twice");
            next = self.dice.below(next);
        }
        replica.requests_read = replica.requests_read.max(after);
        let batch: Vec<_> = self.requests.iter().skip(next as usize).take(8).cloned().collect();
        let life = replica.life;
        for request in batch {
            let Some(replica) = self.replicas.get_mut(r).filter(|replica| replica.life == life) else {
                break;
            };
            replica.requests_read = replica.requests_read.max(request.seq);
            self.step(r, Input::Incoming(Incoming::Request(request)))?;
        }
        let read = self.replicas.get(r).map_or(0, |replica| replica.requests_read);
        if (read as usize) < self.requests.len() {
            self.wake_requests(r);
        }
        Ok(())
    }

    /// One step of a driver, and its effects, in their order; a crash may come before each.
    pub fn step(&mut self, r: usize, input: Input) -> Result<(), Violation> {
        let Some(replica) = self.replicas.get_mut(r) else { return Ok(()) };
        let wall = Timestamp(self.now + replica.wall_off);
        let now = match replica.clock.now(self.now - replica.booted, wall) {
            Ok(now) => now,
            Err(_) => {
                self.stats.count("clock: refused to decide");
                None
            }
        };
        let Some(host) = &mut replica.host else { return Ok(()) };
        let effects = host.step(now, input);
        if now.is_none() {
            self.wake_tick(r, self.now + SECOND);
        }
        for effect in effects {
            if self.dice.chance(self.options.crash) {
                let what = match &effect {
                    Effect::Publish { .. } => "fault: crash before publish",
                    Effect::Commit(_) => "fault: crash before commit",
                    _ => "fault: crash in an outside wish",
                };
                self.stats.count(what);
                if let Effect::Commit(writes) = effect
                    && let Some(replica) = self.replicas.get_mut(r)
                {
                    replica.disk.commit(writes, true, &mut self.dice);
                }
                self.crash(r);
                return Ok(());
            }
            self.effect(r, effect)?;
        }
        Ok(())
    }

    fn effect(&mut self, r: usize, effect: Effect) -> Result<(), Violation> {
        match effect {
            Effect::Publish { subject, expect, payload, decided } => {
                let id = self.fresh();
                if let Some(replica) = self.replicas.get_mut(r) {
                    replica.publish = id;
                }
                let publish = Publish { id, subject, expect, payload, decided, restores: self.restores };
                if self.dice.chance(self.options.pauses_per_s / 5.0) {
                    // An owner that falls asleep with a decision in its hand.
                    self.pause(r);
                } else if self.dice.below(2) == 0 {
                    return self.send(r, publish);
                }
                self.tell(r, 100, ToReplica::Send(publish));
            }
            Effect::Commit(writes) => {
                if let Some(replica) = self.replicas.get_mut(r) {
                    replica.disk.commit(writes, false, &mut self.dice);
                }
            }
            Effect::Do(wish) => self.wish(r, wish),
            Effect::WakeAt(at) => self.wake_tick(r, at.0 + 2 * MS),
            Effect::Stop(stop) => {
                return Err(Violation::new("no driver stops", format!("{:?}: {stop}", self.kind_of(r))));
            }
        }
        Ok(())
    }

    fn kind_of(&self, r: usize) -> Option<&Kind> {
        self.replicas.get(r).and_then(|replica| self.kinds.get(replica.kind))
    }

    fn wake_tick(&mut self, r: usize, at: i64) {
        let at = at.max(self.now + 5 * MS);
        let Some(replica) = self.replicas.get_mut(r) else { return };
        if replica.tick_at.is_none_or(|known| at < known) {
            replica.tick_at = Some(at);
            let life = replica.life;
            self.at(at, Event::Replica { r, life, what: ToReplica::Tick });
        }
    }

    /// The process sends a decision, unless it has become old.
    fn send(&mut self, r: usize, publish: Publish) -> Result<(), Violation> {
        let id = publish.id;
        let replica = self.replicas.get(r);
        let wall = Timestamp(self.now);
        let now =
            replica.and_then(|replica| replica.clock.now(self.now - replica.booted, wall).ok().flatten());
        if now.is_none_or(|now| now.since(publish.decided) > STALE_US) {
            self.stats.count("publish: stale");
            self.tell(r, 1, ToReplica::Ack { id, outcome: Outcome::Stale });
            return Ok(());
        }
        let life = replica.map_or(0, |replica| replica.life);
        if self.dice.chance(self.options.in_flight) {
            self.stats.count("fault: subject in flight");
            self.stats.count("publish: in flight");
            self.tell(r, MS, ToReplica::Ack { id, outcome: Outcome::InFlight });
            return Ok(());
        }
        if self.dice.chance(self.options.lost_publish) {
            self.stats.count("fault: publish lost");
            self.stats.count("publish: unknown, not stored");
            self.tell(r, ACK_TIMEOUT_US, ToReplica::Ack { id, outcome: Outcome::Unknown });
            return Ok(());
        }
        if self.dice.chance(self.options.double_publish) {
            self.stats.count("fault: publish doubled");
            let delay = self.dice.between(MS, 5 * SECOND);
            let copy = publish.clone();
            self.after(delay, Event::Arrive { r, life, publish: copy, answer: false });
        }
        let delay = self.hop(self.options.late_publish, "fault: publish late");
        self.after(delay, Event::Arrive { r, life, publish, answer: true });
        if delay > ACK_TIMEOUT_US {
            self.tell(r, ACK_TIMEOUT_US, ToReplica::Ack { id, outcome: Outcome::Unknown });
        }
        Ok(())
    }

    pub fn arrive(&mut self, r: usize, life: u32, publish: Publish, answer: bool) -> Result<(), Violation> {
        if publish.restores < self.restores {
            return Ok(());
        }
        let stored = self.append(&publish.subject, publish.expect, publish.payload)?;
        self.stats.count(if stored.is_some() { "publish: stored" } else { "publish: conflict" });
        if !answer {
            return Ok(());
        }
        let id = publish.id;
        let (delay, outcome) = if self.dice.chance(self.options.lost_ack) {
            self.stats.count("fault: publish's answer lost");
            self.stats.count("publish: unknown, stored");
            (ACK_TIMEOUT_US, Outcome::Unknown)
        } else {
            (self.dice.between(100, 2 * MS), stored.map_or(Outcome::Conflict, Outcome::Stored))
        };
        self.after(delay, Event::Replica { r, life, what: ToReplica::Ack { id, outcome } });
        Ok(())
    }

    /// Carries out what a service wants done outside the log.
    fn wish(&mut self, r: usize, wish: Outgoing) {
        let key = wish.key();
        let failed = self.dice.chance(self.options.failed_wish);
        // What fails may have been done all the same: the answer was lost.
        let done = !failed || self.dice.below(2) == 0;
        let answer = if done { self.carry_out(wish) } else { None };
        let answer = if failed {
            self.stats.count("fault: wish failed");
            Some(Incoming::Failed { key: key.clone(), reason: "a fault of the simulation".to_owned() })
        } else {
            answer
        };
        let delay = self.hop(self.options.late_mail, "fault: mail late");
        self.tell(r, delay, ToReplica::Input(Input::Done { key, answer }));
    }

    fn carry_out(&mut self, wish: Outgoing) -> Option<Incoming> {
        match wish {
            Outgoing::StoreBody { request, index, body, .. } => {
                let sha256 = muster_core::sha256(&body).to_vec().into();
                let size_bytes = u32::try_from(body.len()).unwrap_or(u32::MAX);
                self.bodies.push(Some(body));
                let seq = self.bodies.len() as u64;
                Some(Incoming::BodyStored { request, index, body: BodyRef { seq, sha256, size_bytes } })
            }
            Outgoing::FetchBody { seq } => {
                let body = seq.checked_sub(1).and_then(|at| self.bodies.get(at as usize)).cloned().flatten();
                Some(Incoming::BodyFetched { seq, body })
            }
            Outgoing::DeleteBody { seq } => {
                if let Some(body) = seq.checked_sub(1).and_then(|at| self.bodies.get_mut(at as usize)) {
                    *body = None;
                }
                Some(Incoming::BodyDeleted { seq })
            }
            Outgoing::SendRejection { rejected, .. } => {
                self.answers.told(rejected.request.as_ref());
                let request = rejected.request.unwrap_or_default();
                Some(Incoming::RejectionSent { request: request.seq, index: request.index })
            }
            Outgoing::SendDesired { desired } => {
                let answer = Incoming::DesiredSent { cluster: desired.cluster.clone(), seq: desired.seq };
                self.send_desired(&desired);
                Some(answer)
            }
        }
    }

    /// The process stands still, and then goes on as if nothing had been.
    pub fn pause(&mut self, r: usize) {
        self.stats.count("fault: pause");
        self.say(|_| format!("replica {r} pauses"));
        let until = self.now + self.dice.between(200 * MS, 10 * SECOND);
        if let Some(replica) = self.replicas.get_mut(r) {
            replica.paused_until = until;
        }
    }

    /// The process ends in the middle of whatever it does.
    pub fn crash(&mut self, r: usize) {
        self.say(|_| format!("replica {r} crashes"));
        let delay = self.dice.between(20 * MS, 4 * SECOND);
        let Some(replica) = self.replicas.get_mut(r) else { return };
        replica.host = None;
        replica.life += 1;
        replica.paused_until = 0;
        let life = replica.life;
        self.after(delay, Event::Restart { r, life });
    }

    pub fn restart(&mut self, r: usize, life: u32) -> Result<(), Violation> {
        let found = if self.dice.chance(self.options.no_image) {
            Found::Nothing
        } else if self.dice.chance(self.options.old_image) {
            Found::Older
        } else {
            Found::Last
        };
        let wrong = self.dice.chance(self.options.wrong_clock);
        let Some(replica) = self.replicas.get_mut(r) else { return Ok(()) };
        if replica.life != life || replica.host.is_some() {
            return Ok(());
        }
        replica.disk.lose(found, &mut self.dice);
        let meta = replica.disk.meta().clone();
        let at_position = self.log.get(meta.position).map(|record| record.payload.clone());
        let verdict = verify(&meta, self.ledger.generation, 1, self.log.head(), at_position.as_deref());
        if let Err(refused) = verdict {
            self.stats.count(match refused {
                Refused::LogIsShorter { .. } => "restart: refused, log is shorter",
                _ => "restart: refused, another history",
            });
            replica.refused = true;
            return Ok(());
        }
        let image = replica.disk.image();
        self.stats.count(match (found, &image) {
            (Found::Last, Some(_)) => "restart: from the last image",
            (Found::Older, Some(_)) => "restart: from an older image",
            _ => "restart: from nothing",
        });
        let kind = self.kinds.get(replica.kind).cloned().unwrap_or(Kind::Queue);
        let opened = host::open(&kind, &self.options, format!("r{r}.{life}"), image);
        let mut host = opened.map_err(|error| {
            Violation::new("an image can be read after a crash", format!("{kind:?}: {error}"))
        })?;
        if host.meta().position > 0 {
            let position = host.position();
            self.hashes.saw(replica.kind, position.seq, position.hash)?;
        }
        replica.clock = HostClock::default();
        replica.booted = self.now - 1_000;
        replica.clock.learn(Timestamp(self.now - 500), 1_000);
        replica.clock.not_before(Timestamp(meta.last_now_us));
        replica.wall_off = if wrong { if self.dice.below(2) == 0 { HOUR_US } else { -HOUR_US } } else { 0 };
        replica.host = Some(host);
        replica.refused = false;
        (replica.reading, replica.asking, replica.tick_at) = (false, false, None);
        (replica.requests_read, replica.publish) = (0, 0);
        if wrong {
            self.stats.count("fault: clock off by an hour");
        }
        self.say(|_| format!("replica {r} starts: {found:?}"));
        let head = self.log.head();
        self.step(r, Input::Head(head))?;
        self.wake_reader(r);
        self.wake_requests(r);
        Ok(())
    }
}
