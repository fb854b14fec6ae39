//! What goes wrong by itself, and how it is mended.

use muster_proto as proto;

use crate::{
    clients::cell_message,
    options::{MS, SECOND},
    oracle::Violation,
    world::{Event, World},
};

const EVERY_US: i64 = 200 * MS;

impl World {
    pub fn chaos(&mut self) -> Result<(), Violation> {
        if self.healed {
            return Ok(());
        }
        self.after(EVERY_US, Event::Chaos);
        let span = EVERY_US as f64 / SECOND as f64;
        for r in 0..self.replicas.len() {
            self.shake_replica(r, span);
        }
        for a in 0..self.agents.len() {
            self.shake_agent(a, span);
        }
        for c in 0..self.clusters.len() {
            self.shake_cluster(c, span)?;
        }
        Ok(())
    }

    fn shake_replica(&mut self, r: usize, span: f64) {
        if self.dice.chance(self.options.crashes_per_s * span) {
            self.stats.count("fault: crash at random");
            self.crash(r);
        }
        if self.dice.chance(self.options.pauses_per_s * span) {
            self.pause(r);
        }
        if self.dice.chance(0.1 * span)
            && let Some(replica) = self.replicas.get_mut(r)
        {
            replica.set_clock();
        }
    }

    fn shake_agent(&mut self, a: usize, span: f64) {
        let Some(slot) = self.agents.get(a) else { return };
        let runs = slot.agent.is_some();
        let rate = if runs { self.options.agent_crashes_per_s } else { self.options.second_agents_per_s };
        if !self.dice.chance(rate * span) {
            return;
        }
        self.stats.count(if runs { "fault: agent crash" } else { "fault: second agent" });
        self.end_agent(a);
        let delay = self.dice.between(MS, 5 * SECOND);
        let life = self.agents.get(a).map_or(0, |slot| slot.life);
        self.after(delay, Event::AgentStart { a, life });
    }

    fn shake_cluster(&mut self, c: usize, span: f64) -> Result<(), Violation> {
        if self.dice.chance(self.options.darks_per_s * span) {
            self.stats.count("fault: cluster dark");
            let until = self.now + self.dice.between(SECOND, 25 * SECOND);
            self.say(|_| format!("c{c} goes dark"));
            if let Some(cluster) = self.clusters.get_mut(c) {
                cluster.dark_until = until;
            }
        }
        if self.dice.chance(self.options.node_losses_per_s * span) {
            self.stats.count("fault: node lost");
            let index = self.dice.below(3) as usize;
            let lost = self.clusters.get_mut(c).map(|cluster| cluster.lose_node(index)).unwrap_or_default();
            self.say(|_| format!("c{c} loses node {index} with {lost:?}"));
            for uid in lost {
                self.processes.ended(&uid, false)?;
            }
            let delay = self.dice.between(SECOND, 20 * SECOND);
            self.after(delay, Event::NodeBack { c });
        }
        if self.dice.chance(self.options.process_losses_per_s * span) {
            self.lose_process(c)?;
        }
        Ok(())
    }

    fn lose_process(&mut self, c: usize) -> Result<(), Violation> {
        let Some(cluster) = self.clusters.get_mut(c) else { return Ok(()) };
        let Some(thing) = cluster.things.values_mut().find(|thing| thing.runs() && !thing.killing) else {
            return Ok(());
        };
        thing.object.phase = proto::Phase::Lost;
        let uid = thing.object.uid.clone();
        self.stats.count("fault: process lost");
        self.say(|_| format!("c{c} loses process {uid}"));
        self.processes.ended(&uid, false)
    }

    pub fn node_back(&mut self, c: usize) -> Result<(), Violation> {
        if let Some(cluster) = self.clusters.get_mut(c)
            && let Some(node) = cluster.lost_nodes.pop()
        {
            cluster.nodes.push(node);
        }
        Ok(())
    }

    /// The cluster burns down and is built again under its name, empty.
    pub fn rebuild(&mut self, c: usize) -> Result<(), Violation> {
        let Some(cluster) = self.clusters.get_mut(c) else { return Ok(()) };
        self.stats.count("fault: cluster rebuilt empty");
        cluster.destroyed = false;
        let things = cluster.rebuild();
        self.say(|_| format!("c{c} is built anew"));
        self.lost(things)?;
        self.restart_agents(c);
        Ok(())
    }

