//! A pool, and what is done to it.

use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event, Job, JobCounts, NodeId, NodeSpec, Outcome, Time, Weight};
use evener_scheduler::{Policy, Scheduler, Settings, hash_bytes};

/// A scheduler with its clock and what is in flight through it.
pub(crate) struct Pool {
    pub(crate) scheduler: Scheduler,
    pub(crate) counts: Arc<JobCounts>,
    pub(crate) now: Time,
    pub(crate) in_flight: Vec<NodeId>,
}

impl Pool {
    pub(crate) fn new(settings: Settings, seed: u64, weights: &[u64]) -> Pool {
        Pool::sharing(Arc::new(JobCounts::new(4096)), settings, seed, weights, None)
    }

    pub(crate) fn sharing(
        counts: Arc<JobCounts>,
        settings: Settings,
        seed: u64,
        weights: &[u64],
        jobs_max: Option<u32>,
    ) -> Pool {
        let scheduler = Scheduler::new(settings, counts.clone(), seed);
        let now = Time::ZERO + Duration::from_secs(10);
        let mut pool = Pool { scheduler, counts, now, in_flight: Vec::new() };
        for (node, weight) in weights.iter().enumerate() {
            pool.join(node as u32, *weight, jobs_max);
        }
        pool
    }

    pub(crate) fn join(&mut self, node: u32, weight: u64, jobs_max: Option<u32>) {
        let spec = NodeSpec {
            weight: Weight::new(weight).unwrap(),
            jobs_max,
            name_hash: hash_bytes(format!("10.0.0.{node}:80").as_bytes()),
        };
        self.handle(Event::Join { node: NodeId(node), spec });
    }

    pub(crate) fn weigh(&mut self, node: u32, weight: u64) {
        self.handle(Event::Weight { node: NodeId(node), weight: Weight::new(weight).unwrap() });
    }

    pub(crate) fn handle(&mut self, event: Event) {
        self.scheduler.handle(self.now, event);
    }

    /// Picks and keeps the job in flight.
    pub(crate) fn pick(&mut self, key: u64) -> Option<NodeId> {
        self.pick_avoiding(key, &[])
    }

    pub(crate) fn pick_avoiding(&mut self, key: u64, avoid: &[NodeId]) -> Option<NodeId> {
        let node = self.scheduler.pick(self.now, &Job { key, avoid, ..Job::default() }).ok()?;
        self.in_flight.push(node);
        Some(node)
    }

    /// Picks for a job that ends at once.
    pub(crate) fn touch(&mut self, key: u64) -> NodeId {
        let node = self.pick(key).expect("an open node");
        self.in_flight.pop();
        self.finish_on(node);
        node
    }

    pub(crate) fn finish(&mut self, place: usize) {
        if !self.in_flight.is_empty() {
            let node = self.in_flight.swap_remove(place % self.in_flight.len());
            self.finish_on(node);
        }
    }

    fn finish_on(&mut self, node: NodeId) {
        self.handle(Event::Finish { node, outcome: Outcome::Success, latency: None });
    }
}

pub(crate) fn settings(policy: Policy) -> Settings {
    Settings { policy, ..Settings::default() }
}
