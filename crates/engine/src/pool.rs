//! A pool as one worker holds it: the scheduler, idle connections, waiting jobs, the retry budget.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event, NodeId, NodeSpec as ModelSpec, Outcome, Time};
use evener_scheduler::hash_bytes;

use crate::placer::{Placer, SharedSink};
use crate::snapshot::{NodeSpec, PoolSpec, Retry};
use crate::stats::{NodeStats, PoolStats};
use crate::token::Token;

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) spec: Arc<PoolSpec>,
    pub(crate) scheduler: Placer,
    /// By [`NodeId::index`].
    nodes: Vec<Option<Node>>,
    /// Jobs that wait for a node, the oldest first.
    pub(crate) queue: VecDeque<Waiting>,
    pub(crate) budget: RetryBudget,
    /// Whether any node has a limit, so that jobs may wait.
    is_limited: bool,
    /// No longer in the snapshot.
    pub(crate) is_removed: bool,
}

/// A node as one worker holds it.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) spec: Arc<NodeSpec>,
    /// HTTP connections without a job; the last one used is the next one used.
    pub(crate) idle: Vec<u32>,
    /// When the scheduler was last told what a response says of the node.
    pub(crate) heard: Option<Time>,
    has_left: bool,
}

/// A job that waits for a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Who asks: the client side of the job.
    pub(crate) token: Token,
    pub(crate) since: Time,
}

impl Pool {
    /// A pool with the nodes of `spec`, all of them new; recorded if there is a `sink`.
    pub(crate) fn new(spec: Arc<PoolSpec>, now: Time, seed: u64, sink: Option<&SharedSink>) -> Pool {
        let scheduler = Placer::new(&spec, now, seed, sink);
        let mut pool = Pool {
            spec: Arc::clone(&spec),
            scheduler,
            nodes: Vec::new(),
            queue: VecDeque::new(),
            budget: RetryBudget::default(),
            is_limited: false,
            is_removed: false,
        };
        // The result names idle connections to be closed; a new pool has none.
        pool.apply(spec, now);
        pool
    }

    /// Follows a new snapshot; returns idle connections to nodes that are gone, for closing.
    pub(crate) fn apply(&mut self, spec: Arc<PoolSpec>, now: Time) -> Vec<u32> {
        let mut orphans = Vec::new();
        if spec.scheduler != self.spec.scheduler {
            self.scheduler.reconfigure(now, spec.scheduler.clone());
        }
        for (index, slot) in self.nodes.iter_mut().enumerate() {
            let Some(node) = slot else { continue };
            if !node.has_left && !spec.nodes.iter().any(|new| new.id.index() == index) {
                node.has_left = true;
                orphans.append(&mut node.idle);
                self.scheduler.handle(now, Event::Leave { node: node.spec.id });
            }
        }
        for new in &spec.nodes {
            let index = new.id.index();
            if index >= self.nodes.len() {
                self.nodes.resize_with(index + 1, || None);
            }
            let known = self.nodes[index].take().filter(|node| !node.has_left);
            let (idle, heard, old) = match known {
                Some(node) => (node.idle, node.heard, Some(node.spec)),
                None => (Vec::new(), None, None),
            };
            let changed =
                |is_same: fn(&NodeSpec, &NodeSpec) -> bool| old.as_ref().is_none_or(|old| !is_same(old, new));
            if changed(|a, b| a.weight == b.weight && a.jobs_max == b.jobs_max && a.name == b.name) {
                let spec = ModelSpec {
                    weight: new.weight,
                    jobs_max: new.jobs_max,
                    name_hash: hash_bytes(new.name.as_bytes()),
                };
                self.scheduler.name(now, new.id, &new.name);
                self.scheduler.handle(now, Event::Join { node: new.id, spec });
            }
            if old.as_ref().is_some_and(|old| old.draining) != new.draining {
                self.scheduler.handle(now, Event::Drain { node: new.id, draining: new.draining });
            }
            if old.as_ref().is_none_or(|old| old.up) != new.up {
                self.scheduler.handle(now, Event::Check { node: new.id, up: new.up });
            }
            self.nodes[index] = Some(Node { spec: Arc::clone(new), idle, heard, has_left: false });
        }
        self.is_limited = spec.nodes.iter().any(|node| node.jobs_max.is_some());
        self.spec = spec;
        orphans
    }

    /// Collects the nodes that do not want jobs from `client`; `reached` says what it has connected to.
    #[inline]
    pub(crate) fn excluded(
        &self,
        client: IpAddr,
        reached: impl FnOnce() -> Option<SocketAddr>,
        excluded: &mut Vec<NodeId>,
    ) {
        excluded.clear();
        if !self.spec.exceptions.is_empty() {
            self.except(client, reached(), excluded);
        }
    }

    #[cold]
    fn except(&self, client: IpAddr, reached: Option<SocketAddr>, excluded: &mut Vec<NodeId>) {
        for exception in &self.spec.exceptions {
            if excluded.last() != Some(&exception.node) && exception.concerns(client, reached) {
                excluded.push(exception.node);
            }
        }
    }

