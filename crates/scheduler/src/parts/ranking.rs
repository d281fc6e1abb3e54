use std::fmt;
use std::time::Duration;

use evener_model::{NodeId, Time};

use super::Tournament;
use crate::Settings;
use crate::explain::{Candidate, Placement};
use crate::hash::mix2;
use crate::nodes::{Nodes, Standing, UNIT};
use crate::policy::{Algorithm, Pick};

/// Up to here a pool is scanned; a tree costs more than it saves.
const SCAN_MAX: usize = 64;
/// Nodes whose keys are renewed at each pick in a tree.
const TOUR: usize = 2;
/// How many of those that the winner beat a placement shows.
const FINALISTS: usize = 3;
/// Winners whose jobs others have changed, before the pool is scanned after all.
const STALE_MAX: usize = 16;
/// A node of weight 1 that has had a turn among equals has its next after this.
const TURN: u64 = 1 << 24;

/// Picks that are imagined, so that dispatchers do not all take the same node.
const IMAGINED_MAX: u16 = 16;

/// Jobs above this count as this many, so that ranks cannot overflow.
const JOBS_MAX: u32 = 1 << 24;

/// How good a node is for the next job: `number / divisor`, less is better.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rank {
    /// Below 2^46 wherever the divisor is not 0.
    pub(crate) number: u64,
    /// At most 256; 0 for the ranks of [`Rank::real`], which are compared by their numbers.
    pub(crate) divisor: u32,
}

impl Rank {
    /// A number of 0 or more as a rank.
    ///
    /// The bits of a float that is not negative order as the float does.
    #[inline]
    pub(crate) fn real(number: f64) -> Rank {
        debug_assert!(number >= 0.0);
        Rank { number: number.to_bits(), divisor: 0 }
    }

    /// The rank as one number that orders as ranks do, and is equal where they are: two fractions with
    /// divisors up to 256 that differ do so by more than 2^-17.
    #[inline]
    fn value(self) -> u64 {
        if self.divisor == 0 { self.number } else { (self.number << 17) / u64::from(self.divisor) }
    }

    /// Whether `self` is better, and whether they are equal.
    #[inline]
    pub(crate) fn beats(&self, other: &Rank) -> (bool, bool) {
        let left = self.number * u64::from(other.divisor.max(1));
        let right = other.number * u64::from(self.divisor.max(1));
        (left < right, left == right)
    }

    /// As scores are shown: in jobs for a weight of 1, in seconds, or as a load.
    #[inline]
    fn shown(self) -> f32 {
        if self.divisor == 0 {
            f64::from_bits(self.number) as f32
        } else {
            self.number as f32 / (UNIT as f32 * self.divisor as f32)
        }
    }
}

/// What a policy compares nodes by.
pub(crate) trait Measure: fmt::Debug + Send {
    /// Whether equals take turns by weight.
    const WEIGHS: bool = true;
    /// Whether it goes by what nodes report, which other dispatchers see too.
    const HEARS: bool = false;
    /// The rank of a member that has so many jobs.
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank;

    /// The latency that went into the rank.
    fn latency(&self, _nodes: &Nodes, _node: NodeId) -> Option<(Duration, Time)> {
        None
    }

    /// The rank as it is shown: less is better.
    fn shown(&self, rank: Rank) -> f32 {
        rank.shown()
    }

