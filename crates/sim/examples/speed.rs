//! How fast clusters are simulated: `cargo run --release -p evener-sim --example speed`.

use std::thread;
use std::time::{Duration, Instant};

use evener_scheduler::{Policy, Settings};
use evener_sim::{Arrivals, Dispatch, Dispatchers, NodeGroup, Run, Scenario, Size, simulate};

fn scenario(nodes: u32, dispatchers: u16, jobs: u64) -> Scenario {
    let rate = 80.0 * f64::from(nodes);
    Scenario {
        arrivals: Arrivals::Poisson { rate },
        size: Size::Exponential { mean: Duration::from_millis(10) },
        duration: Duration::from_secs_f64(jobs as f64 / rate),
        nodes: vec![NodeGroup { count: nodes, ..NodeGroup::default() }],
        dispatchers: Dispatchers { count: dispatchers, share_counts: false, ..Dispatchers::default() },
        ..Scenario::default()
    }
}

fn say(what: &str, runs: &[Run], elapsed: Duration) {
    let events: u64 = runs.iter().map(|run| run.events).sum();
    let jobs: u64 = runs.iter().map(|run| run.arrived).sum();
    let million_per_s = events as f64 / elapsed.as_secs_f64() / 1e6;
    println!("{what}: {jobs} jobs, {events} events in {elapsed:.2?}: {million_per_s:.2} million a second");
}

fn main() {
    let two_choices = Dispatch::Scheduler(Settings { policy: Policy::TwoChoices, ..Settings::default() });
    let small = scenario(16, 1, 5_000_000);
    for _ in 0..3 {
        let begun = Instant::now();
        let run = simulate(&small, &two_choices, 1);
        say("16 nodes, 1 dispatcher, 1 core", &[run], begun.elapsed());
    }
    let large = scenario(1000, 64, 5_000_000);
    let begun = Instant::now();
    let runs: Vec<Run> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|seed| {
                scope.spawn({
                    let (large, two_choices) = (&large, &two_choices);
                    move || simulate(large, two_choices, seed)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    say("1,000 nodes, 64 dispatchers, 2 cores", &runs, begun.elapsed());
}
