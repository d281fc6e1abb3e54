//! When nodes report: how often, in step or each at its own time, or with each answer.

use std::time::Duration;

use evener_scheduler::{Policy, Settings, Variant};
use evener_sim::{
    Arrivals, Dispatch, Dispatchers, Experiment, Failure, Fault, NodeGroup, Overrides, Patience, Period, Run,
    Scenario, Signals, Size, Steering, When, simulate,
};

const SEEDS: u64 = 2;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Nodes with jobs of 10 ms and dispatchers that see their own jobs only.
fn pool(load: f64, dispatchers: u16, nodes: Vec<NodeGroup>) -> Scenario {
    let cores: f64 =
        nodes.iter().map(|group| f64::from(group.count) * f64::from(group.cores) * group.speed).sum();
    Scenario {
        arrivals: Arrivals::Poisson { rate: cores * load * 100.0 },
        size: Size::Exponential { mean: ms(10) },
        duration: s(60),
        warm_up: s(10),
        nodes,
        dispatchers: Dispatchers { count: dispatchers, share_counts: false, ..Dispatchers::default() },
        hop: Duration::from_micros(100),
        patience: Patience { timeout: Some(s(5)), ..Patience::default() },
        ..Scenario::default()
    }
}

fn equal(count: u32) -> Vec<NodeGroup> {
    vec![NodeGroup { count, ..NodeGroup::default() }]
}

fn hears(scenario: &Scenario, when: When) -> Scenario {
    Scenario { signals: Signals { when, ..scenario.signals.clone() }, ..scenario.clone() }
}

fn runs(scenario: &Scenario, settings: &Settings) -> Vec<Run> {
    let dispatch = Dispatch::Scheduler(Settings { report_expiry: s(30), ..settings.clone() });
    (1..=SEEDS).map(|seed| simulate(scenario, &dispatch, seed)).collect()
}

fn mean(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(figure).sum::<f64>() / runs.len() as f64
}

fn p99_ms(runs: &[Run]) -> f64 {
    mean(runs, |run| run.response.value_at_quantile(0.99) as f64 / 1e6)
}

fn of(policy: Policy) -> Settings {
    Settings { policy, ..Settings::default() }
}

/// Reports in a second from each node to each dispatcher.
fn reports_per_s(scenario: &Scenario, runs: &[Run]) -> f64 {
    let nodes: u32 = scenario.nodes.iter().map(|group| group.count).sum();
    let pairs = f64::from(nodes) * f64::from(scenario.dispatchers.count);
    mean(runs, |run| run.reports as f64) / pairs / scenario.duration.as_secs_f64()
}

#[test]
fn all_dispatchers_move_at_once_when_reports_come_in_step() {
    let steered = Scenario {
        steering: Some(Steering::Smoothing { alpha: 1.0, dead_band: 0.0 }),
        ..pool(0.7, 4, equal(8))
    };
    let phase = Period::from(s(1));
    let [in_step, each_by_itself] = [When::Periodic { phase }, When::Continuous { phase }].map(|when| {
        let runs = runs(&hears(&steered, when), &of(Policy::WeightedRoundRobin));
        (p99_ms(&runs), mean(&runs, |run| run.imbalance))
    });
    assert!(in_step.0 > 1.2 * each_by_itself.0, "p99 {in_step:?} in step, {each_by_itself:?} else");
    assert!(in_step.1 > each_by_itself.1, "imbalance {in_step:?} in step, {each_by_itself:?} else");
}

#[test]
fn who_takes_reports_for_the_present_herds_and_who_corrects_them_does_not() {
    let scenario = pool(0.7, 4, equal(8));
    let told = hears(&scenario, When::Periodic { phase: s(1).into() });
    let without = p99_ms(&runs(&scenario, &of(Policy::LeastJobs)));
    for variant in [Variant::Least, Variant::Among] {
        let settings = Settings { variant, ..of(Policy::LoadInformed) };
        let p99 = p99_ms(&runs(&told, &settings));
        assert!(p99 > 10.0 * without, "{variant:?}: {p99} ms, {without} ms by own counts alone");
    }
    for policy in [Policy::LoadInformed, Policy::Credits, Policy::Informed] {
        let p99 = p99_ms(&runs(&told, &of(policy)));
        assert!(p99 < 1.2 * without, "{policy}: {p99} ms, {without} ms by own counts alone");
    }
}