    /// The score with the job included, by which what a job gains from another node is judged: for ranks of jobs
    /// `(jobs + 1) · handicap / weight`.
    fn score(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> f64 {
        let rank = self.rank(nodes, node, jobs, now);
        if rank.divisor == 0 {
            f64::from_bits(rank.number)
        } else {
            let standing = nodes.standing(node);
            (f64::from(jobs) + 1.0) * f64::from(standing.handicap) / f64::from(standing.weight.max(1) * UNIT)
        }
    }

    /// Remembers that a node was compared.
    #[inline]
    fn explain(&self, pick: &mut Pick<'_>, node: NodeId, jobs: u32, rank: Rank) {
        let weight = pick.nodes.standing(node).weight;
        let latency = if rank.divisor == 0 { self.latency(pick.nodes, node) } else { None };
        let candidate = Candidate { node, jobs, weight, score: self.shown(rank), latency };
        pick.placement.compare(pick.nodes, candidate);
    }
}

/// `latency · (jobs + 1) · handicap / weight` as a rank, in seconds.
#[inline]
pub(crate) fn cost(standing: &Standing, nanos: u64, jobs: u32) -> Rank {
    let work = (f64::from(jobs) + 1.0) * f64::from(standing.handicap) / f64::from(standing.weight * UNIT);
    // At least a nanosecond: jobs still count where latencies are not known.
    Rank::real(nanos.max(1) as f64 * 1e-9 * work)
}

/// Takes the best of all nodes by a measure.
///
/// Up to 64 nodes are scanned, by the counts as they are. Larger pools are kept in a tree of
/// winners, O(log nodes): exact as long as this scheduler alone changes the counts; what
/// others change is seen when such a node wins, and in a tour of two nodes a pick.
///
/// Equals take turns, by weight where the measure weighs: each has a time at which it is due, which a pick
/// moves on. The first times come from the seed, so that schedulers that share counts do not all
/// begin with the same node.
///
/// With c dispatchers that share no counts (see [`Settings::dispatchers`]; measures of what nodes report find it out), it imagines up to c picks, each on the
/// counts that the ones before would leave, and takes the last: any one of c nodes, which the others take too.
///
/// Source of that: Haney and Madsen, Load-balancing for MySQL, 2003, 3.8, with a loop that runs.
#[derive(Debug)]
pub(crate) struct Ranking<M> {
    measure: M,
    seed: u64,
    due: Vec<u64>,
    clock: u64,
    /// By rank, then by when a node is due.
    tree: Tournament<u128>,
    /// The jobs that a node's key in the tree is for.
    seen: Vec<u32>,
    in_tree: bool,
    next: usize,
    /// Dispatchers that share no counts, as set; 0: not known.
    dispatchers: u16,
    /// Imagined jobs on each node, and the nodes that have any: none between picks.
    imagined: Vec<u32>,
    imagined_on: Vec<NodeId>,
}

impl<M: Measure> Ranking<M> {
    pub(crate) fn new(measure: M, seed: u64) -> Ranking<M> {
        Ranking {
            measure,
            seed,
            due: Vec::new(),
            clock: 0,
            tree: Tournament::default(),
            seen: Vec::new(),
            in_tree: false,
            next: 0,
            dispatchers: 0,
            imagined: Vec::new(),
            imagined_on: Vec::with_capacity(usize::from(IMAGINED_MAX)),
        }
    }

    /// The measure, to be told what it goes by. Keys in the tree change with the next picks.
    pub(crate) fn measure_mut(&mut self) -> &mut M {
        &mut self.measure
    }

    fn stride(nodes: &Nodes, node: NodeId) -> u64 {
        TURN / u64::from(if M::WEIGHS { nodes.standing(node).weight.max(1) } else { 1 })
    }

    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank {
        self.measure.rank(nodes, node, jobs.min(JOBS_MAX), now)
    }

    /// Enters a node's key; full nodes and others that may not be picked have none.
    #[inline]
    fn enter(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let jobs = nodes.jobs(node);
        self.seen[node.index()] = jobs;
        let jobs = jobs.saturating_add(self.imagined[node.index()]);
        if !nodes.is_member(node) || jobs >= nodes.standing(node).jobs_max {
            self.tree.clear(node);
        } else {
            let rank = self.rank(nodes, node, jobs, now).value();
            self.tree.set(node, u128::from(rank) << 64 | u128::from(self.due[node.index()]));
        }
    }

    /// How many picks to imagine before the real one.
    #[inline]
    fn imagined_picks(&self, pick: &mut Pick<'_>) -> u16 {
        let dispatchers = match self.dispatchers {
            0 if M::HEARS => pick.nodes.loads.dispatchers(0).round() as u16,
            known => known,
        };
        if dispatchers > 1 { pick.rng.below(u64::from(dispatchers.min(IMAGINED_MAX))) as u16 } else { 0 }
    }

    /// Imagines a job on a node.
    fn imagine(&mut self, node: NodeId) {
        self.imagined[node.index()] += 1;
        self.imagined_on.push(node);
    }

    fn scan(&mut self, pick: &mut Pick<'_>, imagined: u16) -> Option<NodeId> {
        let mut found = self.best(pick, Placement::CANDIDATES_MAX)?;
        for _ in 0..imagined {
            self.imagine(found);
            // If all are full with these jobs, the last of them is as good as any.
            let Some(next) = self.best(pick, 0) else { break };
            found = next;
        }
        while let Some(node) = self.imagined_on.pop() {
            self.imagined[node.index()] = 0;
        }
        Some(found)
    }

