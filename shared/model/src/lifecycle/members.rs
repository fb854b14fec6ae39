//! Facts about member clusters.

use muster_core::{Event, Seq, WorkloadId};
use muster_proto::{self as proto, Kind, Outcome};

use super::{
    Cluster, Lifecycle,
    judge::{Effect, Held, Touched, hold},
};

impl Lifecycle {
    pub(super) fn desk_fact(&mut self, event: &Event) -> Held {
        let (cluster, epoch) = match &event.fact {
            Kind::ClusterJoined(fact) => (&fact.cluster, None),
            Kind::CapacityReported(fact) => (&fact.cluster, None),
            Kind::AgentJoined(fact) => (&fact.cluster, Some(fact.epoch)),
            Kind::ClusterReconciled(fact) => (&fact.cluster, None),
            _ => return Ok(()),
        };
        if &event.partition != cluster {
            return Err("written by another cluster's desk");
        }
        let known = self.clusters.get(cluster);
        match &event.fact {
            Kind::ClusterJoined(_) => hold(known.is_none(), "joined already")?,
            _ if known.is_none() => return Err("no such cluster"),
            Kind::AgentJoined(_) => {
                hold(epoch > known.map(|row| row.epoch), "an agent of this epoch was here")?
            }
            Kind::ClusterReconciled(_) => {
                let away = known.is_some_and(|row| row.suspected.is_some() || row.dead);
                hold(away, "neither suspected nor dead")?;
            }
            _ => {}
        }
        let mut row: Cluster = known.cloned().unwrap_or_default();
        row.epoch = epoch.unwrap_or(row.epoch);
        if matches!(event.fact, Kind::ClusterReconciled(_)) {
            (row.suspected, row.dead, row.oath) = (None, false, None);
        }
        self.clusters.put(cluster.clone(), row);
        self.grow_capacity_version(cluster);
        Ok(())
    }

    pub(super) fn suspected(&mut self, at: Seq, cluster: &str) -> Held {
        let row = self.cluster(cluster).ok_or("no such cluster")?;
        hold(row.suspected.is_none() && !row.dead, "suspected or dead already")?;
        self.clusters.update(&cluster.to_owned(), |row| row.suspected = Some(at));
        Ok(())
    }

    pub(super) fn oath(&mut self, cluster: &str, at: Seq) {
        self.clusters.update(&cluster.to_owned(), |row| {
            if row.suspected.is_some() {
                row.oath = Some(at);
            }
        });
    }

    pub(super) fn declared_dead(&mut self, at: Seq, fact: &proto::ClusterDeclaredDead) -> Effect {
        let row = self.cluster(&fact.cluster).ok_or("no such cluster")?;
        hold(row.suspected.is_some(), "not suspected")?;
        hold(
            row.oath.is_some() && row.oath == Some(fact.command),
            "no operator's command in this suspicion",
        )?;
        self.clusters.update(&fact.cluster, |row| {
            (row.suspected, row.dead, row.oath) = (None, true, None);
        });
        let ids: Vec<WorkloadId> = self.legs_in(&fact.cluster).copied().collect();
        for id in &ids {
            self.end_leg(id, &fact.cluster, Outcome::Dead, at);
        }
        Ok(Touched::Many(ids))
    }
}
