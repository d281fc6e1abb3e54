use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::hash::mix;
use crate::nodes::Nodes;
use crate::parts::{Ring, by_key};

/// The node that follows the job's key on a ring of hashes.
///
/// A node that leaves moves its own keys and no others; a node that joins takes its share and moves no
/// key between others. The same holds for nodes that go down, are ejected, drain or are full: the key goes
/// on to the next point of another node. Penalties and slow start move no key.
/// Points, evenness and cost: [`Ring`].
///
/// Source: Karger and others: Consistent hashing and random trees, 1997; LBKVD, a Load Balancer for Key-value Database, 3.6.
#[derive(Debug, Default)]
pub(crate) struct ConsistentHash {
    ring: Ring,
}

impl Algorithm for ConsistentHash {
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.ring.note(nodes, node);
    }

    fn left(&mut self, node: NodeId) {
        self.ring.remove(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        self.ring.build();
        let found =
            self.ring.walk(mix(pick.key)).find(|&node| pick.nodes.is_member(node) && pick.is_open(node));
        found.or_else(|| by_key(pick, self.ring.entries()))
    }
}
