//! Provisioning: streams, durables and the first message of the log. Its own step, with its own user, as no
//! service may create, change or delete a stream.

use async_nats::HeaderMap;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use crate::bus::{Bus, code};
use crate::error::BusError;
use crate::layout::{Durable, Layout};
use crate::log::{Outcome, ends, fenced};
use crate::names::{BODIES, CELL, CLUSTERS, EVENTS, LEASES, OUT, REQUESTS, SIGNALS};

/// The largest request, in bytes of payload.
pub const MAX_REQUEST: usize = 256 << 10;
/// The largest decision, in bytes of payload.
pub const MAX_DECISION: usize = 512 << 10;
/// Requests of one subject that may wait; the next one is refused.
pub const MAX_WAITING_REQUESTS: u64 = 10_000;

/// Room for headers beside the payload: the server counts both.
const HEADER_ROOM: usize = 8 << 10;
const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;

/// One thing that provisioning did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// "stream EVENTS", "durable queue-0-0 of EVENTS", "generation".
    pub what: String,
    /// What was done.
    pub kind: ChangeKind,
}

/// How a thing was changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeKind {
    /// It was not there.
    Created,
    /// It was there with other settings: `field: old -> new` each.
    Updated(Vec<String>),
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            ChangeKind::Created => write!(f, "{} created", self.what),
            ChangeKind::Updated(fields) => write!(f, "{} updated ({})", self.what, fields.join(", ")),
        }
    }
}

/// Makes the cell's streams and durables equal to the layout and returns what had to be changed: nothing,
/// when run again. Nothing is ever deleted. When EVENTS is empty, `first` gives the bytes of its first
/// message (GenerationStarted), published on [`CELL`] unless somebody else is faster.
///
/// # Errors
/// Not permitted; a setting that the server refuses to change (the error names it).
pub async fn provision(
    bus: &Bus,
    layout: &Layout,
    first: impl FnOnce() -> Bytes + Send,
) -> Result<Vec<Change>, BusError> {
    let durables = layout.durables()?;
    let mut changes = Vec::new();
    for config in streams(layout.replicas) {
        changes.extend(ensure_stream(bus, config).await?);
    }
    for durable in &durables {
        changes.extend(ensure_durable(bus, durable).await?);
    }
    if ends(bus, EVENTS).await?.last == 0 {
        changes.extend(first_message(bus, first()).await?);
    }
    Ok(changes)
}

async fn first_message(bus: &Bus, payload: Bytes) -> Result<Option<Change>, BusError> {
    let mut headers = HeaderMap::new();
    headers.insert("Nats-Expected-Stream", EVENTS);
    headers.insert("Nats-Expected-Last-Sequence", "0");
    let until = Instant::now() + bus.deadline;
    match fenced(bus, CELL, headers, payload, until).await? {
        Outcome::Stored(_) => Ok(Some(Change { what: "generation".into(), kind: ChangeKind::Created })),
        Outcome::Conflict => Ok(None),
        Outcome::InFlight | Outcome::Unknown => {
            Err(BusError::Timeout { what: "writing the generation".into(), waited: bus.deadline })
        }
    }
}

/// The streams, with every setting that must hold; all others are the server's defaults.
fn streams(replicas: u8) -> Vec<Value> {
    let stream = |name: &str, subjects: &[&str], more: Value| {
        let mut config = json!({
            "name": name, "subjects": subjects, "retention": "limits", "storage": "file",
            "num_replicas": replicas, "discard": "old", "max_age": 0, "max_msgs": -1, "max_bytes": -1,
            "max_msgs_per_subject": -1, "allow_direct": true, "allow_rollup_hdrs": false,
            "deny_delete": false, "deny_purge": false,
            // No message id is relied on, so one sender's ids shall hardly touch another's: the least there is.
            "duplicate_window": SECOND / 10,
        });
        merge(&mut config, more);
        config
    };
    // Only one replica may acknowledge before it writes; there, repeats make up for what a crash takes.
    let lossy = |mut config: Value| {
        if replicas == 1 {
            config["persist_mode"] = "async".into();
        }
        config
    };
    let request_size = MAX_REQUEST + HEADER_ROOM;
    vec![
        stream(
            EVENTS,
            &["muster.evt.*.*"],
            json!({ "deny_delete": true, "deny_purge": true, "max_msg_size": 1 << 20 }),
        ),
        stream(
            REQUESTS,
            &["muster.req.*.*.*"],
            json!({
                "max_age": 7 * 24 * HOUR, "discard": "new", "discard_new_per_subject": true,
                "max_msgs_per_subject": MAX_WAITING_REQUESTS, "max_msg_size": request_size,
            }),
        ),
        lossy(stream(
            CLUSTERS,
            &["muster.to.*", "muster.from.*"],
            json!({ "max_age": 6 * HOUR, "max_msgs_per_subject": 10_000, "max_msg_size": 1 << 20 }),
        )),
        lossy(stream(
            SIGNALS,
            &["muster.sig.*.*"],
            json!({ "max_age": 600 * SECOND, "max_msgs_per_subject": 1000, "max_msg_size": 64 << 10 }),
        )),
        stream(
            OUT,
            &["muster.out.*.*"],
            json!({ "max_age": 3 * 24 * HOUR, "max_msgs_per_subject": 100_000, "max_msg_size": request_size }),
        ),
        stream(BODIES, &["muster.body.*"], json!({ "deny_purge": true, "max_msg_size": request_size })),
        stream(
            LEASES,
            &["$KV.LEASES.>"],
            json!({
                "max_age": 5 * SECOND, "max_msgs_per_subject": 1, "discard": "new",
                "allow_rollup_hdrs": true, "deny_delete": true, "max_msg_size": 4 << 10,
            }),
        ),
    ]
}