#[test]
fn each_way_of_updating_has_its_reports() {
    let scenario = pool(0.5, 2, equal(4));
    let phase = Period::from(ms(500));
    for (when, per_s) in [
        (When::Never, 0.0),
        (When::Periodic { phase }, 2.0),
        (When::Continuous { phase }, 2.0),
        // A report with each answer, to the one dispatcher that gets it.
        (When::OnAccess, 25.0),
    ] {
        let told = hears(&scenario, when.clone());
        let found = reports_per_s(&told, &runs(&told, &of(Policy::BasicLi)));
        assert!((found - per_s).abs() <= 0.1 * per_s, "{when:?}: {found} reports a second");
    }
}

/// The mean response time at the best of some fixed periods, and with one that is chosen while it runs; and how often nodes
/// then report. The mean, since of a short run it is surer than the tail.
fn beside_the_best(scenario: &Scenario, settings: &Settings) -> (f64, f64, f64) {
    let mean_ms =
        |runs: &[Run]| mean(runs, |run| run.response_sum_nanos as f64 / run.response.len() as f64 / 1e6);
    let fixed = [ms(250), s(1), s(5)]
        .map(|phase| p99_ms(&runs(&hears(scenario, When::Continuous { phase: phase.into() }), settings)));
    let auto = hears(scenario, When::Continuous { phase: Period::Auto });
    let chosen = runs(&auto, settings);
    (fixed.into_iter().fold(f64::INFINITY, f64::min), mean_ms(&chosen), reports_per_s(&auto, &chosen))
}

/// One of eight nodes is burdened for a while.
fn burdened() -> Scenario {
    let faults = vec![Fault { what: Failure::Slow(0.3), from: s(20), to: Some(s(40)) }];
    let shared = NodeGroup { concurrency: Some(0), ..NodeGroup::default() };
    pool(0.5, 2, vec![NodeGroup { count: 7, ..shared.clone() }, NodeGroup { faults, ..shared }])
}

#[test]
fn a_period_that_is_chosen_while_it_runs_is_near_the_best() {
    let integral = Some(Steering::Integral { gain_per_s: 0.3, dead_band: None });
    for (name, settings, steering) in [
        ("job-informed", of(Policy::JobInformed), None),
        ("load-informed", of(Policy::LoadInformed), None),
        ("basic-li", of(Policy::BasicLi), None),
        ("aggressive-li", of(Policy::AggressiveLi), None),
        ("integral", of(Policy::WeightedRoundRobin), integral),
    ] {
        let scenario = Scenario { steering, ..burdened() };
        let (best, chosen, per_s) = beside_the_best(&scenario, &settings);
        assert!(chosen < 1.1 * best, "{name}: {chosen} ms, {best} ms at best, {per_s} reports a second");
    }
}

#[test]
fn where_nothing_moves_reports_are_few() {
    // So many jobs at once that their number hardly changes by chance.
    let nodes = vec![
        NodeGroup { count: 2, cores: 16, ..NodeGroup::default() },
        NodeGroup { cores: 16, speed: 0.8, ..NodeGroup::default() },
    ];
    let scenario = Scenario { duration: s(40), ..pool(0.6, 1, nodes) };
    let (best, chosen, per_s) = beside_the_best(&scenario, &of(Policy::LoadInformed));
    assert!(chosen < 1.05 * best, "{chosen} ms, {best} ms at best");
    assert!(per_s < 2.0, "{per_s} reports a second");
}

#[test]
fn reports_that_cost_much_come_seldom() {
    let mut scenario = pool(0.7, 4, equal(8));
    scenario.costs.report = ms(20);
    let auto = hears(&scenario, When::Continuous { phase: Period::Auto });
    let per_s = reports_per_s(&auto, &runs(&auto, &of(Policy::BasicLi)));
    // A fortieth of the node's time.
    assert!((1.0..1.3).contains(&per_s), "{per_s} reports a second");
}

#[test]
fn in_step_a_period_can_be_chosen_too() {
    let auto = hears(&pool(0.7, 4, equal(8)), When::Periodic { phase: Period::Auto });
    let found = runs(&auto, &of(Policy::BasicLi));
    let per_s = reports_per_s(&auto, &found);
    assert!((3.5..4.1).contains(&per_s), "{per_s} reports a second");
}

#[test]
fn the_examples_are_right() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/phase");
    let mut files = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let parsed = Experiment::parse(&text, &Overrides::default(), &mut |_| Err("no trace".into()));
        let (_, warnings) = parsed.unwrap_or_else(|errors| panic!("{}: {errors:?}", path.display()));
        assert!(warnings.is_empty(), "{}: {warnings:?}", path.display());
        files += 1;
    }
    assert_eq!(files, 10);
}
