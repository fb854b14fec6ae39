//! Folding: the lifecycle judges, and what took effect is noted where the queue will need it.

use muster_core::{At, Event, WorkloadId};
use muster_proto::{
    CommandAccepted, Kind, LegEnded, Outcome, PolicyApplied, RequestsRejected, Tenant, WorkloadQueued,
    WorkloadRequeued, command_accepted, policy,
};

use crate::refusal::shorten;
use crate::state::{Erase, Exit, Job, KeyUse, Mark, State, Told};

const MINUTE_US: i64 = 60_000_000;
/// How long a key is kept.
pub(crate) const KEY_DAYS: i64 = 8;
pub(crate) const KEY_US: i64 = KEY_DAYS * 86_400_000_000;
/// Old keys that one new workload drops: more than it adds, so the table can't outgrow 8 days.
const PRUNED_AT_ONCE: usize = 16;
/// An attempt that ran for so long was no part of a series of failures.
const LONG_RUN_US: i64 = 600_000_000;
const MAX_REASON: usize = 200;

pub(crate) fn evolve(state: &mut State, at: At, event: &Event) {
    let infra = matches!(&event.fact, Kind::WorkloadRequeued(fact) if is_infra(state, fact));
    let verdict = state.lifecycle.apply(at, event);
    if !verdict.is_effective() {
        return;
    }
    match &event.fact {
        Kind::WorkloadQueued(fact) => queued(state, fact),
        Kind::CommandAccepted(fact) => accepted(state, fact),
        Kind::PolicyApplied(fact) => policy_applied(state, fact),
        Kind::RequestsRejected(fact) => rejected(state, at, fact),
        Kind::WorkloadRequeued(fact) => requeued(state, fact, infra),
        Kind::LegEnded(fact) => leg_ended(state, fact),
        Kind::BodyErased(fact) => {
            let id = WorkloadId::of(fact.workload.as_ref());
            state.jobs.update(&id, |job| job.erase = Erase::Done);
            state.index(id);
        }
        _ => {}
    }
    for id in verdict.touched() {
        review(state, at, *id);
    }
}

/// The minute in which rejections are counted.
pub(crate) const fn minute(time_us: i64) -> i64 {
    time_us.div_euclid(MINUTE_US)
}

fn is_infra(state: &State, fact: &WorkloadRequeued) -> bool {
    let row = state.lifecycle.workload(&WorkloadId::of(fact.workload.as_ref()));
    row.is_some_and(|row| !row.preempted && row.infra_failed())
}

fn queued(state: &mut State, fact: &WorkloadQueued) {
    let id = WorkloadId::of(fact.workload.as_ref());
    let job = Job {
        tenant: fact.tenant.clone(),
        namespace: fact.namespace.clone(),
        name: fact.name.clone(),
        max_retries: fact.max_retries,
        recovery_deadline_us: fact.recovery_deadline_us,
        body: fact.body.as_ref().map_or(0, |body| body.seq),
        ..Job::default()
    };
    state.jobs.put(id, job);
    prune_keys(state, fact.submitted_us);
    if fact.key.is_empty() {
        return;
    }
    // A request of several commands: its key names the first workload.
    let key = (fact.tenant.clone(), fact.key.clone());
    if state.keys.get(&key).is_none_or(|used| used.workload.request != id.request) {
        remove_key(state, &key);
        state.key_ages.put((fact.submitted_us, key.0.clone(), key.1.clone()), ());
        state.keys.put(key, KeyUse { workload: id, time_us: fact.submitted_us });
    }
}

fn prune_keys(state: &mut State, now_us: i64) {
    let old: Vec<_> = state
        .key_ages
        .range(..(now_us.saturating_sub(KEY_US), String::new(), String::new()))
        .take(PRUNED_AT_ONCE)
        .map(|((_, tenant, key), ())| (tenant.clone(), key.clone()))
        .collect();
    for key in old {
        remove_key(state, &key);
    }
}

fn remove_key(state: &mut State, key: &(String, String)) {
    if let Some(used) = state.keys.get(key) {
        let age = (used.time_us, key.0.clone(), key.1.clone());
        state.key_ages.remove(&age);
        state.keys.remove(key);
    }
}

