//! Who plays in an act: the scheduler, what the director knows, and what happens to a node.

use std::time::Duration;

use evener_scheduler::Policy;

use super::NODES;

/// An act.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cast {
    /// How it is called.
    pub(crate) name: &'static str,
    pub(crate) policy: Policy,
    /// Part of the plan's rate that arrives.
    pub(crate) rate: f64,
    /// How long, against the plan's duration.
    pub(crate) duration: f64,
    /// What happens to a node. Only then is the director told how fast the nodes are.
    pub(crate) hog: Option<Hog>,
    /// Whether nodes have agents, whose reports the weights follow.
    pub(crate) has_agents: bool,
}

/// Something on a node that takes its CPU, for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hog {
    /// Index of the node.
    pub(crate) node: usize,
    /// What is left of the node's speed.
    pub(crate) left: f64,
    /// When it comes and goes, as parts of the act.
    pub(crate) from: f64,
    pub(crate) to: f64,
}

/// Horse is busy with something else for a while.
const HOG: Hog = Hog { node: 0, left: 0.2, from: 0.15, to: 0.6 };

/// The first part: nobody tells the director anything.
pub(crate) const SCHEDULERS: [Cast; 3] =
    [blind(Policy::RoundRobin), blind(Policy::LeastJobs), blind(Policy::TwoChoices)];

/// The second part: the director is told the speeds; then one of them is true no longer. The rate is such that what
/// the hog leaves is enough.
pub(crate) const HOGGED: [Cast; 2] = [hogged("without agents", false), hogged("with agents", true)];

const fn blind(policy: Policy) -> Cast {
    Cast { name: policy.name(), policy, rate: 1.0, duration: 1.0, hog: None, has_agents: false }
}

const fn hogged(name: &'static str, has_agents: bool) -> Cast {
    Cast { name, policy: Policy::WeightedRoundRobin, rate: 0.6, duration: 2.2, hog: Some(HOG), has_agents }
}

impl Hog {
    /// The node that has it.
    pub(crate) fn victim(&self) -> &'static str {
        NODES[self.node].name
    }

    /// When it comes and goes in an act of this duration.
    pub(crate) fn times(&self, duration: Duration) -> (Duration, Duration) {
        (duration.mul_f64(self.from), duration.mul_f64(self.to))
    }
}
