//! Manifests as a user would write them.

/// ResourceFlavor, ClusterQueue and LocalQueue of one name, with this nominal quota.
#[must_use]
pub fn queue(name: &str, cpu: &str, memory: &str) -> String {
    format!(
        r#"apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {{name: {name}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {{name: {name}}}
spec:
  namespaceSelector: {{}}
  resourceGroups:
  - coveredResources: [cpu, memory]
    flavors:
    - name: {name}
      resources:
      - {{name: cpu, nominalQuota: "{cpu}"}}
      - {{name: memory, nominalQuota: {memory}}}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {{name: {name}, namespace: default}}
spec: {{clusterQueue: {name}}}
"#
    )
}

/// A Job of one pod that runs a script, in LocalQueue `queue`.
#[must_use]
pub fn job(name: &str, queue: &str, cpu: &str, script: &str) -> String {
    let script = serde_json::Value::from(script);
    job_of(name, queue, cpu, &format!("command: [bash, -c, {script}]"))
}

/// As [`job`], with the container's command as YAML.
#[must_use]
pub fn job_of(name: &str, queue: &str, cpu: &str, command: &str) -> String {
    format!(
        r#"---
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: {queue}}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: debian
        {command}
        resources: {{requests: {{cpu: "{cpu}", memory: 16Mi}}}}
"#
    )
}

/// A RayJob of a head and workers of one CPU each.
#[must_use]
pub fn ray_job(name: &str, queue: &str, workers: u32, entrypoint: &str) -> String {
    let entrypoint = serde_json::Value::from(entrypoint);
    let template = |name: &str| {
        format!(
            "{{spec: {{containers: [{{name: {name}, image: \"rayproject/ray:2.60.0\", \
             resources: {{requests: {{cpu: \"1\", memory: 1Gi}}}}}}]}}}}"
        )
    };
    format!(
        r#"---
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: {queue}}}
spec:
  submissionMode: HTTPMode
  shutdownAfterJobFinishes: true
  entrypoint: {entrypoint}
  rayClusterSpec:
    rayVersion: 2.60.0
    headGroupSpec:
      rayStartParams: {{}}
      template: {head}
    workerGroupSpecs:
    - groupName: workers
      replicas: {workers}
      minReplicas: {workers}
      maxReplicas: {workers}
      rayStartParams: {{}}
      template: {worker}
"#,
        head = template("head"),
        worker = template("worker"),
    )
}
