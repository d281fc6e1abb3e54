//! Half the difference to the node with the fewest jobs; of equals, the first.

use super::{Move, node};

pub(super) fn plan(own: usize, jobs: &[u32], kept: u32, moves: &mut Vec<Move>) {
    let Some((least, has_least)) = jobs.iter().enumerate().min_by_key(|(_, jobs)| **jobs) else { return };
    let given = ((jobs[own] - has_least) / 2).min(jobs[own].saturating_sub(kept));
    if given > 0 {
        moves.push(Move { to: node(least), jobs: given });
    }
}