fn accepted(state: &mut State, fact: &CommandAccepted) {
    if let Some(command_accepted::Command::EraseBody(command)) = &fact.command {
        let id = WorkloadId::of(command.workload.as_ref());
        state.jobs.update(&id, |job| {
            if job.erase == Erase::No {
                job.erase = Erase::Asked;
            }
        });
        state.index(id);
    }
}

fn policy_applied(state: &mut State, fact: &PolicyApplied) {
    match fact.policy.as_ref().and_then(|policy| policy.object.as_ref()) {
        Some(policy::Object::Tenant(tenant)) => tenant_applied(state, tenant, fact.deleted),
        Some(policy::Object::WorkloadPriorityClass(class)) if fact.deleted => {
            state.priority_classes.remove(&class.name);
        }
        Some(policy::Object::WorkloadPriorityClass(class)) => {
            state.priority_classes.put(class.name.clone(), class.value);
        }
        _ => {}
    }
}

fn tenant_applied(state: &mut State, tenant: &Tenant, deleted: bool) {
    let before: Vec<String> = state.namespaces_of(&tenant.name).map(str::to_owned).collect();
    for namespace in before {
        state.owned.remove(&(tenant.name.clone(), namespace.clone()));
        state.namespaces.remove(&namespace);
    }
    if deleted {
        state.tenants.remove(&tenant.name);
        return;
    }
    state.tenants.put(tenant.name.clone(), ());
    for namespace in &tenant.namespaces {
        // What another tenant owns by policy stays there: it has to be given up first.
        if !state.namespaces.contains(namespace) {
            state.namespaces.put(namespace.clone(), tenant.name.clone());
            state.owned.put((tenant.name.clone(), namespace.clone()), ());
        }
    }
}

fn rejected(state: &mut State, at: At, fact: &RequestsRejected) {
    if fact.reasons.is_empty() || fact.tenant.is_empty() {
        return;
    }
    let minute = minute(at.time.0);
    let told = state.rejections.get(&fact.tenant).copied().filter(|told| told.minute == minute);
    let more = u32::try_from(fact.reasons.len()).unwrap_or(u32::MAX);
    let count = told.map_or(0, |told| told.count).saturating_add(more);
    state.rejections.put(fact.tenant.clone(), Told { minute, count });
}

fn requeued(state: &mut State, fact: &WorkloadRequeued, infra: bool) {
    state.jobs.update(&WorkloadId::of(fact.workload.as_ref()), |job| {
        job.not_before_us = fact.not_before_us;
        job.requeued_for = shorten(&fact.reason, MAX_REASON);
        if infra {
            job.infra_requeues = job.infra_requeues.saturating_add(1);
        }
    });
}

/// The first failure tells why an attempt ended; without one, the last leg's success.
fn leg_ended(state: &mut State, fact: &LegEnded) {
    let failed = fact.outcome() != Outcome::Succeeded;
    state.jobs.update(&WorkloadId::of(fact.workload.as_ref()), |job| {
        if job.exit.attempt == fact.attempt && job.exit.failed {
            return;
        }
        let reason = shorten(&fact.reason, MAX_REASON);
        job.exit = Exit { attempt: fact.attempt, failed, code: fact.exit_code, reason };
    });
}

/// Notes when an attempt started and when it broke, as these times are known only here.
fn review(state: &mut State, at: At, id: WorkloadId) {
    let Some(row) = state.lifecycle.workload(&id) else { return };
    let attempt = row.last.as_ref().map_or(0, |last| last.no);
    let runs = row.live().is_some_and(|live| live.committed);
    let broken = row.infra_failed();
    let mark = Mark { attempt, time_us: at.time.0 };
    let Some(job) = state.jobs.get(&id) else { return };
    let starts = runs && job.started.attempt != attempt;
    let breaks = broken && job.broken.attempt != attempt;
    if starts || breaks {
        state.jobs.update(&id, |job| {
            if starts {
                job.started = mark;
            }
            if breaks {
                job.broken = mark;
                if job.started.attempt == attempt
                    && mark.time_us.saturating_sub(job.started.time_us) >= LONG_RUN_US
                {
                    job.infra_requeues = 0;
                }
            }
        });
    }
    state.index(id);
}
