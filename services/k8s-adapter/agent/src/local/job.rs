//! Job and Pod: every completion once, at most as many at a time as pods were placed. The first failure ends the
//! attempt; whether to try again is the queue's to decide, so a Job's own backoffLimit is not used here.

use std::{collections::BTreeMap, io};

use muster_manifest::document;

use super::{
    attempt::{Attempt, Next, failed, lost, succeeded},
    object::{Pod, State},
};
use crate::shim::Run;

pub fn next(attempt: &Attempt) -> io::Result<Next> {
    let tasks = tasks(attempt);
    let (mut running, mut done, mut spawn) = (0, 0, Vec::new());
    let mut gone = None;
    for (task, pod) in &tasks {
        match attempt.state(&name(pod, *task))? {
            State::Exited(exit) if exit.code == 0 => done += 1,
            State::Exited(exit) => return Ok(Next::ends(failed(&name(pod, *task), &exit))),
            State::Lost => gone = Some(name(pod, *task)),
            State::Running { .. } => running += 1,
            State::Absent => spawn.push((*task, *pod)),
        }
    }
    if let Some(pod) = gone {
        return Ok(Next::ends(lost(format!("pod {pod}: its process vanished without an exit code"))));
    }
    if done == tasks.len() {
        return Ok(Next::ends(succeeded()));
    }
    spawn.truncate(attempt.pods.len().saturating_sub(running));
    Ok(Next {
        spawn: spawn.into_iter().map(|(task, pod)| run(attempt, task, pod)).collect(),
        progress: if tasks.len() > 1 {
            format!("{done} of {} completions", tasks.len())
        } else {
            String::new()
        },
        ..Next::default()
    })
}

fn name(pod: &Pod, task: u32) -> String {
    format!("{}-{task}", pod.set)
}

/// The completions and the pod whose place each takes.
fn tasks(attempt: &Attempt) -> Vec<(u32, &Pod)> {
    let pods = &attempt.pods;
    let whole = attempt.spec.pod_sets.iter().map(|set| set.count as usize).sum::<usize>() == pods.len();
    match completions(attempt) {
        Some(completions) if whole && completions as usize > pods.len() => {
            (0..completions).zip(pods.iter().cycle()).collect()
        }
        _ => pods.iter().map(|pod| (pod.index, pod)).collect(),
    }
}

fn completions(attempt: &Attempt) -> Option<u32> {
    let manifest = document::parse(&attempt.spec.manifest).ok()?;
    manifest.get("spec")?.get("completions")?.as_u64()?.try_into().ok()
}

fn run(attempt: &Attempt, task: u32, pod: &Pod) -> Run {
    let process = attempt.role(&pod.set).and_then(|role| role.containers.first());
    let argv = process.map(|process| [process.command.clone(), process.args.clone()]).unwrap_or_default();
    // Arguments without a command belong to the image's entrypoint, which is not known here.
    let argv = if argv[0].is_empty() { Vec::new() } else { argv.concat() };
    let index = BTreeMap::from([("JOB_COMPLETION_INDEX".to_owned(), task.to_string())]);
    attempt.run(&name(pod, task), &pod.node, process, argv, &index)
}
