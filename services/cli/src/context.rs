//! Contexts: which server, as whom. Kept in `$MUSTER_CONFIG` or `~/.config/muster/config.json`.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::files::{read_json, write_json};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    pub current: String,
    pub contexts: BTreeMap<String, Context>,
}

/// One cell, and who we are there.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Context {
    pub url: String,
    pub tenant: String,
    pub namespace: String,
    /// Credentials file of a tenant's user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// Credentials file of the operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<PathBuf>,
    /// Where `muster up` keeps this cell's state on this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<PathBuf>,
}

fn home() -> PathBuf {
    std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from)
}

/// Where contexts are kept.
pub fn config_path() -> PathBuf {
    std::env::var_os("MUSTER_CONFIG").map_or_else(|| home().join(".config/muster/config.json"), PathBuf::from)
}

/// Where `muster up` keeps state unless told otherwise.
pub fn default_data() -> PathBuf {
    home().join(".local/share/muster")
}

impl Config {
    pub fn load() -> Result<Self> {
        Ok(read_json(&config_path())?.unwrap_or_default())
    }

    pub fn save(&self) -> Result<()> {
        write_json(&config_path(), self)
    }

    /// The context of this name, else the current one.
    pub fn choose(&self, name: Option<&str>) -> Result<(String, Context)> {
        let name = name.unwrap_or(&self.current);
        if name.is_empty() {
            bail!(
                "no context: run `muster up`, or `muster context set NAME --url nats://HOST:4222 --credentials FILE`"
            );
        }
        match self.contexts.get(name) {
            Some(context) => Ok((name.to_owned(), context.clone())),
            None => {
                let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
                bail!(
                    "no context {name:?}; there are: {}",
                    if known.is_empty() { "none".into() } else { known.join(", ") }
                )
            }
        }
    }
}
