//! The agent as a state machine: inputs in, effects out, no clock of its own.

use std::collections::BTreeMap;

use muster_proto::{Desired, Report};

use crate::{Action, Key, Lease, Observed, actions, report};

#[derive(Clone, Debug)]
pub struct Config {
    pub cluster: String,
    /// Names this process and no other, ever: the holder in the lease.
    pub agent: String,
    /// `local` or `kubernetes`.
    pub backend: String,
    /// Between two looks when nothing happens, and so between two reports. Microseconds.
    pub heartbeat_us: u64,
    /// After which a call counts as unanswered. It may still land. Microseconds.
    pub deadline_us: u64,
}

impl Config {
    /// A heartbeat a second, calls of at most ten.
    pub fn new(cluster: &str, agent: &str, backend: &str) -> Self {
        Self {
            cluster: cluster.into(),
            agent: agent.into(),
            backend: backend.into(),
            heartbeat_us: 1_000_000,
            deadline_us: 10_000_000,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Input {
    /// Any monotonic clock, at least a few times per heartbeat, and first of all inputs.
    Tick(u64),
    Desired(Desired),
    /// The answer to [`Effect::TakeLease`]: the lease as it stands after the call.
    Lease(Result<Lease, String>),
    /// The answer to [`Effect::Observe`].
    Observed {
        ticket: u64,
        seen: Result<Observed, String>,
    },
    /// The answer to [`Effect::Act`].
    Acted {
        id: u64,
        done: Done,
    },
    /// Something worth a look happened in the cluster.
    Changed,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Done {
    Ok,
    /// Never possible here, and why; for a create this becomes PHASE_REFUSED.
    Refused(String),
    /// Not this time. The desk repeats what it still wants.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Act {
        id: u64,
        action: Action,
    },
    /// Look at the cluster; the look must begin after this effect.
    Observe {
        ticket: u64,
    },
    /// Set the lease to epoch max(latest + 1, `at_least`) under this agent's name, atomically. With `held`: only
    /// while the lease is this agent's at that epoch; otherwise it stays as it is.
    TakeLease {
        at_least: u64,
        held: Option<u64>,
    },
    Report(Report),
}

/// How far the `Desired` in hand has come.
#[derive(Debug)]
enum Stage {
    /// Waits for a look to plan on.
    Look,
    /// Waits for answers to its calls, until the deadline.
    Act { calls: BTreeMap<u64, Action>, until: u64 },
    /// Waits for a look that began after the last answer.
    Confirm,
}

#[derive(Debug)]
pub struct Agent {
    config: Config,
    now: u64,
    last_id: u64,
    generation: Option<u32>,
    /// Held from the cluster's lease; none before the first answer.
    epoch: Option<u64>,
    at_least: u64,
    /// When to ask for the lease again.
    lease_again: Option<u64>,
    /// The log's epoch that made this process raise its own; it does so once.
    raised_above: Option<u64>,
    superseded: Option<Lease>,
    /// The newest that came while another was in hand.
    waiting: Option<Desired>,
    in_hand: Option<(Desired, Stage)>,
    echo: u64,
    refused: BTreeMap<Key, String>,
    /// The look under way, and when it counts as lost.
    looking: Option<(u64, u64)>,
    looked: Option<u64>,
    look_again: bool,
    reported: Option<(u64, Report)>,
}

impl Agent {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            now: 0,
            last_id: 0,
            generation: None,
            epoch: None,
            at_least: 1,
            lease_again: None,
            raised_above: None,
            superseded: None,
            waiting: None,
            in_hand: None,
            echo: 0,
            refused: BTreeMap::new(),
            looking: None,
            looked: None,
            look_again: false,
            reported: None,
        }
    }

    /// The lease that ended this agent: it acts and reports no more, whatever comes.
    pub fn superseded(&self) -> Option<&Lease> {
        self.superseded.as_ref()
    }

    /// Of the first `Desired` heard; others are ignored for the life of the process.
    pub fn generation(&self) -> Option<u32> {
        self.generation
    }

    pub fn step(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.superseded.is_some() {
            return effects;
        }
        match input {
            Input::Tick(now) => self.now = self.now.max(now),
            Input::Desired(desired) => self.offer(desired),
            Input::Lease(Ok(lease)) => {
                self.lease_again = None;
                self.hold(&lease);
            }
            Input::Lease(Err(_)) => self.lease_again = Some(self.now + self.config.heartbeat_us),
            Input::Observed { ticket, seen } => self.saw(ticket, seen, &mut effects),
            Input::Acted { id, done } => self.acted(id, done),
            Input::Changed => self.look_again = true,
        }
        self.expire();
        if self.superseded.is_none() && self.take_lease(&mut effects) {
            self.take_in_hand();
            self.look(&mut effects);
        }
        effects
    }

    fn offer(&mut self, desired: Desired) {
        let ours = desired.cluster == self.config.cluster;
        if !ours || self.generation.is_some_and(|generation| generation != desired.generation) {
            return;
        }
        self.generation = Some(desired.generation);
        let newest = [self.waiting.as_ref(), self.in_hand.as_ref().map(|(desired, _)| desired)];
        let newest = newest.into_iter().flatten().map(|known| known.seq).fold(self.echo, u64::max);
        if desired.seq >= newest {
            self.waiting = Some(desired);
        }
    }

    /// Learns from the lease as it stood in the cluster.
    fn hold(&mut self, lease: &Lease) {
        if lease.agent == self.config.agent {
            self.epoch = Some(self.epoch.unwrap_or_default().max(lease.epoch));
        } else if self.epoch.is_some_and(|own| lease.epoch >= own) {
            self.superseded = Some(lease.clone());
        }
    }

    /// Asks for the lease where it must; true while this agent may act.
    fn take_lease(&mut self, effects: &mut Vec<Effect>) -> bool {
        let logged = self.waiting.as_ref().map_or(0, |desired| desired.epoch);
        let (at_least, held) = match self.epoch {
            None => (self.at_least, None),
            Some(own) if logged > own => {
                if self.raised_above.is_some_and(|above| own > above) {
                    // Raised once already, and the log went past it while our lease still stands: another cluster
                    // answers to this name. Raising in turns would never end.
                    self.superseded =
                        Some(Lease { epoch: logged, agent: "another cluster of this name".into() });
                    return false;
                }
                (logged + 1, Some(own))
            }
            Some(_) => return true,
        };
        if self.lease_again.is_none() {
            self.lease_again = Some(self.now + self.config.deadline_us);
            self.raised_above = held.map(|_| logged);
            effects.push(Effect::TakeLease { at_least, held });
        }
        self.epoch.is_some()
    }

    fn take_in_hand(&mut self) {
        let current = |desired: &mut Desired| self.epoch.is_some_and(|own| desired.epoch <= own);
        if self.in_hand.is_none()
            && let Some(desired) = self.waiting.take_if(current)
        {
            self.in_hand = Some((desired, Stage::Look));
            self.looking = None;
            self.look_again = true;
        }
    }

    fn look(&mut self, effects: &mut Vec<Effect>) {
        let due = self.looked.is_none_or(|at| self.now >= at + self.config.heartbeat_us);
        if self.looking.is_none() && (self.look_again || due) {
            self.look_again = false;
            self.looked = Some(self.now);
            let ticket = self.next_id();
            self.looking = Some((ticket, self.now + self.config.deadline_us));
            effects.push(Effect::Observe { ticket });
        }
    }

    fn saw(&mut self, ticket: u64, seen: Result<Observed, String>, effects: &mut Vec<Effect>) {
        if self.looking.is_none_or(|(current, _)| current != ticket) {
            return;
        }
        self.looking = None;
        let Ok(seen) = seen else { return };
        if seen.lease.agent.is_empty() {
            // The cluster was rebuilt under this process: nothing of it is known until the lease is taken anew.
            self.at_least = self.epoch.take().unwrap_or_default() + 1;
            return;
        }
        self.hold(&seen.lease);
        if self.superseded.is_some() {
            return;
        }
        self.progress(&seen, effects);
        self.tell(&seen, effects);
    }

    fn progress(&mut self, seen: &Observed, effects: &mut Vec<Effect>) {
        let Some((desired, stage)) = self.in_hand.take() else { return };
        let stage = match stage {
            Stage::Look => {
                let plan = actions(&desired, seen, &self.refused);
                self.refused = plan.refused;
                let calls: BTreeMap<u64, Action> =
                    plan.actions.into_iter().map(|action| (self.next_id(), action)).collect();
                effects
                    .extend(calls.iter().map(|(id, action)| Effect::Act { id: *id, action: action.clone() }));
                Stage::Act { calls, until: self.now + self.config.deadline_us }
            }
            other => other,
        };
        match stage {
            Stage::Act { calls, .. } if calls.is_empty() => self.echo = desired.seq,
            Stage::Confirm => self.echo = desired.seq,
            stage => self.in_hand = Some((desired, stage)),
        }
    }

    fn acted(&mut self, id: u64, done: Done) {
        let Some((_, Stage::Act { calls, .. })) = &mut self.in_hand else { return };
        if let Some(Action::Create { key, .. }) = calls.remove(&id)
            && let Done::Refused(reason) = done
        {
            self.refused.insert(key, reason);
        }
    }

    /// Moves on from calls that are all answered, and from what stayed unanswered for too long.
    fn expire(&mut self) {
        if self.lease_again.is_some_and(|at| self.now >= at) {
            self.lease_again = None;
        }
        if self.looking.is_some_and(|(_, until)| self.now >= until) {
            self.looking = None;
        }
        if let Some((_, stage)) = &mut self.in_hand
            && let Stage::Act { calls, until } = stage
            && (calls.is_empty() || self.now >= *until)
        {
            *stage = Stage::Confirm;
            self.looking = None; // a look under way may have begun before the last call landed
            self.look_again = true;
        }
    }

    fn tell(&mut self, seen: &Observed, effects: &mut Vec<Effect>) {
        let report = Report {
            generation: self.generation.unwrap_or_default(),
            cluster: self.config.cluster.clone(),
            agent: self.config.agent.clone(),
            epoch: self.epoch.unwrap_or_default(),
            echo: self.echo,
            backend: self.config.backend.clone(),
            ..report(seen, &self.refused)
        };
        let stale = self
            .reported
            .as_ref()
            .is_none_or(|(at, last)| self.now >= at + self.config.heartbeat_us || *last != report);
        if stale {
            self.reported = Some((self.now, report.clone()));
            effects.push(Effect::Report(report));
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}
