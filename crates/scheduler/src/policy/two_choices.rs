use evener_model::{NodeId, Time};

use super::weighted_least_jobs::WeightedLeastJobs;
use crate::nodes::Nodes;
use crate::parts::{Measure, Rank};

/// Of two nodes (or as many as `choices` says) drawn by weight, the one with the fewer jobs for its weight.
///
/// Dispatchers that do not see each other's picks in time do not herd, because they draw apart.
///
/// Cost and ties: [`Probes`](crate::parts::Probes).
///
/// Source: Mitzenmacher: The power of two choices in randomized load balancing, 1996.
#[derive(Debug)]
pub(crate) struct TwoChoices;

impl Measure for TwoChoices {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank {
        WeightedLeastJobs.rank(nodes, node, jobs, now)
    }
}
