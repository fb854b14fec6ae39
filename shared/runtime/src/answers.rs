//! Answering asks from the driver's state, when it has folded far enough.

use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use muster_bus::{Ask, Bus, BusError, Serving, names};
use muster_core::{Driver, Seq, Service, Timestamp, WorkloadId};
use muster_observe::Health;
use tokio::sync::{mpsc, oneshot};

use crate::asks::{Answer, HaltedScope, Question};

/// Answers asks on further subjects from a service's state (the ledger's questions).
pub trait Answerer<S: Service> {
    /// The subjects; wildcards allowed.
    fn subjects(&self) -> Vec<String>;
    /// The sequence that must be folded before this ask is answered; 0: none.
    fn at_least(&self, ask: &Ask) -> Seq;
    /// Answers, now or (by way of a task that got the `reply`) later.
    fn answer(&self, driver: &Driver<S>, bus: &Bus, ask: Ask, reply: Reply);
}

/// Where an answer goes; dropping it is an error for the asker.
#[derive(Debug)]
pub struct Reply(oneshot::Sender<Result<Bytes, String>>);

impl Reply {
    /// Answers; an error is text for the asker.
    pub fn send(self, answer: Result<Bytes, String>) {
        // Whoever asked may have given up.
        let _ = self.0.send(answer);
    }
}

/// An ask that waits for its answer.
pub(crate) struct Pending {
    ask: Ask,
    /// Whether it is for the [`Answerer`].
    further: bool,
    reply: Reply,
}

/// Asks that wait in the channel; those beyond wait at the bus.
const WAITING: usize = 64;
/// How long an ask may wait for a sequence.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Answers<S: Service> {
    bus: Bus,
    health: Health,
    start: Instant,
    identity: (String, String, String),
    asks: mpsc::Receiver<Pending>,
    /// Asks for a sequence that is not folded yet.
    later: Vec<(Seq, Instant, Pending)>,
    answerer: Option<Rc<dyn Answerer<S>>>,
    _serving: Vec<Serving>,
}

impl<S: Service> Answers<S> {
    pub async fn serve(
        bus: &Bus,
        health: &Health,
        identity: (String, String, String),
        answerer: Option<Rc<dyn Answerer<S>>>,
    ) -> Result<Self, BusError> {
        let (sender, asks) = mpsc::channel(WAITING);
        let own = names::ask(S::NAME, &identity.0)?;
        let mut subjects = vec![(own, false)];
        if let Some(answerer) = &answerer {
            subjects.extend(answerer.subjects().into_iter().map(|subject| (subject, true)));
        }
        let mut serving = Vec::new();
        for (subject, further) in subjects {
            let sender = sender.clone();
            let handler = move |ask| hand_over(sender.clone(), ask, further);
            serving.push(bus.serve(&subject, None, handler).await?);
        }
        let (bus, health, start) = (bus.clone(), health.clone(), Instant::now());
        Ok(Self { bus, health, start, identity, asks, later: Vec::new(), answerer, _serving: serving })
    }

    /// The next ask; nothing is lost when this is dropped while it waits.
    pub async fn next(&mut self) -> Pending {
        match self.asks.recv().await {
            Some(pending) => pending,
            None => std::future::pending().await,
        }
    }

    /// Answers an ask, or keeps it until its sequence is folded.
    pub fn take(&mut self, driver: &mut Driver<S>, now: Timestamp, pending: Pending) {
        match self.at_least(&pending) {
            Ok(seq) if seq > driver.meta().position => self.later.push((seq, Instant::now(), pending)),
            Ok(_) => self.answer(driver, now, pending),
            Err(fault) => pending.reply.send(Err(fault)),
        }
    }

    /// The state has folded on, or time has passed.
    pub fn look_again(&mut self, driver: &mut Driver<S>, now: Timestamp) {
        if self.later.is_empty() {
            return;
        }
        let position = driver.meta().position;
        for (seq, since, pending) in std::mem::take(&mut self.later) {
            if seq <= position {
                self.answer(driver, now, pending);
            } else if since.elapsed() > PATIENCE {
                pending.reply.send(Err(format!("sequence {seq} is not folded yet, only {position}")));
            } else if !pending.reply.0.is_closed() {
                self.later.push((seq, since, pending));
            }
        }
    }

    fn at_least(&self, pending: &Pending) -> Result<Seq, String> {
        match (&self.answerer, pending.further) {
            (Some(answerer), true) => Ok(answerer.at_least(&pending.ask)),
            _ => match question(&pending.ask)? {
                Question::Hash { at_least } => Ok(at_least),
                Question::Explain(_) => Ok(0),
            },
        }
    }

    fn answer(&self, driver: &mut Driver<S>, now: Timestamp, pending: Pending) {
        let Pending { ask, further, reply } = pending;
        match &self.answerer {
            Some(answerer) if further => answerer.answer(driver, &self.bus, ask, reply),
            _ => {
                let answer = question(&ask).and_then(|question| self.stands(driver, now, question));
                let encoded =
                    answer.and_then(|answer| serde_json::to_vec(&answer).map_err(|e| e.to_string()));
                reply.send(encoded.map(Bytes::from));
            }
        }
    }

    fn stands(&self, driver: &mut Driver<S>, now: Timestamp, question: Question) -> Result<Answer, String> {
        let why = match question {
            Question::Explain(id) => {
                let id: WorkloadId = id.parse().map_err(|error| format!("{error}"))?;
                S::explain(driver.config(), driver.state(), driver.inbox(), &id, now)
            }
            Question::Hash { .. } => None,
        };
        let position = driver.position();
        let (partition, instance, build) = self.identity.clone();
        let problems = self.health.problems();
        Ok(Answer {
            service: S::NAME.to_owned(),
            partition,
            instance,
            build,
            uptime_s: self.start.elapsed().as_secs(),
            generation: format!("{:08x}", driver.meta().generation),
            rules: driver.meta().rules,
            position: position.seq,
            hash: format!("{:032x}", position.hash),
            not_ready: (!problems.is_empty()).then(|| join(problems.into_values())),
            stopped: driver.stopped().map(ToString::to_string),
            halts: halts(driver),
            why: why.map(Into::into),
        })
    }
}

fn halts<S: Service>(driver: &Driver<S>) -> Vec<HaltedScope> {
    let halt = |(scope, (seq, reason)): (&String, &(Seq, String))| HaltedScope {
        scope: scope.clone(),
        seq: *seq,
        reason: reason.clone(),
    };
    driver.halts().map(halt).collect()
}

fn join(texts: impl Iterator<Item = String>) -> String {
    texts.collect::<Vec<_>>().join("; ")
}

fn question(ask: &Ask) -> Result<Question, String> {
    serde_json::from_slice(&ask.payload).map_err(|error| {
        format!(r#"{error}; questions are {{"explain": "<workload id>"}} and {{"hash": {{"at_least": <sequence>}}}}"#)
    })
}

async fn hand_over(sender: mpsc::Sender<Pending>, ask: Ask, further: bool) -> Result<Bytes, String> {
    let (reply, answer) = oneshot::channel();
    let ending = || "the service is ending".to_owned();
    sender.send(Pending { ask, further, reply: Reply(reply) }).await.map_err(|_| ending())?;
    answer.await.map_err(|_| ending())?
}
