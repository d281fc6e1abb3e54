use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::NodeId;

/// Jobs in flight on each node of a pool, shared by all schedulers of that pool.
///
/// One word a node, side by side: a scan of 16 nodes reads one cache line. Relaxed
/// atomics suffice, because a count guards no other memory. A scheduler that shares
/// its counts with nobody (in a simulation) simply holds the only reference.
pub struct JobCounts {
    jobs: Box<[AtomicU32]>,
}

impl JobCounts {
    /// Nodes that a pool of the director can have at the most.
    pub const POOL_NODES_MAX: usize = 4096;

    /// Counts for node ids below `nodes`, all 0.
    pub fn new(nodes: usize) -> JobCounts {
        JobCounts { jobs: (0..nodes).map(|_| AtomicU32::new(0)).collect() }
    }

    /// Node ids below this have a count.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether there is room for no node at all.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Jobs in flight on `node` now.
    #[inline]
    pub fn jobs(&self, node: NodeId) -> u32 {
        self.jobs[node.index()].load(Ordering::Relaxed)
    }

    /// Adds a job to `node`, unless that would exceed `jobs_max`; says whether it did.
    ///
    /// Exact under concurrency: of two racing reservations of the last slot, one fails.
    #[inline]
    pub fn reserve(&self, node: NodeId, jobs_max: Option<u32>) -> bool {
        let count = &self.jobs[node.index()];
        let before = count.fetch_add(1, Ordering::Relaxed);
        if jobs_max.is_some_and(|max| before >= max) {
            count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Takes back one reservation of `node`.
    #[inline]
    pub fn release(&self, node: NodeId) {
        let before = self.jobs[node.index()].fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a job on node {node} was released twice");
    }

    /// Sets the jobs on `node`, for counts that follow others.
    #[inline]
    pub fn set(&self, node: NodeId, jobs: u32) {
        self.jobs[node.index()].store(jobs, Ordering::Relaxed);
    }
}

impl fmt::Debug for JobCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let busy = self.jobs.iter().enumerate().filter_map(|(node, count)| {
            let jobs = count.load(Ordering::Relaxed);
            (jobs > 0).then_some((node, jobs))
        });
        f.debug_map().entries(busy).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_stops_at_the_limit() {
        let counts = JobCounts::new(2);
        let node = NodeId(1);
        assert!(counts.reserve(node, Some(2)));
        assert!(counts.reserve(node, Some(2)));
        assert!(!counts.reserve(node, Some(2)));
        assert_eq!(counts.jobs(node), 2);
        counts.release(node);
        assert!(counts.reserve(node, Some(2)));
        assert_eq!(counts.jobs(NodeId(0)), 0);
    }
}
