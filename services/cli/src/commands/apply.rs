//! `muster apply`: policies become facts.

use std::path::Path;

use anyhow::{Result, bail};
use muster_manifest::{document, policy};
use muster_proto::{ApplyPolicy, command};

use crate::{
    args::Global,
    client::{As, Client},
    commands::submit::{read_file, refuse, settled},
    exit, output,
};

pub async fn apply(global: &Global, file: &Path, dry_run: bool) -> Result<()> {
    let text = read_file(file)?;
    let documents = document::documents(&text).map_err(|faults| refuse(&faults))?;
    let namespace = global.namespace.clone().unwrap_or_else(|| "default".to_owned());
    let mut faults = Vec::new();
    let mut names = Vec::new();
    let mut commands = Vec::new();
    for value in &documents {
        if let Err(found) = policy::read(value, &namespace) {
            faults.extend(found);
        }
        let text =
            |path: &str| value.pointer(path).and_then(|value| value.as_str()).unwrap_or("?").to_owned();
        names.push(format!("{}/{}", text("/kind").to_lowercase(), text("/metadata/name")));
        commands.push(command::Kind::ApplyPolicy(ApplyPolicy {
            manifest: serde_json::to_vec(value)?.into(),
            source: file.display().to_string(),
            delete: false,
        }));
    }
    if !faults.is_empty() {
        return Err(refuse(&faults));
    }
    if documents.is_empty() {
        bail!("{} holds no manifest", file.display());
    }
    if dry_run {
        for name in names {
            output::line(&format!("{name} valid (dry run)"))?;
        }
        return Ok(());
    }
    let client = Client::connect(global, As::Operator).await?;
    let request = client.request("policy", commands, None).await?;
    for (index, name) in names.iter().enumerate() {
        match settled(&client, request, index).await? {
            Ok(true) => output::line(&format!("{name} applied"))?,
            Ok(false) => output::line(&format!("{name} sent; the queue has not answered yet"))?,
            Err(reasons) => return Err(exit::with(exit::REJECTED, format!("{name} rejected: {reasons}"))),
        }
    }
    Ok(())
}
