//! What a pick costs, alone and with the end of a job: `cargo bench -p evener-scheduler`. A sample is
//! 1,000 jobs, so its microseconds are nanoseconds a job.
//!
//! Every policy over 4 to 1,000 nodes of weights 1 to 8, eight jobs in flight a node and 2,000 on top. With policies
//! that listen to nodes, the end of every eighth job brings a report, which counts as part of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use divan::{Bencher, counter::ItemsCount};
use evener_model::{Event, Job, JobCounts, NodeId, NodeSpec, Outcome, Report, Time, Weight};
use evener_scheduler::{Order, Policy, Scheduler, Settings, hash_bytes};

const NODES: [u32; 4] = [4, 16, 100, 1000];
/// Jobs placed and ended in a sample.
const JOBS: u64 = 1000;

fn main() {
    divan::main();
}

fn settings() -> impl Iterator<Item = (Policy, Order)> {
    let smooth = Policy::ALL.into_iter().map(|policy| (policy, Order::Smooth));
    smooth.chain([(Policy::WeightedRoundRobin, Order::Tokens)])
}

fn cases() -> Vec<Case> {
    settings().flat_map(|(policy, order)| NODES.map(|nodes| Case { policy, order, nodes })).collect()
}

#[derive(Clone, Copy)]
struct Case {
    policy: Policy,
    order: Order,
    nodes: u32,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.order {
            Order::Smooth => write!(f, "{:24} {:4}", self.policy.name(), self.nodes),
            Order::Tokens => write!(f, "{:24} {:4}", "  in tokens", self.nodes),
        }
    }
}

const fn listens(policy: Policy) -> bool {
    matches!(
        policy,
        Policy::LoadInformed
            | Policy::BasicLi
            | Policy::AggressiveLi
            | Policy::Credits
            | Policy::OrcaWeighted
            | Policy::Prequal
    )
}

/// A pool under load.
struct Pool {
    listens: bool,
    scheduler: Scheduler,
    now: Time,
    key: u64,
    in_flight: VecDeque<NodeId>,
}

impl Pool {
    fn new(case: Case) -> Pool {
        let settings = Settings { policy: case.policy, order: case.order, ..Settings::default() };
        let counts = Arc::new(JobCounts::new(case.nodes as usize));
        let mut pool = Pool {
            listens: listens(case.policy),
            scheduler: Scheduler::new(settings, counts, 1),
            now: Time::ZERO + Duration::from_secs(1),
            key: 0,
            in_flight: VecDeque::new(),
        };
        for node in 0..case.nodes {
            let spec = NodeSpec {
                weight: Weight::new(u64::from(node % 8 + 1)).expect("a small number"),
                jobs_max: Some(100_000),
                name_hash: hash_bytes(&node.to_le_bytes()),
            };
            pool.scheduler.handle(pool.now, Event::Join { node: NodeId(node), spec });
        }
        for _ in 0..case.nodes * 8 + 2 * JOBS as u32 {
            pool.pick();
        }
        pool
    }

    fn pick(&mut self) {
        self.now += Duration::from_micros(10);
        self.key = self.key.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let job = Job { key: self.key, avoid: &[], ..Job::default() };
        self.in_flight.push_back(self.scheduler.pick(self.now, &job).expect("an open node"));
    }

    fn finish(&mut self) {
        let node = self.in_flight.pop_front().expect("a job in flight");
        let latency = Some(Duration::from_micros(100 + self.key % 1000));
        self.scheduler.handle(self.now, Event::Finish { node, outcome: Outcome::Success, latency });
        if self.listens && self.key.is_multiple_of(8) {
            let jobs = (self.key >> 32) as u32 % 20;
            let report = Report {
                measured_at: self.now,
                jobs: Some(jobs),
                load: Some(jobs as f32 / 20.0),
                health: None,
                credits: Some(20 - jobs),
                jobs_per_s: Some(jobs as f32 * 50.0),
                errors_per_s: Some(1.0),
                latency,
            };
            self.scheduler.handle(self.now, Event::Report { node, report });
        }
    }
}

#[divan::bench(args = cases(), sample_count = 20, sample_size = 1)]
fn pick(bencher: Bencher<'_, '_>, case: Case) {
    let pool = RefCell::new(Pool::new(case));
    let fewer = || (0..JOBS).for_each(|_| pool.borrow_mut().finish());
    let pool = &pool;
    bencher.counter(ItemsCount::new(JOBS)).with_inputs(fewer).bench_local_values(|()| {
        let mut pool = pool.borrow_mut();
        (0..JOBS).for_each(|_| pool.pick());
    });
}

#[divan::bench(args = cases(), sample_count = 20)]
fn pick_and_finish(bencher: Bencher<'_, '_>, case: Case) {
    let mut pool = Pool::new(case);
    bencher.counter(ItemsCount::new(JOBS)).bench_local(|| {
        for _ in 0..JOBS {
            pool.pick();
            pool.finish();
        }
        black_box(&pool.in_flight);
    });
}
