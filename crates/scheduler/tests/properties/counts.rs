//! Policies that look at jobs in flight, with one dispatcher and with several.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use evener_model::{Event, Job, JobCounts, NodeId, Outcome, Time};
use evener_scheduler::{Policy, Scheduler, Settings};
use proptest::prelude::*;

use crate::pool::{Pool, settings};

const BY_COUNT: [Policy; 4] =
    [Policy::LeastJobs, Policy::WeightedLeastJobs, Policy::ShortestExpectedDelay, Policy::NeverQueue];

/// A node's score as a fraction, from the definition.
fn score(policy: Policy, jobs: u64, weight: u64) -> (u64, u64) {
    match policy {
        Policy::LeastJobs => (jobs, 1),
        Policy::WeightedLeastJobs => (jobs, weight),
        Policy::NeverQueue if jobs == 0 => (0, 1),
        _ => (jobs + 1, weight),
    }
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config(100))]

    /// In pools that are scanned and in those that are kept in a tree, the pick has the least score.
    #[test]
    fn the_best_is_picked_in_pools_of_any_size(
        which in 0..BY_COUNT.len(),
        weights in prop_oneof![prop::collection::vec(1..9_u64, 1..20), prop::collection::vec(1..257_u64, 65..150)],
        steps in prop::collection::vec((any::<usize>(), 0..5_u8), 1..600),
        seed: u64,
    ) {
        let policy = BY_COUNT[which];
        let mut pool = Pool::new(settings(policy), seed, &weights);
        for (place, what) in steps {
            if what < 2 {
                pool.finish(place);
                continue;
            }
            let score = |node: usize| score(policy, u64::from(pool.counts.jobs(NodeId(node as u32))), weights[node]);
            // Some jobs avoid a node, which must be back in the running for the next.
            let avoid = if what == 2 && weights.len() > 1 { Some(place % weights.len()) } else { None };
            let open = (0..weights.len()).filter(|node| Some(*node) != avoid);
            let best = open.map(score).reduce(|a, b| if b.0 * a.1 < a.0 * b.1 { b } else { a }).unwrap();
            let before: Vec<_> = (0..weights.len()).map(score).collect();
            let node = pool.pick_avoiding(0, avoid.map(|node| NodeId(node as u32)).as_slice()).unwrap();
            let picked = before[node.index()];
            prop_assert_eq!(picked.0 * best.1, best.0 * picked.1, "picked {}", node);
        }
    }

    /// With several dispatchers, the pick is one of those that they would make one after the other.
    #[test]
    fn dispatchers_pick_among_the_best(
        which in 0..BY_COUNT.len(),
        weights in prop_oneof![prop::collection::vec(1..9_u64, 1..20), prop::collection::vec(1..257_u64, 65..150)],
        dispatchers in 2..6_u16,
        steps in prop::collection::vec((any::<usize>(), 0..5_u8), 1..300),
        seed: u64,
    ) {
        let policy = BY_COUNT[which];
        let mut pool = Pool::new(Settings { dispatchers, ..settings(policy) }, seed, &weights);
        for (place, what) in steps {
            if what < 2 {
                pool.finish(place);
                continue;
            }
            let jobs: Vec<u64> =
                (0..weights.len()).map(|node| u64::from(pool.counts.jobs(NodeId(node as u32)))).collect();
            let mut after = jobs.clone();
            let score = |node: usize, jobs: u64| {
                let (number, divisor) = score(policy, jobs, weights[node]);
                number as f64 / divisor as f64
            };
            let mut worst = 0.0_f64;
            for _ in 0..dispatchers {
                let least = |a: &usize, b: &usize| score(*a, after[*a]).total_cmp(&score(*b, after[*b]));
                let best = (0..weights.len()).min_by(least).unwrap();
                worst = worst.max(score(best, after[best]));
                after[best] += 1;
            }
            let node = pool.pick(0).unwrap().index();
            prop_assert!(score(node, jobs[node]) <= worst, "picked {node} of {jobs:?} by {weights:?}");
        }
    }

    /// Two schedulers on the same counts keep every limit and release every place.
    #[test]
    fn two_schedulers_share_counts(
        which in 0..Policy::ALL.len(),
        nodes in prop_oneof![1..8_usize, 65..90_usize],
        steps in prop::collection::vec((any::<bool>(), any::<usize>(), 0..5_u8), 1..400),
    ) {
        let counts = Arc::new(JobCounts::new(nodes));
        let new = |seed| {
            Pool::sharing(counts.clone(), settings(Policy::ALL[which]), seed, &vec![1; nodes], Some(3))
        };
        let mut pools = [new(1), new(2)];
        for (second, place, what) in steps {
            let pool = &mut pools[usize::from(second)];
            if what < 2 {
                pool.finish(place);
            } else {
                let full = (0..nodes as u32).all(|node| counts.jobs(NodeId(node)) >= 3);
                prop_assert_eq!(pool.pick(place as u64).is_none(), full);
            }
            let in_flight: Vec<NodeId> = pools.iter().flat_map(|pool| pool.in_flight.clone()).collect();
            for node in (0..nodes as u32).map(NodeId) {
                let jobs = in_flight.iter().filter(|other| **other == node).count() as u32;
                prop_assert!(jobs <= 3 && jobs == counts.jobs(node));
            }
        }
    }

    /// No node is above its bound after a pick: its share of the jobs on the nodes that are up.
    #[test]
    fn bounded_hash_keeps_the_bound(
        weights in prop::collection::vec(1..9_u64, 1..12),
        steps in prop::collection::vec((any::<u64>(), 0..10_u8, 0..3_u64), 1..300),
    ) {
        let settings = Settings { panic_percent: 0, ..settings(Policy::BoundedHash) };
        let mut pool = Pool::new(settings, 1, &weights);
        let mut up = vec![true; weights.len()];
        for (place, what, key) in steps {
            if what < 4 {
                pool.finish(place as usize);
                continue;
            }
            if what == 4 {
                let node = place as usize % weights.len();
                up[node] = !up[node];
                pool.handle(Event::Check { node: NodeId(node as u32), up: up[node] });
                continue;
            }
            let Some(node) = pool.pick(key) else { continue };
            let are_up = || (0..weights.len()).filter(|node| up[*node]);
            let total: u64 = are_up().map(|node| weights[node]).sum();
            let jobs: u64 = are_up().map(|node| u64::from(pool.counts.jobs(NodeId(node as u32)))).sum();
            let bound = (125 * jobs * weights[node.index()]).div_ceil(100 * total);
            prop_assert!(u64::from(pool.counts.jobs(node)) <= bound);
        }
    }
}

