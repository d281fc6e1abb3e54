use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::nodes::Nodes;

/// Each node in turn, by id; weights do not matter, except that 0 is never picked.
///
/// The rotation is the id that was last picked: the next is the first open node after it, so it goes on
/// whatever joins or leaves. A node in slow start lets turns pass at random.
/// O(log nodes), and a step for each full node passed.
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.1.
#[derive(Debug, Default)]
pub(crate) struct RoundRobin {
    last: Option<NodeId>,
}

impl Algorithm for RoundRobin {
    fn weighed(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {}

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        let members = pick.candidates();
        let start = members.partition_point(|member| Some(*member) <= self.last);
        let (before, after) = members.split_at(start);
        let mut cold = None;
        for &member in after.iter().chain(before) {
            if !pick.is_open(member) {
                continue;
            }
            if pick.is_warm(member) {
                return Some(member);
            }
            cold.get_or_insert(member);
        }
        cold
    }

    fn placed(&mut self, _nodes: &Nodes, node: NodeId, _now: Time) {
        self.last = Some(node);
    }
}
