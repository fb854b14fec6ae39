//! What becomes of each command, in the order of REQUESTS.
//!
//! A verdict depends on the state as all earlier commands leave it. Where an earlier one that
//! is not recorded yet could change it, the walk ends there and goes on after the next fold. So
//! every replica comes to the same verdict, whenever it looks.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, btree_map};

use muster_core::{WorkloadId, defect, defect::Defect};
use muster_manifest::workload::JobSpec;
use muster_model::lifecycle::Cursor;
use muster_proto::{Policy, RequestRef, policy};

use crate::evolve::{KEY_DAYS, KEY_US};
use crate::inbox::{Entry, Inbox, Pending};
use crate::parse::{Command, OPERATORS};
use crate::refusal::{Refusal, unknown_workload};
use crate::state::{Erase, State};

/// What comes next in REQUESTS.
pub(crate) enum Step<'a> {
    /// Messages that expired or were purged before the queue read them.
    Gone {
        first: RequestRef,
        through: RequestRef,
    },
    Accepted {
        request: RequestRef,
        message: &'a Pending,
        entry: &'a Entry,
        command: &'a Command,
    },
    Refused {
        request: RequestRef,
        message: &'a Pending,
        entry: &'a Entry,
        refusal: Cow<'a, Refusal>,
    },
}

/// Commands from the cursor on, up to the first that can't be judged yet.
pub(crate) struct Walk<'a> {
    state: &'a State,
    at: Cursor,
    messages: btree_map::Range<'a, u64, Pending>,
    message: Option<(u64, &'a Pending)>,
    unrecorded: Unrecorded<'a>,
    ended: bool,
}

/// What commands that were walked over will change once they are recorded.
#[derive(Default)]
struct Unrecorded<'a> {
    keys: BTreeMap<(&'a str, &'a str), u64>,
    workloads: BTreeSet<WorkloadId>,
    policy: bool,
}

enum Verdict<'a> {
    Accept,
    Refuse(Cow<'a, Refusal>),
    /// It depends on an earlier command.
    Wait,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(state: &'a State, inbox: &'a Inbox) -> Self {
        let mut at = state.lifecycle.cursor();
        if defect::on(Defect::NoRequestCursor)
            && let Some((first, _)) = inbox.messages.first_key_value()
        {
            at = Cursor { seq: first.saturating_sub(1), index: 0 };
        }
        let messages = inbox.messages.range(at.seq.saturating_add(1)..);
        Self { state, at, messages, message: None, unrecorded: Unrecorded::default(), ended: false }
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = Step<'a>;

    fn next(&mut self) -> Option<Step<'a>> {
        if self.ended {
            return None;
        }
        if self.message.is_none() {
            self.message = self.messages.next().map(|(seq, message)| (*seq, message));
        }
        let (seq, message) = self.message?;
        let next = self.at.seq + 1;
        if seq > next {
            return Some(self.gone(next, seq - 1));
        }
        let index = self.at.index;
        let Some(entry) = usize::try_from(index).ok().and_then(|index| message.commands.get(index)) else {
            // Another build saw more commands in this message: what is left of it says nothing.
            return Some(self.gone(seq, seq));
        };
        let request = RequestRef { seq, index, of: message.of() };
        match self.judge(request, message, entry) {
            Verdict::Wait => {
                self.ended = true;
                None
            }
            Verdict::Accept => {
                let command = entry.parsed.as_ref().ok()?;
                self.note(request, message, command);
                self.advance(request);
                Some(Step::Accepted { request, message, entry, command })
            }
            Verdict::Refuse(refusal) => {
                self.advance(request);
                Some(Step::Refused { request, message, entry, refusal })
            }
        }
    }
}

