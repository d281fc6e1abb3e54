use evener_model::{NodeId, Time};

use super::{Measure, Rank, Sampler};
use crate::Settings;
use crate::nodes::Nodes;
use crate::policy::{Algorithm, Pick};

/// Draws of a node that is not open, or that is the best so far, before the draw is given up.
const MISSES_MAX: usize = 4;

/// Draws a few nodes, each as likely as its weight is large, and takes the best of them by a measure.
///
/// O(choices); a pool of no more nodes than choices is compared whole, and so is one where
/// the draws hit nodes that are full. Of equals, the first drawn wins.
#[derive(Debug)]
pub(crate) struct Probes<M> {
    measure: M,
    sampler: Sampler,
    choices: usize,
}

impl<M: Measure> Probes<M> {
    pub(crate) fn new(measure: M, settings: &Settings) -> Probes<M> {
        Probes { measure, sampler: Sampler::default(), choices: usize::from(settings.choices.max(1)) }
    }

    /// The better of the best so far and another.
    #[inline]
    fn compare(&self, pick: &mut Pick<'_>, best: &mut Option<(Rank, NodeId)>, node: NodeId) {
        let jobs = pick.nodes.jobs(node);
        let rank = self.measure.rank(pick.nodes, node, jobs, pick.now);
        self.measure.explain(pick, node, jobs, rank);
        if best.is_none_or(|(other, _)| rank.beats(&other).0) {
            *best = Some((rank, node));
        }
    }

    fn best_of_all(&self, pick: &mut Pick<'_>) -> Option<NodeId> {
        let mut best = None;
        let members = pick.candidates();
        let start = pick.rng.below(members.len() as u64) as usize;
        let (before, after) = members.split_at(start);
        for &member in after.iter().chain(before) {
            if pick.is_open(member) {
                self.compare(pick, &mut best, member);
            }
        }
        best.map(|(_, node)| node)
    }
}

impl<M: Measure> Algorithm for Probes<M> {
    fn configure(&mut self, settings: &Settings) {
        self.choices = usize::from(settings.choices.max(1));
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.sampler.set(node, nodes.standing(node).share);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if pick.candidates().len() <= self.choices {
            return self.best_of_all(pick);
        }
        let mut best = None;
        for _ in 0..self.choices {
            for _ in 0..MISSES_MAX {
                let node = if pick.only.is_empty() {
                    self.sampler.draw(pick.rng)
                } else {
                    let nodes = pick.nodes;
                    pick.any_open(|member| u64::from(nodes.standing(member).share))?
                };
                if best.is_none_or(|(_, other)| other != node) && pick.is_open(node) {
                    self.compare(pick, &mut best, node);
                    break;
                }
            }
        }
        match best {
            Some((_, node)) => Some(node),
            None => self.best_of_all(pick),
        }
    }

    fn score(&self, nodes: &Nodes, node: NodeId, now: Time) -> Option<f64> {
        Some(self.measure.score(nodes, node, nodes.jobs(node), now))
    }
}
