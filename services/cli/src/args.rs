//! The command line, as kubectl's users expect it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Gathers accelerators from many Kubernetes clusters for AI workloads, and keeps the roll.
///
/// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 rejected, 5 no connection.
/// `submit --wait` and `--follow` exit with the job's own code.
#[derive(Debug, Parser)]
#[command(name = "muster", version, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Args)]
pub struct Global {
    /// Which context to use; the current one by default
    #[arg(long, global = true, env = "MUSTER_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
    /// Namespace; the context's by default
    #[arg(short, long, global = true, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// How to print
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    pub output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    Table,
    Wide,
    Json,
    Yaml,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start everything on this machine: a NATS server, every service, one member cluster
    Up(Up),
    /// Stop what `up` started; running pods go on
    Down(Down),
    /// Show what `up` started, and how it is
    Status,
    /// Look for what is wrong, and say how to mend it
    Doctor,
    /// Run one service in the foreground
    Run(Run),
    /// Show, choose or add contexts
    Context {
        #[command(subcommand)]
        action: Option<ContextAction>,
    },
    /// Apply Kueue's manifests: ResourceFlavor, ClusterQueue, LocalQueue
    Apply {
        /// File with one or many documents, or `-`
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
        /// Only check the file
        #[arg(long)]
        dry_run: bool,
    },
    /// Submit job manifests: RayJob, RayCluster, Job, Pod
    Submit(Submit),
    /// List workloads, queues, flavors or clusters
    Get(Get),
    /// Show one workload with its timeline
    Describe {
        /// Id or name
        workload: String,
    },
    /// Say why a workload is where it is
    Why {
        /// Id or name
        workload: String,
    },
    /// Show facts of the log
    Events {
        /// Only of this workload
        workload: Option<String>,
        /// Go on as facts arrive
        #[arg(short, long)]
        follow: bool,
        /// Only above this sequence
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
    /// Print a workload's output
    Logs {
        /// Id or name
        workload: String,
        /// Go on as it is written
        #[arg(short, long)]
        follow: bool,
        /// Of this pod; a RayJob's entrypoint, else the first pod, by default
        #[arg(long)]
        pod: Option<String>,
        /// Of this attempt; the last by default
        #[arg(long, default_value_t = 0)]
        attempt: u32,
    },
    /// Cancel a workload
    Cancel {
        /// Id or name
        workload: String,
        /// Recorded with the cancellation
        #[arg(long, default_value = "")]
        reason: String,
    },
    /// Overwrite the body of a workload's manifest; the log stays provable
    Erase {
        /// Id or name
        workload: String,
    },
    /// Fold the log again and check it
    Replay(Replay),
    /// Export the log, or accept that it lost messages
    Log {
        #[command(subcommand)]
        action: LogAction,
    },
    /// Runs one pod; started by the agent
    #[command(hide = true)]
    Shim { dir: PathBuf },
    /// Runs what `up` detaches
    #[command(hide = true)]
    Supervise { data: PathBuf },
}

#[derive(Debug, Args)]
pub struct Up {
    /// Where state is kept
    #[arg(long, env = "MUSTER_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Use this NATS server instead of starting one; its configuration must be muster's (deploy/nats)
    #[arg(long, value_name = "URL", requires = "nats_users")]
    pub nats: Option<String>,
    /// Folder with the credentials files of that server's users
    #[arg(long, value_name = "DIR", requires = "nats")]
    pub nats_users: Option<PathBuf>,
    /// Nodes of the local cluster: YAML list of name, labels, taints, allocatable
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// Replicas of each service, 1 or 2
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    pub replicas: u8,
    /// Stay in the foreground
    #[arg(long)]
    pub foreground: bool,
    /// Write the context under this name
    #[arg(long, default_value = "local", value_name = "NAME")]
    pub name: String,
}

#[derive(Debug, Args)]
pub struct Down {
    /// Where state is kept; the context's by default
    #[arg(long, env = "MUSTER_DATA", value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Kill the pods of the local cluster too
    #[arg(long)]
    pub kill_pods: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServiceName {
    Queue,
    Admission,
    Federation,
    Desk,
    Agent,
    Ledger,
}

#[derive(Clone, Debug, Args)]
pub struct Run {
    #[arg(value_enum)]
    pub service: ServiceName,
    /// The member cluster; desk and agent only
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// NATS server
    #[arg(long, env = "MUSTER_NATS", value_name = "URL")]
    pub nats: String,
    /// Credentials file of this service's user
    #[arg(long, env = "MUSTER_CREDENTIALS", value_name = "FILE")]
    pub credentials: PathBuf,
    /// Where this process keeps its image (services) or its cluster (agent)
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Replica slot, 0 or 1
    #[arg(long, default_value_t = 0)]
    pub slot: u8,
    /// Port on loopback for /healthz, /readyz, /metrics; a free one by default
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Forget the image and fold the log from its beginning
    #[arg(long)]
    pub rebuild: bool,
    /// Nodes of the cluster (agent)
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum ContextAction {
    /// Choose the context that commands use
    Use { name: String },
    /// Add or change a context
    Set {
        name: String,
        #[arg(long)]
        url: String,
        /// Credentials file of a tenant's user
        #[arg(long, value_name = "FILE")]
        credentials: Option<PathBuf>,
        /// Credentials file of the operator
        #[arg(long, value_name = "FILE")]
        operator: Option<PathBuf>,
        #[arg(long, default_value = "default")]
        tenant: String,
    },
    /// Remove a context
    Delete { name: String },
}

#[derive(Debug, Args)]
pub struct Submit {
    /// File with one or many documents, or `-`
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// LocalQueue, instead of the manifest's
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
    /// Name, instead of the manifest's
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Rounds after a failure of the program, instead of the manifest's
    #[arg(long, value_name = "N")]
    pub max_retries: Option<u32>,
    /// WorkloadPriorityClass
    #[arg(long, value_name = "NAME")]
    pub priority_class: Option<String>,
    /// The same key submits once, however often it is sent
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Wait until it is over
    #[arg(long, conflicts_with_all = ["follow", "dry_run"])]
    pub wait: bool,
    /// Show why it waits, then its output, until it is over
    #[arg(long, conflicts_with = "dry_run")]
    pub follow: bool,
    /// Only check the file and print what muster would schedule
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    #[value(alias = "workload", alias = "wl")]
    Workloads,
    #[value(alias = "localqueue", alias = "lq", alias = "queues", alias = "queue")]
    Localqueues,
    #[value(alias = "clusterqueue", alias = "cq")]
    Clusterqueues,
    #[value(alias = "resourceflavor", alias = "rf", alias = "flavors", alias = "flavor")]
    Resourceflavors,
    #[value(alias = "cluster")]
    Clusters,
}

#[derive(Debug, Args)]
pub struct Get {
    #[arg(value_enum)]
    pub kind: Kind,
    /// Id or name of one workload
    pub name: Option<String>,
    /// Of all namespaces
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
    /// Labels: key=value, separated by commas
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub selector: Option<String>,
    /// Print again whenever something changes
    #[arg(short, long)]
    pub watch: bool,
}

#[derive(Debug, Args)]
pub struct Replay {
    /// Fold up to this sequence only
    #[arg(long, value_name = "SEQ")]
    pub to: Option<u64>,
    /// One service; all by default
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Check the chain, the recorded state hashes, and the live services' hashes
    #[arg(long)]
    pub verify: bool,
    /// Read an exported log instead of the server's
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub enum LogAction {
    /// Write the log into a file, with a hash that finds any changed byte
    Export { file: PathBuf },
    /// Start a new generation on a log that lost messages
    AcceptLoss {
        /// Recorded with the new generation
        #[arg(long, default_value = "accepted by the operator")]
        reason: String,
    },
}