/// Under races too no node gets more jobs than it may, and nothing is left over.
#[test]
fn threads_share_counts() {
    let counts = Arc::new(JobCounts::new(4));
    let in_flight: [AtomicU32; 4] = Default::default();
    std::thread::scope(|scope| {
        for (thread, policy) in Policy::ALL.into_iter().enumerate().map(|(n, p)| (n as u64, p)) {
            let (counts, in_flight) = (counts.clone(), &in_flight);
            scope.spawn(move || {
                let pool = Pool::sharing(counts, settings(policy), thread, &[1, 2, 3, 4], Some(5));
                let mut scheduler: Scheduler = pool.scheduler;
                let now = Time::ZERO;
                for key in 0..2_000 {
                    let Ok(node) = scheduler.pick(now, &Job { key, avoid: &[], ..Job::default() }) else {
                        continue;
                    };
                    assert!(in_flight[node.index()].fetch_add(1, Ordering::SeqCst) < 5);
                    in_flight[node.index()].fetch_sub(1, Ordering::SeqCst);
                    scheduler.handle(now, Event::Finish { node, outcome: Outcome::Success, latency: None });
                }
            });
        }
    });
    assert!((0..4).all(|node| counts.jobs(NodeId(node)) == 0));
}

/// With several dispatchers that know of each other, the second best is picked about as often as the best.
#[test]
fn dispatchers_spread_over_the_best() {
    for nodes in [8, 80] {
        let pick = |seed| {
            let counts = Arc::new(JobCounts::new(nodes));
            (2..nodes as u32).for_each(|node| assert!(counts.reserve(NodeId(node), None)));
            assert!(counts.reserve(NodeId(2), None));
            let settings = Settings { dispatchers: 2, ..settings(Policy::LeastJobs) };
            Pool::sharing(counts, settings, seed, &vec![1; nodes], None).pick(0).unwrap().0
        };
        let mut seen = [0; 2];
        (0..200).for_each(|seed| seen[pick(seed) as usize] += 1);
        assert!(seen.iter().all(|picks| (70..130).contains(picks)), "{seen:?}");
    }
}

/// With several dispatchers that begin at once, equals are not taken in the same order.
#[test]
fn dispatchers_break_ties_apart() {
    for nodes in [32, 256] {
        let firsts: std::collections::BTreeSet<_> = (0..16)
            .map(|seed| Pool::new(settings(Policy::LeastJobs), seed, &vec![1; nodes]).pick(0))
            .collect();
        assert!(firsts.len() > 8, "{firsts:?}");
    }
}
