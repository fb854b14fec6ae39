//! Requests become facts: in their order, each once, and only what is ready.

use muster_core::{Timestamp, WorkloadId};
use muster_manifest::workload::JobSpec;
use muster_proto::{
    BodyRef, CommandAccepted, DeclareDead, EraseBody, Fact, Kind, PolicyApplied, RequestRef,
    RequestsRejected, WorkloadCancelled, WorkloadQueued, command_accepted,
};
use prost::Message;

use crate::config::Config;
use crate::evolve::minute;
use crate::inbox::{Entry, Inbox, Pending};
use crate::judge::{Step, Walk};
use crate::parse::Command;
use crate::refusal::Refusal;
use crate::state::State;

/// One decision holds at most so many facts, and little more than so many bytes.
pub(crate) const MAX_FACTS: usize = 200;
const MAX_BYTES: usize = 400 * 1024;
/// One decision looks at no more commands than this.
const MAX_COMMANDS: usize = 4_096;
/// How many rejections of a tenant have their reasons on the log, in each minute.
const REASONS_A_MINUTE: u32 = 10;
const GONE: &str = "RequestGone: it expired or was purged before it was read";

/// A decision that fills up.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) facts: Vec<Fact>,
    bytes: usize,
    /// Rejections of one tenant that follow on each other, to be summed up.
    run: Option<RequestsRejected>,
}

impl Batch {
    pub(crate) fn is_full(&self) -> bool {
        self.facts.len() >= MAX_FACTS || self.bytes >= MAX_BYTES
    }

    /// Takes the fact, unless it makes the decision too large.
    pub(crate) fn push(&mut self, kind: Kind) -> bool {
        self.end_run();
        self.add(kind)
    }

    fn add(&mut self, kind: Kind) -> bool {
        let fact = Fact { kind: Some(kind) };
        let size = fact.encoded_len();
        if !self.facts.is_empty() && self.bytes.saturating_add(size) > MAX_BYTES {
            return false;
        }
        self.bytes += size;
        self.facts.push(fact);
        true
    }

    pub(crate) fn end_run(&mut self) {
        if let Some(run) = self.run.take() {
            // Small, and what it stands for was told already: never left out.
            let fact = Fact { kind: Some(Kind::RequestsRejected(run)) };
            self.bytes += fact.encoded_len();
            self.facts.push(fact);
        }
    }
}

/// Decides all commands that are ready, from the cursor on. Gives the workloads that it cancels.
pub(crate) fn decide(
    config: &Config,
    state: &State,
    inbox: &Inbox,
    now: Timestamp,
    batch: &mut Batch,
) -> Vec<WorkloadId> {
    let mut reasons = Reasons { state, minute: minute(now.0), given: Vec::new() };
    let mut cancelled = Vec::new();
    for step in Walk::new(state, inbox).take(MAX_COMMANDS) {
        if batch.is_full() {
            break;
        }
        let went_in = match step {
            Step::Gone { first, through } => batch.push(Kind::RequestsRejected(gone(first, through))),
            Step::Accepted { request, message, entry, command } => {
                let Some(kind) = accept(config, state, request, message, entry, command) else { break };
                if let Command::Cancel { workload, .. } = command {
                    cancelled.push(*workload);
                }
                batch.push(kind)
            }
            // Its sender is told first: a crash in between must not lose the notice.
            Step::Refused { entry, .. } if entry.told.is_none() => break,
            Step::Refused { request, message, refusal, .. } => {
                reject(batch, &mut reasons, request, message, &refusal);
                true
            }
        };
        if !went_in {
            break;
        }
    }
    batch.end_run();
    cancelled
}

fn gone(first: RequestRef, through: RequestRef) -> RequestsRejected {
    let count = u32::try_from(through.seq - first.seq + 1).unwrap_or(u32::MAX);
    RequestsRejected {
        first: Some(first),
        through: Some(through),
        tenant: String::new(),
        count,
        reasons: vec![GONE.to_owned()],
    }
}

