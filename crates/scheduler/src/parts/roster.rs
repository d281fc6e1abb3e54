use evener_model::NodeId;

use crate::hash::mix2;
use crate::nodes::Nodes;
use crate::policy::Pick;

/// The nodes on which hashing policies build their tables, in the order of their names' hashes, which
/// is the same in every process. Nodes that are down, ejected or draining stay: their keys
/// must come back to them. Nodes of weight 0 are not there.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    entries: Vec<Entry>,
    changed: bool,
}

/// A node with what places it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name_hash: u64,
    pub(crate) node: NodeId,
    pub(crate) weight: u32,
}

impl Roster {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Whether anything changed since this was last asked.
    pub(crate) fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Looks at a node again: its name and its configured weight.
    pub(crate) fn note(&mut self, nodes: &Nodes, node: NodeId) {
        let entry = nodes.record(node).map(|record| Entry {
            name_hash: record.spec.name_hash,
            node,
            weight: record.spec.weight.value(),
        });
        let entry = entry.filter(|entry| entry.weight > 0);
        let place = self.entries.iter().position(|other| other.node == node);
        if place.map(|place| self.entries[place]) == entry {
            return;
        }
        if let Some(place) = place {
            self.entries.remove(place);
        }
        if let Some(entry) = entry {
            let key = |entry: &Entry| (entry.name_hash, entry.node);
            let place = self.entries.partition_point(|other| key(other) < key(&entry));
            self.entries.insert(place, entry);
        }
        self.changed = true;
    }

    /// Takes a node out.
    pub(crate) fn remove(&mut self, node: NodeId) {
        let before = self.entries.len();
        self.entries.retain(|entry| entry.node != node);
        self.changed |= self.entries.len() != before;
    }
}

/// The open node with the highest hash of key and name, the last resort where most nodes are closed: it
/// moves no key between open nodes. O(nodes).
pub(crate) fn by_key(pick: &Pick<'_>, entries: &[Entry]) -> Option<NodeId> {
    let open = entries.iter().filter(|entry| pick.nodes.is_member(entry.node) && pick.is_open(entry.node));
    open.max_by_key(|entry| mix2(pick.key, entry.name_hash)).map(|entry| entry.node)
}
