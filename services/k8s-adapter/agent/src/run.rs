//! The loop around the pure agent.

use std::{future::Future, pin::pin, sync::Arc, time::Duration};

use muster_plan::{Action, Agent, Config as AgentConfig, Done, Effect, Input};
use muster_proto::Desired;
use prost::Message;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, MissedTickBehavior, interval, timeout},
};
use tracing::{error, info, warn};

use crate::Backend;

/// How long only another generation may be heard before the process gives up to learn it anew.
const FOREIGN: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: String,
    /// Names this process and no other, ever; it stands in reports and in the cluster's lease.
    pub agent: String,
    /// Between two reports when nothing happens.
    pub heartbeat: Duration,
    /// Of every call to the backend.
    pub deadline: Duration,
}

impl Config {
    /// A heartbeat a second, calls of at most ten; the agent is named after the process and a random number.
    pub fn new(cluster: &str) -> Self {
        let agent = format!("{}-{:08x}", std::process::id(), rand::random::<u32>());
        let (heartbeat, deadline) = (Duration::from_secs(1), Duration::from_secs(10));
        Self { cluster: cluster.into(), agent, heartbeat, deadline }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A restart learns the new one.
    #[error(
        "the log has another generation ({heard:08x}) than this process learnt ({known:08x}); restart the agent"
    )]
    Generation { known: u32, heard: u32 },
    #[error("the other side of the link is gone")]
    Unlinked,
}

/// The agent's side of the bus: encoded messages in and out.
pub struct Link {
    desired: mpsc::Receiver<Vec<u8>>,
    reports: watch::Sender<Vec<u8>>,
}

/// The bus's side: send each message of `muster.to.<cluster>`, publish each new report to `muster.from.<cluster>`.
/// A report replaces an older one that was not yet published.
pub struct Remote {
    pub desired: mpsc::Sender<Vec<u8>>,
    pub reports: watch::Receiver<Vec<u8>>,
}

impl Link {
    pub fn new() -> (Self, Remote) {
        let (to, desired) = mpsc::channel(64);
        let (reports, from) = watch::channel(Vec::new());
        (Self { desired, reports }, Remote { desired: to, reports: from })
    }
}

/// Runs until `shutdown` resolves; what runs in the cluster goes on running. An agent that another one superseded
/// stays and does nothing: if it ended, its supervisor would start it again, and the two would take turns.
///
/// # Errors
/// [`Error`]; the process should end, and be started again.
pub async fn run<B: Backend>(
    config: Config,
    backend: Arc<B>,
    mut link: Link,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Error> {
    let mut driver = Driver::new(&config, backend);
    let (begun, mut ticks) = (Instant::now(), interval(config.heartbeat / 5));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut shutdown = pin!(shutdown);
    let changes = driver.backend.clone();
    let mut generations = Generations { own_heard: Instant::now() };
    loop {
        let input = tokio::select! {
            () = &mut shutdown => return Ok(()),
            _ = ticks.tick() => Input::Tick(micros(begun.elapsed())),
            Some(answer) = driver.answers.recv() => answer,
            () = changes.changed() => Input::Changed,
            bytes = link.desired.recv() => match Desired::decode(bytes.ok_or(Error::Unlinked)?.as_slice()) {
                Ok(desired) => {
                    generations.judge(driver.agent.generation(), desired.generation)?;
                    Input::Desired(desired)
                }
                Err(cause) => {
                    warn!(%cause, "a desired state that does not decode was ignored");
                    continue;
                }
            },
        };
        for report in driver.step(input) {
            link.reports.send_replace(report);
        }
    }
}

struct Generations {
    own_heard: Instant,
}

impl Generations {
    fn judge(&mut self, known: Option<u32>, heard: u32) -> Result<(), Error> {
        match known {
            Some(known) if known != heard && self.own_heard.elapsed() > FOREIGN => {
                Err(Error::Generation { known, heard })
            }
            Some(known) if known != heard => Ok(()),
            _ => {
                self.own_heard = Instant::now();
                Ok(())
            }
        }
    }
}

struct Driver<B> {
    agent: Agent,
    name: String,
    deadline: Duration,
    backend: Arc<B>,
    sender: mpsc::UnboundedSender<Input>,
    answers: mpsc::UnboundedReceiver<Input>,
    told: bool,
}

impl<B: Backend> Driver<B> {
    fn new(config: &Config, backend: Arc<B>) -> Self {
        let agent = Agent::new(AgentConfig {
            heartbeat_us: micros(config.heartbeat),
            deadline_us: micros(config.deadline),
            ..AgentConfig::new(&config.cluster, &config.agent, backend.name())
        });
        let (sender, answers) = mpsc::unbounded_channel();
        Self {
            agent,
            name: config.agent.clone(),
            deadline: config.deadline,
            backend,
            sender,
            answers,
            told: false,
        }
    }

    /// The encoded reports that follow from the input.
    fn step(&mut self, input: Input) -> Vec<Vec<u8>> {
        let effects = self.agent.step(input);
        if let Some(lease) = self.agent.superseded()
            && !self.told
        {
            self.told = true;
            error!(epoch = lease.epoch, by = %lease.agent, "superseded: this agent acts and reports no more");
        }
        let mut reports = Vec::new();
        for effect in effects {
            match effect {
                Effect::Report(report) => reports.push(report.encode_to_vec()),
                Effect::Act { id, action } => self.act(id, action),
                Effect::Observe { ticket } => self.spawn(move |backend| async move {
                    Input::Observed { ticket, seen: logged("observe", backend.observe().await) }
                }),
                Effect::TakeLease { at_least, held } => {
                    let name = self.name.clone();
                    self.spawn(move |backend| async move {
                        Input::Lease(logged("take the lease", backend.take_lease(name, at_least, held).await))
                    });
                }
            }
        }
        reports
    }

    fn act(&self, id: u64, action: Action) {
        let key = action.key();
        self.spawn(move |backend| async move {
            let (word, done) = match action {
                Action::Create { key, spec, bindings } => {
                    ("create", backend.create(key, spec, bindings).await)
                }
                Action::Start { key, uid } => ("start", backend.start(key, uid).await),
                Action::Remove { key, uid } => ("remove", backend.remove(key, uid).await),
            };
            match &done {
                Done::Ok => info!(object = %key, "{word}"),
                Done::Refused(reason) => info!(object = %key, %reason, "{word} refused"),
                Done::Failed(reason) => warn!(object = %key, %reason, "{word} failed"),
            }
            Input::Acted { id, done }
        });
    }

    /// Calls the backend on the side. A call over its deadline is dropped, not undone: it may still land, and the
    /// agent counts it as unanswered by its own clock.
    fn spawn<F, C>(&self, call: C)
    where
        C: FnOnce(Arc<B>) -> F,
        F: Future<Output = Input> + Send + 'static,
    {
        let (call, sender, deadline) = (call(self.backend.clone()), self.sender.clone(), self.deadline);
        tokio::spawn(async move {
            if let Ok(answer) = timeout(deadline, call).await {
                drop(sender.send(answer)); // nobody listens after the shutdown
            }
        });
    }
}

fn logged<T>(word: &str, result: Result<T, String>) -> Result<T, String> {
    result.inspect_err(|cause| warn!(%cause, "could not {word}"))
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