/// The fact of an accepted command; none while its body is not stored.
fn accept(
    config: &Config,
    state: &State,
    request: RequestRef,
    message: &Pending,
    entry: &Entry,
    command: &Command,
) -> Option<Kind> {
    let accepted = |command| {
        Kind::CommandAccepted(CommandAccepted {
            request: Some(request),
            tenant: message.tenant.clone(),
            principal: message.principal.clone(),
            command: Some(command),
        })
    };
    Some(match command {
        Command::Submit { spec, .. } => {
            Kind::WorkloadQueued(queued(config, state, request, message, spec, entry.body.clone()?))
        }
        Command::Cancel { workload, reason } => Kind::WorkloadCancelled(WorkloadCancelled {
            request: Some(request),
            workload: Some((*workload).into()),
            principal: message.principal.clone(),
            reason: reason.clone(),
        }),
        Command::Apply { policy, source, deleted } => Kind::PolicyApplied(PolicyApplied {
            request: Some(request),
            principal: message.principal.clone(),
            source: source.clone(),
            policy: Some((**policy).clone()),
            deleted: *deleted,
        }),
        Command::Erase { workload } => {
            accepted(command_accepted::Command::EraseBody(EraseBody { workload: Some((*workload).into()) }))
        }
        Command::DeclareDead { cluster } => {
            accepted(command_accepted::Command::DeclareDead(DeclareDead { cluster: cluster.clone() }))
        }
    })
}

fn queued(
    config: &Config,
    state: &State,
    request: RequestRef,
    message: &Pending,
    spec: &JobSpec,
    body: BodyRef,
) -> WorkloadQueued {
    WorkloadQueued {
        request: Some(request),
        workload: Some(state.id(request.seq, request.index).into()),
        tenant: message.tenant.clone(),
        principal: message.principal.clone(),
        namespace: spec.namespace.clone(),
        name: spec.name.clone(),
        kind: spec.kind.clone(),
        local_queue: spec.queue.clone(),
        priority: state.priority_classes.get(&spec.priority_class).copied().unwrap_or(0),
        priority_class: spec.priority_class.clone(),
        pod_sets: spec.pod_sets.clone(),
        body: Some(body),
        max_retries: spec.max_retries,
        submitted_us: message.time.0,
        key: message.key.clone(),
        active_deadline_us: spec.active_deadline_us,
        recovery_deadline_us: config.recovery_deadline_us,
        labels: spec.labels.clone(),
        may_split: false,
        commit_on_grant: config.commit_on_grant,
    }
}

/// The first ten of a tenant in a minute are recorded with reasons, the rest as a number.
struct Reasons<'a> {
    state: &'a State,
    minute: i64,
    /// Given in this decision already, by tenant.
    given: Vec<(String, u32)>,
}

impl Reasons<'_> {
    fn allows(&mut self, tenant: &str) -> bool {
        let told = self.state.rejections.get(&tenant.to_owned()).filter(|told| told.minute == self.minute);
        let before = told.map_or(0, |told| told.count);
        if !self.given.iter().any(|(given, _)| given == tenant) {
            self.given.push((tenant.to_owned(), 0));
        }
        let Some((_, given)) = self.given.iter_mut().find(|(given, _)| given == tenant) else { return false };
        *given += 1;
        before.saturating_add(*given) <= REASONS_A_MINUTE
    }
}

fn reject(
    batch: &mut Batch,
    reasons: &mut Reasons<'_>,
    request: RequestRef,
    message: &Pending,
    refusal: &Refusal,
) {
    if batch.run.as_ref().is_some_and(|run| run.tenant != message.tenant) {
        batch.end_run();
    }
    let run = batch.run.get_or_insert_with(|| RequestsRejected {
        first: Some(request),
        tenant: message.tenant.clone(),
        ..RequestsRejected::default()
    });
    run.through = Some(request);
    run.count += 1;
    if reasons.allows(&message.tenant) {
        run.reasons.push(refusal.reason());
    }
}
