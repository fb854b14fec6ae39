//! What a cell consists of, as far as NATS is concerned: services, tenants, clusters. Streams, durables,
//! users and permissions all follow from it.

use crate::error::BusError;
use crate::names::{self, CLUSTERS, EVENTS, OUT, REQUESTS, SIGNALS};

/// The members of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Copies of each stream: 1 on one server, 3 in production.
    pub replicas: u8,
    /// The services with their partitions and replica slots.
    pub services: Vec<ServiceLayout>,
    /// The tenants.
    pub tenants: Vec<TenantLayout>,
    /// The member clusters.
    pub clusters: Vec<ClusterLayout>,
}

/// One service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceLayout {
    /// Name in subjects; also its user.
    pub name: String,
    /// Its partitions: numbers, or for the desk the clusters.
    pub partitions: Vec<String>,
    /// How many replicas of a partition may run at once; each needs a slot of its own.
    pub slots: u8,
    /// What it reads besides EVENTS.
    pub reads: Vec<Reads>,
}

/// What a service reads besides EVENTS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// All of REQUESTS.
    Requests,
    /// `muster.from.<partition>`: the reports of the partition's own cluster.
    OwnCluster,
    /// `muster.from.*`: the reports of every cluster.
    AllClusters,
    /// All of SIGNALS.
    Signals,
}

/// One tenant and its users.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantLayout {
    /// Name.
    pub name: String,
    /// Users; each publishes requests under its own name only.
    pub principals: Vec<String>,
}

/// One member cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterLayout {
    /// Name.
    pub name: String,
    /// How many agents may run at once.
    pub agents: u8,
}

/// A durable consumer that provisioning makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Durable {
    /// Stream.
    pub stream: &'static str,
    /// Name.
    pub name: String,
    /// Subjects it delivers; `None` for all.
    pub filter: Option<String>,
    /// Whether messages must be acknowledged (notices to tenants); else the reader keeps its position.
    pub acked: bool,
    /// Who pulls from it.
    pub owner: Owner,
}

/// Who pulls from a durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// A service, by name.
    Service(String),
    /// A tenant, by name.
    Tenant(String),
    /// A cluster's agents, by the cluster's name.
    Cluster(String),
}

impl Layout {
    /// The services of this version, two slots each, on one server.
    #[must_use]
    pub fn standard(tenants: Vec<TenantLayout>, clusters: Vec<ClusterLayout>) -> Layout {
        let one = || vec!["0".to_owned()];
        let service = |name: &str, partitions: Vec<String>, reads: &[Reads]| ServiceLayout {
            name: name.into(),
            partitions,
            slots: 2,
            reads: reads.to_vec(),
        };
        let services = vec![
            service("queue", one(), &[Reads::Requests]),
            service("admission", one(), &[]),
            service("federation", one(), &[Reads::AllClusters]),
            service("autotune", one(), &[Reads::Signals]),
            service("failover", one(), &[Reads::Signals]),
            service("desk", clusters.iter().map(|c| c.name.clone()).collect(), &[Reads::OwnCluster]),
            service("ledger", one(), &[]),
        ];
        Layout { replicas: 1, services, tenants, clusters }
    }

    /// Checks every name.
    ///
    /// # Errors
    /// A name that can't be part of a subject; a tenant and a cluster of one name (they would share the
    /// subjects of SIGNALS); no replica count of 1 to 5.
    pub fn check(&self) -> Result<(), BusError> {
        if !(1..=5).contains(&self.replicas) {
            return Err(BusError::Options(format!("{} replicas: NATS knows 1 to 5", self.replicas)));
        }
        for service in &self.services {
            names::token("service", &service.name)?;
            for partition in &service.partitions {
                names::token("partition", partition)?;
            }
        }
        for tenant in &self.tenants {
            names::tenant(&tenant.name)?;
            for principal in &tenant.principals {
                names::token("principal", principal)?;
            }
        }
        for cluster in &self.clusters {
            names::token("cluster", &cluster.name)?;
            if self.tenants.iter().any(|tenant| tenant.name == cluster.name) {
                let name = &cluster.name;
                return Err(BusError::Options(format!(
                    "tenant and cluster {name:?}: they need different names, as both own muster.sig.{name}.>"
                )));
            }
        }
        Ok(())
    }

    /// Every durable of the cell.
    ///
    /// # Errors
    /// As [`Layout::check`].
    pub fn durables(&self) -> Result<Vec<Durable>, BusError> {
        self.check()?;
        let mut durables = Vec::new();
        for service in &self.services {
            for partition in &service.partitions {
                for slot in 0..service.slots {
                    durables.extend(of_service(service, partition, slot)?);
                }
            }
        }
        for cluster in &self.clusters {
            for slot in 0..cluster.agents {
                durables.push(Durable {
                    stream: CLUSTERS,
                    name: names::durable("agent", &cluster.name, slot)?,
                    filter: Some(names::to_cluster(&cluster.name)?),
                    acked: false,
                    owner: Owner::Cluster(cluster.name.clone()),
                });
            }
        }
        for tenant in &self.tenants {
            durables.push(Durable {
                stream: OUT,
                name: names::out_durable(&tenant.name)?,
                filter: Some(format!("muster.out.{}.*", tenant.name)),
                acked: true,
                owner: Owner::Tenant(tenant.name.clone()),
            });
        }
        Ok(durables)
    }
}

fn of_service(service: &ServiceLayout, partition: &str, slot: u8) -> Result<Vec<Durable>, BusError> {
    let name = names::durable(&service.name, partition, slot)?;
    let durable = |stream, filter| Durable {
        stream,
        name: name.clone(),
        filter,
        acked: false,
        owner: Owner::Service(service.name.clone()),
    };
    let mut durables = vec![durable(EVENTS, None)];
    for reads in &service.reads {
        durables.push(match reads {
            Reads::Requests => durable(REQUESTS, None),
            Reads::Signals => durable(SIGNALS, None),
            Reads::OwnCluster => durable(CLUSTERS, Some(names::from_cluster(partition)?)),
            Reads::AllClusters => durable(CLUSTERS, Some("muster.from.*".into())),
        });
    }
    Ok(durables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::standard(
            vec![TenantLayout { name: "acme".into(), principals: vec!["alice".into()] }],
            vec![ClusterLayout { name: "west".into(), agents: 2 }],
        )
    }

    #[test]
    fn every_reader_has_a_durable_of_its_own() {
        let durables = layout().durables().unwrap();
        let mut keys: Vec<_> = durables.iter().map(|d| (d.stream, d.name.as_str())).collect();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all);
        assert!(keys.contains(&(EVENTS, "queue-0-1")) && keys.contains(&(REQUESTS, "queue-0-0")));
        assert!(keys.contains(&(CLUSTERS, "agent-west-1")) && keys.contains(&(CLUSTERS, "desk-west-0")));
        assert!(keys.contains(&(OUT, "out-acme")));
    }

    #[test]
    fn a_tenant_and_a_cluster_may_not_share_a_name() {
        let mut layout = layout();
        layout.clusters[0].name = "acme".into();
        assert!(layout.check().unwrap_err().to_string().contains("different names"));
    }
}