impl<'a> Walk<'a> {
    fn gone(&mut self, first: u64, through: u64) -> Step<'a> {
        let index = self.at.index;
        let first = RequestRef { seq: first, index, of: index + 1 };
        let last = if first.seq == through { index } else { 0 };
        let through = RequestRef { seq: through, index: last, of: last + 1 };
        self.advance(through);
        Step::Gone { first, through }
    }

    fn advance(&mut self, done: RequestRef) {
        if done.index + 1 >= done.of {
            self.at = Cursor { seq: done.seq, index: 0 };
            if self.message.is_some_and(|(seq, _)| seq <= done.seq) {
                self.message = None;
            }
        } else {
            self.at.index = done.index + 1;
        }
    }

    fn judge(&self, request: RequestRef, message: &'a Pending, entry: &'a Entry) -> Verdict<'a> {
        if let Some(told) = &entry.told {
            return Verdict::Refuse(Cow::Borrowed(told));
        }
        let command = match &entry.parsed {
            Ok(command) => command,
            Err(refusal) => return Verdict::Refuse(Cow::Borrowed(refusal)),
        };
        let verdict = match command {
            Command::Submit { spec, .. } => self.submit(request, message, spec),
            Command::Apply { policy, deleted, .. } => self.apply(policy, *deleted),
            Command::Cancel { workload, .. } => self.of_workload(request, message, *workload, Self::cancel),
            Command::Erase { workload } => self.of_workload(request, message, *workload, Self::erase),
            Command::DeclareDead { cluster } => Some(self.declare_dead(cluster)),
        };
        match verdict {
            None => Verdict::Wait,
            Some(None) => Verdict::Accept,
            Some(Some(refusal)) => Verdict::Refuse(Cow::Owned(refusal)),
        }
    }

    fn note(&mut self, request: RequestRef, message: &'a Pending, command: &'a Command) {
        match command {
            Command::Submit { .. } => {
                self.unrecorded.workloads.insert(self.state.id(request.seq, request.index));
                if !message.key.is_empty() {
                    let key = (message.tenant.as_str(), message.key.as_str());
                    self.unrecorded.keys.entry(key).or_insert(request.seq);
                }
            }
            Command::Cancel { workload, .. } | Command::Erase { workload } => {
                self.unrecorded.workloads.insert(*workload);
            }
            Command::Apply { policy, .. } => {
                let matters = |object: &policy::Object| {
                    matches!(object, policy::Object::Tenant(_) | policy::Object::WorkloadPriorityClass(_))
                };
                self.unrecorded.policy |= policy.object.as_ref().is_some_and(matters);
            }
            Command::DeclareDead { .. } => {}
        }
    }

    fn submit(&self, request: RequestRef, message: &Pending, spec: &JobSpec) -> Option<Option<Refusal>> {
        let key = (message.tenant.as_str(), message.key.as_str());
        let used_ahead = self.unrecorded.keys.get(&key).is_some_and(|seq| *seq != request.seq);
        if self.unrecorded.policy || used_ahead {
            return None;
        }
        let faults = [
            foreign_namespace(self.state, &message.tenant, &spec.namespace),
            unknown_class(self.state, &spec.priority_class),
            key_in_use(self.state, request.seq, message),
        ];
        let mut faults = faults.into_iter().flatten();
        Some(faults.next().map(|first| faults.fold(first, |all, next| all.and(Some(next)))))
    }

    fn apply(&self, policy: &Policy, deleted: bool) -> Option<Option<Refusal>> {
        if self.unrecorded.policy {
            return None;
        }
        let Some(policy::Object::Tenant(tenant)) = &policy.object else { return Some(None) };
        let taken = tenant.namespaces.iter().filter_map(|namespace| {
            let owner = self.state.namespaces.get(namespace).filter(|owner| **owner != tenant.name)?;
            let message = format!("it belongs to tenant {owner}, which has to give it up first");
            Some(Refusal::new("NamespaceTaken", "spec.namespaces", namespace, &message))
        });
        Some(taken.reduce(|all, next| all.and(Some(next))).filter(|_| !deleted))
    }

    /// Commands about a workload: it must exist and be the tenant's own.
    fn of_workload(
        &self,
        request: RequestRef,
        message: &Pending,
        id: WorkloadId,
        judge: fn(&Self, WorkloadId) -> Option<Refusal>,
    ) -> Option<Option<Refusal>> {
        let unrecorded = self.unrecorded.workloads.contains(&id);
        if unrecorded && (id.request, id.index) < (request.seq, request.index) {
            return None;
        }
        let own = |tenant: &str| tenant == message.tenant || message.tenant == OPERATORS;
        match self.state.jobs.get(&id).filter(|job| own(&job.tenant)) {
            Some(_) => Some(judge(self, id)),
            None => Some(Some(unknown_workload(id))),
        }
    }

    fn cancel(&self, id: WorkloadId) -> Option<Refusal> {
        let row = self.state.lifecycle.workload(&id)?;
        let name = id.to_string();
        if row.terminal.is_some() {
            return Some(Refusal::new("AlreadyOver", "workload", &name, "the workload has come to its end"));
        }
        row.cancel.then(|| Refusal::new("AlreadyCancelled", "workload", &name, "it is being cancelled"))
    }

    /// A workload that is not over is erased when it is: it may need its manifest once more.
    fn erase(&self, id: WorkloadId) -> Option<Refusal> {
        let erase = self.state.jobs.get(&id)?.erase;
        let message = "the manifest is erased, or will be when the workload is over";
        (erase != Erase::No).then(|| Refusal::new("AlreadyErased", "workload", &id.to_string(), message))
    }

    fn declare_dead(&self, cluster: &str) -> Option<Refusal> {
        let Some(row) = self.state.lifecycle.cluster(cluster) else {
            return Some(Refusal::new("UnknownCluster", "cluster", cluster, "no such cluster has joined"));
        };
        let message = "it is not suspected; only a cluster that fell silent can be declared dead";
        row.suspected.is_none().then(|| Refusal::new("NotSuspected", "cluster", cluster, message))
    }
}

