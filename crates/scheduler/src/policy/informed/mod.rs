//! Evener's own policy: one score of all that is known.
//!
//! `pace` learns how fast nodes are, `others` keeps what they report of other dispatchers' jobs, `signs` finds out
//! what that and late answers are worth, `tuning` has the few numbers that all of it goes by.

mod others;
mod pace;
mod signs;
mod tuning;

use std::time::Duration;

use evener_model::{NodeId, Time};

use self::others::Others;
use self::pace::Pace;
use self::signs::{Excess, Gains, Past, Signs};
pub use self::tuning::Tuning;
use super::{Algorithm, Pick};
use crate::Settings;
use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank, Ranking};

/// Whatever the signs, this part of what is known of a node counts.
const KNOWN_MIN: f64 = 1.0 / 64.0;
/// A higher load does not say how many more jobs there are.
const LOAD_MAX: f32 = 0.98;
/// A node is looked at with every so many picks.
const PICKS_PER_LOOK: u32 = 4;
/// Jobs found on nodes are averaged over about so many looks.
const LOOKS: f64 = 64.0;

/// The node where a job can expect to be done first.
///
/// Score: `((jobs + p) / speed + g · told + h · excess) · handicap`, all in jobs on a node of weight 1.
///
/// - `jobs`: those in flight from here. They are exact, and charged at once.
/// - `p`: how much the job itself counts. While nodes are idle now and then, wholly: a slow idle
///   node is no bargain (shortest expected delay). When all have more to do, less: what a
///   node leaves undone others must do (fewest jobs for the speed).
/// - `speed`: the weight, corrected by what jobs took, as far as that cannot be chance ([`Pace`]).
/// - `told`: jobs of other dispatchers beyond the mean, as nodes report them, less the older that is ([`Others`]).
/// - `excess`: jobs beyond those known that late answers speak of ([`Excess`]).
/// - `g` and `h`: what such signs were worth of late: how much of what they said was found in the jobs placed
///   after ([`Gains`]). Where one dispatcher has all jobs, its counts explain all and both are about 0; where there are
///   many, late answers are the better part of what can be known.
///
/// Cost and ties: [`Ranking`].
#[derive(Debug)]
pub(crate) struct Informed {
    ranking: Ranking<Insight>,
}

/// What is known of the nodes.
#[derive(Debug)]
struct Insight {
    tuning: Tuning,
    nodes: Vec<Known>,
    /// What a pick reads of them.
    seen: Vec<Seen>,
    /// All nodes as if they were one.
    all: Pace,
    others: Others,
    gains: Gains,
    /// Jobs on a node, averaged over nodes and picks.
    jobs_mean: f64,
    /// How much a job itself counts (`p`).
    own_part: f64,
    picks: u32,
    /// Place of the member that is looked at next.
    next: usize,
}

/// What a pick reads of a node: as it was at the last job, report or look there.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// What each job counts there: one over the speed.
    per_job: f64,
    /// Jobs beyond those known that there are signs of.
    beyond: f64,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    pace: Pace,
    excess: Excess,
    past: Past,
    /// How many times slower it is than its weight says; 0 until it is looked at.
    slowness: f64,
    /// Its speed in weights.
    speed: f64,
}

impl Insight {
    /// Looks at a node again.
    fn refresh(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let known = &mut self.nodes[node.index()];
        known.slowness = known.pace.slowness(now, &self.all, &self.tuning);
        let weight = f64::from(nodes.standing(node).weight.max(1));
        known.speed = weight / known.slowness;
        let beyond = self.others.mean() + self.gains.worth(self.signs(node, now));
        self.seen[node.index()] = Seen { per_job: 1.0 / self.nodes[node.index()].speed, beyond };
    }

    /// A job took so long on a node. It left behind about as many jobs as it had found: in the mean,
    /// what comes sees what what goes leaves.
    fn learn(&mut self, nodes: &Nodes, node: NodeId, now: Time, latency: Duration) {
        let tuning = self.tuning;
        let known = &mut self.nodes[node.index()];
        let jobs = f64::from(nodes.jobs(node)) + 1.0;
        let others = self.others.mean() + self.others.beyond(node, now);
        let jobs_of_all = jobs + others * known.speed;
        // As it would be on a node of weight 1.
        let mut seconds = latency.as_secs_f64() * f64::from(nodes.standing(node).weight.max(1));
        if let Some(typical) = self.all.seconds_per_job() {
            // What one job takes says little of the node.
            seconds = seconds.min(tuning.cap * typical * jobs_of_all);
            let found = (seconds / typical / known.slowness - jobs) / known.speed - self.others.mean();
            let latency_nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
            let placed_at = Time::from_nanos(now.as_nanos().saturating_sub(latency_nanos));
            if let Some(signs) = known.past.at(placed_at) {
                self.gains.feed(signs, found, &tuning);
            }
            known.excess.feed(now, found, &tuning);
        }
        known.pace.feed(now, seconds, jobs_of_all, 1, &tuning);
        self.all.feed(now, seconds, jobs_of_all, nodes.members().len(), &tuning);
        self.remember(nodes, node, now);
        self.refresh(nodes, node, now);
    }

