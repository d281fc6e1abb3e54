use evener_model::NodeId;

use super::{Entry, Roster};
use crate::hash::mix2;
use crate::nodes::Nodes;

/// Points for each unit of weight, in pools that are not too heavy for it.
const POINTS: u32 = 160;
/// Points on a ring at the most, save that each node has one: 1 MiB.
const RING_POINTS_MAX: u64 = 1 << 17;
/// Points that a walk visits.
const WALK_MAX: usize = 2048;

/// A ring of hashes on which each node has points in proportion to its weight.
///
/// 160 points for each unit of weight leave a node of weight 1 within some 8 % (one standard deviation) of
/// its share. As long as the weights sum to more than 819, the number is halved until they fit, at least 1
/// point a node; then, and when it doubles again, points go or come, but none moves.
/// A lookup is O(1): an index by the leading bits of the hash says where to begin. Building is
/// O(points · log points), at the first pick after a node joined, left or changed weight: 20 ms
/// for the largest ring.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    roster: Roster,
    /// Sorted: the place on the ring in the upper half, the node's id in the lower.
    points: Vec<u64>,
    /// For each value of a place's leading bits, the first point at or after it.
    index: Vec<u32>,
    shift: u32,
}

impl Ring {
    pub(crate) fn entries(&self) -> &[Entry] {
        self.roster.entries()
    }

    /// Looks at a node again. Takes room for its points, which `build` uses.
    pub(crate) fn note(&mut self, nodes: &Nodes, node: NodeId) {
        self.roster.note(nodes, node);
        let points = self.points_total();
        self.points.reserve(points.saturating_sub(self.points.len()));
        self.index.reserve((points.next_power_of_two() + 1).saturating_sub(self.index.len()));
    }

    /// Takes a node out.
    pub(crate) fn remove(&mut self, node: NodeId) {
        self.roster.remove(node);
    }

    /// Brings the points up to date; costs nothing if they are.
    #[inline]
    pub(crate) fn build(&mut self) {
        if self.roster.take_changed() {
            self.rebuild();
        }
    }

    /// The nodes of the points from `hash` on, once around at the most.
    #[inline]
    pub(crate) fn walk(&self, hash: u64) -> impl Iterator<Item = NodeId> + '_ {
        let place = hash >> 32;
        let mut start = self.index.get((place >> self.shift) as usize).map_or(0, |at| *at as usize);
        while start < self.points.len() && self.points[start] >> 32 < place {
            start += 1;
        }
        let (before, after) = self.points.split_at(start);
        after.iter().chain(before).take(WALK_MAX).map(|point| NodeId(*point as u32))
    }

    /// How many points a node has by its weight.
    fn points_of(&self) -> impl Fn(&Entry) -> u32 + use<> {
        let weights: u64 = self.entries().iter().map(|entry| u64::from(entry.weight)).sum();
        let halvings = (0..31).find(|halvings| (weights * u64::from(POINTS)) >> halvings <= RING_POINTS_MAX);
        move |entry| ((entry.weight * POINTS) >> halvings.unwrap_or(31)).max(1)
    }

    fn points_total(&self) -> usize {
        self.entries().iter().map(self.points_of()).sum::<u32>() as usize
    }

    fn rebuild(&mut self) {
        let points_of = self.points_of();
        self.points.clear();
        for entry in self.roster.entries() {
            let places = (0..points_of(entry)).map(|n| mix2(entry.name_hash, u64::from(n)) >> 32);
            self.points.extend(places.map(|place| place << 32 | u64::from(entry.node.0)));
        }
        self.points.sort_unstable();

        let bits = self.points.len().next_power_of_two().trailing_zeros();
        self.shift = 32 - bits;
        self.index.clear();
        let mut at = 0;
        for leading in 0..1_u64 << bits {
            while self.points.get(at).is_some_and(|point| point >> 32 >> self.shift < leading) {
                at += 1;
            }
            self.index.push(at as u32);
        }
    }
}