async fn ensure_stream(bus: &Bus, wanted: Value) -> Result<Option<Change>, BusError> {
    let name = wanted["name"].as_str().unwrap_or_default().to_owned();
    let what = format!("stream {name}");
    let call = format!("STREAM.INFO.{name}");
    let found = match bus.api(&call, &json!({})).await? {
        Ok(info) => Some(info["config"].clone()),
        Err(error) if error.err_code == code::STREAM_NOT_FOUND => None,
        Err(error) => return Err(error.into_error(&call)),
    };
    let Some(mut config) = found else {
        let call = format!("STREAM.CREATE.{name}");
        bus.api(&call, &wanted).await?.map_err(|e| e.into_error(&call))?;
        return Ok(Some(Change { what, kind: ChangeKind::Created }));
    };
    let fields = differences(&config, &wanted);
    if fields.is_empty() {
        return Ok(None);
    }
    merge(&mut config, wanted);
    let call = format!("STREAM.UPDATE.{name}");
    let said = format!("{what}, updating {}", fields.join(", "));
    bus.api(&call, &config).await?.map_err(|e| e.into_error(&said))?;
    Ok(Some(Change { what, kind: ChangeKind::Updated(fields) }))
}

fn consumer(durable: &Durable) -> Value {
    let mut config = json!({
        "durable_name": durable.name, "name": durable.name, "deliver_policy": "all",
        "ack_policy": "none", "replay_policy": "instant", "max_deliver": -1,
    });
    if durable.acked {
        merge(&mut config, json!({ "ack_policy": "explicit", "ack_wait": 30 * SECOND }));
    }
    if let Some(filter) = &durable.filter {
        config["filter_subject"] = filter.as_str().into();
    }
    config
}

async fn ensure_durable(bus: &Bus, durable: &Durable) -> Result<Option<Change>, BusError> {
    let Durable { stream, name, .. } = durable;
    let what = format!("durable {name} of {stream}");
    let wanted = consumer(durable);
    let call = format!("CONSUMER.INFO.{stream}.{name}");
    let kind = match bus.api(&call, &json!({})).await? {
        Ok(info) => {
            let fields = differences(&info["config"], &wanted);
            if fields.is_empty() {
                return Ok(None);
            }
            ChangeKind::Updated(fields)
        }
        Err(error) if error.err_code == code::CONSUMER_NOT_FOUND => ChangeKind::Created,
        Err(error) => return Err(error.into_error(&call)),
    };
    let said = match &kind {
        ChangeKind::Created => what.clone(),
        ChangeKind::Updated(fields) => format!("{what}, updating {}", fields.join(", ")),
    };
    let call = match &durable.filter {
        Some(filter) => format!("CONSUMER.CREATE.{stream}.{name}.{filter}"),
        None => format!("CONSUMER.CREATE.{stream}.{name}"),
    };
    let body = json!({ "stream_name": stream, "config": wanted });
    bus.api(&call, &body).await?.map_err(|e| e.into_error(&said))?;
    Ok(Some(Change { what, kind }))
}

/// `field: old -> new` for every wanted setting that is not so. The server leaves out what is `false`, 0 or
/// empty.
fn differences(found: &Value, wanted: &Value) -> Vec<String> {
    let Some(wanted) = wanted.as_object() else { return Vec::new() };
    let nothing = |v: &Value| v.is_null() || *v == json!(false) || *v == json!(0);
    wanted
        .iter()
        .filter(|(field, new)| {
            let old = &found[field.as_str()];
            old != *new && !(nothing(old) && nothing(new))
        })
        .map(|(field, new)| format!("{field}: {} -> {new}", found[field.as_str()]))
        .collect()
}

fn merge(config: &mut Value, more: Value) {
    let Value::Object(more) = more else { return };
    if let Some(config) = config.as_object_mut() {
        config.extend::<Map<String, Value>>(more);
    }
}
