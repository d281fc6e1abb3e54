use evener_model::NodeId;

use crate::rng::Rng;

/// Draws nodes at random, each as likely as its share: a Fenwick tree over the ids.
///
/// A draw and a change cost log2 of the largest id in additions.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    shares: Vec<u32>,
    /// `sums[i]` holds the shares of the `lowest set bit of i` ids before `i`.
    sums: Vec<u64>,
    total: u64,
}

impl Sampler {
    /// Changes a node's share; 0 is never drawn. Allocates if the id is the largest so far.
    pub(crate) fn set(&mut self, node: NodeId, share: u32) {
        if node.index() >= self.shares.len() {
            self.shares.resize((node.index() + 1).next_power_of_two(), 0);
            self.rebuild();
        }
        let before = std::mem::replace(&mut self.shares[node.index()], share);
        let change = u64::from(share).wrapping_sub(u64::from(before));
        self.total = self.total.wrapping_add(change);
        let mut at = node.index() + 1;
        while at < self.sums.len() {
            self.sums[at] = self.sums[at].wrapping_add(change);
            at += at & at.wrapping_neg();
        }
    }

    /// A node, by share. Some share must be above 0.
    #[inline]
    pub(crate) fn draw(&self, rng: &mut Rng) -> NodeId {
        let mut left = rng.below(self.total);
        let mut at = 0;
        let mut step = self.shares.len();
        while step > 0 {
            let sum = self.sums[at + step];
            // Which way is a coin toss: a branch would be mispredicted half the time.
            let right = u64::from(sum <= left);
            left -= sum * right;
            at += step * right as usize;
            step = if at + step / 2 < self.sums.len() { step / 2 } else { 0 };
        }
        NodeId(at as u32)
    }

    fn rebuild(&mut self) {
        self.sums.clear();
        self.sums.resize(self.shares.len() + 1, 0);
        for at in 1..self.sums.len() {
            self.sums[at] += u64::from(self.shares[at - 1]);
            let parent = at + (at & at.wrapping_neg());
            if parent < self.sums.len() {
                self.sums[parent] += self.sums[at];
            }
        }
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
