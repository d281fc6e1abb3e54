//! The simulator against closed forms: each mean must lie within the interval of at least 10^6 jobs.

use std::time::Duration;

use evener_scheduler::{Policy, Settings};
use evener_sim::{Arrivals, Dispatch, NodeGroup, Run, Scenario, Share, Size, simulate};

const MEAN: Duration = Duration::from_millis(10);
const JOBS_PER_RUN: f64 = 110_000.0;
const RUNS: u64 = 10;
/// Student's t for 9 degrees of freedom, 99.9 % two-sided: the seeds are fixed, so it fails for a reason or never.
const T: f64 = 4.781;

/// A cluster at a utilisation between 0 and 1.
fn scenario(size: Size, nodes: NodeGroup, utilisation: f64) -> Scenario {
    let capacity = f64::from(nodes.count * nodes.cores) * nodes.speed / size_mean_s(&size);
    let rate = utilisation * capacity;
    let duration = Duration::from_secs_f64(JOBS_PER_RUN / rate);
    Scenario {
        arrivals: Arrivals::Poisson { rate },
        duration,
        warm_up: duration / 11,
        size,
        nodes: vec![nodes],
        ..Scenario::default()
    }
}

fn size_mean_s(size: &Size) -> f64 {
    size.mean_nanos() / 1e9
}

fn dispatch(policy: Policy) -> Dispatch {
    Dispatch::Scheduler(Settings { policy, ..Settings::default() })
}

fn runs(scenario: &Scenario, dispatch: &Dispatch) -> Vec<Run> {
    (0..RUNS).map(|seed| simulate(scenario, dispatch, seed)).collect()
}

/// Asserts that what is `expected` lies in the interval around the mean of the runs, and that the
/// interval is narrow enough to say something.
fn assert_mean(what: &str, expected: f64, values: impl IntoIterator<Item = f64>) {
    let values: Vec<f64> = values.into_iter().collect();
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = T * (variance / n).sqrt();
    assert!((mean - expected).abs() <= half, "{what}: {mean} ± {half}, expected {expected}");
    assert!(half < 0.12 * expected, "{what}: {mean} ± {half} says nothing");
}

fn mean_response_s(run: &Run) -> f64 {
    assert_eq!(run.done, run.arrived);
    run.response_sum_nanos as f64 / run.done as f64 / 1e9
}

fn one(cores: u32, concurrency: Option<u32>) -> NodeGroup {
    NodeGroup { cores, concurrency, ..NodeGroup::default() }
}

fn exponential() -> Size {
    Size::Exponential { mean: MEAN }
}

fn bimodal() -> Size {
    let of = [(0.9, 1), (0.1, 91)]
        .map(|(share, ms)| Share { share, size: Size::Fixed { mean: Duration::from_millis(ms) } });
    Size::Mix { of: of.to_vec() }
}

#[test]
fn m_m_1() {
    let runs = runs(&scenario(exponential(), one(1, None), 0.7), &dispatch(Policy::RoundRobin));
    let mean = 0.01 / 0.3;
    assert_mean("mean", mean, runs.iter().map(mean_response_s));
    // The response time is exponential itself.
    let p95 = mean * 20_f64.ln();
    assert_mean("p95", p95, runs.iter().map(|run| run.response.value_at_quantile(0.95) as f64 / 1e9));
    assert_mean("utilisation", 0.7, runs.iter().map(|run| run.nodes[0].utilisation));
    assert_mean("jobs", 0.7 / 0.3, runs.iter().map(|run| run.nodes[0].jobs_mean));
}

#[test]
fn m_m_c() {
    for (cores, utilisation) in [(2, 0.8), (8, 0.9)] {
        let runs =
            runs(&scenario(exponential(), one(cores, None), utilisation), &dispatch(Policy::RoundRobin));
        let c = f64::from(cores);
        let offered = c * utilisation;
        let mut term = 1.0;
        let mut sum = 0.0;
        for k in 0..cores {
            sum += term;
            term *= offered / f64::from(k + 1);
        }
        let waits = term / (1.0 - utilisation) / (sum + term / (1.0 - utilisation));
        let expected = 0.01 + waits * 0.01 / (c * (1.0 - utilisation));
        assert_mean("mean", expected, runs.iter().map(mean_response_s));
    }
}

#[test]
fn m_g_1_in_order() {
    let lognormal = Size::Lognormal { mean: MEAN, cv: 1.5 };
    for (size, cv_squared) in [(Size::Fixed { mean: MEAN }, 0.0), (lognormal, 2.25), (bimodal(), 7.29)] {
        let runs = runs(&scenario(size, one(1, None), 0.6), &dispatch(Policy::RoundRobin));
        let wait = 0.6 / 0.4 * (1.0 + cv_squared) / 2.0 * 0.01;
        assert_mean("mean", 0.01 + wait, runs.iter().map(mean_response_s));
    }
}

#[test]
fn m_g_1_shared() {
    // The mean depends on the mean size alone, whatever the distribution.
    for size in
        [Size::Fixed { mean: MEAN }, exponential(), Size::Lognormal { mean: MEAN, cv: 2.16 }, bimodal()]
    {
        let runs = runs(&scenario(size, one(1, Some(0)), 0.7), &dispatch(Policy::RoundRobin));
        assert_mean("mean", 0.01 / 0.3, runs.iter().map(mean_response_s));
    }
}

#[test]
fn random_splitting() {
    let nodes = NodeGroup { count: 10, ..NodeGroup::default() };
    let runs = runs(&scenario(exponential(), nodes, 0.8), &dispatch(Policy::Random));
    assert_mean("mean", 0.01 / 0.2, runs.iter().map(mean_response_s));
}

#[test]
fn two_choices_have_the_tail_of_jsq_2() {
    let nodes = NodeGroup { count: 500, ..NodeGroup::default() };
    let mut scenario = scenario(exponential(), nodes, 0.9);
    // It takes a while to fill so many nodes.
    scenario.duration *= 4;
    scenario.warm_up = scenario.duration / 2;
    let runs = runs(&scenario, &dispatch(Policy::TwoChoices));
    // For many nodes, the share of those with k jobs or more is ρ^(2^k − 1).
    let share = |run: &Run, k: u32| {
        let steps = run.series.jobs.len() / 500;
        let warm = &run.series.jobs[steps / 2 * 500..];
        warm.iter().filter(|jobs| **jobs >= k).count() as f64 / warm.len() as f64
    };
    for k in 1..=4 {
        let expected = 0.9_f64.powi((1 << k) - 1);
        let measured = runs.iter().map(|run| share(run, k)).sum::<f64>() / RUNS as f64;
        assert!((measured / expected - 1.0).abs() < 0.03, "{k}: {measured}, expected {expected}");
    }
    let expected: f64 = (1..=6).map(|i| 0.9_f64.powi((1 << i) - 2)).sum::<f64>() * 0.01;
    let measured = runs.iter().map(mean_response_s).sum::<f64>() / RUNS as f64;
    assert!((measured / expected - 1.0).abs() < 0.02, "{measured}, expected {expected}");
}
