//! One seed from its beginning to its judgement.

use muster_core::{defect, defect::Defect};
use muster_proto::Result as Finish;

use crate::{
    agent::name_of,
    cluster::Thing,
    options::{BUDGET_US, FAULTS_US, QUIET_US, SECOND},
    oracle::Violation,
    stats::Stats,
    world::{START, World},
};

/// What became of a seed.
#[derive(Debug)]
pub struct Verdict {
    pub seed: u64,
    pub violation: Option<Violation>,
    /// The last facts before a violation.
    pub facts: Vec<String>,
    pub stats: Stats,
    /// Two runs of the same seed have the same.
    pub trace: u64,
    pub lines: Vec<String>,
    pub messages: u64,
}

/// Runs a seed on this thread, with a defect or without.
#[must_use]
pub fn run(seed: u64, defect: Option<Defect>, trace: bool) -> Verdict {
    defect::set(defect);
    muster_plan::defect::set(
        (defect == Some(Defect::StartWithoutUid)).then_some(muster_plan::defect::Defect::StartWithoutUid),
    );
    let mut world = World::new(seed, trace);
    let violation = live(&mut world).err();
    defect::set(None);
    muster_plan::defect::set(None);
    Verdict {
        seed,
        facts: if violation.is_some() { world.last_facts(20) } else { Vec::new() },
        violation,
        stats: world.stats,
        trace: world.trace.hash,
        lines: world.trace.lines.unwrap_or_default(),
        messages: world.log.head(),
    }
}

fn live(world: &mut World) -> Result<(), Violation> {
    world.run(START + FAULTS_US + SECOND, |_| false)?;
    let until = world.now + BUDGET_US;
    if !world.run(until, is_finished)? {
        return Err(unfinished(world));
    }
    // The last messages are read by all; then nothing more may be said.
    world.run(world.now + 30 * SECOND, |_| false)?;
    let head = world.log.head();
    world.run(world.now + QUIET_US, |_| false)?;
    if world.log.head() != head {
        let detail = format!("{} messages with no outside input", world.log.head() - head);
        return Err(Violation::new("the log comes to rest", detail));
    }
    judge(world)
}

fn is_finished(world: &World) -> bool {
    world.healed && world.ledger.open().next().is_none() && world.answers.missing(&world.commands).is_none()
}

fn unfinished(world: &World) -> Violation {
    let mut detail = String::new();
    for id in world.ledger.open() {
        let row = world.reference.workload(id);
        detail.push_str(&format!("{id} is open: {row:?}; "));
    }
    if let Some(at) = world.answers.missing(&world.commands) {
        detail.push_str(&format!("request {at:?} has no answer; "));
    }
    Violation::new("everything finishes when faults stop", detail)
}

fn judge(world: &mut World) -> Result<(), Violation> {
    for (id, result) in &world.ledger.finished {
        let successes = world.processes.successes.get(id).copied().unwrap_or(0);
        let excused = world.processes.excused.contains(id);
        let cancelled = world.ledger.cancelled.contains(id);
        let right = match result {
            Finish::Succeeded => successes > 0,
            Finish::Failed => successes == 0,
            Finish::Cancelled => cancelled,
            Finish::Unspecified => false,
        };
        if !right && !excused {
            let detail = format!("{id} ended {result:?}, and its program succeeded {successes} times");
            return Err(Violation::new("no success is lost, and none invented", detail));
        }
    }
    for cluster in &world.clusters {
        // A create may land after the log that asked for it was lost.
        let unknown = |thing: &Thing| {
            let (id, attempt) = name_of(&thing.key);
            let known = world.reference.workload(&id).map_or(0, |row| row.attempts);
            world.stats.of("accept-loss") > 0 && attempt > known
        };
        let left = cluster
            .things
            .values()
            .find(|thing| !world.processes.is_stray(&thing.object.uid) && !unknown(thing));
        if let Some(thing) = left {
            let detail = format!("{} {} {:?}", cluster.name, thing.key, thing.object);
            return Err(Violation::new("nothing is left in a cluster at the end", detail));
        }
        for _ in cluster.things.values() {
            world.stats.count("object: stray held");
        }
    }
    let World { hashes, kinds, options, log, .. } = world;
    hashes.replay(kinds, options, log)?;
    let head = world.log.head();
    for replica in &mut world.replicas {
        let position = replica.host.as_mut().map(|host| host.position().seq);
        if position != Some(head) {
            let detail = format!("service {} stands at {position:?} of {head}", replica.kind);
            return Err(Violation::new("all replicas read to the end", detail));
        }
    }
    Ok(())
}
