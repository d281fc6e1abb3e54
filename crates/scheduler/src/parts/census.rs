use evener_model::NodeId;

use crate::nodes::Nodes;

/// Weights and jobs summed over the members.
///
/// The jobs are a sum of what was last seen of each node: exact for those that this scheduler changes itself,
/// and a tour of some nodes at each pick brings in what others change.
#[derive(Debug, Default)]
pub(crate) struct Census {
    seen: Vec<Seen>,
    weights: u64,
    jobs: u64,
    next: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    weight: u32,
    jobs: u32,
}

impl Census {
    /// Jobs on all members.
    pub(crate) fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Weights of all members.
    pub(crate) fn weights(&self) -> u64 {
        self.weights
    }

    /// A node's weight changed, to 0 if it is no member any more.
    pub(crate) fn weighed(&mut self, nodes: &Nodes, node: NodeId) {
        if self.seen.len() <= node.index() {
            self.seen.resize(node.index() + 1, Seen::default());
        }
        let weight = nodes.standing(node).weight;
        let seen = &mut self.seen[node.index()];
        self.weights = self.weights - u64::from(seen.weight) + u64::from(weight);
        seen.weight = weight;
        if weight == 0 {
            self.jobs -= u64::from(std::mem::take(&mut seen.jobs));
        } else {
            self.look(nodes, node);
        }
    }

    /// Looks at a node's jobs again.
    #[inline]
    pub(crate) fn look(&mut self, nodes: &Nodes, node: NodeId) {
        if let Some(seen) = self.seen.get_mut(node.index()).filter(|seen| seen.weight > 0) {
            let jobs = nodes.jobs(node);
            self.jobs = self.jobs - u64::from(seen.jobs) + u64::from(jobs);
            seen.jobs = jobs;
        }
    }

    /// Looks at the jobs of the next few members again.
    #[inline]
    pub(crate) fn tour(&mut self, nodes: &Nodes, count: usize) {
        for _ in 0..count.min(nodes.members().len()) {
            self.next = if self.next + 1 < nodes.members().len() { self.next + 1 } else { 0 };
            self.look(nodes, nodes.members()[self.next]);
        }
    }
}
