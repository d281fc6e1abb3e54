use evener_model::{NodeId, Time};

use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank};

/// The node with the fewest jobs.
///
/// Score: `(jobs + 1) · handicap − 1`, which is the jobs for a node in good standing. The handicap (for
/// failures and slow start) takes the job to be placed into account, because a node that fails every job
/// at once always has none.
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking).
#[derive(Debug)]
pub(crate) struct LeastJobs;

impl Measure for LeastJobs {
    const WEIGHS: bool = false;

    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, _now: Time) -> Rank {
        let handicap = u64::from(nodes.standing(node).handicap);
        Rank { number: (u64::from(jobs) + 1) * handicap - u64::from(UNIT), divisor: 1 }
    }
}
