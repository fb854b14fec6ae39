//! What was asked of `muster up`, kept so that the next `up` starts the same cell.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use muster_bus::{
    Layout,
    layout::{ClusterLayout, TenantLayout},
};
use serde::{Deserialize, Serialize};

use crate::files::{read_json, write_json};

/// The one cluster of a cell on one machine.
pub const CLUSTER: &str = "local";
/// The tenant that exists from the start, and its user.
pub const TENANT: &str = "default";
pub const PRINCIPAL: &str = "user";

/// A cell on this machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cell {
    pub data: PathBuf,
    pub port: u16,
    pub replicas: u8,
    pub nodes: PathBuf,
    /// A server that somebody else runs; none: the cell has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<GivenNats>,
}

/// A NATS server that is there already, with muster's configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GivenNats {
    pub url: String,
    /// Folder with a credentials file of each user.
    pub users: PathBuf,
}

/// What runs now, as the supervisor last wrote it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    pub processes: Vec<Process>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Process {
    pub name: String,
    pub pid: Option<u32>,
    pub restarts: u32,
    /// How it ended the last time.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub last_exit: String,
}

impl Cell {
    pub fn url(&self) -> String {
        match &self.given {
            Some(given) => given.url.clone(),
            None => format!("nats://127.0.0.1:{}", self.port),
        }
    }

    pub fn nats_dir(&self) -> PathBuf {
        self.data.join("nats")
    }

    /// Credentials file of a user, as the bus writes them.
    pub fn credentials(&self, user: &str) -> PathBuf {
        let users =
            self.given.as_ref().map_or_else(|| self.nats_dir().join("users"), |given| given.users.clone());
        users.join(format!("{}.json", user.replace('/', ".")))
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.data.join("log").join(format!("{name}.log"))
    }

    pub fn run_dir(&self) -> PathBuf {
        self.data.join("run")
    }

    pub fn layout(&self) -> Layout {
        let tenant = TenantLayout { name: TENANT.to_owned(), principals: vec![PRINCIPAL.to_owned()] };
        let cluster = ClusterLayout { name: CLUSTER.to_owned(), agents: 2 };
        Layout::standard(vec![tenant], vec![cluster])
    }

    /// The cell that was last started in this folder, if one was.
    pub fn load(data: &Path) -> Result<Option<Self>> {
        read_json(&data.join("run/cell.json"))
    }

    pub fn save(&self) -> Result<()> {
        write_json(&self.run_dir().join("cell.json"), self)
    }

    /// The supervisor's pid while it lives.
    pub fn supervisor(&self) -> Option<i32> {
        let text = fs::read_to_string(self.run_dir().join("supervisor.pid")).ok()?;
        let pid: i32 = text.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // The pid may have been given to somebody else since.
        let is_ours = |word: &[u8]| word == b"supervise" || word == b"--foreground";
        line.split(|byte| *byte == 0).any(is_ours).then_some(pid)
    }

    pub fn running(&self) -> Result<Running> {
        Ok(read_json(&self.run_dir().join("state.json"))?.unwrap_or_default())
    }
}
