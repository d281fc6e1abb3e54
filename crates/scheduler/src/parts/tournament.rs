use evener_model::NodeId;

/// What nodes are compared by: the least goes first.
pub(crate) trait Key: Copy + Ord {
    /// The key of a node that takes no part; no other node may have it.
    const ABSENT: Self;
}

impl Key for u64 {
    const ABSENT: u64 = u64::MAX;
}

impl Key for u128 {
    const ABSENT: u128 = u128::MAX;
}

/// The node with the least key, kept up as keys change: a tree of winners over the ids. Of equals, the
/// lowest id wins.
///
/// Changing a key costs at most log2 of the largest id in comparisons, and none above the first match that
/// the node neither won nor wins. The winner costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Tournament<K> {
    keys: Vec<K>,
    /// A heap-shaped tree of ids: the winner of `2 i` and `2 i + 1` at `i`, the nodes from `keys.len()` on.
    winners: Vec<u32>,
}

impl<K: Key> Tournament<K> {
    /// The winner; `None` if nobody takes part.
    #[inline]
    pub(crate) fn top(&self) -> Option<NodeId> {
        let winner = *self.winners.get(1)?;
        (self.keys[winner as usize] != K::ABSENT).then_some(NodeId(winner))
    }

    /// A node's key; [`Key::ABSENT`] if it takes no part.
    #[inline]
    pub(crate) fn key(&self, node: NodeId) -> K {
        self.keys.get(node.index()).copied().unwrap_or(K::ABSENT)
    }

    /// Lets a node take part with a key. Allocates if its id is the largest so far.
    #[inline]
    pub(crate) fn set(&mut self, node: NodeId, key: K) {
        if node.index() >= self.keys.len() {
            self.grow(node.index() + 1);
        }
        if self.keys[node.index()] != key {
            self.keys[node.index()] = key;
            self.replay(node.0);
        }
    }

    /// Takes a node out.
    #[inline]
    pub(crate) fn clear(&mut self, node: NodeId) {
        if node.index() < self.keys.len() {
            self.set(node, K::ABSENT);
        }
    }

    /// Those that lost against the winner, the final first: each the best of a half, a quarter …
    pub(crate) fn finalists(&self) -> impl Iterator<Item = NodeId> + '_ {
        let leaves = self.keys.len();
        let winner = self.winners.get(1).copied().unwrap_or(0);
        let rounds = leaves.checked_ilog2().unwrap_or(0);
        let path = (0..rounds).rev().map(move |round| (leaves + winner as usize) >> round);
        path.map(|at| NodeId(self.winners[at ^ 1])).filter(|loser| self.key(*loser) != K::ABSENT)
    }

    /// Plays a node's matches again, from its leaf up.
    ///
    /// The best so far is carried along, so that the other side of every match can be loaded before the
    /// one below is decided. Who wins is hard to predict: there is no branch on it.
    fn replay(&mut self, node: u32) {
        let mut at = self.keys.len() + node as usize;
        let (mut winner, mut key) = (node, self.keys[node as usize]);
        while at > 1 {
            let other = self.winners[at ^ 1];
            let other_key = self.keys[other as usize];
            let other_wins = (other_key < key) | ((other_key == key) & (at % 2 == 1));
            winner = std::hint::select_unpredictable(other_wins, other, winner);
            key = std::hint::select_unpredictable(other_wins, other_key, key);
            at /= 2;
            let before = std::mem::replace(&mut self.winners[at], winner);
            if before != node && winner != node {
                return;
            }
        }
    }

    fn grow(&mut self, nodes: usize) {
        let leaves = nodes.next_power_of_two().max(2);
        self.keys.resize(leaves, K::ABSENT);
        self.winners.clear();
        self.winners.resize(leaves, 0);
        self.winners.extend(0..leaves as u32);
        for at in (1..leaves).rev() {
            let (left, right) = (self.winners[2 * at], self.winners[2 * at + 1]);
            let right_wins = self.keys[right as usize] < self.keys[left as usize];
            self.winners[at] = if right_wins { right } else { left };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

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
            assert!(tree.finalists().all(|loser| Some(loser) != best && naive.contains_key(&loser)));
        }
    }
}
