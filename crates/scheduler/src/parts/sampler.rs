use evener_model::NodeId;

use crate::rng::Rng;

/// Draws nodes at random, each exactly as likely as its share.
///
/// A draw is O(1): a column, and which of the two nodes in it. The first draw after shares changed
/// builds the columns, O(largest id): some microseconds for 1,000 nodes.
///
/// Source: Vose: A linear algorithm for generating random numbers with a given distribution, 1991, in integers.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    shares: Vec<u32>,
    columns: Vec<Column>,
    /// Columns that are not filled yet, while they are built.
    low: Vec<(u32, u64)>,
    high: Vec<(u32, u64)>,
    total: u64,
    stale: bool,
}

/// As high as all shares together: up to `limit` a node's, from there another's.
#[derive(Clone, Copy, Debug)]
struct Column {
    limit: u64,
    node: u32,
    other: u32,
}

impl Sampler {
    /// Changes a node's share; 0 is never drawn. Allocates if the id is the largest so far.
    pub(crate) fn set(&mut self, node: NodeId, share: u32) {
        if node.index() >= self.shares.len() {
            self.shares.resize(node.index() + 1, 0);
            let nodes = self.shares.len();
            self.columns.reserve(nodes - self.columns.len().min(nodes));
            self.low.reserve(nodes);
            self.high.reserve(nodes);
        }
        self.stale |= self.shares[node.index()] != share;
        self.shares[node.index()] = share;
    }

    /// A node's share; `None` if it never had one.
    pub(crate) fn share(&self, node: NodeId) -> Option<u32> {
        self.shares.get(node.index()).copied()
    }

    /// A node, by share. Some share must be above 0.
    #[inline]
    pub(crate) fn draw(&mut self, rng: &mut Rng) -> NodeId {
        if self.stale {
            self.build();
        }
        let column = &self.columns[rng.below(self.columns.len() as u64) as usize];
        let first = rng.below(self.total) < column.limit;
        NodeId(if first { column.node } else { column.other })
    }

    fn build(&mut self) {
        self.stale = false;
        self.total = self.shares.iter().map(|share| u64::from(*share)).sum();
        let nodes = self.shares.iter().filter(|share| **share > 0).count() as u64;
        for (node, share) in self.shares.iter().enumerate().filter(|(_, share)| **share > 0) {
            let height = u64::from(*share) * nodes;
            let list = if height < self.total { &mut self.low } else { &mut self.high };
            list.push((node as u32, height));
        }
        self.columns.clear();
        while let Some((other, height)) = self.high.pop() {
            // Heights are exact, so a high one fills up a low one as long as there is any.
            let Some((node, limit)) = self.low.pop() else {
                self.columns.push(Column { limit: self.total, node: other, other });
                continue;
            };
            self.columns.push(Column { limit, node, other });
            let rest = height - (self.total - limit);
            let list = if rest < self.total { &mut self.low } else { &mut self.high };
            list.push((other, rest));
        }
        debug_assert!(self.low.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_follow_the_shares() {
        let mut sampler = Sampler::default();
        for (node, share) in [(0, 1), (5, 2), (6, 0), (12, 9), (3, 5), (12, 2)] {
            sampler.set(NodeId(node), share);
        }
        let mut rng = Rng::new(7);
        let mut seen = [0; 16];
        for _ in 0..100_000 {
            seen[sampler.draw(&mut rng).index()] += 1;
        }
        for (node, share) in [(0, 1), (3, 5), (5, 2), (12, 2)] {
            let expected = share * 10_000;
            assert!((expected - 600..expected + 600).contains(&seen[node]), "{seen:?}");
        }
        assert_eq!(seen.iter().sum::<i32>(), seen[0] + seen[3] + seen[5] + seen[12]);
    }
}
