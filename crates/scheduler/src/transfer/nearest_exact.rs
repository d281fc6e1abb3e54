//! N with targets that add up: the nodes with the most jobs may end with the mean rounded up, as many of them
//! as there are jobs over, and the others with the mean rounded down. So what senders give is what receivers
//! lack, to the job.

use super::{Move, node, others};

pub(super) fn plan(own: usize, jobs: &[u32], kept: u32, moves: &mut Vec<Move>) {
    let target = Targets::new(jobs);
    let has = i64::from(jobs[own]);
    let mut over = (has - target.of(own, jobs)).min(has - i64::from(kept));
    let mut under = 0;
    for other in others(own, jobs.len()) {
        if over <= 0 {
            return;
        }
        under += target.of(other, jobs) - i64::from(jobs[other]);
        if under > 0 {
            let given = over.min(under);
            moves.push(Move { to: node(other), jobs: given as u32 });
            over -= given;
            under -= given;
        }
    }
}

/// Which nodes end with one job more: those with more jobs than `limit`, and of those with just `limit` the first.
struct Targets {
    mean_down: i64,
    limit: u32,
    /// The first node with `limit` jobs that does not end with one more.
    first_without: usize,
}

impl Targets {
    fn new(jobs: &[u32]) -> Targets {
        let n = jobs.len() as u64;
        let sum: u64 = jobs.iter().map(|jobs| u64::from(*jobs)).sum();
        let mut rest = (sum % n) as usize;
        let mean_down = (sum / n) as i64;
        // The `rest`th largest number of jobs, without sorting: halve the range that it lies in.
        let (mut low, mut high) = (0, jobs.iter().copied().max().unwrap_or(0));
        while low < high {
            let middle = low + (high - low) / 2;
            if jobs.iter().filter(|jobs| **jobs > middle).count() >= rest.max(1) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let limit = low;
        rest -= jobs.iter().filter(|jobs| **jobs > limit).count().min(rest);
        let at_limit = jobs.iter().enumerate().filter(|(_, jobs)| **jobs == limit);
        let first_without = at_limit.map(|(index, _)| index).nth(rest).unwrap_or(jobs.len());
        let limit = if sum.is_multiple_of(n) { u32::MAX } else { limit };
        Targets { mean_down, limit, first_without }
    }

    fn of(&self, index: usize, jobs: &[u32]) -> i64 {
        let has_more = jobs[index] > self.limit || (jobs[index] == self.limit && index < self.first_without);
        self.mean_down + i64::from(has_more)
    }
}
