use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::Settings;
use crate::nodes::Nodes;
use crate::parts::{Board, Sampler};

/// What stands for certainty.
const CERTAIN: f64 = (1 << 24) as f64;
/// Draws before the open nodes are counted.
const DRAWS_MAX: usize = 8;

/// Any node, as likely as makes all of them equally loaded by the next look at their jobs.
///
/// With jobs L, weights w (as far as slow start and failures leave them) and A arrivals expected until the next
/// look: water of volume A poured over the levels L/w rises to a level h, and a node is drawn with the
/// probability `(w·h − L) / A`, or never if it is above h. Where nobody is, `h = (ΣL + A) / Σw`.
///
/// What is known of jobs and arrivals: [`Board`]. O(1); O(nodes · log nodes) at each look.
///
/// Source: Dahlin: Interpreting stale load information, 2000, with weights.
#[derive(Debug)]
pub(crate) struct BasicLi {
    board: Board,
    sampler: Sampler,
}

impl BasicLi {
    pub(crate) fn new(settings: &Settings) -> BasicLi {
        BasicLi { board: Board::new(settings), sampler: Sampler::default() }
    }

    fn pour(&mut self) {
        let arrivals = self.board.arrivals_expected();
        let (mut jobs, mut weights) = (0.0, 0.0);
        for entry in self.board.entries() {
            let (more_jobs, more_weights) = (jobs + entry.jobs as f64, weights + entry.weight as f64);
            // How much it takes until this one gets wet.
            if more_weights * entry.jobs as f64 / entry.weight as f64 - more_jobs > arrivals {
                break;
            }
            (jobs, weights) = (more_jobs, more_weights);
        }
        let level = (jobs + arrivals) / weights;
        for entry in self.board.entries() {
            let part = (entry.weight as f64 * level - entry.jobs as f64) / arrivals;
            // Those at the level itself are not ruled out by rounding.
            self.sampler.set(entry.node, (part.max(0.0) * CERTAIN) as u32);
        }
    }
}

impl Algorithm for BasicLi {
    fn configure(&mut self, settings: &Settings) {
        self.board.configure(settings);
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.board.weighed(nodes, node);
        // Takes room; the next look says how likely it is.
        if !nodes.is_member(node) {
            self.sampler.set(node, 0);
        } else if self.sampler.share(node).is_none() {
            self.sampler.set(node, 1);
        }
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if self.board.look(pick.nodes, pick.now) {
            self.pour();
        }
        for _ in 0..pick.draws(DRAWS_MAX) {
            let member = self.sampler.draw(pick.rng);
            if pick.is_open(member) {
                return Some(member);
            }
        }
        let sampler = &self.sampler;
        let found = pick.any_open(|member| u64::from(sampler.share(member).unwrap_or(0)));
        let nodes = pick.nodes;
        // Those that are open are all above the level.
        found.or_else(|| pick.any_open(|member| nodes.standing(member).worth()))
    }

    fn placed(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {
        self.board.placed();
    }

    fn reported(&mut self, _nodes: &Nodes, _node: NodeId, _now: Time) {
        self.board.reported();
    }
}
