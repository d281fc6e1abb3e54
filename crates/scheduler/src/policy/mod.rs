//! The policies, one a file, behind one small table of operations.

mod aggressive_li;
mod basic_li;
mod bounded_hash;
mod consistent_hash;
mod credits;
pub(crate) mod informed;
mod job_informed;
mod least_jobs;
mod least_time;
mod load_informed;
mod maglev;
mod never_queue;
mod orca_weighted;
mod peak_ewma;
mod prequal;
mod random;
mod round_robin;
mod shortest_expected_delay;
mod source_hash;
mod two_choices;
mod weighted_least_jobs;
mod weighted_random;
mod weighted_round_robin;

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use evener_model::{NodeId, Time};

use crate::explain::Placement;
use crate::nodes::Nodes;
use crate::parts::{Probes, Ranking};
use crate::rng::Rng;
use crate::{Order, Policy, Settings, Variant};

/// What a policy is told and asked. None of it allocates, except where nodes join.
pub(crate) trait Algorithm: fmt::Debug + Send {
    /// Settings changed, but not the policy, its order or its variant.
    fn configure(&mut self, _settings: &Settings) {}

    /// A node joined, came up or went down, drains or not, or its weight, its penalty or what slow start
    /// leaves it changed: [`Nodes::standing`] says what it is now. A policy that keeps a rotation
    /// must not start it over.
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, now: Time);

    /// A node left the pool; `weighed` has already been told that it may not be picked.
    fn left(&mut self, _node: NodeId) {}

    /// Chooses a member that is open to the job; `None` if there is none. There is at least one member.
    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId>;

    /// A job was reserved on what `pick` said.
    fn placed(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {}

    /// A job of a node was answered after so long, without a failure; `finished` is told next.
    fn served(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time, _latency: Duration) {}

    /// A job of a node ended, and its latency and failures are known.
    fn finished(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {}

    /// How good a member is for a job, the job included: less is better, never below 0. `None` for policies that do
    /// not compare nodes by such a score.
    fn score(&self, _nodes: &Nodes, _node: NodeId, _now: Time) -> Option<f64> {
        None
    }

    /// A node said how it is, or what it said is believed no longer: [`Nodes::report`] has what holds now,
    /// [`Nodes::jobs`] the jobs of all dispatchers here. If its health let it in or took it out,
    /// `weighed` has been told before.
    fn reported(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {}
}

/// The algorithm that settings ask for.
pub(crate) fn build(settings: &Settings, seed: u64) -> Box<dyn Algorithm> {
    let mut algorithm = kind(settings, seed);
    algorithm.configure(settings);
    algorithm
}

fn kind(settings: &Settings, seed: u64) -> Box<dyn Algorithm> {
    match (settings.policy, settings.order) {
        (Policy::Informed, _) => Box::new(informed::Informed::new(settings, seed)),
        (Policy::RoundRobin, _) => Box::new(round_robin::RoundRobin::default()),
        (Policy::WeightedRoundRobin, Order::Smooth) => Box::new(weighted_round_robin::Smooth::default()),
        (Policy::WeightedRoundRobin, Order::Tokens) => Box::new(weighted_round_robin::InTokens::default()),
        (Policy::Random, _) => Box::new(random::Random),
        (Policy::WeightedRandom, _) => Box::new(weighted_random::WeightedRandom::default()),
        (Policy::LeastJobs, _) => Box::new(Ranking::new(least_jobs::LeastJobs, seed)),
        (Policy::WeightedLeastJobs, _) => {
            Box::new(Ranking::new(weighted_least_jobs::WeightedLeastJobs, seed))
        }
        (Policy::ShortestExpectedDelay, _) => {
            Box::new(Ranking::new(shortest_expected_delay::ShortestExpectedDelay, seed))
        }
        (Policy::NeverQueue, _) => Box::new(Ranking::new(never_queue::NeverQueue, seed)),
        (Policy::TwoChoices, _) => Box::new(Probes::new(two_choices::TwoChoices, settings)),
        (Policy::JobInformed, _) => Box::new(job_informed::JobInformed::new(settings)),
        (Policy::LoadInformed, _) => match settings.variant {
            Variant::Least => Box::new(Ranking::new(load_informed::Reported, seed)),
            Variant::Among => Box::new(load_informed::Among::new(settings)),
            Variant::Artificial => Box::new(Ranking::new(load_informed::Artificial, seed)),
        },
        (Policy::BasicLi, _) => Box::new(basic_li::BasicLi::new(settings)),
        (Policy::AggressiveLi, _) => Box::new(aggressive_li::AggressiveLi::new(settings)),
        (Policy::Credits, _) => Box::new(Ranking::new(credits::Credits, seed)),
        (Policy::OrcaWeighted, _) => Box::new(orca_weighted::OrcaWeighted::new(settings)),
        (Policy::PeakEwma, _) => Box::new(Probes::new(peak_ewma::PeakEwma, settings)),
        (Policy::LeastTime, _) => Box::new(Ranking::new(least_time::LeastTime, seed)),
        (Policy::Prequal, _) => Box::new(prequal::Prequal::new(settings)),
        // The driver hashes another key; what becomes of keys is the same.
        (Policy::SourceHash | Policy::DestinationHash, _) => Box::new(source_hash::SourceHash::default()),
        (Policy::ConsistentHash, _) => Box::new(consistent_hash::ConsistentHash::default()),
        (Policy::BoundedHash, _) => Box::new(bounded_hash::BoundedHash::new(settings)),
        (Policy::Maglev, _) => Box::new(maglev::Maglev::default()),
    }
}

/// One pick: the job as far as policies care, and what they may use.
pub(crate) struct Pick<'a> {
    pub(crate) now: Time,
    pub(crate) nodes: &'a Nodes,
    pub(crate) key: u64,
    /// The members, by id, of which one is to be picked; none: all.
    pub(crate) only: &'a [NodeId],
    /// Members that are not to be picked for this job.
    pub(crate) avoid: &'a [NodeId],
    pub(crate) rng: &'a mut Rng,
    pub(crate) placement: &'a mut Placement,
}

impl<'a> Pick<'a> {
    /// The members that this job may go to, by id.
    #[inline]
    pub(crate) fn candidates(&self) -> &'a [NodeId] {
        if self.only.is_empty() { self.nodes.members() } else { self.only }
    }

    /// How often it is worth trying what a policy keeps of all members: not at all where few are candidates.
    #[inline]
    pub(crate) fn draws(&self, max: usize) -> usize {
        if self.only.is_empty() { max } else { 0 }
    }

    /// Whether a member is one of the candidates, and neither full nor to be avoided.
    #[inline]
    pub(crate) fn is_open(&self, member: NodeId) -> bool {
        !self.nodes.is_full(member) && !self.is_avoided(member)
    }

    /// Whether a member is not among the candidates, or is to be avoided.
    #[inline]
    pub(crate) fn is_avoided(&self, member: NodeId) -> bool {
        !self.avoid.is_empty() && self.avoid.contains(&member)
            || !self.only.is_empty() && !self.only.contains(&member)
    }

    /// Whether slow start lets the node have this turn: at random, with the probability of its ramp.
    #[inline]
    pub(crate) fn is_warm(&mut self, member: NodeId) -> bool {
        let standing = self.nodes.standing(member);
        let full = standing.weight * crate::nodes::UNIT;
        standing.share == full || self.rng.below(u64::from(full)) < u64::from(standing.share)
    }

    /// Any open candidate, each with the probability that its `weight` has among them. O(candidates).
    pub(crate) fn any_open(&mut self, weight: impl Fn(NodeId) -> u64) -> Option<NodeId> {
        let total = self.candidates().iter().filter(|m| self.is_open(**m)).map(|m| weight(*m)).sum();
        if total == 0 {
            return None;
        }
        let mut left = self.rng.below(total);
        // Other dispatchers change counts between the two looks, so the last open one may be short of `left`.
        let mut last = None;
        for &member in self.candidates().iter().filter(|m| self.is_open(**m)) {
            if left < weight(member) {
                return Some(member);
            }
            left -= weight(member);
            last = Some(member);
        }
        last
    }
}