fn foreign_namespace(state: &State, tenant: &str, namespace: &str) -> Option<Refusal> {
    if state.owner_of(namespace) == Some(tenant) {
        return None;
    }
    let mut own: Vec<&str> = state.namespaces_of(tenant).take(10).collect();
    if own.is_empty() && state.owner_of("default") == Some(tenant) {
        own.push("default");
    }
    let message = if own.is_empty() {
        format!("tenant {tenant} owns no namespace; an operator gives it one by applying a Tenant")
    } else {
        format!("the namespace is not one of tenant {tenant}; it owns {}", own.join(", "))
    };
    Some(Refusal::new("ForeignNamespace", "metadata.namespace", namespace, &message))
}

fn unknown_class(state: &State, class: &str) -> Option<Refusal> {
    if class.is_empty() || state.priority_classes.contains(&class.to_owned()) {
        return None;
    }
    let known: Vec<&str> = state.priority_classes.iter().take(10).map(|(name, _)| name.as_str()).collect();
    let known = if known.is_empty() { "there is none".to_owned() } else { known.join(", ") };
    let message = format!("no such WorkloadPriorityClass; known: {known}");
    Some(Refusal::new("UnknownPriorityClass", "priority_class", class, &message))
}

/// A request that is sent again makes no second workload.
fn key_in_use(state: &State, request: u64, message: &Pending) -> Option<Refusal> {
    if message.key.is_empty() {
        return None;
    }
    let used = state.keys.get(&(message.tenant.clone(), message.key.clone()))?;
    let fresh = message.time.0.saturating_sub(used.time_us) < KEY_US;
    (fresh && used.workload.request != request).then(|| {
        let text = format!("this key made {} within the last {KEY_DAYS} days", used.workload);
        Refusal::new("AlreadyQueued", "key", &message.key, &text)
    })
}
