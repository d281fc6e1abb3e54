use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::Settings;
use crate::hash::mix;
use crate::nodes::Nodes;
use crate::parts::{Census, Ring};

/// Nodes whose jobs are looked at again at each pick.
const TOUR: usize = 2;

/// The node that follows the job's key on a ring of hashes and is not far above its share of the jobs.
///
/// A node takes `⌈load_bound · (J + 1) · w / W⌉` jobs at the most, J being the jobs and W the weights of
/// all nodes that may be picked; keys of a node at its bound go on to the next on the ring. J is exact with
/// one dispatcher; the jobs that others place come in within nodes/2 picks. With no load above
/// a bound, keys are where `consistent-hash` puts them. Points, evenness and cost: [`Ring`].
///
/// Source: Mirrokni, Thorup, Zadimoghaddam: Consistent hashing with bounded loads, 2016.
#[derive(Debug)]
pub(crate) struct BoundedHash {
    ring: Ring,
    census: Census,
    percent: u32,
}

impl BoundedHash {
    pub(crate) fn new(settings: &Settings) -> BoundedHash {
        BoundedHash {
            ring: Ring::default(),
            census: Census::default(),
            percent: settings.load_bound_percent.max(100),
        }
    }
}

impl Algorithm for BoundedHash {
    fn configure(&mut self, settings: &Settings) {
        self.percent = settings.load_bound_percent.max(100);
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.ring.note(nodes, node);
        self.census.weighed(nodes, node);
    }

    fn left(&mut self, node: NodeId) {
        self.ring.remove(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        self.ring.build();
        self.census.tour(pick.nodes, TOUR);
        let share = u128::from(self.percent) * (u128::from(self.census.jobs()) + 1);
        let weights = 100 * u128::from(self.census.weights());
        let nodes = pick.nodes;
        // jobs < ⌈share · w / weights⌉, without the division.
        let is_below_bound =
            |node| u128::from(nodes.jobs(node)) * weights < share * u128::from(nodes.standing(node).weight);
        let found = self
            .ring
            .walk(mix(pick.key))
            .find(|&node| nodes.is_member(node) && is_below_bound(node) && pick.is_open(node));
        // All nodes of the walk are at their bounds, which needs nodes that are full or avoided
        // or counts that others have just changed: the one furthest below its bound then.
        found.or_else(|| {
            let open = pick.candidates().iter().copied().filter(|member| pick.is_open(*member));
            let weight = |node| u64::from(nodes.standing(node).weight);
            open.min_by(|a, b| {
                let (left, right) =
                    (u64::from(nodes.jobs(*a)) * weight(*b), u64::from(nodes.jobs(*b)) * weight(*a));
                left.cmp(&right)
            })
        })
    }

    fn placed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.census.look(nodes, node);
    }

    fn finished(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.census.look(nodes, node);
    }
}
