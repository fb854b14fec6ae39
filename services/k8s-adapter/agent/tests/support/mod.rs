//! A local cluster in a temporary folder. The test program itself plays the shim: tests that start pods hold a test
//! `shim_entry` that calls [`shim_entry`].
#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use muster_agent::{
    Backend, LogQuery,
    local::{Config, Local},
    proc,
};
use muster_plan::{Binding, Done, Key, Node, Object, fit};
use muster_proto::{LegSpec, Phase, PodRange, PodSet};
use tempfile::TempDir;

const SHIM: &str = "MUSTER_TEST_SHIM";

/// Does nothing unless this process was started as a shim.
pub fn shim_entry() {
    if let Some(dir) = std::env::var_os(SHIM) {
        muster_agent::shim::main(Path::new(&dir)).unwrap();
    }
}

pub fn config(data: &Path) -> Config {
    let me = std::env::current_exe().unwrap();
    let script = format!("{SHIM}=\"$0\" exec {} --exact shim_entry --nocapture", me.display());
    Config {
        shim: vec!["/bin/sh".into(), "-c".into(), script],
        grace: Duration::from_secs(2),
        ..Config::new(data.into(), "here", vec![node("n1", 64_000), node("n2", 64_000)])
    }
}

pub fn node(name: &str, cpu: i64) -> Node {
    let free = BTreeMap::from([
        ("cpu".to_owned(), cpu),
        ("nvidia.com/gpu".to_owned(), 8),
        ("memory".to_owned(), 1 << 40),
    ]);
    Node { name: name.into(), allocatable: free.clone(), free, ..Node::default() }
}

pub struct Cluster {
    pub dir: TempDir,
    pub config: Config,
    pub local: Local,
}

impl Cluster {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Config)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path());
        change(&mut config);
        let local = Local::open(config.clone()).unwrap();
        Self { dir, config, local }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates it on the nodes as the plan would; gives the uid.
    pub async fn create(&self, key: Key, spec: &LegSpec) -> String {
        let mut nodes = self.local.observe().await.unwrap().nodes;
        let bindings = fit::place(spec, &mut nodes).unwrap();
        assert_eq!(self.local.create(key, spec.clone(), bindings).await, Done::Ok);
        self.object(key).await.unwrap().uid
    }

    pub async fn start(&self, key: Key, spec: &LegSpec) -> String {
        let uid = self.create(key, spec).await;
        assert_eq!(self.local.start(key, uid.clone()).await, Done::Ok);
        uid
    }

    pub async fn object(&self, key: Key) -> Option<Object> {
        self.local.observe().await.unwrap().objects.remove(&key)
    }

    /// Waits for the phase; fails early when another end came instead.
    pub async fn reach(&self, key: Key, phase: Phase, seconds: u64) -> Object {
        let until = tokio::time::Instant::now() + Duration::from_secs(seconds);
        loop {
            let object = self.object(key).await.unwrap();
            if object.phase == phase {
                return object;
            }
            let over = matches!(object.phase, Phase::Succeeded | Phase::Failed | Phase::Lost);
            assert!(!over && tokio::time::Instant::now() < until, "{object:?}\n{}", self.all_logs(key));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Removes it and waits until it is gone.
    pub async fn remove(&self, key: Key, uid: Option<&str>) {
        assert_eq!(self.local.remove(key, uid.map(str::to_owned)).await, Done::Ok);
        let until = tokio::time::Instant::now() + Duration::from_secs(60);
        while self.object(key).await.is_some() {
            assert!(tokio::time::Instant::now() < until, "it is still there");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub fn all_logs(&self, key: Key) -> String {
        let folder = self.dir.path().join("clusters/here/logs").join(key.workload_id());
        let folder = folder.join(format!("a{}", key.attempt));
        let Ok(files) = fs::read_dir(folder) else { return String::new() };
        let paths = files.map(|file| file.unwrap().path());
        paths.map(|path| format!("== {}\n{}", path.display(), fs::read_to_string(&path).unwrap())).collect()
    }

    pub async fn log(&self, key: Key, pod: &str) -> String {
        let query = LogQuery {
            workload: key.workload_id(),
            attempt: key.attempt,
            pod: pod.into(),
            limit: 1 << 20,
            ..LogQuery::default()
        };
        String::from_utf8(self.local.logs(query).await.unwrap().data).unwrap()
    }
}

impl Drop for Cluster {
    /// A failed test leaves nothing that runs.
    fn drop(&mut self) {
        let mark = format!("{}={}", proc::CLUSTER_DIR, self.dir.path().join("clusters/here").display());
        drop(proc::kill_all(&[mark], 0, Duration::from_secs(10)));
    }
}

pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let until = tokio::time::Instant::now() + Duration::from_secs(240);
    while !holds() {
        assert!(tokio::time::Instant::now() < until, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn key(request: u64) -> Key {
    Key { generation: 0xab, request, index: 0, attempt: 1 }
}

/// How many processes carry the attempt's token.
pub fn carriers(key: Key, uid: &str) -> usize {
    proc::carrying(&[format!("MUSTER_ATTEMPT={key}-{uid}")]).unwrap().len()
}

pub fn pod_set(name: &str, count: u32, cpu: i64, gpu: i64) -> PodSet {
    let requests = BTreeMap::from([("cpu".to_owned(), cpu), ("nvidia.com/gpu".to_owned(), gpu)]);
    PodSet { name: name.into(), count, requests, ..PodSet::default() }
}

pub fn spec(manifest: &str, pod_sets: Vec<PodSet>) -> LegSpec {
    let range = |set: &PodSet| PodRange {
        pod_set: set.name.clone(),
        first: 0,
        count: set.count,
        ..PodRange::default()
    };
    LegSpec {
        manifest: manifest.as_bytes().to_vec().into(),
        pods: pod_sets.iter().map(range).collect(),
        pod_sets,
        ..LegSpec::default()
    }
}

/// A Job of so many pods, each of which runs the script.
pub fn job(pods: u32, script: &str) -> LegSpec {
    job_of(pods, pods, &["/bin/sh", "-c", script])
}

pub fn job_of(pods: u32, completions: u32, command: &[&str]) -> LegSpec {
    let manifest = format!(
        r#"{{"apiVersion": "batch/v1", "kind": "Job", "metadata": {{"name": "j"}}, "spec": {{
            "parallelism": {pods}, "completions": {completions}, "completionMode": "Indexed",
            "template": {{"spec": {{"restartPolicy": "Never", "containers": [{{"name": "c", "image": "i",
                "command": {command:?}}}]}}}}}}}}"#
    );
    spec(&manifest, vec![pod_set("main", pods, 1000, 0)])
}

pub fn bindings(spec: &LegSpec, nodes: &mut [Node]) -> Vec<Binding> {
    fit::place(spec, nodes).unwrap()
}