    /// Notes what is thought of a node now, to see later whether it was right.
    fn remember(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let signs = self.signs(node, now);
        let gap = Duration::from_nanos(nodes.typical.mean_nanos(now).unwrap_or(0) / 4);
        self.nodes[node.index()].past.note(now, gap, signs);
    }

    #[inline]
    fn signs(&self, node: NodeId, now: Time) -> Signs {
        Signs {
            told: self.others.beyond(node, now),
            excess: self.nodes[node.index()].excess.at(now, &self.tuning),
        }
    }

    /// Goes on with the tour of the nodes, which costs a pick the same however many there are.
    fn look_round(&mut self, nodes: &Nodes, now: Time) {
        self.picks = self.picks.wrapping_add(1);
        if !self.picks.is_multiple_of(PICKS_PER_LOOK) {
            return;
        }
        let members = nodes.members();
        self.next = if self.next + 1 < members.len() { self.next + 1 } else { 0 };
        if let Some(&member) = members.get(self.next) {
            self.refresh(nodes, member, now);
            let jobs = f64::from(nodes.jobs(member)) + self.others.mean();
            self.jobs_mean += (jobs - self.jobs_mean) / LOOKS;
            self.own_part = self.tuning.own_part(self.jobs_mean);
        }
    }
}

impl Measure for Insight {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, _now: Time) -> Rank {
        let seen = &self.seen[node.index()];
        let own = (f64::from(jobs) + self.own_part) * seen.per_job;
        let handicap = f64::from(nodes.standing(node).handicap) / f64::from(UNIT);
        Rank::real((own + seen.beyond).max(own * KNOWN_MIN) * handicap)
    }
}

impl Informed {
    pub(crate) fn new(settings: &Settings, seed: u64) -> Informed {
        let insight = Insight {
            tuning: settings.tuning.sound(),
            nodes: Vec::new(),
            seen: Vec::new(),
            all: Pace::default(),
            others: Others::default(),
            gains: Gains::default(),
            jobs_mean: 0.0,
            own_part: 1.0,
            picks: 0,
            next: 0,
        };
        Informed { ranking: Ranking::new(insight, seed) }
    }
}

impl Algorithm for Informed {
    fn configure(&mut self, settings: &Settings) {
        self.ranking.measure_mut().tuning = settings.tuning.sound();
        self.ranking.configure(settings);
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let insight = self.ranking.measure_mut();
        if insight.nodes.len() <= node.index() {
            insight.nodes.resize(node.index() + 1, Known::default());
            insight.seen.resize(node.index() + 1, Seen::default());
        }
        insight.others.make_room(node);
        insight.refresh(nodes, node, now);
        self.ranking.weighed(nodes, node, now);
    }

    fn left(&mut self, node: NodeId) {
        let insight = self.ranking.measure_mut();
        insight.others.forget(node);
        insight.nodes[node.index()] = Known::default();
        self.ranking.left(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        self.ranking.pick(pick)
    }

    fn score(&self, nodes: &Nodes, node: NodeId, now: Time) -> Option<f64> {
        self.ranking.score(nodes, node, now)
    }

    fn placed(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let insight = self.ranking.measure_mut();
        insight.others.placed(nodes.typical.mean_nanos(now).unwrap_or(0));
        insight.look_round(nodes, now);
        self.ranking.placed(nodes, node, now);
    }

    fn served(&mut self, nodes: &Nodes, node: NodeId, now: Time, latency: Duration) {
        self.ranking.measure_mut().learn(nodes, node, now, latency);
    }

    fn finished(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        self.ranking.finished(nodes, node, now);
    }

    fn reported(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let insight = self.ranking.measure_mut();
        match nodes.report_with_own(node) {
            Some((report, own)) => {
                // Of a node in use for so much of its time, as many jobs are to be expected: ρ/(1 − ρ).
                let by_load = |load: f32| (load / (1.0 - load.min(LOAD_MAX))) as u32;
                if let Some(jobs) = report.jobs.or_else(|| report.load.map(by_load)) {
                    let speed = insight.nodes[node.index()].speed;
                    insight.others.told(node, report.measured_at, jobs, own, speed);
                    insight.remember(nodes, node, now);
                    insight.refresh(nodes, node, now);
                }
            }
            None => {
                insight.others.forget(node);
                insight.refresh(nodes, node, now);
            }
        }
        self.ranking.reported(nodes, node, now);
    }
}

#[cfg(test)]
mod tests;
