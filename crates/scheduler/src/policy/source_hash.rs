use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::hash::mix2;
use crate::nodes::Nodes;
use crate::parts::{Roster, by_key};

/// Tries of further hashes before the highest hash of key and node decides.
const TRIES_MAX: u64 = 16;

/// The node that the job's key maps to, each node getting as many keys as its weight.
///
/// The hash of the key is a place on the line of all weights, nodes in the order of their names.
/// Where that node may not be picked, or is full, the key is hashed again: the keys of other nodes
/// stay, and its own are spread over all. When nodes join, leave or change weight, most
/// keys move; [`ConsistentHash`](crate::Policy::ConsistentHash) moves few. Penalties and slow start move none.
/// O(log nodes); O(nodes) at the first pick after nodes joined or left.
///
/// `destination-hash` is this too: what differs is the key that the driver gives.
///
/// Source: source and destination hashing, as in Linux Virtual Server.
#[derive(Debug, Default)]
pub(crate) struct SourceHash {
    roster: Roster,
    ends: Vec<u64>,
}

impl Algorithm for SourceHash {
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.roster.note(nodes, node);
        self.ends.reserve(self.roster.entries().len().saturating_sub(self.ends.len()));
    }

    fn left(&mut self, node: NodeId) {
        self.roster.remove(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if self.roster.take_changed() {
            self.ends.clear();
            self.ends.extend(self.roster.entries().iter().scan(0, |end, entry| {
                *end += u64::from(entry.weight);
                Some(*end)
            }));
        }
        let total = *self.ends.last()?;
        for attempt in 0..TRIES_MAX {
            let point = (u128::from(mix2(pick.key, attempt)) * u128::from(total)) >> 64;
            let place = self.ends.partition_point(|end| *end <= point as u64);
            let node = self.roster.entries()[place].node;
            if pick.nodes.is_member(node) && pick.is_open(node) {
                return Some(node);
            }
        }
        by_key(pick, self.roster.entries())
    }
}
