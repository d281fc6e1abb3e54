//! Policies that listen to nodes, with several dispatchers that hear the same.

use std::collections::VecDeque;
use std::time::Duration;

use evener_model::{Event, NodeId, Outcome, Report};
use evener_scheduler::{Policy, Settings, Variant};

use crate::pool::{Pool, settings};

const NODES: usize = 8;
const DISPATCHERS: u64 = 8;
/// Each dispatcher places a job a tick, which takes three ticks; nodes report every so many ticks.
const TICK: Duration = Duration::from_millis(10);
const WINDOW: u32 = 100;

/// The picks of the most picked node between two reports over the mean of all, at its worst; the first few reports
/// do not count.
fn worst_crowd(settings: &Settings) -> f64 {
    let mut pools: Vec<Pool> =
        (0..DISPATCHERS).map(|seed| Pool::new(settings.clone(), seed, &[1; NODES])).collect();
    let mut in_flight: Vec<VecDeque<NodeId>> = vec![VecDeque::new(); pools.len()];
    let mut worst = 0.0_f64;
    for window in 0..40_u32 {
        let mut picks = [0_u32; NODES];
        for tick in 0..WINDOW {
            for (pool, jobs) in pools.iter_mut().zip(&mut in_flight) {
                pool.now += TICK;
                let node = pool.pick(u64::from(tick)).unwrap();
                picks[node.index()] += 1;
                jobs.push_back(node);
                if jobs.len() > 3 {
                    let node = jobs.pop_front().unwrap();
                    let latency = Some(3 * TICK);
                    pool.handle(Event::Finish { node, outcome: Outcome::Success, latency });
                }
            }
        }
        let mean = f64::from(WINDOW) * DISPATCHERS as f64 / NODES as f64;
        if window >= 15 {
            worst = worst.max(f64::from(*picks.iter().max().unwrap()) / mean);
        }
        for (node, picks) in (0..).map(NodeId).zip(picks) {
            let jobs = in_flight.iter().flatten().filter(|other| **other == node).count() as u32;
            // With a little chance in it, as measurements have.
            let chance = f64::from((node.0 * 7 + window * 3) % 11) / 100.0;
            let report = Report {
                measured_at: pools[0].now,
                jobs: Some(jobs),
                load: Some((0.7 * f64::from(picks) / mean + chance).min(1.0) as f32),
                health: None,
                credits: Some(20_u32.saturating_sub(jobs)),
                jobs_per_s: Some(picks as f32),
                errors_per_s: Some(0.0),
                latency: Some(TICK * (jobs + 1)),
            };
            for pool in &mut pools {
                pool.handle(Event::Report { node, report });
            }
        }
    }
    worst
}

#[test]
fn dispatchers_do_not_run_after_reports() {
    for policy in [
        Policy::JobInformed,
        Policy::LoadInformed,
        Policy::BasicLi,
        Policy::AggressiveLi,
        Policy::OrcaWeighted,
        Policy::Prequal,
    ] {
        let worst = worst_crowd(&settings(policy));
        assert!(worst < 2.0, "{policy}: {worst}");
    }
    // What this would show if they did.
    let least = Settings { variant: Variant::Least, ..settings(Policy::LoadInformed) };
    assert!(worst_crowd(&least) > 4.0);
}
