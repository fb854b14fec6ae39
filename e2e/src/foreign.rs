//! An outsider: a tenant's user with a plain NATS client.

use std::process::Command;

use anyhow::{Context as _, Result};
use muster_bus::{Bus, Credentials, Options, Reader, names};

use crate::{Cell, Said, binary};

/// Publishes with nats-py, as any program outside may: no library of muster's, only the credentials file.
/// Says the sequence that the server gave it.
const PUBLISH: &str = r#"
import asyncio, json, sys, nats

async def main():
    url, credentials, subject, key = sys.argv[1:5]
    user = json.load(open(credentials))
    client = await nats.connect(url, user=user["user"], password=user["password"],
                                inbox_prefix=user["inbox_prefix"].encode())
    payload = sys.stdin.buffer.read()
    headers = {"Muster-Key": key} if key else None
    answer = await client.request(subject, payload, timeout=10, headers=headers)
    print(json.loads(answer.data)["seq"])
    await client.close()

asyncio.run(main())
"#;

impl Cell {
    /// The server's URL.
    ///
    /// # Errors
    /// The cell was never up.
    pub fn url(&self) -> Result<String> {
        let cell = std::fs::read(self.data().join("run/cell.json"))?;
        let cell: serde_json::Value = serde_json::from_slice(&cell)?;
        Ok(format!("nats://127.0.0.1:{}", cell["port"]))
    }

    /// The credentials file of a user of this cell: `default/user`, `operator`, `cluster/local`.
    #[must_use]
    pub fn credentials(&self, user: &str) -> std::path::PathBuf {
        self.data().join("nats/users").join(format!("{}.json", user.replace('/', ".")))
    }

    /// Publishes a request with nats-py as the tenant's user; its sequence.
    ///
    /// # Errors
    /// There is no nats-py, or the server refuses.
    pub fn publish_from_python(&self, payload: &[u8], key: &str) -> Result<u64> {
        use std::{io::Write as _, process::Stdio};
        let subject = names::request("default", "user", "submit")?;
        let mut command = Command::new(binary::python()?);
        command
            .args(["-c", PUBLISH, &self.url()?])
            .arg(self.credentials("default/user"))
            .args([&subject, key]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        child.stdin.take().context("stdin")?.write_all(payload)?;
        let said = Said::new("python publish".to_owned(), child.wait_with_output()?);
        Ok(said.ok()?.trim().parse()?)
    }

    /// A connection as one of this cell's users.
    ///
    /// # Errors
    /// The server refuses it.
    pub async fn connect(&self, user: &str) -> Result<Bus> {
        let credentials = Credentials::File(self.credentials(user));
        Ok(Bus::connect(&Options::new(self.url()?, "muster-e2e").with(credentials)).await?)
    }
}

/// The tenant's notices, from where its durable stands.
///
/// # Errors
/// The server refuses.
pub async fn notices(tenant: &Bus) -> Result<Reader> {
    Ok(Reader::follow(tenant, names::OUT, &names::out_durable("default")?).await?)
}
