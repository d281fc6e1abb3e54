use std::cmp::Reverse;
use std::time::Duration;

use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::Settings;
use crate::nodes::{Nodes, UNIT};
use crate::parts::Tokens;

/// Each node in turn, as often as it is short of jobs.
///
/// At each phase, with weights w (as far as slow start and failures leave them), W their sum, jobs j (those
/// in flight here, and those of others as far as nodes report them) and J their sum: a node is short of `w·J/W − j` jobs. Those that are short get as many
/// tokens, by largest remainder (ties to those next in the rotation), and come first; the others
/// follow with `w·(1 + x) − (j − w·J/W)` tokens, where x is the overload of the most overloaded node over
/// its weight, so that it still gets w, and no less than 1. Without jobs everywhere, tokens are weights.
/// Of c dispatchers that share no counts each makes up for a part in c of what is short.
/// Within a phase it goes on as weighted round robin. The rotation goes on over updates.
///
/// O(1); O(nodes · log nodes) once a phase.
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.4.
#[derive(Debug)]
pub(crate) struct JobInformed {
    tokens: Tokens,
    members: Vec<bool>,
    scratch: Vec<Short>,
    phase: Duration,
    /// As set; 0 if not known.
    dispatchers: u16,
    update_at: Time,
    last: Option<NodeId>,
}

/// A node at the beginning of a phase.
#[derive(Clone, Copy, Debug)]
struct Short {
    node: NodeId,
    /// Its place in the rotation.
    place: usize,
    weight: u64,
    jobs: u64,
    /// The jobs that it is short of, times W.
    shortage: i64,
    tokens: u64,
}

impl Short {
    /// What flooring its tokens left over, times W.
    fn remainder(&self, weights: u64) -> u64 {
        if self.shortage > 0 { self.shortage as u64 % weights } else { 0 }
    }
}

impl JobInformed {
    pub(crate) fn new(settings: &Settings) -> JobInformed {
        JobInformed {
            tokens: Tokens::default(),
            members: Vec::new(),
            scratch: Vec::new(),
            phase: settings.phase,
            dispatchers: settings.dispatchers,
            update_at: Time::ZERO,
            last: None,
        }
    }

    fn update(&mut self, nodes: &Nodes) {
        let members = nodes.members();
        let start = members.partition_point(|member| Some(*member) <= self.last);
        let (before, after) = members.split_at(start);
        self.scratch.clear();
        self.scratch.extend(after.iter().chain(before).enumerate().map(|(place, &node)| {
            // The count is read once: other dispatchers change it meanwhile.
            let jobs = u64::from(nodes.jobs_of_all(node));
            Short { node, place, weight: nodes.standing(node).worth(), jobs, shortage: 0, tokens: 0 }
        }));
        let jobs: u64 = self.scratch.iter().map(|node| node.jobs).sum();
        let weights: u64 = self.scratch.iter().map(|node| node.weight).sum();
        // What is short, others see and make up for too.
        let dispatchers = nodes.loads.dispatchers(self.dispatchers).round().max(1.0) as i64;
        for node in &mut self.scratch {
            node.shortage = ((node.weight * jobs) as i64 - (node.jobs * weights) as i64) / dispatchers;
        }
        self.round_up(weights);

        let depth = |node: &Short| -node.shortage as f64 / node.weight as f64 / weights as f64;
        let deepest = self.scratch.iter().map(depth).fold(0.0, f64::max);
        self.tokens.restart();
        for node in &self.scratch {
            let full = node.weight as f64 * (1.0 / f64::from(UNIT) + deepest);
            let refill = (full as u32).max(1);
            if node.tokens > 0 {
                self.tokens.deal(node.node, node.tokens as u32, refill);
            } else if jobs == 0 {
                self.tokens.deal(node.node, refill, refill);
            } else {
                let rest = (full + node.shortage as f64 / weights as f64).round() as u32;
                self.tokens.deal_next(node.node, rest.max(1), refill);
            }
        }
    }

    /// Gives the nodes that are short their tokens by largest remainder, and restores the rotation.
    fn round_up(&mut self, weights: u64) {
        let mut total = 0;
        let mut given = 0;
        for node in self.scratch.iter_mut().filter(|node| node.shortage > 0) {
            total += node.shortage as u64;
            node.tokens = node.shortage as u64 / weights;
            given += node.tokens;
        }
        self.scratch.sort_unstable_by_key(|node| (Reverse(node.remainder(weights)), node.place));
        let extra = (total.div_ceil(weights) - given) as usize;
        for node in self.scratch.iter_mut().take(extra) {
            node.tokens += 1;
        }
        self.scratch.sort_unstable_by_key(|node| node.place);
    }
}

impl Algorithm for JobInformed {
    fn configure(&mut self, settings: &Settings) {
        (self.phase, self.dispatchers) = (settings.phase, settings.dispatchers);
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        if self.members.len() <= node.index() {
            self.members.resize(node.index() + 1, false);
        }
        self.scratch.reserve(nodes.known().len().saturating_sub(self.scratch.len()));
        let member = nodes.is_member(node);
        // A weight that changes shows at the next phase; tokens given stay.
        if member != self.members[node.index()] {
            self.members[node.index()] = member;
            self.tokens.set(node, nodes.standing(node).share.div_ceil(UNIT));
        }
    }

    fn left(&mut self, node: NodeId) {
        self.tokens.forget(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if pick.now >= self.update_at {
            self.update_at = pick.now + self.phase;
            self.update(pick.nodes);
        }
        self.tokens.take(pick)
    }

    fn placed(&mut self, _nodes: &Nodes, node: NodeId, _now: Time) {
        self.last = Some(node);
    }
}
