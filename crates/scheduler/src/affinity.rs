use evener_model::NodeId;

use crate::Settings;
use crate::hash::mix;
use crate::nodes::Nodes;
use crate::parts::Ring;

/// Which of the nodes a key may go to: the first few that follow it on a ring of hashes.
///
/// A key keeps its nodes whatever others come and go. In the place of one that leaves, goes down, drains or is
/// ejected comes the next on the ring. Heavier nodes are among those of more keys. O(nodes of a key); building the
/// ring: see [`Ring`].
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.7, with hashes in the place of a table.
#[derive(Debug)]
pub(crate) struct Affinity {
    ring: Ring,
    /// Nodes for a key; 0: all.
    count: usize,
    found: Vec<NodeId>,
}

impl Affinity {
    pub(crate) fn new(settings: &Settings) -> Affinity {
        let mut affinity = Affinity { ring: Ring::default(), count: 0, found: Vec::new() };
        affinity.configure(settings);
        affinity
    }

    pub(crate) fn configure(&mut self, settings: &Settings) {
        self.count = usize::from(settings.affinity);
        self.found.clear();
        self.found.reserve(self.count);
    }

    /// A node joined, or its name or weight changed.
    pub(crate) fn note(&mut self, nodes: &Nodes, node: NodeId) {
        if self.count > 0 {
            self.ring.note(nodes, node);
        }
    }

    /// Takes a node out.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.ring.remove(node);
    }

    /// The members that a key may go to, by id; none if it may go to all.
    #[inline]
    pub(crate) fn of(&mut self, nodes: &Nodes, key: u64) -> &[NodeId] {
        self.found.clear();
        if self.count > 0 && self.count < nodes.members().len() {
            self.find(nodes, key);
        }
        &self.found
    }

    fn find(&mut self, nodes: &Nodes, key: u64) {
        self.ring.build();
        for node in self.ring.walk(mix(key)) {
            if !nodes.is_member(node) {
                continue;
            }
            if let Err(place) = self.found.binary_search(&node) {
                self.found.insert(place, node);
                if self.found.len() == self.count {
                    return;
                }
            }
        }
    }
}
