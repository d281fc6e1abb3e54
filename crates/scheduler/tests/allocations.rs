//! Picks and ends of jobs do not allocate, whatever happened before.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event, Health, Job, JobCounts, NodeId, NodeSpec, Outcome, Report, Time, Weight};
use evener_scheduler::{Order, Outlier, Policy, Scheduler, Settings, Variant, hash_bytes};

/// The system's allocator, counting what each thread asks of it.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: all calls go to the system's allocator as they come; the count is a plain cell of the thread.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's contract is the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn picks_and_ends_do_not_allocate() {
    let others = [
        Settings { policy: Policy::WeightedRoundRobin, order: Order::Tokens, ..Settings::default() },
        Settings { policy: Policy::LoadInformed, variant: Variant::Least, ..Settings::default() },
        Settings { policy: Policy::LoadInformed, variant: Variant::Among, ..Settings::default() },
        Settings {
            policy: Policy::LeastJobs,
            dispatchers: 5,
            current_bonus_percent: 20,
            ..Settings::default()
        },
        Settings { policy: Policy::WeightedRoundRobin, affinity: 2, ..Settings::default() },
    ];
    let all = Policy::ALL.map(|policy| Settings { policy, ..Settings::default() });
    for settings in all.into_iter().chain(others) {
        for nodes in [3, 100] {
            assert_eq!(allocations_of_picks(settings.clone(), nodes), 0, "{settings:?} with {nodes} nodes");
        }
    }
}

/// Allocations of 5,000 picks, ends and reports, with failures, ejections, slow starts, avoided, excluded and full nodes.
fn allocations_of_picks(settings: Settings, nodes: u32) -> u64 {
    let outlier = Some(Outlier { consecutive: 3, ..Outlier::default() });
    let slow_start = Duration::from_secs(1);
    let settings = Settings { outlier, slow_start, ..settings };
    let mut scheduler = Scheduler::new(settings, Arc::new(JobCounts::new(nodes as usize)), 1);
    let mut now = Time::ZERO;
    for node in (0..nodes).map(NodeId) {
        let spec = NodeSpec {
            weight: Weight::new(u64::from(node.0 % 7 + 1)).unwrap(),
            jobs_max: Some(4),
            name_hash: hash_bytes(&node.0.to_le_bytes()),
        };
        scheduler.handle(now, Event::Join { node, spec });
    }
    let mut in_flight = Vec::with_capacity(10_000);
    let before = ALLOCATIONS.get();
    for key in 0..5_000_u64 {
        now += Duration::from_millis(7);
        let avoid = [NodeId((key % 3) as u32)];
        let excluded = [NodeId((key % 2) as u32), NodeId(2)];
        let job = Job {
            key: key / 5,
            avoid: if key % 4 == 0 { &avoid } else { &[] },
            excluded: if key % 5 == 0 { &excluded } else { &[] },
            current: Some(NodeId(3)),
        };
        if let Ok(node) = scheduler.pick(now, &job) {
            in_flight.push(node);
        }
        if key % 3 == 0 {
            let node = NodeId((key / 3) as u32 % nodes);
            let report = Report {
                measured_at: now,
                jobs: Some((key % 7) as u32),
                load: Some((key % 13) as f32 / 10.0),
                health: Some(Health::saturating((key % 97) as u8)),
                credits: Some((key % 5) as u32),
                jobs_per_s: Some((key % 17) as f32),
                errors_per_s: Some((key % 2) as f32),
                latency: Some(Duration::from_micros(key % 50)),
            };
            scheduler.handle(now, Event::Report { node, report });
        }
        if key % 11 != 0 && !in_flight.is_empty() {
            let node = in_flight.swap_remove((key * 7) as usize % in_flight.len());
            let bad = node.0 % 3 == 1 && key % 2_000 > 1_000;
            let outcome = if bad { Outcome::Timeout } else { Outcome::Success };
            scheduler.handle(now, Event::Finish { node, outcome, latency: Some(Duration::from_micros(key)) });
        }
    }
    ALLOCATIONS.get() - before
}
