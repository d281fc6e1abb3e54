use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::Settings;
use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank};

/// Nodes that one is taken among, at the most.
const AMONG_MAX: usize = 16;

/// The node that reported the least load.
///
/// Score: `(load + l) · handicap − l`, which is the load for a node in good standing; l is the load of a job in
/// flight, see [`Artificial`]. Where nodes tie they take turns, but loads hardly ever tie: between two reports all
/// jobs go to one node, which is why this variant is for comparison. A node that reports no load is taken for as
/// loaded as its jobs would make it.
///
/// Cost: [`Ranking`](crate::parts::Ranking).
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.5.
#[derive(Debug)]
pub(crate) struct Reported;

/// The node with the least load, own jobs as they are now instead of as they were when it was reported.
///
/// Load: of what the node reported, that which jobs do not explain; k for each pick in as long a time as is between
/// reports, up to now; and l for each job in flight. So a pick adds to the load, the end of a job takes away what it
/// took up, and a report replaces what it has seen. A slow node, or one that has other work, has load that is not
/// explained: see [`Loads`](crate::load::Loads::told).
///
/// k and l are found out over all nodes: the mean load over the mean of own jobs that were there at reports or ended
/// between them, and over the mean of those that were there. They are larger where other dispatchers pick too, for
/// whom each pick here stands: they see what is seen here. Score and what has no load: [`Reported`].
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking).
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.7, with an artificial load that is found out.
#[derive(Debug)]
pub(crate) struct Artificial;

/// One of the few nodes with the least reported load, drawn by weight: at most `among`, none with a load more than
/// `interval` above the least.
///
/// O(among); O(nodes) at the first pick after a report, and at each while some node reports no load.
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.6.
#[derive(Debug)]
pub(crate) struct Among {
    few: Vec<(f64, NodeId)>,
    among: usize,
    interval: f64,
    stale: bool,
}

impl Measure for Reported {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank {
        score(nodes, node, jobs, now, false)
    }

    fn score(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> f64 {
        with_job(nodes, node, score(nodes, node, jobs, now, false))
    }
}

impl Measure for Artificial {
    const HEARS: bool = true;

    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank {
        score(nodes, node, jobs, now, true)
    }

    fn score(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> f64 {
        with_job(nodes, node, score(nodes, node, jobs, now, true))
    }
}

/// A score with the job to come.
fn with_job(nodes: &Nodes, node: NodeId, rank: Rank) -> f64 {
    f64::from_bits(rank.number) + nodes.loads.of_a_job(nodes.standing(node).weight)
}

fn score(nodes: &Nodes, node: NodeId, jobs: u32, now: Time, artificial: bool) -> Rank {
    let standing = nodes.standing(node);
    let handicap = f64::from(standing.handicap) * (1.0 / f64::from(UNIT));
    let load = if artificial {
        nodes.loads.expected(node, standing.weight, jobs, now)
    } else {
        let told = nodes.report(node).and_then(|report| report.load);
        told.map_or_else(|| nodes.loads.of_a_job(standing.weight) * f64::from(jobs), f64::from)
    };
    // In this order, so that equal loads without a handicap stay equal.
    Rank::real(load * handicap + nodes.loads.of_a_job(standing.weight) * (handicap - 1.0))
}

impl Among {
    pub(crate) fn new(settings: &Settings) -> Among {
        let mut among =
            Among { few: Vec::with_capacity(AMONG_MAX + 1), among: 1, interval: 0.0, stale: true };
        among.configure(settings);
        among
    }

    /// Finds the least loaded of those that `may` be picked.
    fn look(&mut self, nodes: &Nodes, now: Time, may: impl Fn(NodeId) -> bool) {
        self.few.clear();
        self.stale = false;
        for &member in nodes.members().iter().filter(|member| may(**member)) {
            self.stale |= nodes.report(member).is_none_or(|report| report.load.is_none());
            let load = f64::from_bits(score(nodes, member, nodes.jobs(member), now, false).number);
            let place = self.few.partition_point(|(other, _)| *other <= load);
            if place < self.among {
                self.few.insert(place, (load, member));
                self.few.truncate(self.among);
            }
        }
        if let Some(&(least, _)) = self.few.first() {
            self.few.retain(|(load, _)| *load <= least + self.interval);
        }
    }

    fn draw(&self, pick: &mut Pick<'_>) -> Option<NodeId> {
        let share = |nodes: &Nodes, node: NodeId| u64::from(nodes.standing(node).share);
        let open = |pick: &Pick<'_>, node: NodeId| pick.nodes.is_member(node) && pick.is_open(node);
        let of = |pick: &Pick<'_>, node| if open(pick, node) { share(pick.nodes, node) } else { 0 };
        let total: u64 = self.few.iter().map(|(_, node)| of(pick, *node)).sum();
        if total == 0 {
            return None;
        }
        let mut left = pick.rng.below(total);
        let mut last = None;
        for &(_, node) in self.few.iter().filter(|(_, node)| open(pick, *node)) {
            if left < share(pick.nodes, node) {
                return Some(node);
            }
            left -= share(pick.nodes, node);
            last = Some(node);
        }
        last
    }
}

impl Algorithm for Among {
    fn configure(&mut self, settings: &Settings) {
        self.among = usize::from(settings.among).clamp(1, AMONG_MAX);
        self.interval = f64::from(settings.interval_percent) / 100.0;
        self.stale = true;
    }

    fn weighed(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {
        self.stale = true;
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if self.stale {
            self.look(pick.nodes, pick.now, |_| true);
        }
        let found = self.draw(pick);
        if found.is_some() {
            return found;
        }
        // All of them are full or avoided: the least loaded of the others, for this job only.
        self.look(pick.nodes, pick.now, |member| pick.is_open(member));
        self.stale = true;
        self.draw(pick)
    }

    fn score(&self, nodes: &Nodes, node: NodeId, now: Time) -> Option<f64> {
        Some(with_job(nodes, node, score(nodes, node, nodes.jobs(node), now, false)))
    }

    fn reported(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {
        self.stale = true;
    }
}
