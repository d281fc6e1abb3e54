use std::sync::Arc;

use evener_model::{Event, Job, JobCounts, NodeId, Outcome, Report, Time};

use crate::affinity::Affinity;
use crate::explain::{Candidate, Placements};
use crate::nodes::{Nodes, Record, Standing, UNIT};
use crate::policy::{self, Algorithm, Pick};
use crate::rng::Rng;
use crate::slow_start;
use crate::{NodeState, NodeView, PickError, Placement, Settings};

/// Reservations that fail because others took the last place, before the pool counts as full.
const RACES_MAX: usize = 8;

/// Chooses a node for each job of a pool.
///
/// A driver tells it what happens ([`handle`](Scheduler::handle)) and asks it where jobs go
/// ([`pick`](Scheduler::pick)); it tells the time with every call and must not let it run backwards. Jobs in
/// flight are counted in [`JobCounts`], which other schedulers of the same pool share.
///
/// The same settings, seed, counts and calls give the same picks.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    seed: u64,
    nodes: Nodes,
    affinity: Affinity,
    algorithm: Box<dyn Algorithm>,
    rng: Rng,
    placements: Placements,
    /// For use within a pick: members that the job must not go to, and those that it had better not.
    unwanted: Vec<NodeId>,
    /// Nothing changes by time alone before.
    due: Time,
    /// Whether any job was placed yet: nodes that join before are not new.
    running: bool,
    panic: bool,
    /// Nodes with a weight that do not drain, and those of them that are up and not ejected.
    wanted: usize,
    eligible: usize,
}

impl Scheduler {
    /// A scheduler without nodes. `counts` must have a place for each node that will join.
    ///
    /// Schedulers that share counts should differ in `seed`: equal ones break ties alike.
    pub fn new(settings: Settings, counts: Arc<JobCounts>, seed: u64) -> Scheduler {
        Scheduler {
            affinity: Affinity::new(&settings),
            algorithm: policy::build(&settings, seed),
            settings,
            seed,
            nodes: Nodes::new(counts),
            rng: Rng::new(seed),
            placements: Placements::new(),
            unwanted: Vec::new(),
            due: Time::from_nanos(u64::MAX),
            running: false,
            panic: false,
            wanted: 0,
            eligible: 0,
        }
    }

    /// Takes new settings. What is known of nodes stays; so does the state of the policy (its rotation,
    /// its tables), unless the policy, its order or its variant is another. O(nodes).
    pub fn reconfigure(&mut self, now: Time, settings: Settings) {
        let kind = |settings: &Settings| (settings.policy, settings.order, settings.variant);
        let same = kind(&settings) == kind(&self.settings);
        self.settings = settings;
        if same {
            self.algorithm.configure(&self.settings);
        } else {
            self.algorithm = policy::build(&self.settings, self.seed);
        }
        self.affinity.configure(&self.settings);
        for place in 0..self.nodes.known().len() {
            let node = self.nodes.known()[place];
            if let Some(record) = self.nodes.record_mut(node).filter(|_| self.settings.outlier.is_none()) {
                record.conduct.pardon();
            }
            self.affinity.note(&self.nodes, node);
            self.settle(now, node);
            if !same {
                self.algorithm.weighed(&self.nodes, node, now);
                self.algorithm.reported(&self.nodes, node, now);
            }
        }
        // Reports may be believed for less long than before.
        self.advance(now);
    }

