use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::Settings;
use crate::nodes::Nodes;
use crate::parts::Board;

/// Draws before the open nodes are counted.
const DRAWS_MAX: usize = 8;

/// Any of those nodes, by weight, that would by now be equally loaded if all jobs since the last look had gone to
/// the least loaded.
///
/// With nodes in the order of their jobs for their weight (as far as slow start and failures leave it), at
/// first the least loaded gets all; when as many jobs have come as lift it to the level of the next, both get
/// them; and so on until all do.
///
/// What is known of jobs and arrivals: [`Board`]. O(log nodes); O(nodes · log nodes) at each look.
///
/// Source: Dahlin: Interpreting stale load information, 2000, with weights.
#[derive(Debug)]
pub(crate) struct AggressiveLi {
    board: Board,
    stages: Vec<Stage>,
}

/// The time when the first few nodes are those that get jobs.
#[derive(Clone, Copy, Debug)]
struct Stage {
    /// Arrivals that end it.
    until: f64,
    /// The weights of those nodes together.
    weights: u64,
}

impl AggressiveLi {
    pub(crate) fn new(settings: &Settings) -> AggressiveLi {
        AggressiveLi { board: Board::new(settings), stages: Vec::new() }
    }

    fn plan(&mut self) {
        self.stages.clear();
        let entries = self.board.entries();
        let (mut jobs, mut weights) = (0, 0);
        for (place, entry) in entries.iter().enumerate() {
            jobs += entry.jobs;
            weights += entry.weight;
            let until = entries.get(place + 1).map_or(f64::INFINITY, |next| {
                weights as f64 * next.jobs as f64 / next.weight as f64 - jobs as f64
            });
            self.stages.push(Stage { until, weights });
        }
    }
}

impl Algorithm for AggressiveLi {
    fn configure(&mut self, settings: &Settings) {
        self.board.configure(settings);
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.board.weighed(nodes, node);
        self.stages.reserve(nodes.known().len().saturating_sub(self.stages.len()));
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if self.board.look(pick.nodes, pick.now) {
            self.plan();
        }
        let arrivals = self.board.arrivals(pick.now);
        let stage = self.stages.partition_point(|stage| stage.until <= arrivals);
        let weights = self.stages.get(stage)?.weights;
        for _ in 0..pick.draws(DRAWS_MAX) {
            let point = pick.rng.below(weights);
            let place = self.stages.partition_point(|stage| stage.weights <= point);
            let member = self.board.entries()[place].node;
            if pick.is_open(member) {
                return Some(member);
            }
        }
        let nodes = pick.nodes;
        pick.any_open(|member| nodes.standing(member).worth())
    }

    fn placed(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {
        self.board.placed();
    }

    fn reported(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {
        self.board.reported();
    }
}
