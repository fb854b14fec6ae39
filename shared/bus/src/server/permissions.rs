//! Users, their accounts, and what each may publish and subscribe to.
//!
//! Inside an account the reply subject of a publish is not checked: a user allowed one subject can have the
//! server's acknowledgement stored on another. So whoever is not part of the control plane sits in an account
//! of its own and reaches CORE through imported services only. Inside CORE, lists of allowed subjects keep the
//! services apart from each other's mistakes.

use std::collections::BTreeSet;

use crate::connect::inbox_prefix;
use crate::error::BusError;
use crate::layout::{Durable, Layout, Owner, ServiceLayout};
use crate::names::{self, BODIES, CELL, CLUSTERS, LEASES, OPS, OUT, REQUESTS, SIGNALS};

/// The account of the control plane, with all streams.
pub(crate) const CORE: &str = "CORE";

/// One user of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name to log in with: `queue`, `operator`, `provision`, `acme/alice`, `cluster/west`.
    pub name: String,
    /// Account.
    pub account: String,
    /// Where its replies go.
    pub inbox_prefix: String,
    /// Subjects it may publish to.
    pub publish: Vec<String>,
    /// Subjects it may subscribe to.
    pub subscribe: Vec<String>,
}

/// A service that one account offers and another one imports.
pub(crate) struct Service {
    pub from: String,
    pub to: String,
    pub subject: String,
    /// The importer's own name for it; `None`: the same.
    pub known_as: Option<String>,
    /// Many replies to one request.
    pub streamed: bool,
}

pub(crate) fn tenant_account(tenant: &str) -> String {
    format!("T_{tenant}")
}

pub(crate) fn cluster_account(cluster: &str) -> String {
    format!("CL_{cluster}")
}

/// Every user of a cell.
///
/// # Errors
/// A name in the layout that can't be used; two users of one name.
pub fn users(layout: &Layout) -> Result<Vec<User>, BusError> {
    let durables = layout.durables()?;
    let mut users = vec![provisioner(), operator()];
    for service in &layout.services {
        users.push(of_service(service, &durables));
    }
    for tenant in &layout.tenants {
        for principal in &tenant.principals {
            users.push(of_tenant(&tenant.name, principal)?);
        }
    }
    for cluster in &layout.clusters {
        users.push(of_cluster(&cluster.name, &durables)?);
    }
    let mut names = BTreeSet::new();
    match users.iter().find(|user| !names.insert(user.name.as_str())) {
        Some(twice) => Err(BusError::Options(format!("two users would be named {:?}", twice.name))),
        None => Ok(users),
    }
}

/// What CORE offers to tenants and clusters, and clusters to CORE.
pub(crate) fn services(layout: &Layout) -> Result<Vec<Service>, BusError> {
    let durables = layout.durables()?;
    let core = |to: String, subject: String| {
        let streamed = subject.contains(".MSG.NEXT.");
        Service { from: CORE.into(), to, subject, known_as: None, streamed }
    };
    let mut services = Vec::new();
    for tenant in &layout.tenants {
        let account = || tenant_account(&tenant.name);
        services.push(core(account(), format!("muster.req.{}.>", tenant.name)));
        services.push(core(account(), format!("muster.sig.{}.*", tenant.name)));
        services.push(core(account(), names::ask_ledger(&tenant.name)?));
    }
    for cluster in &layout.clusters {
        let account = || cluster_account(&cluster.name);
        services.push(core(account(), names::from_cluster(&cluster.name)?));
        services.push(core(account(), format!("muster.sig.{}.*", cluster.name)));
        services.push(Service {
            from: account(),
            to: CORE.into(),
            subject: names::ask_agent(&cluster.name)?,
            known_as: None,
            streamed: false,
        });
    }
    for durable in &durables {
        let account = match &durable.owner {
            Owner::Service(_) => continue,
            Owner::Tenant(tenant) => tenant_account(tenant),
            Owner::Cluster(cluster) => cluster_account(cluster),
        };
        for pull in pulls(durable) {
            let known_as = (pull.subject != pull.known_as).then_some(pull.known_as);
            services.push(Service { known_as, ..core(account.clone(), pull.subject) });
        }
    }
    Ok(services)
}