    /// Takes all idle connections out, for closing.
    pub(crate) fn drain_idle(&mut self) -> Vec<u32> {
        self.nodes.iter_mut().flatten().flat_map(|node| std::mem::take(&mut node.idle)).collect()
    }

    /// A node that a job was placed on. It may have left the pool since.
    #[inline]
    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes[id.index()].as_mut().expect("a node that holds a job stays known")
    }

    /// The name of a node that a job was placed on.
    pub(crate) fn node_name(&self, id: NodeId) -> &str {
        self.nodes[id.index()].as_ref().map_or("", |node| &node.spec.name)
    }

    pub(crate) fn stats(&self, worker: usize) -> &PoolStats {
        self.spec.stats.of(worker)
    }

    /// Ends a job on `node`: releases the reservation and counts the outcome.
    /// Says whether a waiting job, here or on another worker, may be placed now.
    #[inline]
    pub(crate) fn finish(
        &mut self,
        worker: usize,
        now: Time,
        node: NodeId,
        outcome: Outcome,
        latency: Option<Duration>,
    ) -> bool {
        self.scheduler.handle(now, Event::Finish { node, outcome, latency });
        let stats = self.node(node).stats(worker);
        stats.outcomes[outcome.index()].add(1);
        if let Some(latency) = latency {
            stats.latency.record(latency);
        }
        self.is_limited || !self.queue.is_empty()
    }

    /// Lets a job wait if the queue has room.
    pub(crate) fn enqueue(&mut self, worker: usize, waiting: Waiting) -> bool {
        if self.spec.waiting.total() >= self.spec.queue_max {
            self.stats(worker).queue_full.add(1);
            return false;
        }
        self.queue.push_back(waiting);
        self.stats(worker).queued_total.add(1);
        self.publish_queue(worker);
        true
    }

    /// Takes a job that no longer waits out of the queue.
    pub(crate) fn forget(&mut self, worker: usize, token: Token) {
        self.queue.retain(|waiting| waiting.token != token);
        self.publish_queue(worker);
    }

    pub(crate) fn publish_queue(&self, worker: usize) {
        self.spec.waiting.set(worker, self.queue.len() as u32);
        self.stats(worker).queued.set(self.queue.len() as u64);
    }
}

impl Node {
    pub(crate) fn stats(&self, worker: usize) -> &NodeStats {
        self.spec.stats.of(worker)
    }

    /// Whether a connection may be kept for later jobs.
    pub(crate) fn keeps(&self, idle_connections_max: u32) -> bool {
        !self.has_left && self.idle.len() < idle_connections_max as usize
    }
}

/// Retries in the last 10 s may be a share of the jobs in the last 10 s, and 10 a second besides,
/// so that a pool with little traffic can retry at all.
#[derive(Debug, Default)]
pub(crate) struct RetryBudget {
    second: u64,
    jobs: [u32; RetryBudget::SECONDS],
    retries: [u32; RetryBudget::SECONDS],
}

impl RetryBudget {
    const SECONDS: usize = 10;
    const RETRIES_PER_SECOND_MIN: u64 = 10;

    #[inline]
    pub(crate) fn count_job(&mut self, now: Time) {
        let bucket = self.bucket(now);
        self.jobs[bucket] += 1;
    }

    /// Whether one more retry is within the budget; if so, it is counted.
    pub(crate) fn take(&mut self, now: Time, retry: &Retry) -> bool {
        let bucket = self.bucket(now);
        let sum = |counts: &[u32]| counts.iter().map(|&count| u64::from(count)).sum::<u64>();
        let allowed = sum(&self.jobs) * u64::from(retry.budget_percent) / 100
            + RetryBudget::RETRIES_PER_SECOND_MIN * RetryBudget::SECONDS as u64;
        let granted = sum(&self.retries) < allowed;
        self.retries[bucket] += u32::from(granted);
        granted
    }

    #[inline]
    fn bucket(&mut self, now: Time) -> usize {
        let second = now.as_nanos() / 1_000_000_000;
        while self.second < second {
            // After a long pause all buckets are old: one turn around clears them.
            self.second = (self.second + 1).max(second.saturating_sub(RetryBudget::SECONDS as u64));
            let bucket = self.second as usize % RetryBudget::SECONDS;
            self.jobs[bucket] = 0;
            self.retries[bucket] = 0;
        }
        second as usize % RetryBudget::SECONDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_stay_within_their_share_of_the_last_ten_seconds() {
        let retry = Retry { attempts_max: 1, budget_percent: 20, on_unavailable: false };
        let at = |second: u64| Time::from_nanos(second * 1_000_000_000);
        let mut budget = RetryBudget::default();
        for _ in 0..1000 {
            budget.count_job(at(100));
        }
        let granted = (0..1000).filter(|_| budget.take(at(105), &retry)).count();
        assert_eq!(granted, 200 + 100);
        let later = (0..1000).filter(|_| budget.take(at(120), &retry)).count();
        assert_eq!(later, 100);
    }
}
