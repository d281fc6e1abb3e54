use evener_model::NodeId;

/// No node.
const NOBODY: u32 = u32::MAX;

/// What nodes are compared by.
pub(crate) trait Key: Copy + Default {
    /// Whether `self` goes before `other`. Where neither does, the lower id wins.
    fn beats(&self, other: &Self) -> bool;
}

/// The node with the best key, kept up as keys change: a tree of winners over the ids.
///
/// Changing a key costs at most log2 of the largest id in comparisons, and none above the first match that
/// the node neither won nor wins; the winner costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Tournament<K> {
    keys: Vec<K>,
    /// A heap-shaped tree: the match of `winners[2 i]` and `winners[2 i + 1]` at `i`, the nodes from
    /// `leaves` on.
    winners: Vec<u32>,
    leaves: usize,
}

impl<K: Key> Tournament<K> {
    /// The winner; `None` if nobody takes part.
    #[inline]
    pub(crate) fn top(&self) -> Option<NodeId> {
        let winner = *self.winners.get(1)?;
        (winner != NOBODY).then_some(NodeId(winner))
    }

    /// The key with which a node takes part, or last took part.
    #[inline]
    pub(crate) fn key(&self, node: NodeId) -> &K {
        &self.keys[node.index()]
    }

    /// Lets a node take part with a key. Allocates if its id is the largest so far.
    #[inline]
    pub(crate) fn set(&mut self, node: NodeId, key: K) {
        if node.index() >= self.leaves {
            self.grow(node.index() + 1);
        }
        self.keys[node.index()] = key;
        self.replay(node, node.0);
    }

    /// Takes a node out.
    #[inline]
    pub(crate) fn clear(&mut self, node: NodeId) {
        if node.index() < self.leaves && self.winners[self.leaves + node.index()] != NOBODY {
            self.replay(node, NOBODY);
        }
    }

    /// Those that lost against the winner, the last match first: each the best of a half, a quarter …
    pub(crate) fn finalists(&self) -> impl Iterator<Item = NodeId> + '_ {
        let mut at = 1;
        std::iter::from_fn(move || {
            if at >= self.leaves {
                return None;
            }
            let (left, right) = (self.winners[2 * at], self.winners[2 * at + 1]);
            let loser = if left == self.winners[1] { right } else { left };
            at = if left == self.winners[1] { 2 * at } else { 2 * at + 1 };
            Some(loser)
        })
        .filter(|loser| *loser != NOBODY)
        .map(NodeId)
    }

    fn replay(&mut self, node: NodeId, entry: u32) {
        let mut at = self.leaves + node.index();
        self.winners[at] = entry;
        while at > 1 {
            at /= 2;
            let before = self.winners[at];
            let winner = self.better(self.winners[2 * at], self.winners[2 * at + 1]);
            self.winners[at] = winner;
            if before != node.0 && winner != node.0 {
                return;
            }
        }
    }

    #[inline]
    fn better(&self, left: u32, right: u32) -> u32 {
        if right == NOBODY {
            left
        } else if left == NOBODY || self.keys[right as usize].beats(&self.keys[left as usize]) {
            right
        } else {
            left
        }
    }

    fn grow(&mut self, nodes: usize) {
        let leaves = nodes.next_power_of_two().max(2);
        let mut winners = vec![NOBODY; 2 * leaves];
        let old = self.leaves.min(self.winners.len());
        winners[leaves..leaves + old].copy_from_slice(&self.winners[self.leaves..]);
        self.keys.resize(leaves, K::default());
        self.winners = winners;
        self.leaves = leaves;
        for at in (1..leaves).rev() {
            self.winners[at] = self.better(self.winners[2 * at], self.winners[2 * at + 1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    impl Key for u64 {
        fn beats(&self, other: &u64) -> bool {
            self < other
        }
    }

    #[test]
    fn the_winner_is_that_of_a_full_scan() {
        let mut rng = Rng::new(1);
        let mut tree = Tournament::default();
        let mut naive = std::collections::BTreeMap::new();
        for _ in 0..20_000 {
            let node = NodeId(rng.below(100) as u32);
            if rng.below(4) == 0 {
                tree.clear(node);
                naive.remove(&node);
            } else {
                let key = rng.below(50);
                tree.set(node, key);
                naive.insert(node, key);
            }
            let best = naive.iter().min_by_key(|(node, key)| (**key, **node)).map(|(node, _)| *node);
            assert_eq!(tree.top(), best);
        }
        assert!(tree.finalists().count() <= 7);
    }
}
