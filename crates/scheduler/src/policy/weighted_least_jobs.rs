use evener_model::{NodeId, Time};

use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank};

/// The node with the fewest jobs for its weight.
///
/// Score: `((jobs + 1) · handicap − 1) / weight`, which is jobs / weight for a node in good standing.
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking). Idle nodes tie, so at low load
/// the jobs go round by weight.
///
/// Source: weighted least connections, as in Linux Virtual Server.
#[derive(Debug)]
pub(crate) struct WeightedLeastJobs;

impl Measure for WeightedLeastJobs {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, _now: Time) -> Rank {
        let standing = nodes.standing(node);
        let number = (u64::from(jobs) + 1) * u64::from(standing.handicap) - u64::from(UNIT);
        Rank { number, divisor: standing.weight }
    }
}
