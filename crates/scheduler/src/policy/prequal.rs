use std::time::Duration;

use evener_model::{NodeId, Time};

use super::two_choices::TwoChoices;
use super::{Algorithm, Pick};
use crate::Settings;
use crate::explain::Candidate;
use crate::nodes::{Nodes, UNIT};
use crate::parts::Probes;

/// Probes that are kept.
const POOL: usize = 16;
/// No probe is used that is older.
const AGE_MAX: Duration = Duration::from_secs(1);
/// A node is hot if it has more jobs than this share of the nodes that reported last, in percent.
const HOT_PERCENT: usize = 84;
/// Reports over which that is taken.
const SAMPLES: usize = 128;
/// Probes in the pool below which nodes are drawn.
const POOL_MIN: usize = 2;
/// Published: of three probes for each job, one is taken out as the worst or the oldest …
const REMOVED_PER_PROBE: f64 = 1.0 / 3.0;
/// … and the pool is to be used up at twice the rate at which it would be without reuse.
const EXCESS: f64 = 1.0;

/// Of the last few nodes that reported, one with few jobs and a low latency.
///
/// A report that reaches this dispatcher is a probe. It goes into a pool of 16, in the place of the node's last
/// or else of the oldest, and out when it is a second old, has been used as often as the rate of probes wants it
/// to be, or is the worst or (in turns) the oldest when it is time that one goes. A node with more
/// jobs for its weight than 84 % of the reports of late have is hot. Of the cold ones that with the lowest latency is
/// taken, the handicap included; if all are hot, that with the fewest jobs for its weight. Then one job
/// more is put on its probe.
///
/// The latency is what the node reports, or else what its jobs took here, in the mean, times the jobs that it has now
/// over those that it had in the mean: what a node has seen is of jobs that came before the queue that it has.
///
/// The original asks for three probes for each job. Here there are as many as there are reports. Where they are few,
/// no probe is used more than twice, and the worst and the oldest go as fast as the best are used up; with
/// fewer than two left it is `two-choices`, where the original draws at random: there are counts here.
///
/// O(1): 16 probes.
///
/// Source: Wydrowski and others: Load is not what you should balance: introducing Prequal, 2024.
#[derive(Debug)]
pub(crate) struct Prequal {
    pool: Vec<Probe>,
    samples: Samples,
    /// Probes for each job, in the mean.
    rate: f64,
    paces: Vec<Pace>,
    probes_since: u32,
    uses_owed: f64,
    to_remove: f64,
    oldest_next: bool,
    without: Probes<TwoChoices>,
}

/// What a node said.
#[derive(Clone, Copy, Debug)]
struct Probe {
    node: NodeId,
    at: Time,
    jobs: u32,
    /// How long a job takes for each job that is there, itself included.
    pace_nanos: f64,
    uses_left: u32,
}

impl Probe {
    fn nanos(&self) -> f64 {
        self.pace_nanos * (f64::from(self.jobs) + 1.0)
    }
}

/// Means of a node's latencies, and of the jobs there that made them.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    nanos: f64,
    jobs: f64,
}

impl Pace {
    fn feed(&mut self, nanos: f64, jobs: f64) -> f64 {
        if self.jobs == 0.0 {
            *self = Pace { nanos, jobs };
        }
        self.nanos += (nanos - self.nanos) / 8.0;
        self.jobs += (jobs - self.jobs) / 8.0;
        self.nanos / self.jobs
    }
}

/// Jobs for their weight as the last reports had them.
#[derive(Debug)]
struct Samples {
    ring: Vec<f64>,
    sorted: Vec<f64>,
    next: usize,
}

impl Samples {
    fn new() -> Samples {
        Samples { ring: Vec::with_capacity(SAMPLES), sorted: Vec::with_capacity(SAMPLES), next: 0 }
    }

    fn add(&mut self, sample: f64) {
        if self.ring.len() < SAMPLES {
            self.ring.push(sample);
        } else {
            let before = std::mem::replace(&mut self.ring[self.next], sample);
            self.next = (self.next + 1) % SAMPLES;
            self.sorted.remove(self.sorted.partition_point(|other| *other < before));
        }
        self.sorted.insert(self.sorted.partition_point(|other| *other < sample), sample);
    }

    /// A node with more is hot.
    fn hot(&self) -> f64 {
        let place = (self.sorted.len() * HOT_PERCENT).div_ceil(100);
        self.sorted.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
    }
}

impl Prequal {
    pub(crate) fn new(settings: &Settings) -> Prequal {
        Prequal {
            pool: Vec::with_capacity(POOL),
            samples: Samples::new(),
            rate: 0.0,
            paces: Vec::new(),
            probes_since: 0,
            uses_owed: 0.0,
            to_remove: 0.0,
            oldest_next: false,
            without: Probes::new(TwoChoices, settings),
        }
    }

    /// How often a probe is used before it goes, so that the pool neither runs dry nor fills with what is old.
    fn uses(&mut self, nodes: usize) -> u32 {
        let (removed, new) = ((self.rate * REMOVED_PER_PROBE).min(1.0), 1.0 - POOL as f64 / nodes as f64);
        let gain = new * self.rate - removed;
        let published = if gain > 0.0 { (1.0 + EXCESS) / gain } else { f64::INFINITY };
        // Whole numbers that come to this in the mean.
        self.uses_owed += published.clamp(1.0, 1.0 + EXCESS);
        let uses = self.uses_owed as u32;
        self.uses_owed -= f64::from(uses);
        uses
    }

