//! What it costs a worker to hear what nodes report: `cargo bench -p evener-engine`.
//!
//! 1,000 reports are sent, and it is waited until the worker has taken them all. The figures hold the sender's part
//! and one wake-up and answer (the third bench) too.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use evener_engine::snapshot::*;
use evener_engine::stats::PerWorker;
use evener_engine::{Command, WorkerHandle, log_channel, start};
use evener_model::{Event, JobCounts, NodeId, Report, Time, Weight};
use evener_scheduler::{Policy, Settings};

const REPORTS: u32 = 1000;
const POOL: PoolId = PoolId(0);

fn main() {
    divan::main();
}

#[divan::bench(args = [Policy::Informed, Policy::LoadInformed, Policy::WeightedRoundRobin])]
fn a_thousand_reports_one_by_one(bencher: Bencher<'_, '_>, policy: Policy) {
    let worker = worker(policy);
    bencher.counter(ItemsCount::new(REPORTS)).bench_local(|| {
        for (pool, event) in reports() {
            worker.send(Command::Event { pool, event });
        }
        settle(&worker);
    });
}

#[divan::bench(args = [Policy::Informed, Policy::LoadInformed, Policy::WeightedRoundRobin])]
fn a_thousand_reports_at_once(bencher: Bencher<'_, '_>, policy: Policy) {
    let worker = worker(policy);
    bencher.counter(ItemsCount::new(REPORTS)).bench_local(|| {
        worker.send(Command::Events(reports().collect()));
        settle(&worker);
    });
}

#[divan::bench]
fn nothing_but_the_answer(bencher: Bencher<'_, '_>) {
    let worker = worker(Policy::Informed);
    bencher.bench_local(|| settle(&worker));
}

/// One report of each of 1,000 nodes.
fn reports() -> impl Iterator<Item = (PoolId, Event)> {
    let measured_at = now();
    (0..REPORTS).map(move |node| {
        let load = Some((node % 97) as f32 / 97.0);
        let report = Report { measured_at, load, jobs: Some(node % 7), ..Report::default() };
        (POOL, Event::Report { node: NodeId(node), report })
    })
}

fn settle(worker: &WorkerHandle) {
    let (reply, answer) = mpsc::channel();
    worker.send(Command::Explain { pool: POOL, count: 0, reply });
    answer.recv().expect("the worker answers");
}

fn worker(policy: Policy) -> WorkerHandle {
    let (sinks, _) = log_channel(1);
    let worker = start(1, 1, sinks, Vec::new()).expect("a worker starts").remove(0);
    let nodes = (0..REPORTS).map(|node| {
        Arc::new(NodeSpec {
            id: NodeId(node),
            name: format!("node{node}"),
            address: ([127, 0, 0, 1], 1).into(),
            weight: Weight::DEFAULT,
            jobs_max: None,
            draining: false,
            up: true,
            stats: Arc::new(PerWorker::new(1)),
        })
    });
    let second = Duration::from_secs(1);
    let pool = PoolSpec {
        id: POOL,
        name: "nodes".into(),
        scheduler: Settings { policy, ..Settings::default() },
        hash_key: HashKey::Source,
        nodes: nodes.collect(),
        counts: Arc::new(JobCounts::new(REPORTS as usize)),
        queue_max: 1000,
        queue_timeout: 5 * second,
        retry: Retry { attempts_max: 2, budget_percent: 20, on_unavailable: false },
        timeouts: NodeTimeouts { connect: second, response: second, body: second, idle: second },
        idle_connections_max: 1024,
        send_proxy: None,
        exceptions: Vec::new(),
        orca: Orca::Use,
        waiting: Arc::new(Waiting::new(1)),
        stats: Arc::new(PerWorker::new(1)),
    };
    let snapshot = Snapshot { version: 1, listeners: Vec::new(), pools: vec![Arc::new(pool)] };
    worker.send(Command::Apply(Arc::new(snapshot)));
    settle(&worker);
    worker
}

fn now() -> Time {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one timespec to where the pointer points, which is one.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    assert_eq!(status, 0);
    Time::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