    /// Takes note of what happened. Events of nodes that are not there are ignored, except that
    /// [`Event::Finish`] always releases its reservation.
    ///
    /// `Finish` and `Report`: O(1) to O(log nodes), no allocation, unless the node goes in or out by it. The
    /// others: O(nodes).
    ///
    /// # Panics
    /// If a node joins for which the counts have no place.
    pub fn handle(&mut self, now: Time, event: Event) {
        if now >= self.due {
            self.advance(now);
        }
        match event {
            Event::Join { node, spec } => {
                match self.nodes.record_mut(node) {
                    Some(record) => record.spec = spec,
                    None => self.nodes.add(node, Record::new(spec)),
                }
                self.unwanted.clear();
                self.unwanted.reserve(self.nodes.known().len());
                self.settle(now, node);
                self.affinity.note(&self.nodes, node);
                // The policy may also look at what is no part of the standing: the name.
                self.algorithm.weighed(&self.nodes, node, now);
            }
            Event::Leave { node } => self.leave(now, node),
            Event::Weight { node, weight } => {
                self.change(now, node, |record| record.spec.weight = weight);
                if self.nodes.record(node).is_some() {
                    self.affinity.note(&self.nodes, node);
                    self.algorithm.weighed(&self.nodes, node, now);
                }
            }
            Event::Drain { node, draining } => self.change(now, node, |record| record.draining = draining),
            Event::Check { node, up } => self.change(now, node, |record| record.up = up),
            Event::Report { node, report } => self.report(now, node, report),
            Event::Finish { node, outcome, latency } => {
                self.nodes.release(node);
                self.nodes.loads.ended(node);
                self.finish(now, node, outcome, latency);
            }
        }
    }

    /// Chooses a node for a job and reserves a place for the job on it, at once; [`Event::Finish`]
    /// releases it.
    ///
    /// Never a node that is down, ejected, draining or of weight 0, unless so many of the pool are down or
    /// ejected that all of them are tried (see [`Settings::panic_percent`]); never one that has as many
    /// jobs as it may, nor one that the job excludes; and one that the job is to avoid only where there is no other:
    /// where the others are full, the job had better wait than go back. No allocation. Cost and ties: see
    /// [`Policy`](crate::Policy); excluded nodes add O(excluded · log excluded), and a look at them for each candidate.
    ///
    /// # Errors
    /// [`PickError::NoNode`] if no node may be picked, [`PickError::Excluded`] if the job excludes all that may be,
    /// [`PickError::Full`] if all others are full. Nothing is reserved then.
    pub fn pick(&mut self, now: Time, job: &Job<'_>) -> Result<NodeId, PickError> {
        if now >= self.due {
            self.advance(now);
        }
        self.running = true;
        let members = self.nodes.members().len();
        let placement = self.placements.begin(now, self.settings.policy, members, self.panic);
        placement.choice = Err(PickError::NoNode);
        if members == 0 {
            return placement.choice;
        }
        let avoid = if job.excluded.is_empty() {
            if others(&self.nodes, job.avoid) { job.avoid } else { &[] }
        } else if unwanted(&self.nodes, job, &mut self.unwanted) {
            &self.unwanted
        } else {
            placement.choice = Err(PickError::Excluded);
            return placement.choice;
        };
        placement.choice = Err(PickError::Full);
        let mut pick = Pick {
            now,
            nodes: &self.nodes,
            key: job.key,
            only: self.affinity.of(&self.nodes, job.key),
            avoid,
            rng: &mut self.rng,
            placement,
        };
        for _ in 0..RACES_MAX {
            let mut found = self.algorithm.pick(&mut pick);
            if found.is_none() && !pick.only.is_empty() {
                // Better a node that is not the key's than none.
                pick.only = &[];
                found = self.algorithm.pick(&mut pick);
            }
            let Some(best) = found else { break };
            let stays = |current: &NodeId| stays(&*self.algorithm, &self.settings, &pick, *current, best);
            let node = job.current.filter(stays).unwrap_or(best);
            let jobs = self.nodes.jobs(node);
            if self.nodes.reserve(node) {
                let weight = self.nodes.standing(node).weight;
                let chosen = Candidate { node, jobs, weight, score: f32::NAN, latency: None };
                pick.placement.include(&self.nodes, chosen);
                pick.placement.choice = Ok(node);
                self.nodes.loads.picked(node);
                self.algorithm.placed(&self.nodes, node, now);
                return Ok(node);
            }
            pick.placement.forget();
        }
        Err(PickError::Full)
    }

    /// How many nodes may be picked now, full ones included. Jobs that wait because all are full
    /// need not look again before there are more, or a job has ended.
    #[inline]
    pub fn members(&self) -> usize {
        self.nodes.members().len()
    }