    fn best(&self, pick: &mut Pick<'_>, mut room: usize) -> Option<NodeId> {
        let nodes = pick.nodes;
        let mut best: Option<(Rank, NodeId)> = None;
        for &member in pick.candidates() {
            let jobs = nodes.jobs(member).saturating_add(self.imagined[member.index()]);
            if jobs >= nodes.standing(member).jobs_max || pick.is_avoided(member) {
                continue;
            }
            let rank = self.rank(nodes, member, jobs, pick.now);
            if room > 0 {
                room -= 1;
                self.measure.explain(pick, member, jobs, rank);
            }
            let better = best.is_none_or(|(other, node)| {
                let (better, equal) = rank.beats(&other);
                better || equal && self.due[member.index()] < self.due[node.index()]
            });
            if better {
                best = Some((rank, member));
            }
        }
        best.map(|(_, node)| node)
    }

    fn pick_in_tree(&mut self, pick: &mut Pick<'_>, imagined: u16) -> Option<NodeId> {
        let members = pick.nodes.members();
        for _ in 0..TOUR {
            self.next = if self.next + 1 < members.len() { self.next + 1 } else { 0 };
            self.enter(pick.nodes, members[self.next], pick.now);
        }
        for &node in pick.avoid {
            self.tree.clear(node);
        }
        let mut found = self.winner(pick);
        if let Some(node) = found {
            self.explain(pick, node);
        }
        for _ in 0..imagined {
            let Some(node) = found else { break };
            self.imagine(node);
            self.enter(pick.nodes, node, pick.now);
            found = self.winner(pick).or(found);
        }
        while let Some(node) = self.imagined_on.pop() {
            self.imagined[node.index()] = 0;
            self.enter(pick.nodes, node, pick.now);
        }
        for &node in pick.avoid {
            self.enter(pick.nodes, node, pick.now);
        }
        found
    }

    fn winner(&mut self, pick: &Pick<'_>) -> Option<NodeId> {
        for _ in 0..STALE_MAX {
            let node = self.tree.top()?;
            if pick.nodes.jobs(node) == self.seen[node.index()] {
                return Some(node);
            }
            self.enter(pick.nodes, node, pick.now);
        }
        None
    }

    fn explain(&self, pick: &mut Pick<'_>, winner: NodeId) {
        let times = self.measure.rank(pick.nodes, winner, 0, pick.now).divisor == 0;
        for node in std::iter::once(winner).chain(self.tree.finalists().take(FINALISTS)) {
            let number = (self.tree.key(node) >> 64) as u64;
            let rank = Rank { number, divisor: if times { 0 } else { 1 << 17 } };
            self.measure.explain(pick, node, self.seen[node.index()], rank);
        }
    }
}

impl<M: Measure> Algorithm for Ranking<M> {
    fn configure(&mut self, settings: &Settings) {
        self.dispatchers = settings.dispatchers;
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        while self.due.len() <= node.index() {
            self.due.push(0);
            self.seen.push(0);
            self.imagined.push(0);
        }
        if nodes.is_member(node) && self.due[node.index()] == 0 {
            let part = mix2(self.seed, u64::from(node.0)) >> 40;
            self.due[node.index()] = self.clock + 1 + ((part * Self::stride(nodes, node)) >> 24);
        }
        let large = nodes.members().len() > SCAN_MAX;
        if large && !self.in_tree {
            // All, so that those which left while the tree was not kept are taken out.
            for &known in nodes.known() {
                self.enter(nodes, known, now);
            }
        }
        self.in_tree = large;
        if large {
            self.enter(nodes, node, now);
        }
    }

    fn left(&mut self, node: NodeId) {
        self.due[node.index()] = 0;
        self.tree.clear(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        let imagined = self.imagined_picks(pick);
        // A few candidates are compared at less cost than the tree would be asked.
        let found =
            if self.in_tree && pick.only.is_empty() { self.pick_in_tree(pick, imagined) } else { None };
        // The tree knows of no open node: others may have made room.
        found.or_else(|| self.scan(pick, imagined))
    }

    fn score(&self, nodes: &Nodes, node: NodeId, now: Time) -> Option<f64> {
        Some(self.measure.score(nodes, node, nodes.jobs(node), now))
    }

    fn placed(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let due = self.due[node.index()].max(self.clock);
        self.clock = due;
        self.due[node.index()] = due + Self::stride(nodes, node);
        if self.in_tree {
            self.enter(nodes, node, now);
        }
    }

    fn finished(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        if self.in_tree {
            self.enter(nodes, node, now);
        }
    }

    fn reported(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        if self.in_tree {
            self.enter(nodes, node, now);
        }
    }
}
