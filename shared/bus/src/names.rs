//! Subjects, streams and durables: the only place where their names are spelled.
//!
//! A part of a subject ("token") is 1 to 63 of `A-Z a-z 0-9 - _`. Everything that comes from outside passes
//! [`token`] before it becomes part of a subject, so that no name can hold a dot or a wildcard.

/// The truth: every decision, one message each.
pub const EVENTS: &str = "EVENTS";
/// What outsiders ask for.
pub const REQUESTS: &str = "REQUESTS";
/// Between desks and agents, both ways.
pub const CLUSTERS: &str = "CLUSTERS";
/// Measurements: lossy.
pub const SIGNALS: &str = "SIGNALS";
/// Notices to tenants.
pub const OUT: &str = "OUT";
/// Bodies of manifests, kept outside the log so that they can be erased.
pub const BODIES: &str = "BODIES";
/// The stream below the key-value bucket LEASES.
pub const LEASES: &str = "KV_LEASES";

/// The tenant that stands for operators in the subjects of REQUESTS.
pub const OPS: &str = "_ops";

/// The prefix that a tenant's plain NATS client sets for JetStream's API in place of `$JS.API`.
pub const TENANT_API: &str = "muster.js";

/// The subject of generations; provisioning writes its first message.
pub const CELL: &str = "muster.evt.cell.0";

const TOKEN_MAX: usize = 63;

/// A name that can't be a token of a subject.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {name:?}: {fault}")]
pub struct NameError {
    what: &'static str,
    name: String,
    fault: &'static str,
}

/// Checks one token; `what` names it in the error ("tenant", "cluster").
///
/// # Errors
/// Empty, longer than 63 bytes, or with a character other than `A-Z a-z 0-9 - _`.
pub fn token<'a>(what: &'static str, name: &'a str) -> Result<&'a str, NameError> {
    let fault = if name.is_empty() {
        "is empty"
    } else if name.len() > TOKEN_MAX {
        "is longer than 63 characters"
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        "may hold only letters, digits, '-' and '_'"
    } else {
        return Ok(name);
    };
    Err(NameError { what, name: name.chars().take(80).collect(), fault })
}

/// Checks a tenant's name: a token that does not begin with `_` (those are muster's own).
///
/// # Errors
/// As [`token`], or a leading `_`.
pub fn tenant(name: &str) -> Result<&str, NameError> {
    let name = token("tenant", name)?;
    if name.starts_with('_') {
        return Err(NameError { what: "tenant", name: name.into(), fault: "may not begin with '_'" });
    }
    Ok(name)
}

/// A tenant's name or [`OPS`].
fn tenant_or_ops(name: &str) -> Result<&str, NameError> {
    if name == OPS { Ok(name) } else { tenant(name) }
}

/// `muster.evt.<service>.<partition>`
pub fn event(service: &str, partition: &str) -> Result<String, NameError> {
    Ok(format!("muster.evt.{}.{}", token("service", service)?, token("partition", partition)?))
}

/// `muster.req.<tenant>.<principal>.<kind>`; operators use the tenant [`OPS`].
pub fn request(tenant: &str, principal: &str, kind: &str) -> Result<String, NameError> {
    let (tenant, principal) = (tenant_or_ops(tenant)?, token("principal", principal)?);
    Ok(format!("muster.req.{tenant}.{principal}.{}", token("kind of request", kind)?))
}

/// `muster.to.<cluster>`: the desk's orders.
pub fn to_cluster(cluster: &str) -> Result<String, NameError> {
    Ok(format!("muster.to.{}", token("cluster", cluster)?))
}

/// `muster.from.<cluster>`: the agent's reports.
pub fn from_cluster(cluster: &str) -> Result<String, NameError> {
    Ok(format!("muster.from.{}", token("cluster", cluster)?))
}

/// `muster.sig.<tenant or cluster>.<source>`
pub fn signal(owner: &str, source: &str) -> Result<String, NameError> {
    Ok(format!("muster.sig.{}.{}", token("tenant or cluster", owner)?, token("source", source)?))
}

/// `muster.out.<tenant>.<kind>`
pub fn out(tenant: &str, kind: &str) -> Result<String, NameError> {
    Ok(format!("muster.out.{}.{}", tenant_or_ops(tenant)?, token("kind of notice", kind)?))
}

