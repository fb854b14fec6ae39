//! What a command did.

use std::process::Output;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Exit code and output of one command.
#[derive(Clone, Debug)]
pub struct Said {
    /// As a user would have typed it.
    pub command: String,
    /// 128 + n after signal n.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    pub(crate) fn new(command: String, output: Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        let status = output.status;
        let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1);
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { command, code, out: text(output.stdout), err: text(output.stderr) }
    }

    /// Its stdout.
    ///
    /// # Errors
    /// It ended with another code than 0; the error holds all that it said.
    pub fn ok(&self) -> Result<&str> {
        self.ended(0)
    }

    /// Its stdout when it ended with this code.
    ///
    /// # Errors
    /// Another code; the error holds all that it said.
    pub fn ended(&self, code: i32) -> Result<&str> {
        if self.code != code {
            bail!(
                "`{}` ended with {}, not {code}\nstdout: {}\nstderr: {}",
                self.command,
                self.code,
                self.out,
                self.err
            );
        }
        Ok(&self.out)
    }

    /// Its stdout as JSON.
    ///
    /// # Errors
    /// It failed, or said something else.
    pub fn json(&self) -> Result<Value> {
        let text = self.ok()?;
        serde_json::from_str(text).with_context(|| format!("`{}` said no JSON: {text}", self.command))
    }
}
