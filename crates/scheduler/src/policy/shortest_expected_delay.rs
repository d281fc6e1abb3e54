use evener_model::{NodeId, Time};

use crate::nodes::Nodes;
use crate::parts::{Measure, Rank};

/// The node with the fewest jobs for its weight once it has this one too.
///
/// Score: `(jobs + 1) · handicap / weight`. At low load, only the heavy nodes get jobs.
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking).
///
/// Source: shortest expected delay, as LVS has it.
#[derive(Debug)]
pub(crate) struct ShortestExpectedDelay;

impl Measure for ShortestExpectedDelay {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, _now: Time) -> Rank {
        let standing = nodes.standing(node);
        Rank { number: (u64::from(jobs) + 1) * u64::from(standing.handicap), divisor: standing.weight }
    }
}
