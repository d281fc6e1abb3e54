use std::time::Duration;

use evener_model::{NodeId, Time};

use crate::nodes::Nodes;
use crate::parts::{Measure, Rank, cost};

/// Of two nodes (or as many as `choices` says) drawn by weight, the one with the least
/// `latency · (jobs + 1) · handicap / weight`.
///
/// The latency is a mean with a decay of 10 s to which a longer sample counts at once; it fades while
/// no sample comes. A node without samples is taken for a typical one; a failure never
/// makes a node look faster.
///
/// Cost and ties: [`Probes`](crate::parts::Probes).
///
/// Source: Peak EWMA as in Finagle.
#[derive(Debug)]
pub(crate) struct PeakEwma;

impl Measure for PeakEwma {
    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> Rank {
        let own = nodes.latency(node).and_then(|latency| latency.peak_nanos(now));
        let nanos = own.or_else(|| nodes.typical.peak_nanos(now)).unwrap_or(0);
        cost(nodes.standing(node), nanos, jobs)
    }

    fn latency(&self, nodes: &Nodes, node: NodeId) -> Option<(Duration, Time)> {
        nodes.latency(node)?.peak()
    }
}
