use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::hash::{mix, mix2};
use crate::nodes::Nodes;
use crate::parts::{Entry, Roster, by_key};

/// Slots of the table: a prime, so that each step size visits them all.
const SLOTS: usize = 65_537;
/// Slots tried before the highest hash of key and node decides.
const TRIES_MAX: u64 = 16;
const FREE: u32 = u32::MAX;

/// The node that the job's key maps to in a table of 65537 slots, filled so that each node has its
/// weight's share of them to within one turn.
///
/// A node that goes down, drains, is ejected or is full moves its own keys only: they are hashed
/// again. A node that joins, leaves or changes weight moves its own keys, and about one in a hundred of the
/// others. O(1); building the table takes some milliseconds, at the first pick after nodes joined, left
/// or changed weight; 256 KiB. Penalties and slow start move no key.
///
/// Source: Eisenbud and others: Maglev, 2016; weights: a node sits out turns in proportion.
#[derive(Debug, Default)]
pub(crate) struct Maglev {
    roster: Roster,
    table: Vec<u32>,
    fills: Vec<Fill>,
}

/// How far a node has come in taking slots.
#[derive(Clone, Copy, Debug)]
struct Fill {
    slot: usize,
    step: usize,
    /// Turns earned so far, times the largest weight.
    credit: u64,
}

impl Fill {
    fn new(entry: &Entry) -> Fill {
        Fill {
            slot: (mix(entry.name_hash) % SLOTS as u64) as usize,
            step: (mix2(entry.name_hash, 1) % (SLOTS as u64 - 1) + 1) as usize,
            credit: 0,
        }
    }

    fn next_slot(&mut self) -> usize {
        let slot = self.slot;
        self.slot += self.step;
        if self.slot >= SLOTS {
            self.slot -= SLOTS;
        }
        slot
    }
}

impl Maglev {
    fn build(&mut self) {
        let entries = self.roster.entries();
        self.fills.clear();
        self.fills.extend(entries.iter().map(Fill::new));
        self.table.fill(FREE);
        let Some(largest) = entries.iter().map(|entry| u64::from(entry.weight)).max() else { return };
        let mut left = SLOTS;
        loop {
            for (entry, fill) in entries.iter().zip(&mut self.fills) {
                fill.credit += u64::from(entry.weight);
                if fill.credit < largest {
                    continue;
                }
                fill.credit -= largest;
                let mut slot = fill.next_slot();
                while self.table[slot] != FREE {
                    slot = fill.next_slot();
                }
                self.table[slot] = entry.node.0;
                left -= 1;
                if left == 0 {
                    return;
                }
            }
        }
    }
}

impl Algorithm for Maglev {
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.roster.note(nodes, node);
        self.table.resize(SLOTS, FREE);
        self.fills.reserve(self.roster.entries().len().saturating_sub(self.fills.len()));
    }

    fn left(&mut self, node: NodeId) {
        self.roster.remove(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if self.roster.take_changed() {
            self.build();
        }
        for attempt in 0..TRIES_MAX {
            let slot = (u128::from(mix2(pick.key, attempt)) * SLOTS as u128) >> 64;
            let node = NodeId(self.table[slot as usize]);
            if pick.nodes.is_member(node) && pick.is_open(node) {
                return Some(node);
            }
        }
        by_key(pick, self.roster.entries())
    }
}
