use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::nodes::Nodes;

/// Draws before the open nodes are counted.
const DRAWS_MAX: usize = 8;

/// Any node, each as likely as any other; weights do not matter, except that 0 is never picked.
///
/// O(1); O(nodes) if eight draws in a row hit full nodes. In slow start a node is as much less likely
/// as its ramp says.
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.3, without weights.
#[derive(Debug)]
pub(crate) struct Random;

impl Algorithm for Random {
    fn weighed(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {}

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        let members = pick.candidates();
        for _ in 0..DRAWS_MAX {
            let member = members[pick.rng.below(members.len() as u64) as usize];
            if pick.is_open(member) && pick.is_warm(member) {
                return Some(member);
            }
        }
        pick.any_open(|_| 1)
    }
}
