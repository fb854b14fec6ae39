//! How often what happened: a campaign in which a fault or a branch never occurred proves nothing about it.

use std::collections::BTreeMap;

/// Everything that a large campaign must have seen at least once.
pub const EXPECTED: &[&str] = &[
    "fault: agent crash",
    "fault: call late",
    "fault: call landed twice",
    "fault: call's answer lost",
    "fault: clock off by an hour",
    "fault: cluster dark",
    "fault: cluster destroyed",
    "fault: cluster rebuilt empty",
    "fault: crash at random",
    "fault: crash before commit",
    "fault: crash before publish",
    "fault: crash in an outside wish",
    "fault: log restored to an earlier sequence",
    "fault: mail doubled",
    "fault: mail late",
    "fault: mail lost",
    "fault: node lost",
    "fault: pause",
    "fault: process lost",
    "fault: publish doubled",
    "fault: publish late",
    "fault: publish lost",
    "fault: publish's answer lost",
    "fault: read late",
    "fault: second agent",
    "fault: subject in flight",
    "fault: wish failed",
    "publish: conflict",
    "publish: in flight",
    "publish: stale",
    "publish: stored",
    "publish: unknown, not stored",
    "publish: unknown, stored",
    "restart: from an older image",
    "restart: from nothing",
    "restart: from the last image",
    "restart: refused, another history",
    "restart: refused, log is shorter",
    "accept-loss",
    "clock: refused to decide",
    "agent: another generation",
    "agent: superseded",
    "object: started",
    "object: start refused by its uid",
    "object: removed while it ran",
    "object: stray held",
    "process: failed",
    "process: succeeded",
    "request: cancel",
    "request: delivered twice",
    "workload: cancelled",
    "workload: failed",
    "workload: succeeded",
    "effective: AgentJoined",
    "effective: CapacityReported",
    "effective: ClusterDeclaredDead",
    "effective: ClusterJoined",
    "effective: ClusterReconciled",
    "effective: ClusterSuspected",
    "effective: CommandAccepted",
    "effective: GenerationStarted",
    "effective: LegEnded",
    "effective: LegGranted",
    "effective: LegReady",
    "effective: LegRefused",
    "effective: PlacementCommitted",
    "effective: PlacementExhausted",
    "effective: PlacementOffered",
    "effective: PlacementWithdrawn",
    "effective: PolicyApplied",
    "effective: QuotaReleased",
    "effective: QuotaReserved",
    "effective: RequestsRejected",
    "effective: WorkloadCancelled",
    "effective: WorkloadFinished",
    "effective: WorkloadQueued",
    "effective: WorkloadRequeued",
    "void: LegGranted",
    "void: PlacementCommitted",
    "void: PlacementOffered",
    "void: QuotaReserved",
    "ended: Gone",
    "ended: Dead",
    "ended: NodeFailed",
    "ended: Stopped",
    "ended: Succeeded",
    "ended: UserFailed",
];

#[derive(Clone, Debug, Default)]
pub struct Stats {
    counts: BTreeMap<String, u64>,
}

impl Stats {
    pub fn count(&mut self, what: &str) {
        match self.counts.get_mut(what) {
            Some(count) => *count += 1,
            None => _ = self.counts.insert(what.to_owned(), 1),
        }
    }

    pub fn add(&mut self, other: &Self) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }

    #[must_use]
    pub fn of(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Expected, and never seen.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        EXPECTED.iter().copied().filter(|what| self.of(what) == 0).collect()
    }

    /// All counts, those expected included.
    pub fn rows(&self) -> impl Iterator<Item = (&str, u64)> {
        let mut all: BTreeMap<&str, u64> = EXPECTED.iter().map(|what| (*what, 0)).collect();
        all.extend(self.counts.iter().map(|(what, count)| (what.as_str(), *count)));
        all.into_iter()
    }
}
