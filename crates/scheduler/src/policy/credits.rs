use evener_model::{NodeId, Time};

use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank};

/// More credits than this, and more jobs, count as this many.
const CREDITS_MAX: u64 = 1 << 24;
/// What is between the ranks of nodes with credits, of those that report none, and of those that have spent theirs.
const CLASS: u64 = 1 << 44;

/// The node that can take the most jobs beyond those it has, as nodes report it.
///
/// A pick spends a credit, the end of a job gives one back, a report sets them anew. A handicap divides them.
/// Nodes that report no credits come after those that have some, by (jobs + 1) · handicap / weight; nodes that
/// have spent theirs come last, by what they are over, likewise. So with no reports at all
/// it is `shortest-expected-delay`, and no job is refused for want of credits.
///
/// Cost and ties: [`Ranking`](crate::parts::Ranking).
///
/// Source: credits as in SALBNET.
#[derive(Debug)]
pub(crate) struct Credits;

impl Measure for Credits {
    const HEARS: bool = true;

    #[inline]
    fn rank(&self, nodes: &Nodes, node: NodeId, jobs: u32, _now: Time) -> Rank {
        let standing = nodes.standing(node);
        let (weight, handicap) = (u64::from(standing.weight.max(1)), u64::from(standing.handicap));
        let behind = |jobs: u64| (jobs.min(CREDITS_MAX) + 1) * handicap / weight;
        let credits = nodes.report_with_own(node).and_then(|(report, own_then)| {
            Some(i64::from(report.credits?) - (i64::from(jobs) - i64::from(own_then)))
        });
        let number = match credits {
            Some(left) if left > 0 => {
                let left = (left as u64).min(CREDITS_MAX) * u64::from(UNIT);
                CREDITS_MAX * u64::from(UNIT) - left * u64::from(UNIT) / handicap
            }
            Some(left) => 2 * CLASS + behind(left.unsigned_abs()),
            None => CLASS + behind(u64::from(jobs)),
        };
        Rank { number, divisor: 1 }
    }

    /// Credits with a minus, so that less is better; what is behind, and far behind, of the others.
    fn shown(&self, rank: Rank) -> f32 {
        let number = rank.number / u64::from(rank.divisor);
        let in_units = |number: u64| number as f32 / UNIT as f32;
        if number < CLASS {
            -in_units(CREDITS_MAX * u64::from(UNIT) - number)
        } else {
            in_units(number % CLASS) + if number < 2 * CLASS { 0.0 } else { CREDITS_MAX as f32 }
        }
    }

    /// What a job takes of the credits that are left: all of them, or more, where there are none.
    fn score(&self, nodes: &Nodes, node: NodeId, jobs: u32, now: Time) -> f64 {
        match self.shown(self.rank(nodes, node, jobs, now)) {
            left if left < 0.0 => 1.0 / f64::from(-left),
            behind => 1.0 + f64::from(behind),
        }
    }
}
