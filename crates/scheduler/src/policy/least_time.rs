use std::time::Duration;

use evener_model::{NodeId, Time};

use crate::nodes::Nodes;
use crate::parts::{Measure, Rank, cost};

/// The node with the least `latency · (jobs + 1) · handicap / weight`.
///
/// The latency is a mean into which each sample goes with an eighth; it fades while no sample comes.
/// A node without samples is taken for a typical one; a failure never makes a node look faster.
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking); in large pools what has faded
/// is looked at anew for some nodes at each pick, not for all.
///
/// Source: least time as in NGINX Plus, by response time.
#[derive(Debug)]
pub(crate) struct LeastTime;

impl Measure for LeastTime {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank {
        let own = nodes.latency(node).and_then(|latency| latency.mean_nanos(now));
        let nanos = own.or_else(|| nodes.typical.mean_nanos(now)).unwrap_or(0);
        cost(nodes.standing(node), nanos, jobs)
    }

    fn latency(&self, nodes: &Nodes, node: NodeId) -> Option<(Duration, Time)> {
        nodes.latency(node)?.mean()
    }
}
