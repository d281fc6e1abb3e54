use evener_model::{NodeId, Time};

use super::{Algorithm, Pick};
use crate::nodes::{Nodes, UNIT};
use crate::parts::{Tokens, Tournament};

/// The virtual length of a round. A pick moves the clock on by at least 2^8 and at most 2^16 for each node,
/// so that the clock lasts for 2^48 picks: 89 years at 100,000 a second.
const ROUND: u64 = 1 << 24;
/// Full nodes that are passed one by one before the rest is searched at once.
const FULL_PASSED_MAX: usize = 8;

/// Each node as often as its weight, its picks spread evenly over the round.
///
/// Virtual time: a node of weight w has a turn every 1/w of a round, and the earliest turn is taken; at
/// the same time, the lowest id. At the start, the n nodes of one weight share out the time between their
/// turns: with weights 5, 1 and 1 the order is a b a a a c a. As each node's turns recur with the round,
/// *any* W picks in a row (W the sum of the weights) hold exactly w of them, wherever they begin.
///
/// A node that joins gets a first turn within its own stride from now; one whose weight changes keeps
/// the part of a stride that it has waited; a node that is full loses the turn; one that goes and comes back
/// has no turn before the one it left. O(log nodes).
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.2, with the order of virtual-time (stride) scheduling.
#[derive(Debug, Default)]
pub(crate) struct Smooth {
    due: Tournament<u64>,
    turns: Vec<Cycle>,
    clock: u64,
    started: bool,
    joined: u64,
}

/// A node's turns: `base + served · ROUND / share`, reckoned anew each round so that no rounding adds up.
#[derive(Clone, Copy, Debug, Default)]
struct Cycle {
    base: u64,
    served: u32,
    share: u32,
}

impl Cycle {
    fn due(&self) -> u64 {
        self.base + u64::from(self.served) * ROUND / u64::from(self.share.max(1))
    }

    fn advance(&mut self) {
        self.served += 1;
        if self.served >= self.share {
            self.served = 0;
            self.base += ROUND;
        }
    }
}

impl Smooth {
    /// Spreads the first turns, once, when all nodes of the start are there.
    fn start(&mut self, nodes: &Nodes) {
        self.started = true;
        let mut peers = [0_u32; 257];
        for &member in nodes.members() {
            peers[nodes.standing(member).weight as usize] += 1;
        }
        let mut places = [0_u32; 257];
        for &member in nodes.members() {
            let weight = nodes.standing(member).weight as usize;
            let stride = ROUND / u64::from(self.turns[member.index()].share);
            let place = u64::from(places[weight]);
            places[weight] += 1;
            self.turns[member.index()].base = stride * (2 * place + 1) / (2 * u64::from(peers[weight]));
            self.show(member);
        }
    }

    /// Enters the node's next turn.
    fn show(&mut self, node: NodeId) {
        self.due.set(node, self.turns[node.index()].due());
    }

    fn pass(&mut self, node: NodeId) {
        let cycle = &mut self.turns[node.index()];
        self.clock = self.clock.max(cycle.due());
        cycle.advance();
        self.show(node);
    }

    fn earliest_open(&mut self, pick: &Pick<'_>) -> Option<NodeId> {
        // Nodes that are not candidates keep their turns.
        for _ in 0..pick.draws(FULL_PASSED_MAX) {
            let node = self.due.top()?;
            let full = pick.nodes.is_full(node);
            self.pass(node);
            if !full {
                return Some(node);
            }
        }
        let open = pick.candidates().iter().filter(|member| pick.is_open(**member));
        let node = *open.min_by_key(|member| (self.turns[member.index()].due(), **member))?;
        self.pass(node);
        Some(node)
    }
}

impl Smooth {
    /// Gives a node as many turns as `share`, at most 2^16, says in comparison with others; 0 takes it out.
    pub(crate) fn set(&mut self, node: NodeId, share: u32) {
        if self.turns.len() <= node.index() {
            self.turns.resize(node.index() + 1, Cycle::default());
        }
        let cycle = &mut self.turns[node.index()];
        let (before, due) = (cycle.share, cycle.due());
        if share == before {
            return;
        }
        if share == 0 {
            *cycle = Cycle { base: due, served: 0, share: 0 };
            self.due.clear(node);
            return;
        }
        // Less than a stride: with a whole one, the turn before it would count to the round that begins now.
        let wait_max = ROUND / u64::from(share) - 1;
        let wait = if before > 0 {
            due.saturating_sub(self.clock) * u64::from(before) / u64::from(share)
        } else if due > self.clock {
            due - self.clock
        } else {
            // The golden ratio spreads any number of newcomers evenly over their strides.
            self.joined += 1;
            let part = self.joined.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            (wait_max * part) >> 24
        };
        *cycle = Cycle { base: self.clock + wait.clamp(1, wait_max), served: 0, share };
        self.show(node);
    }
}

impl Algorithm for Smooth {
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.set(node, nodes.standing(node).share);
    }

    fn left(&mut self, node: NodeId) {
        if let Some(cycle) = self.turns.get_mut(node.index()) {
            *cycle = Cycle::default();
        }
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if !self.started {
            self.start(pick.nodes);
        }
        for &node in pick.avoid {
            self.due.clear(node);
        }
        let found = self.earliest_open(pick);
        for &node in pick.avoid.iter().filter(|node| pick.nodes.is_member(**node)) {
            self.show(node);
        }
        found
    }
}

/// Each node as often as its weight, in the order of the papers: node after node gives a token,
/// those without tokens get them back for the next round.
///
/// In each round, each node is picked exactly as often as its weight, with whatever joins and changes
/// within it. O(1), and a step for each full node passed.
///
/// Source: Haney and Madsen, Load-balancing for MySQL, 2003, 3.2; weight 0 is never picked.
#[derive(Debug, Default)]
pub(crate) struct InTokens {
    tokens: Tokens,
}

impl Algorithm for InTokens {
    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        self.tokens.set(node, nodes.standing(node).share.div_ceil(UNIT));
    }

    fn left(&mut self, node: NodeId) {
        self.tokens.forget(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        self.tokens.take(pick)
    }
}
