//! Which waiting jobs a node hands to its peers.
//!
//! Every node decides for itself, from what it knows of the jobs on all nodes, and only gives: no job is
//! asked for, so that two nodes need not agree on anything. Jobs in service stay where they are.

mod least_loaded;
mod nearest;
mod nearest_exact;

use std::fmt;
use std::str::FromStr;

use evener_model::NodeId;
use thiserror::Error;

/// How a node with too many jobs finds out whom to give how many.
///
/// ```
/// use evener_model::NodeId;
/// use evener_scheduler::transfer::{Move, Transfer};
///
/// // Node 1 has 6 jobs where the mean is 2.5, and may begin 1 at a time.
/// let jobs = [4, 6, 2, 1, 2, 4, 0, 1];
/// let mut moves = Vec::new();
/// Transfer::Nearest.plan(NodeId(1), &jobs, 1, &mut moves);
/// assert_eq!(moves, [Move { to: NodeId(3), jobs: 2 }, Move { to: NodeId(6), jobs: 1 }]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transfer {
    /// To the nearest nodes, in a ring, that have room after those between them have had theirs. Each sender
    /// keeps what is more than the mean, rounded up.
    Nearest,
    /// The same, but all senders round alike: no node ends above its target, in any state, if all know the same.
    NearestExact,
    /// Half the difference to the node with the fewest jobs goes there. Senders that know the same choose the
    /// same node.
    LeastLoaded,
}

/// Jobs to hand over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// To whom.
    pub to: NodeId,
    /// How many, at least 1, from the tail of the queue.
    pub jobs: u32,
}

impl Transfer {
    /// All there are.
    pub const ALL: [Transfer; 3] = [Transfer::Nearest, Transfer::NearestExact, Transfer::LeastLoaded];

    /// The name in configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Transfer::Nearest => "n",
            Transfer::NearestExact => "n-exact",
            Transfer::LeastLoaded => "least-loaded",
        }
    }

    /// What node `own` hands over, appended to `moves`.
    ///
    /// `jobs[i]` is what `own` knows of node `i`: jobs that wait there and are in service; of them, `kept` are in
    /// service at `own` (m in the papers' terms) and cannot leave. With fewer than two nodes, or for an `own`
    /// that is not among them, there is nothing to do. Time O(n), for `n-exact` too.
    pub fn plan(self, own: NodeId, jobs: &[u32], kept: u32, moves: &mut Vec<Move>) {
        let own = own.0 as usize;
        if jobs.len() < 2 || own >= jobs.len() {
            return;
        }
        match self {
            Transfer::Nearest => nearest::plan(own, jobs, kept, moves),
            Transfer::NearestExact => nearest_exact::plan(own, jobs, kept, moves),
            Transfer::LeastLoaded => least_loaded::plan(own, jobs, kept, moves),
        }
    }
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The name of a transfer algorithm that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected \"n\", \"n-exact\" or \"least-loaded\"")]
pub struct UnknownTransfer;

impl FromStr for Transfer {
    type Err = UnknownTransfer;

    fn from_str(text: &str) -> Result<Transfer, UnknownTransfer> {
        match text {
            "n" => Ok(Transfer::Nearest),
            "n-exact" => Ok(Transfer::NearestExact),
            "least-loaded" | "ll" => Ok(Transfer::LeastLoaded),
            _ => Err(UnknownTransfer),
        }
    }
}

/// Node `i` of a ring, going on from `own` to all others in turn.
fn others(own: usize, len: usize) -> impl Iterator<Item = usize> {
    (own + 1..len).chain(0..own)
}

fn node(index: usize) -> NodeId {
    NodeId(index as u32)
}

#[cfg(test)]
mod tests;