    /// The nodes as they are seen now, by id.
    pub fn nodes(&self, now: Time) -> impl Iterator<Item = NodeView> + '_ {
        self.nodes
            .known()
            .iter()
            .filter_map(move |node| Some(self.view(now, *node, self.nodes.record(*node)?)))
    }

    /// The last 64 placements, newest first.
    pub fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.placements.iter()
    }

    fn view(&self, now: Time, node: NodeId, record: &Record) -> NodeView {
        let ejected = record.conduct.ejected_until().filter(|until| *until > now);
        let ramp =
            record.warming_since.and_then(|since| slow_start::ramp(since, now, self.settings.slow_start));
        let state = if !record.wanted() {
            NodeState::Draining
        } else if !record.up || record.declines() {
            NodeState::Down
        } else if let Some(until) = ejected {
            NodeState::Ejected { until }
        } else if let Some(since) = record.warming_since.filter(|_| ramp.is_some()) {
            NodeState::Warming { until: since + self.settings.slow_start }
        } else {
            NodeState::Up
        };
        NodeView {
            node,
            state,
            weight: record.spec.weight,
            effective_weight: self.nodes.standing(node).share as f32 / UNIT as f32,
            jobs: self.nodes.jobs(node),
            latency: record.latency.mean(),
            failure_share: record.conduct.failure_share(),
            ejections: record.conduct.ejections(),
            report: record.report.map(|report| (report, now.since(report.measured_at))),
        }
    }

    fn change(&mut self, now: Time, node: NodeId, change: impl FnOnce(&mut Record)) {
        if let Some(record) = self.nodes.record_mut(node) {
            change(record);
            self.settle(now, node);
        }
    }

    fn leave(&mut self, now: Time, node: NodeId) {
        let Some(record) = self.nodes.record(node) else { return };
        self.wanted -= usize::from(record.wanted_before);
        self.eligible -= usize::from(record.eligible);
        self.nodes.set_standing(node, Standing::default());
        self.nodes.remove(node);
        self.affinity.remove(node);
        self.algorithm.weighed(&self.nodes, node, now);
        self.algorithm.left(node);
        self.settle_panic(now);
    }

    fn finish(&mut self, now: Time, node: NodeId, outcome: Outcome, latency: Option<std::time::Duration>) {
        let rules = self.settings.outlier.as_ref();
        let Some(record) = self.nodes.record_mut(node) else { return };
        if let Some(sample) = latency {
            if outcome == Outcome::Success {
                record.latency.feed(now, sample);
                self.nodes.typical.feed(now, sample);
            } else if outcome.is_failure() {
                record.latency.feed_failure(now, sample);
            }
        }
        let judged =
            self.nodes.record_mut(node).is_some_and(|record| record.conduct.ended(now, outcome, rules));
        if judged {
            self.settle(now, node);
        }
        if let Some(latency) = latency.filter(|_| outcome == Outcome::Success) {
            self.algorithm.served(&self.nodes, node, now, latency);
        }
        self.algorithm.finished(&self.nodes, node, now);
    }

    fn report(&mut self, now: Time, node: NodeId, report: Report) {
        let expiry = self.settings.report_expiry;
        let declined = self.nodes.record(node).is_some_and(Record::declines);
        if !self.nodes.take(now, node, report, expiry) {
            return;
        }
        let Some(record) = self.nodes.record(node) else { return };
        if let Some(until) = record.report_until(expiry) {
            self.due = self.due.min(until);
        }
        if record.declines() != declined {
            self.settle(now, node);
        }
        self.algorithm.reported(&self.nodes, node, now);
    }

    /// Brings in what time has changed, and finds out when it changes something next.
    fn advance(&mut self, now: Time) {
        self.due = Time::from_nanos(u64::MAX);
        for place in 0..self.nodes.known().len() {
            let node = self.nodes.known()[place];
            let (slow_start, expiry) = (self.settings.slow_start, self.settings.report_expiry);
            let Some(record) = self.nodes.record_mut(node) else { continue };
            if record.conduct.due().is_none() && record.warming_since.is_none() && !record.believed {
                continue;
            }
            record.conduct.advance(now);
            record.warming_since =
                record.warming_since.filter(|since| slow_start::ramp(*since, now, slow_start).is_some());
            let expired = self.nodes.expire(now, node, expiry);
            self.settle(now, node);
            if expired {
                self.algorithm.reported(&self.nodes, node, now);
            }
        }
    }

    /// Brings a node's standing up to date with its record.
    fn settle(&mut self, now: Time, node: NodeId) {
        let slow_start = self.settings.slow_start;
        let Some(record) = self.nodes.record_mut(node) else { return };
        let eligible = record.wanted() && record.able();
        if eligible && !record.eligible && self.running && !slow_start.is_zero() {
            record.warming_since = Some(now);
        }
        let wanted = record.wanted();
        self.wanted = self.wanted + usize::from(wanted) - usize::from(record.wanted_before);
        self.eligible = self.eligible + usize::from(eligible) - usize::from(record.eligible);
        (record.wanted_before, record.eligible) = (wanted, eligible);
        if !self.settle_panic(now) {
            self.stand(now, node);
        }
    }

    /// Goes into panic or out of it if the share of eligible nodes says so; says whether it did.
    fn settle_panic(&mut self, now: Time) -> bool {
        let panic = self.eligible * 100 < self.wanted * usize::from(self.settings.panic_percent);
        if panic == self.panic {
            return false;
        }
        self.panic = panic;
        for place in 0..self.nodes.known().len() {
            self.stand(now, self.nodes.known()[place]);
        }
        true
    }

    /// Tells the policy how a node stands now, if that is news.
    fn stand(&mut self, now: Time, node: NodeId) {
        let slow_start = self.settings.slow_start;
        let Some(record) = self.nodes.record(node) else { return };
        let member = if self.panic { record.wanted() } else { record.eligible };
        let ramp = record.warming_since.and_then(|since| slow_start::ramp(since, now, slow_start));
        let standing = if member {
            let (weight, ramp) = (record.spec.weight.value(), ramp.unwrap_or(UNIT));
            Standing {
                weight,
                handicap: record.conduct.penalty() * UNIT / ramp,
                share: weight * ramp,
                jobs_max: record.spec.jobs_max.unwrap_or(u32::MAX),
            }
        } else {
            Standing::default()
        };
        let next_step = ramp.map(|_| slow_start::next_step(now, slow_start));
        let until = record.report_until(self.settings.report_expiry);
        if let Some(due) = [record.conduct.due(), next_step, until].into_iter().flatten().min() {
            self.due = self.due.min(due);
        }
        if standing != *self.nodes.standing(node) {
            self.nodes.set_standing(node, standing);
            self.algorithm.weighed(&self.nodes, node, now);
        }
    }
}

