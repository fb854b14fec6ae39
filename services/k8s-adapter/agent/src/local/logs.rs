//! Reading logs, which outlive their objects.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::Path,
};

use muster_plan::Key;

use super::{Shared, object::Object};
use crate::{LogChunk, LogQuery};

const MOST: usize = 512 * 1024;

pub fn read(shared: &Shared, query: &LogQuery) -> io::Result<LogChunk> {
    let last = query.attempt == 0;
    // The query comes from outside: only a well-formed id may become a path.
    let key = Key::parse(&format!("{}-a{}", query.workload, query.attempt.max(1)));
    let Some(mut key) = key else { return Err(not_found("no such workload id")) };
    let folder = shared.config.folder().join("logs").join(key.workload_id());
    let attempts = names(&folder)?.into_iter().filter_map(|name| name.strip_prefix('a')?.parse().ok());
    let newest = attempts.max().ok_or_else(|| not_found("the workload has no logs here"))?;
    if last {
        key.attempt = newest;
    }
    let folder = folder.join(format!("a{}", key.attempt));
    let mut pods: Vec<String> =
        names(&folder)?.iter().filter_map(|name| Some(name.strip_suffix(".log")?.to_owned())).collect();
    pods.sort();
    let told = |pod: &&String| if query.pod.is_empty() { is_driver(pod) } else { **pod == query.pod };
    let pod = pods.iter().find(told).or(pods.first().filter(|_| query.pod.is_empty()));
    let pod = pod.ok_or_else(|| not_found("the attempt has no log of this pod"))?.clone();
    let over = Object::find(shared, key, None)?.is_none_or(|object| object.has("over"));
    let data = part(&folder.join(format!("{pod}.log")), query.from, query.limit.min(MOST))?;
    let next = query.from + data.len() as u64;
    Ok(LogChunk { attempt: key.attempt, pod, pods, ended: over && data.is_empty(), data, next })
}

fn is_driver(pod: &str) -> bool {
    matches!(pod, "submitter-0" | "entrypoint-0")
}

fn part(path: &Path, from: u64, limit: usize) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(from))?;
    let mut data = Vec::new();
    file.take(limit as u64).read_to_end(&mut data)?;
    Ok(data)
}

fn names(folder: &Path) -> io::Result<Vec<String>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect(),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(cause) => Err(cause),
    }
}

fn not_found(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, why)
}
