//! `muster cancel` and `muster erase`.

use anyhow::Result;
use muster_core::WorkloadId;
use muster_proto::{Cancel, EraseRequest, command};

use crate::{
    args::Global,
    client::{As, Client},
    commands::submit::settled,
    exit, output,
};

pub async fn cancel(global: &Global, workload: &str, reason: &str) -> Result<()> {
    let client = Client::connect(global, As::Tenant).await?;
    let id: WorkloadId = client.workload(workload).await?.id.parse()?;
    let cancel = Cancel { workload: Some(id.into()), reason: reason.to_owned() };
    send(&client, "cancel", command::Kind::Cancel(cancel), id, "cancelled").await
}

pub async fn erase(global: &Global, workload: &str) -> Result<()> {
    let client = Client::connect(global, As::Tenant).await?;
    let id: WorkloadId = client.workload(workload).await?.id.parse()?;
    let erase = EraseRequest { workload: Some(id.into()) };
    send(
        &client,
        "erase",
        command::Kind::Erase(erase),
        id,
        "erased: its body is overwritten, the log stays provable; copies sent to its cluster expire within 6 h",
    )
    .await
}

async fn send(client: &Client, kind: &str, command: command::Kind, id: WorkloadId, done: &str) -> Result<()> {
    let request = client.request(kind, vec![command], None).await?;
    match settled(client, request, 0).await? {
        Ok(true) => output::line(&format!("{id} {done}")),
        Ok(false) => output::line(&format!("{id}: {kind} sent; the queue has not answered yet")),
        Err(reasons) => Err(exit::with(exit::REJECTED, format!("{id}: {kind} rejected: {reasons}"))),
    }
}