/// Whether there is a member that is not to be avoided. O(avoided²).
fn others(nodes: &Nodes, avoid: &[NodeId]) -> bool {
    let avoided = avoid
        .iter()
        .enumerate()
        .filter(|(place, node)| nodes.is_member(**node) && !avoid[..*place].contains(node))
        .count();
    nodes.members().len() > avoided
}

/// Collects the members that a job excludes, and those that it is to avoid if that leaves others. Says whether
/// any member is left.
#[cold]
fn unwanted(nodes: &Nodes, job: &Job<'_>, unwanted: &mut Vec<NodeId>) -> bool {
    let members = nodes.members().len();
    unwanted.clear();
    unwanted.extend(job.excluded.iter().filter(|node| nodes.is_member(**node)));
    unwanted.sort_unstable();
    unwanted.dedup();
    let excluded = unwanted.len();
    for node in job.avoid {
        if nodes.is_member(*node) && !unwanted.contains(node) {
            unwanted.push(*node);
        }
    }
    if unwanted.len() == members {
        unwanted.truncate(excluded);
    }
    excluded < members
}

/// Whether a job stays on the node that its client is on.
fn stays(
    algorithm: &dyn Algorithm,
    settings: &Settings,
    pick: &Pick<'_>,
    current: NodeId,
    best: NodeId,
) -> bool {
    let bonus = settings.current_bonus_percent;
    if bonus == 0 || current == best || !pick.nodes.is_member(current) || !pick.is_open(current) {
        return false;
    }
    let score = |node| algorithm.score(pick.nodes, node, pick.now);
    let limit = |score: f64| score * (1.0 + f64::from(bonus) / 100.0);
    score(current).zip(score(best)).is_some_and(|(current, best)| current <= limit(best))
}
