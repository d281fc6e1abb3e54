use std::collections::VecDeque;

use evener_model::NodeId;

use crate::policy::Pick;

/// Nodes in turn, each for as many turns as it has tokens: the active list, whose head gives a token and
/// goes to the tail, and the expired list of those that have given all and got them back for
/// the next round. When the active list is empty, the lists swap.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    active: VecDeque<NodeId>,
    expired: VecDeque<NodeId>,
    purses: Vec<Purse>,
}

/// A node's tokens.
#[derive(Clone, Copy, Debug, Default)]
struct Purse {
    left: u32,
    /// What it gets back; 0 if the node takes no part.
    full: u32,
    /// Whether it is on the expired list, or was when it last took part.
    expired: bool,
}

impl Tokens {
    /// Gives a node `full` tokens a round from now on; 0 takes it out.
    ///
    /// A new node takes part in this round. One whose weight changes has what it gave counted against
    /// what it gets now. One that comes back goes on with the tokens that it had.
    pub(crate) fn set(&mut self, node: NodeId, full: u32) {
        if self.purses.len() <= node.index() {
            self.purses.resize(node.index() + 1, Purse::default());
        }
        let purse = &mut self.purses[node.index()];
        let before = std::mem::replace(&mut purse.full, full);
        if full == before {
            return;
        }
        if full == 0 {
            self.active.retain(|other| *other != node);
            self.expired.retain(|other| *other != node);
            return;
        }
        if before == 0 {
            // Zero tokens: it never took part, or has been forgotten.
            purse.left = if purse.left == 0 { full } else { purse.left.min(full) };
            let list = if purse.expired { &mut self.expired } else { &mut self.active };
            list.push_back(node);
            self.reserve();
            return;
        }
        let given = before.saturating_sub(purse.left);
        if given < full {
            purse.left = full - given;
        } else {
            purse.left = full;
            if !purse.expired {
                purse.expired = true;
                self.active.retain(|other| *other != node);
                self.expired.push_back(node);
            }
        }
    }

    /// Forgets a node's tokens: it left, and its id may be that of another node later.
    pub(crate) fn forget(&mut self, node: NodeId) {
        if let Some(purse) = self.purses.get_mut(node.index()) {
            *purse = Purse::default();
        }
    }

    /// The next open node; it gives a token. Full nodes keep theirs and are passed.
    pub(crate) fn take(&mut self, pick: &Pick<'_>) -> Option<NodeId> {
        if self.active.is_empty() {
            self.swap();
        }
        for _ in 0..self.active.len() {
            let node = self.active.pop_front()?;
            if !pick.is_open(node) {
                self.active.push_back(node);
                continue;
            }
            let purse = &mut self.purses[node.index()];
            purse.left -= 1;
            if purse.left == 0 {
                (purse.left, purse.expired) = (purse.full, true);
                self.expired.push_back(node);
            } else {
                self.active.push_back(node);
            }
            return Some(node);
        }
        // Nobody in this round is open: those who have had their turns take the first of the next round.
        for _ in 0..self.expired.len() {
            let node = self.expired.pop_front()?;
            self.expired.push_back(node);
            if pick.is_open(node) {
                let purse = &mut self.purses[node.index()];
                purse.left = if purse.left > 1 { purse.left - 1 } else { purse.full };
                return Some(node);
            }
        }
        None
    }

    /// Empties both lists, to be dealt anew.
    pub(crate) fn restart(&mut self) {
        self.active.clear();
        self.expired.clear();
    }

    /// Puts a member at the end of the active list, with `left` tokens, and `full` from the next round on.
    pub(crate) fn deal(&mut self, node: NodeId, left: u32, full: u32) {
        self.purses[node.index()] = Purse { left, full, expired: false };
        self.active.push_back(node);
    }

    /// Puts a member at the end of the expired list, with `left` tokens for its next round, then `full`.
    pub(crate) fn deal_next(&mut self, node: NodeId, left: u32, full: u32) {
        self.purses[node.index()] = Purse { left, full, expired: true };
        self.expired.push_back(node);
    }

    fn swap(&mut self) {
        std::mem::swap(&mut self.active, &mut self.expired);
        for node in &self.active {
            self.purses[node.index()].expired = false;
        }
    }

    /// Room for all nodes in both lists, so that picks do not allocate.
    fn reserve(&mut self) {
        let nodes = self.purses.len();
        self.active.reserve(nodes - self.active.len().min(nodes));
        self.expired.reserve(nodes - self.expired.len().min(nodes));
    }
}