struct Pulls {
    subject: String,
    known_as: String,
}

/// What pulling from a durable takes for somebody outside CORE.
fn pulls(durable: &Durable) -> Vec<Pulls> {
    let place = format!("{}.{}", durable.stream, durable.name);
    let next = format!("$JS.API.CONSUMER.MSG.NEXT.{place}");
    let as_is = |subject: String| Pulls { known_as: subject.clone(), subject };
    let mut pulls = vec![as_is(next.clone())];
    if durable.acked {
        // For plain clients, which look a consumer up before they pull. Under its own name that call would be
        // answered twice: every account without JetStream has an import that says so.
        let prefixed = |call: &str| format!("{}{}", names::TENANT_API, call.trim_start_matches("$JS.API"));
        let info = format!("$JS.API.CONSUMER.INFO.{place}");
        pulls.push(Pulls { known_as: prefixed(&next), subject: next });
        pulls.push(Pulls { known_as: prefixed(&info), subject: info });
        // Both forms of the acknowledgement's subject: servers will change from the first to the second.
        pulls.push(as_is(format!("$JS.ACK.{place}.>")));
        pulls.push(as_is(format!("$JS.ACK.*.*.{place}.>")));
    }
    pulls
}

fn user(name: &str, account: &str, publish: Vec<String>, subscribe: Vec<String>) -> User {
    let inbox_prefix = inbox_prefix(name);
    let mut all = vec![format!("{inbox_prefix}.>")];
    all.extend(subscribe);
    User { name: name.into(), account: account.into(), inbox_prefix, publish, subscribe: all }
}

fn api(calls: &[&str]) -> Vec<String> {
    calls.iter().map(|call| format!("$JS.API.{call}")).collect()
}

fn provisioner() -> User {
    let mut publish = api(&[
        "INFO",
        "STREAM.INFO.*",
        "STREAM.CREATE.*",
        "STREAM.UPDATE.*",
        "CONSUMER.INFO.*.*",
        "CONSUMER.CREATE.>",
        "STREAM.MSG.GET.EVENTS",
    ]);
    publish.push(CELL.into());
    user("provision", CORE, publish, Vec::new())
}

fn operator() -> User {
    let mut publish = api(&[
        "INFO",
        "STREAM.INFO.*",
        "STREAM.MSG.GET.*",
        "STREAM.MSG.DELETE.BODIES",
        "STREAM.MSG.DELETE.REQUESTS",
        "CONSUMER.INFO.*.*",
        "CONSUMER.CREATE.EVENTS.>",
        "CONSUMER.MSG.NEXT.EVENTS.*",
    ]);
    publish.push(format!("muster.req.{OPS}.operator.*"));
    publish.push("muster.ask.>".into());
    user("operator", CORE, publish, Vec::new())
}

fn of_service(service: &ServiceLayout, durables: &[Durable]) -> User {
    let name = service.name.as_str();
    let mut publish = vec![format!("muster.evt.{name}.*"), format!("$KV.LEASES.{name}.>")];
    // Answers to asks: of operators, of the ledger, and of whoever asks from another account.
    publish.extend(["_INBOX_operator.>", "_INBOX_ledger.>", "_R_.>"].map(String::from));
    publish.extend(api(&["STREAM.MSG.GET.EVENTS", "STREAM.MSG.GET.KV_LEASES"]));
    publish.push(format!("$JS.API.DIRECT.GET.{LEASES}.$KV.LEASES.{name}.>"));
    let mut streams = Vec::new();
    for durable in durables.iter().filter(|d| d.owner == Owner::Service(name.into())) {
        let place = format!("{}.{}", durable.stream, durable.name);
        for call in ["MSG.NEXT", "RESET", "INFO"] {
            publish.push(format!("$JS.API.CONSUMER.{call}.{place}"));
        }
        streams.push(durable.stream);
    }
    streams.sort_unstable();
    streams.dedup();
    publish.extend(streams.iter().map(|stream| format!("$JS.API.STREAM.INFO.{stream}")));
    publish.extend(extras(name));
    let mut subscribe = vec![format!("muster.ask.{name}"), format!("muster.ask.{name}.*")];
    if name == "ledger" {
        publish
            .extend([OUT, REQUESTS, BODIES, CLUSTERS, SIGNALS].map(|s| format!("$JS.API.STREAM.INFO.{s}")));
        subscribe = vec![names::ASK_LEDGER.into(), names::ASK_LEDGER_TENANTS.into()];
    }
    user(name, CORE, publish, subscribe)
}

