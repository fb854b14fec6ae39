//! From the bytes of a request to commands, as far as that needs no state: done once, when the
//! request arrives.

use bytes::Bytes;
use muster_core::{RequestMessage, WorkloadId};
use muster_manifest::workload::{self, Defaults, JobSpec};
use muster_manifest::{document, policy};
use muster_proto::{ApplyPolicy, Cancel, Policy, Request, Submit, command};
use prost::Message;

use crate::refusal::Refusal;

/// Operators: they alone change policies and declare clusters dead.
pub(crate) const OPERATORS: &str = "_ops";
/// The largest request, in bytes.
const MAX_BYTES: usize = 256 * 1024;
/// The most commands in one request.
const MAX_COMMANDS: usize = 1_000;
/// The longest key, and the longest text that a person gives with a command, in bytes.
const MAX_KEY: usize = 200;
const MAX_TEXT: usize = 500;

/// A command whose form is right.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Command {
    Submit { spec: Box<JobSpec>, manifest: Bytes },
    Cancel { workload: WorkloadId, reason: String },
    Apply { policy: Box<Policy>, source: String, deleted: bool },
    Erase { workload: WorkloadId },
    DeclareDead { cluster: String },
}

/// A command, or why it is none.
pub(crate) type Parsed = Result<Command, Refusal>;

/// A request's commands, at least one, and its key. What is wrong with the message as a whole
/// refuses it as if it were one command.
pub(crate) fn parse(request: &RequestMessage) -> (Vec<Parsed>, String) {
    match whole(request) {
        Err(refusal) => (vec![Err(refusal)], String::new()),
        Ok((commands, key)) => {
            let read = |(index, command): (usize, muster_proto::Command)| one(request, index, command);
            (commands.into_iter().enumerate().map(read).collect(), key)
        }
    }
}

fn whole(request: &RequestMessage) -> Result<(Vec<muster_proto::Command>, String), Refusal> {
    let size = request.payload.len();
    if size > MAX_BYTES {
        let message = format!("the request has {size} bytes; at most {MAX_BYTES} are allowed");
        return Err(Refusal::new("RequestTooLarge", "", &size.to_string(), &message));
    }
    let Request { commands, key } = Request::decode(request.payload.clone()).map_err(|error| {
        let message = format!("the bytes are no muster.v1.Request in protobuf: {error}");
        Refusal::new("MalformedRequest", "", "", &message)
    })?;
    if commands.is_empty() {
        return Err(Refusal::new("EmptyRequest", "commands", "", "there is no command in it"));
    }
    if commands.len() > MAX_COMMANDS {
        let count = commands.len().to_string();
        let message = format!("at most {MAX_COMMANDS} commands fit into a request");
        return Err(Refusal::new("TooManyCommands", "commands", &count, &message));
    }
    Ok((commands, one_key(request.key.as_deref().unwrap_or_default(), key)?))
}

/// The key of the header or of the field; both may be there if they agree.
fn one_key(header: &str, field: String) -> Result<String, Refusal> {
    let invalid = |value: &str, message: &str| Err(Refusal::new("InvalidKey", "key", value, message));
    let key = if header.is_empty() { field.as_str() } else { header };
    if !field.is_empty() && field != key {
        return invalid(&field, "it differs from the key in the header Muster-Key");
    }
    if key.len() > MAX_KEY {
        return invalid(key, &format!("at most {MAX_KEY} bytes are allowed"));
    }
    if key.chars().any(char::is_control) {
        return invalid("", "control characters are not allowed");
    }
    Ok(key.to_owned())
}

fn one(request: &RequestMessage, index: usize, command: muster_proto::Command) -> Parsed {
    use command::Kind;
    let Some(kind) = command.kind else {
        return Err(Refusal::new(
            "UnknownCommand",
            "commands",
            "",
            "the command is empty or of a newer version",
        ));
    };
    let operator = request.tenant == OPERATORS;
    match kind {
        Kind::Submit(submit) => self::submit(request, index, submit),
        Kind::Cancel(cancel) => self::cancel(cancel),
        Kind::Erase(erase) => Ok(Command::Erase { workload: WorkloadId::of(erase.workload.as_ref()) }),
        Kind::ApplyPolicy(_) | Kind::DeclareDead(_) if !operator => {
            let message = "policies and clusters are the operators'; send it as one of them";
            Err(Refusal::new("OperatorsOnly", "tenant", &request.tenant, message))
        }
        Kind::ApplyPolicy(apply) => self::apply(apply),
        Kind::DeclareDead(dead) if dead.cluster.is_empty() => {
            Err(Refusal::new("UnknownCluster", "cluster", "", "name the cluster"))
        }
        Kind::DeclareDead(dead) => Ok(Command::DeclareDead { cluster: dead.cluster }),
    }
}

fn submit(request: &RequestMessage, index: usize, submit: Submit) -> Parsed {
    let defaults = Defaults {
        namespace: submit.namespace,
        queue: submit.queue,
        name: submit.name,
        priority_class: submit.priority_class,
        max_retries: submit.max_retries,
        fallback_namespace: String::new(),
        fallback_queue: String::new(),
        name_suffix: format!("{}-{index}", request.seq),
    };
    let spec = document::parse(&submit.manifest).and_then(|value| workload::read(&value, &defaults));
    match spec {
        Ok(spec) => Ok(Command::Submit { spec: Box::new(spec), manifest: submit.manifest }),
        Err(faults) => Err(Refusal::found("InvalidManifest", faults)),
    }
}

fn cancel(cancel: Cancel) -> Parsed {
    text("reason", &cancel.reason)?;
    Ok(Command::Cancel { workload: WorkloadId::of(cancel.workload.as_ref()), reason: cancel.reason })
}

fn apply(apply: ApplyPolicy) -> Parsed {
    text("source", &apply.source)?;
    match document::parse(&apply.manifest).and_then(|value| policy::read(&value, "")) {
        // Aliases can make it larger than the file, and it has to fit into one decision.
        Ok(policy) if policy.encoded_len() > MAX_BYTES => {
            let size = policy.encoded_len().to_string();
            let message = format!("written out it may have at most {MAX_BYTES} bytes");
            Err(Refusal::new("PolicyTooLarge", "", &size, &message))
        }
        Ok(policy) => {
            Ok(Command::Apply { policy: Box::new(policy), source: apply.source, deleted: apply.delete })
        }
        Err(faults) => Err(Refusal::found("InvalidManifest", faults)),
    }
}

/// What a person wrote goes into a fact, so it has to be short.
fn text(field: &str, text: &str) -> Result<(), Refusal> {
    if text.len() <= MAX_TEXT {
        return Ok(());
    }
    Err(Refusal::new("TextTooLong", field, text, &format!("at most {MAX_TEXT} bytes are allowed")))
}
