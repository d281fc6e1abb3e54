use evener_model::{NodeId, Time};

use crate::nodes::{Nodes, UNIT};
use crate::parts::{Measure, Rank};

/// More credits than this, and more jobs, count as this many.
const CREDITS_MAX: u64 = 1 << 24;
/// From here on are the ranks of nodes without credits.
const SPENT: u64 = 1 << 44;

/// The node that can take the most jobs beyond those it has, as nodes report it.
///
/// A pick spends a credit, the end of a job gives one back, a report sets them anew. A handicap divides them. What a node
/// reports is believed as far as [`Claims::left`](crate::claims::Claims::left) says. Nodes that have spent theirs, and
/// those that report none, come last, by `(jobs + 1) · handicap / weight`. So with no reports at all it is
/// `shortest-expected-delay`, no job is refused for want of credits, and a node gains nothing by its silence.
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
        let number = match nodes.credits(node, jobs) {
            Some(left) if left > 0 => {
                let left = (left as u64).min(CREDITS_MAX) * u64::from(UNIT);
                CREDITS_MAX * u64::from(UNIT) - left * u64::from(UNIT) / handicap
            }
            // What others have there is as old as the report: all who went by it would go the same way.
            _ => SPENT + (u64::from(jobs).min(CREDITS_MAX) + 1) * handicap / weight,
        };
        Rank { number, divisor: 1 }
    }

    /// Credits with a minus, so that less is better; what is there for its weight, of the others.
    fn shown(&self, rank: Rank) -> f32 {
        let number = rank.number / u64::from(rank.divisor);
        let in_units = |number: u64| number as f32 / UNIT as f32;
        if number < SPENT {
            -in_units(CREDITS_MAX * u64::from(UNIT) - number)
        } else {
            in_units(number - SPENT)
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