/// What a service may beyond its own facts and its own reading.
fn extras(service: &str) -> Vec<String> {
    let subjects: &[&str] = match service {
        "queue" => &[
            "muster.body.*",
            "muster.out.*.rejected",
            "$JS.API.STREAM.PURGE.REQUESTS",
            "$JS.API.STREAM.MSG.DELETE.BODIES",
        ],
        "desk" => &["muster.to.*", "$JS.API.STREAM.MSG.GET.BODIES"],
        "ledger" => &["muster.out.*.*", "muster.ask.*.*", "$JS.API.STREAM.MSG.GET.BODIES"],
        _ => &[],
    };
    subjects.iter().map(|subject| (*subject).to_owned()).collect()
}

fn of_tenant(tenant: &str, principal: &str) -> Result<User, BusError> {
    let out = Durable {
        stream: OUT,
        name: names::out_durable(tenant)?,
        filter: None,
        acked: true,
        owner: Owner::Tenant(tenant.into()),
    };
    let mut publish = vec![
        format!("muster.req.{tenant}.{principal}.*"),
        format!("muster.sig.{tenant}.*"),
        names::ask_ledger(tenant)?,
    ];
    publish.extend(pulls(&out).into_iter().map(|pull| pull.known_as));
    // Tenants come with any NATS client, and most of those use the plain inbox. It is the tenant's own account:
    // only the tenant's other users could listen.
    let name = format!("{tenant}/{principal}");
    Ok(user(&name, &tenant_account(tenant), publish, vec!["_INBOX.>".into()]))
}

fn of_cluster(cluster: &str, durables: &[Durable]) -> Result<User, BusError> {
    let ask = names::ask_agent(cluster)?;
    // `_R_`: answers to asks that come from CORE.
    let mut publish =
        vec![names::from_cluster(cluster)?, format!("muster.sig.{cluster}.*"), "_R_.>".to_owned()];
    let own = durables.iter().filter(|d| d.owner == Owner::Cluster(cluster.into()));
    publish.extend(own.flat_map(pulls).map(|pull| pull.known_as));
    Ok(user(&format!("cluster/{cluster}"), &cluster_account(cluster), publish, vec![ask]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ClusterLayout, TenantLayout};

    fn layout(tenant: &str, principal: &str) -> Layout {
        let tenants = vec![TenantLayout { name: tenant.into(), principals: vec![principal.into()] }];
        Layout::standard(tenants, vec![ClusterLayout { name: "west".into(), agents: 1 }])
    }

    #[test]
    fn no_user_of_core_may_delete_or_purge_the_log_and_only_the_provisioner_makes_streams() {
        let users = users(&layout("acme", "alice")).unwrap();
        for user in users.iter().filter(|user| user.name != "provision") {
            for subject in &user.publish {
                assert!(!subject.contains("STREAM.CREATE"), "{}: {subject}", user.name);
                assert!(!subject.contains("STREAM.UPDATE"), "{}: {subject}", user.name);
            }
        }
        for subject in users.iter().flat_map(|user| &user.publish) {
            assert!(!subject.contains("STREAM.DELETE") && !subject.contains("PURGE.EVENTS"), "{subject}");
            assert!(*subject != "$JS.API.>" && *subject != ">", "{subject}");
        }
    }

    #[test]
    fn each_subject_of_events_has_one_user() {
        let users = users(&layout("acme", "alice")).unwrap();
        let mut writers: Vec<&String> = users.iter().flat_map(|u| &u.publish).collect();
        writers.retain(|subject| subject.starts_with("muster.evt."));
        let all = writers.len();
        writers.sort_unstable();
        writers.dedup();
        assert_eq!((writers.len(), all), (8, 8), "seven services and the generation");
    }

    #[test]
    fn two_users_of_one_name_are_refused() {
        let error = users(&layout("cluster", "west")).unwrap_err().to_string();
        assert!(error.contains("two users would be named \"cluster/west\""), "{error}");
    }
}