    /// The cluster is gone for good, until somebody builds another one.
    pub fn destroy(&mut self, c: usize) -> Result<(), Violation> {
        let Some(cluster) = self.clusters.get_mut(c) else { return Ok(()) };
        self.stats.count("fault: cluster destroyed");
        let things = cluster.rebuild();
        cluster.destroyed = true;
        self.say(|_| format!("c{c} is destroyed"));
        self.lost(things)?;
        for a in 0..self.agents.len() {
            if self.agents.get(a).is_some_and(|slot| slot.cluster == c) {
                self.end_agent(a);
            }
        }
        let delay = self.dice.between(15 * SECOND, 60 * SECOND);
        self.after(delay, Event::Rebuild { c });
        Ok(())
    }

    pub fn restart_agents(&mut self, c: usize) {
        for a in 0..self.agents.len() {
            let Some(slot) = self.agents.get(a).filter(|slot| slot.cluster == c) else { continue };
            let runs = slot.agent.is_some();
            self.end_agent(a);
            let life = self.agents.get(a).map_or(0, |slot| slot.life);
            if runs || a % 2 == 0 {
                let delay = self.dice.between(MS, 3 * SECOND);
                self.after(delay, Event::AgentStart { a, life });
            }
        }
    }

    /// The log comes back from a backup: its last messages are lost. All connections break.
    pub fn restore(&mut self) -> Result<(), Violation> {
        let head = self.log.head();
        if head < 4 {
            return Ok(());
        }
        self.stats.count("fault: log restored to an earlier sequence");
        let cut = head - self.dice.below((head / 2).min(120)) - 1;
        self.say(|_| format!("the log is restored to {cut} of {head}"));
        // A service that never saw the lost part may make the same ids again before the loss is accepted: what
        // ran under them in the lost history may run once more.
        let known: Vec<_> = self.ledger.queued.iter().copied().collect();
        self.processes.excused.extend(known);
        self.log.cut(cut);
        self.restores += 1;
        self.hashes.cut(cut);
        self.reread()?;
        self.disown();
        for r in 0..self.replicas.len() {
            self.crash(r);
        }
        self.after(6 * SECOND, Event::AcceptLoss);
        Ok(())
    }

    /// What exists and was not granted by the log as it is now belongs to a lost history.
    pub fn disown(&mut self) {
        let there = self.clusters.iter().flat_map(|cluster| cluster.things.values());
        let uids: Vec<String> = there.map(|thing| thing.object.uid.clone()).collect();
        self.processes.disown(uids.into_iter(), &self.ledger);
    }

    /// The operator accepts the loss: a new generation, and images ahead of the log are thrown away.
    pub fn accept_loss(&mut self) -> Result<(), Violation> {
        self.stats.count("accept-loss");
        self.history += 1;
        self.disown();
        let replaces = self.ledger.generation;
        let subject = "muster.evt.cell.0";
        let prev = self.log.last_of(subject);
        let hash = self.log.get(prev).map(|record| muster_core::sha256(&record.payload).to_vec());
        let fact =
            proto::GenerationStarted { generation: replaces + 1, reason: "accept-loss".to_owned(), replaces };
        let message = cell_message(prev, hash.unwrap_or_default().into(), fact);
        self.append(subject, prev, message)?;
        self.rebuild_refused();
        for c in 0..self.clusters.len() {
            self.restart_agents(c);
        }
        Ok(())
    }

    /// Images that don't belong to this log are thrown away: `--rebuild`.
    pub fn rebuild_refused(&mut self) {
        for r in 0..self.replicas.len() {
            let Some(replica) = self.replicas.get_mut(r).filter(|replica| replica.refused) else { continue };
            replica.disk.wipe();
            replica.refused = false;
            let life = replica.life;
            self.after(100 * MS, Event::Restart { r, life });
        }
    }

    /// Faults stop. What is broken is mended, and then everything has to finish.
    pub fn heal(&mut self) -> Result<(), Violation> {
        self.healed = true;
        self.options.heal();
        self.say(|_| "faults stop".to_owned());
        for replica in &mut self.replicas {
            replica.set_clock();
            replica.paused_until = replica.paused_until.min(self.now + SECOND);
        }
        for c in 0..self.clusters.len() {
            if let Some(cluster) = self.clusters.get_mut(c) {
                cluster.dark_until = 0;
                let lost = std::mem::take(&mut cluster.lost_nodes);
                cluster.nodes.extend(lost);
            }
            let alive = self.agents.iter().any(|slot| slot.cluster == c && slot.agent.is_some());
            if !alive {
                self.restart_agents(c);
            }
        }
        Ok(())
    }
}
