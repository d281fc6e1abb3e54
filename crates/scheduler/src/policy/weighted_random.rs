use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::nodes::Nodes;
use crate::parts::Sampler;

/// Draws before the open nodes are counted.
const DRAWS_MAX: usize = 8;

/// Any node, each as likely as its weight is large, as far as slow start lets it.
///
/// O(1); O(nodes) if eight draws in a row hit full nodes, and after shares changed.
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.3.
#[derive(Debug, Default)]
pub(crate) struct WeightedRandom {
    sampler: Sampler,
}

impl Algorithm for WeightedRandom {
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.sampler.set(node, nodes.standing(node).share);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        for _ in 0..pick.draws(DRAWS_MAX) {
            let member = self.sampler.draw(pick.rng);
            if pick.is_open(member) {
                return Some(member);
            }
        }
        let nodes = pick.nodes;
        pick.any_open(|member| u64::from(nodes.standing(member).share))
    }
}
