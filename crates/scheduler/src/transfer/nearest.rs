//! N: to the nearest underloaded node (Sasaki, Tanaka: Cluster system capacity improvement by transferring load in
//! virtual node distance order, 3.3).
//!
//! As its example computes it; the listing in that text subtracts a negative floor and leaves out the last node.
//! `under`, the room that is left on the way round the ring, is kept times n, so that it stays an integer.

use super::{Move, node, others};

pub(super) fn plan(own: usize, jobs: &[u32], kept: u32, moves: &mut Vec<Move>) {
    let n = jobs.len() as i64;
    let sum: i64 = jobs.iter().map(|jobs| i64::from(*jobs)).sum();
    let mean_up = (sum + n - 1) / n;
    let has = i64::from(jobs[own]);
    let mut over = (has - mean_up).min(has - i64::from(kept));
    let mut under_times_n = 0;
    for other in others(own, jobs.len()) {
        if over <= 0 {
            return;
        }
        under_times_n += sum - n * i64::from(jobs[other]);
        let room = under_times_n.div_euclid(n);
        if room > 0 {
            let given = over.min(room);
            moves.push(Move { to: node(other), jobs: given as u32 });
            over -= given;
            under_times_n -= n * given;
        }
    }
}