    fn forget_old(&mut self, nodes: &Nodes, now: Time) {
        self.pool.retain(|probe| now.since(probe.at) <= AGE_MAX && nodes.is_member(probe.node));
    }

    /// Takes out the worst, or in turn the oldest.
    fn remove_one(&mut self, nodes: &Nodes) {
        self.oldest_next = !self.oldest_next;
        let hot = self.samples.hot();
        let places = 0..self.pool.len();
        let place = if self.oldest_next {
            let rank = |place: &usize| rank(&self.pool[*place], nodes, hot);
            places.max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(std::cmp::Ordering::Equal))
        } else {
            places.min_by_key(|place| self.pool[*place].at)
        };
        if let Some(place) = place {
            self.pool.remove(place);
        }
    }
}

/// Jobs on the node for its weight.
fn crowd(jobs: u32, nodes: &Nodes, node: NodeId) -> f64 {
    f64::from(jobs) / f64::from(nodes.standing(node).weight.max(1))
}

/// What probes are compared by, less is better: cold ones by latency, then hot ones by their jobs; each by the
/// other if it is the same.
fn rank(probe: &Probe, nodes: &Nodes, hot: f64) -> (bool, f64, f64) {
    let standing = nodes.standing(probe.node);
    let handicap = f64::from(standing.handicap) / f64::from(UNIT);
    let crowd = crowd(probe.jobs, nodes, probe.node);
    // With the job to come, so that a node that fails all its jobs at once is not the best of the hot ones.
    let with = (crowd + 1.0 / f64::from(standing.weight.max(1))) * handicap;
    let latency = probe.nanos() * handicap;
    if crowd > hot { (true, with, latency) } else { (false, latency, with) }
}

impl Algorithm for Prequal {
    fn configure(&mut self, settings: &Settings) {
        self.without.configure(settings);
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        self.without.weighed(nodes, node, now);
        if self.paces.len() <= node.index() {
            self.paces.resize(node.index() + 1, Pace::default());
        }
    }

    fn left(&mut self, node: NodeId) {
        self.paces[node.index()] = Pace::default();
        self.pool.retain(|probe| probe.node != node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        let nodes = pick.nodes;
        self.forget_old(nodes, pick.now);
        if self.pool.len() < POOL_MIN.min(nodes.members().len()) {
            return self.without.pick(pick);
        }
        let hot = self.samples.hot();
        let mut best = None;
        for probe in self.pool.iter().filter(|probe| pick.is_open(probe.node)) {
            let rank = rank(probe, nodes, hot);
            let better = best.is_none_or(|(other, _)| rank < other);
            if better {
                best = Some((rank, probe.node));
            }
        }
        let Some(((all_hot, ..), node)) = best else { return self.without.pick(pick) };
        for probe in &self.pool {
            if !pick.is_open(probe.node) {
                continue;
            }
            let (is_hot, number, _) = rank(probe, nodes, hot);
            let score = match (is_hot, all_hot) {
                (false, _) => number * 1e-9,
                (true, true) => number,
                (true, false) => f64::INFINITY,
            };
            let (node, jobs, weight) = (probe.node, probe.jobs, nodes.standing(probe.node).weight);
            let latency = Some((Duration::from_nanos(probe.nanos() as u64), probe.at));
            pick.placement.compare(nodes, Candidate { node, jobs, weight, score: score as f32, latency });
        }
        Some(node)
    }

    fn placed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.rate += (f64::from(std::mem::take(&mut self.probes_since)) - self.rate) / 64.0;
        let Some(place) = self.pool.iter().position(|probe| probe.node == node) else { return };
        let probe = &mut self.pool[place];
        probe.jobs = probe.jobs.saturating_add(1);
        probe.uses_left -= 1;
        if probe.uses_left == 0 {
            self.pool.remove(place);
        }
        // At least as many as are used up: these were the best, and what is left gets worse.
        self.to_remove += (self.rate * REMOVED_PER_PROBE).clamp(1.0 / (1.0 + EXCESS), 1.0);
        if self.to_remove >= 1.0 {
            self.to_remove -= 1.0;
            self.remove_one(nodes);
        }
    }

    fn reported(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let Some(report) = nodes.report(node).filter(|report| now.since(report.measured_at) <= AGE_MAX)
        else {
            return;
        };
        if !nodes.is_member(node) {
            return;
        }
        self.probes_since += 1;
        let jobs = report.jobs.unwrap_or_else(|| nodes.jobs(node));
        self.samples.add(crowd(jobs, nodes, node));
        let here = nodes.latency(node).and_then(|latency| latency.mean_nanos(now));
        let here = here.or_else(|| nodes.typical.mean_nanos(now)).unwrap_or(0);
        let nanos = report.latency.map_or(here, |told| u64::try_from(told.as_nanos()).unwrap_or(u64::MAX));
        // At least a nanosecond: jobs still count where latencies are not known.
        let pace_nanos = self.paces[node.index()].feed(nanos.max(1) as f64, f64::from(jobs) + 1.0);
        let uses_left = self.uses(nodes.members().len());
        let probe = Probe { node, at: report.measured_at, jobs, pace_nanos, uses_left };
        if let Some(before) = self.pool.iter_mut().find(|probe| probe.node == node) {
            *before = probe;
            return;
        }
        if self.pool.len() == POOL {
            let oldest = (0..POOL).min_by_key(|place| self.pool[*place].at);
            self.pool.remove(oldest.unwrap_or(0));
        }
        self.pool.push(probe);
    }
}
