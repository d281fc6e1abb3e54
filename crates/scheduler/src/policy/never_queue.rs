use evener_model::{NodeId, Time};

use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank};

/// An idle node; if there is none, the shortest expected delay.
///
/// Score: 0 for an idle node in good standing (`(handicap − 1) / weight` for another idle one),
/// else `(jobs + 1) · handicap / weight`.
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking). Idle nodes tie, so they go round by weight.
///
/// Source: never queue, as LVS has it.
#[derive(Debug)]
pub(crate) struct NeverQueue;

impl Measure for NeverQueue {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, _now: Time) -> Rank {
        let standing = nodes.standing(node);
        let delay = (u64::from(jobs) + 1) * u64::from(standing.handicap);
        let number = if jobs == 0 { delay - u64::from(UNIT) } else { delay };
        Rank { number, divisor: standing.weight }
    }
}