/// `muster.body.<tenant>`
pub fn body(tenant: &str) -> Result<String, NameError> {
    Ok(format!("muster.body.{}", tenant_or_ops(tenant)?))
}

/// `muster.ask.<service>.<partition>`: explain, hash.
pub fn ask(service: &str, partition: &str) -> Result<String, NameError> {
    Ok(format!("muster.ask.{}.{}", token("service", service)?, token("partition", partition)?))
}

/// Where operators ask the ledger.
pub const ASK_LEDGER: &str = "muster.ask.ledger";

/// Where the ledger hears the asks of all tenants; the last token is the tenant.
pub const ASK_LEDGER_TENANTS: &str = "muster.ask.ledger.*";

/// `muster.ask.ledger.<tenant>`: the ledger answers with this tenant's things only.
pub fn ask_ledger(tenant_name: &str) -> Result<String, NameError> {
    Ok(format!("{ASK_LEDGER}.{}", tenant(tenant_name)?))
}

/// `muster.ask.agent.<cluster>`: logs of pods.
pub fn ask_agent(cluster: &str) -> Result<String, NameError> {
    Ok(format!("muster.ask.agent.{}", token("cluster", cluster)?))
}

/// The durable of one replica slot: `<service>-<partition>-<slot>`.
pub fn durable(service: &str, partition: &str, slot: u8) -> Result<String, NameError> {
    Ok(format!("{}-{}-{slot}", token("service", service)?, token("partition", partition)?))
}

/// The durable on OUT that a tenant's processes share.
pub fn out_durable(tenant_name: &str) -> Result<String, NameError> {
    Ok(format!("out-{}", tenant(tenant_name)?))
}

/// Service and partition of a subject of EVENTS; `None` for any other subject.
#[must_use]
pub fn parse_event(subject: &str) -> Option<(&str, &str)> {
    let (service, partition) = subject.strip_prefix("muster.evt.")?.split_once('.')?;
    (!partition.contains('.')).then_some((service, partition))
}

/// Who asked for what, taken from a subject of REQUESTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestSubject<'a> {
    /// Tenant, or [`OPS`].
    pub tenant: &'a str,
    /// The user within the tenant, as the server has authenticated it.
    pub principal: &'a str,
    /// `submit`, `cancel`, …
    pub kind: &'a str,
}

/// Splits a subject of REQUESTS; `None` for any other subject.
#[must_use]
pub fn parse_request(subject: &str) -> Option<RequestSubject<'_>> {
    let mut tokens = subject.strip_prefix("muster.req.")?.split('.');
    let parsed = RequestSubject { tenant: tokens.next()?, principal: tokens.next()?, kind: tokens.next()? };
    tokens.next().is_none().then_some(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subjects_read_as_the_design_spells_them() {
        assert_eq!(event("queue", "0").unwrap(), "muster.evt.queue.0");
        assert_eq!(request("acme", "alice", "submit").unwrap(), "muster.req.acme.alice.submit");
        assert_eq!(request(OPS, "bob", "apply").unwrap(), "muster.req._ops.bob.apply");
        assert_eq!(ask_ledger("acme").unwrap(), "muster.ask.ledger.acme");
        assert_eq!(durable("queue", "0", 1).unwrap(), "queue-0-1");
    }

    #[test]
    fn an_error_names_the_thing_and_its_fault() {
        let error = to_cluster("a.b").unwrap_err().to_string();
        assert_eq!(error, "cluster \"a.b\": may hold only letters, digits, '-' and '_'");
        assert!(tenant("_ops").unwrap_err().to_string().contains("may not begin with '_'"));
        assert!(ask_ledger(OPS).is_err());
    }

    proptest! {
        #[test]
        fn no_outside_name_adds_a_token_or_a_wildcard(name in ".*") {
            if let Ok(subject) = request(&name, "p", "submit") {
                prop_assert_eq!(subject.split('.').count(), 5);
                prop_assert!(!subject.contains(['*', '>', ' ']));
                prop_assert_eq!(parse_request(&subject).map(|r| r.tenant), Some(name.as_str()));
            }
        }
    }
}
