//! The streams beside the log: requests, bodies, what goes to and comes from clusters, notices, signals.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde_json::json;

use crate::bus::{Bus, code};
use crate::error::BusError;
use crate::log::{get, missing, publish};
use crate::names::{self, BODIES, CLUSTERS, OUT, REQUESTS, SIGNALS};
use crate::record::{HEADER_KEY, HEADER_REQUEST, Record};

impl Bus {
    /// Publishes a request; its sequence in REQUESTS. `key` is the sender's own, unique per tenant: a repeat
    /// with the same key is one request.
    ///
    /// # Errors
    /// Not permitted; too large; too many of this subject wait; no answer (send it again with the same key).
    pub async fn submit(&self, subject: &str, payload: Bytes, key: Option<&str>) -> Result<u64, BusError> {
        let mut headers = HeaderMap::new();
        if let Some(key) = key {
            headers.insert(HEADER_KEY, header(HEADER_KEY, key)?);
        }
        publish(self, REQUESTS, subject, headers, payload).await
    }

    /// Removes a subject's requests below a sequence (in REQUESTS), so that only waiting ones count against
    /// the subject's limit. 3 to 17 ms: keep it off the way of a decision.
    ///
    /// # Errors
    /// Not permitted; no answer.
    pub async fn purge_below(&self, subject: &str, seq: u64) -> Result<(), BusError> {
        let call = format!("STREAM.PURGE.{REQUESTS}");
        let answer = self.api(&call, &json!({ "filter": subject, "seq": seq })).await?;
        answer.map(|_| ()).map_err(|e| missing(e, &call, REQUESTS))
    }

    /// Stores the body of a request's manifest; its sequence in BODIES. `request` names the request.
    ///
    /// # Errors
    /// Not permitted; too large; no answer (a repeat stores it twice, which does no harm).
    pub async fn store_body(&self, tenant: &str, request: &str, body: Bytes) -> Result<u64, BusError> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER_REQUEST, header(HEADER_REQUEST, request)?);
        publish(self, BODIES, &names::body(tenant)?, headers, body).await
    }

    /// The body with this sequence; `None` when it was erased or never there.
    ///
    /// # Errors
    /// Not permitted; no answer.
    pub async fn fetch_body(&self, seq: u64) -> Result<Option<Record>, BusError> {
        get(self, BODIES, &json!({ "seq": seq })).await
    }

    /// Erases a body: the server overwrites its bytes. False when it was not there.
    ///
    /// # Errors
    /// Not permitted; no answer.
    pub async fn erase_body(&self, seq: u64) -> Result<bool, BusError> {
        self.erase(BODIES, seq).await
    }

    /// Erases one request, whose bytes hold the body too. False when it was not there.
    ///
    /// # Errors
    /// Not permitted; no answer.
    pub async fn erase_request(&self, seq: u64) -> Result<bool, BusError> {
        self.erase(REQUESTS, seq).await
    }

    async fn erase(&self, stream: &str, seq: u64) -> Result<bool, BusError> {
        let call = format!("STREAM.MSG.DELETE.{stream}");
        match self.api(&call, &json!({ "seq": seq, "no_erase": false })).await? {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.err_code, code::NO_MESSAGE | code::NO_SUCH_SEQUENCE) => Ok(false),
            Err(e) if e.err_code == code::DELETE_FAILED && e.description.contains("no message") => Ok(false),
            Err(e) => Err(missing(e, &call, stream)),
        }
    }

    /// The desk's orders to a cluster; repeated until a fact answers.
    ///
    /// # Errors
    /// Not permitted; too large; no answer.
    pub async fn send_to_cluster(&self, cluster: &str, payload: Bytes) -> Result<u64, BusError> {
        publish(self, CLUSTERS, &names::to_cluster(cluster)?, HeaderMap::new(), payload).await
    }

    /// An agent's report; repeated until an order answers.
    ///
    /// # Errors
    /// Not permitted; too large; no answer.
    pub async fn send_from_cluster(&self, cluster: &str, payload: Bytes) -> Result<u64, BusError> {
        publish(self, CLUSTERS, &names::from_cluster(cluster)?, HeaderMap::new(), payload).await
    }

    /// A measurement.
    ///
    /// # Errors
    /// Not permitted; too large; no answer.
    pub async fn send_signal(&self, owner: &str, source: &str, payload: Bytes) -> Result<u64, BusError> {
        publish(self, SIGNALS, &names::signal(owner, source)?, HeaderMap::new(), payload).await
    }

    /// A notice to a tenant; its sequence in OUT.
    ///
    /// # Errors
    /// Not permitted; too large; no answer.
    pub async fn notify(&self, tenant: &str, kind: &str, payload: Bytes) -> Result<u64, BusError> {
        publish(self, OUT, &names::out(tenant, kind)?, HeaderMap::new(), payload).await
    }
}

fn header<'a>(name: &str, value: &'a str) -> Result<&'a str, BusError> {
    if value.len() > 1024 || value.chars().any(char::is_control) {
        return Err(BusError::Options(format!(
            "header {name}: longer than 1024 bytes or with control characters"
        )));
    }
    Ok(value)
}
