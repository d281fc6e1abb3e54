//! How often reports are asked for: driven by pools whose loads move as the test says.

use std::time::Duration;

use evener_feedback::phase::{Phase, Settings};
use evener_model::{Health, NodeId, Report, Time};
use proptest::prelude::*;

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);

/// Numbers that a seed determines.
struct Chance(u64);

impl Chance {
    /// Evenly from −1 to 1.
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }
}

/// A pool of which each node reports when the period since its last report is over.
struct Pool {
    phase: Phase,
    now: Time,
    due: Vec<Time>,
    reports: usize,
}

impl Pool {
    fn new(nodes: u64, settings: Settings) -> Pool {
        let due = (0..nodes).map(|node| Time::from_nanos(1 + node * 1_000_000)).collect();
        Pool { phase: Phase::new(settings), now: Time::ZERO, due, reports: 0 }
    }

    fn period(&self) -> Duration {
        self.phase.period(self.now)
    }

    /// Goes on for so long; `load` says what a node reports at a second.
    fn run(&mut self, seconds: f64, mut load: impl FnMut(usize, f64) -> f64) {
        let end = self.now + Duration::from_secs_f64(seconds);
        loop {
            let (node, due) = self.due.iter().copied().enumerate().min_by_key(|(_, due)| *due).unwrap();
            if due >= end {
                self.now = end;
                return;
            }
            self.now = due;
            let load = load(node, due.as_nanos() as f64 / 1e9) as f32;
            let report = Report { measured_at: due, load: Some(load), ..Report::default() };
            self.phase.reported(due, NodeId(node as u32), &report);
            self.reports += 1;
            self.due[node] = due + self.period();
            let soon = due + self.period();
            self.due.iter_mut().for_each(|due| *due = (*due).min(soon));
        }
    }
}

fn pool(nodes: u64) -> Pool {
    Pool::new(nodes, Settings::default())
}

#[test]
fn it_begins_with_a_second() {
    assert_eq!(pool(4).period(), Duration::from_secs(1));
}

#[test]
fn loads_that_stay_are_asked_for_seldom_however_unequal() {
    let mut pool = pool(4);
    pool.run(300.0, |node, _| 0.2 * node as f64);
    assert_eq!(pool.period(), LONGEST);
    let before = pool.reports;
    pool.run(80.0, |node, _| 0.2 * node as f64);
    assert!(pool.reports - before <= 4 * 11, "{}", pool.reports - before);
}

#[test]
fn loads_that_move_are_followed() {
    for seed in 0..8 {
        let mut chance = Chance(seed);
        let mut pool = pool(4);
        pool.run(120.0, |_, _| 0.5 + 0.3 * chance.next());
        assert_eq!(pool.period(), SHORTEST, "seed {seed}");
    }
}

#[test]
fn the_faster_loads_move_the_shorter_the_period() {
    // Nodes swing by 0.2 about the mean, each at its own time.
    let period_s = |swing_s: f64| {
        let mut pool = pool(4);
        let (mut sum, mut seconds) = (0.0, 0.0);
        for _ in 0..60 {
            pool.run(10.0, |node, s| {
                0.5 + 0.2 * ((s / swing_s + node as f64 / 4.0) * std::f64::consts::TAU).sin()
            });
            (sum, seconds) = (sum + pool.period().as_secs_f64(), seconds + 1.0);
        }
        sum / seconds
    };
    let periods = [10.0, 60.0, 300.0].map(period_s);
    assert!(periods[0] < periods[1] && periods[1] < periods[2], "{periods:?}");
    // A tolerance of 0.05 is a fortieth of a swing's way, about.
    assert!(periods[1] <= 2.0 && periods[2] >= 2.0, "{periods:?}");
}

#[test]
fn news_is_followed_at_once_and_forgotten_after() {
    let mut pool = pool(4);
    pool.run(300.0, |_, _| 0.3);
    let hogged = |node: usize, _: f64| if node == 2 { 0.9 } else { 0.3 };
    // The first report that tells it comes within a period.
    pool.run(8.1, hogged);
    assert!(pool.period() <= 2 * SHORTEST, "{:?}", pool.period());
    pool.run(120.0, hogged);
    assert_eq!(pool.period(), LONGEST);
}

#[test]
fn the_whole_pool_moving_alike_is_no_news() {
    let mut pool = pool(4);
    // Within a report's time of one another.
    pool.run(900.0, |_, s| 0.5 + 0.3 * (s / 600.0 * std::f64::consts::TAU).sin());
    assert!(pool.period() >= Duration::from_secs(4), "{:?}", pool.period());
}

#[test]
fn one_node_has_nobody_to_be_compared_with() {
    let mut chance = Chance(1);
    let mut pool = pool(1);
    pool.run(300.0, |_, _| 0.5 + 0.5 * chance.next());
    assert_eq!(pool.period(), LONGEST);
}

#[test]
fn many_nodes_share_the_budget() {
    let mut chance = Chance(1);
    let settings = Settings { reports_per_s_max: 100.0, ..Settings::default() };
    let mut pool = Pool::new(300, settings);
    pool.run(60.0, |_, _| 0.5 + 0.5 * chance.next());
    assert_eq!(pool.period(), Duration::from_secs(3));
    let before = pool.reports;
    pool.run(60.0, |_, _| 0.5 + 0.5 * chance.next());
    assert!(pool.reports - before <= 6300, "{}", pool.reports - before);
}

#[test]
fn a_liar_costs_reports_and_no_more() {
    for seed in 0..4 {
        let mut chance = Chance(seed);
        let mut pool = pool(4);
        pool.run(120.0, |node, _| if node == 0 { chance.next() * 1e30 } else { 0.3 });
        assert!(pool.period() >= SHORTEST, "seed {seed}");
        // Once it is silent, and gone, the others have what they had without it.
        pool.due.remove(0);
        pool.run(900.0, |_, _| 0.3);
        assert_eq!(pool.period(), LONGEST, "seed {seed}");
    }
}

#[test]
fn old_and_repeated_reports_change_nothing() {
    let mut pool = pool(4);
    pool.run(300.0, |_, _| 0.3);
    let (now, period) = (pool.now, pool.period());
    for measured_at in [now, Time::from_nanos(1), Time::ZERO] {
        let report = Report { measured_at, load: Some(0.3), ..Report::default() };
        pool.phase.reported(now, NodeId(0), &report);
        let wild = Report { load: Some(2.0), ..report };
        pool.phase.reported(now, NodeId(0), &wild);
    }
    assert_eq!(pool.period(), period);
}

#[test]
fn after_silence_it_begins_anew() {
    let mut pool = pool(4);
    pool.run(300.0, |_, _| 0.3);
    let later = pool.now + Duration::from_secs(60);
    assert_eq!(pool.phase.period(later), Duration::from_secs(1));
}

#[test]
fn it_rests_where_loads_neither_rest_nor_move_much() {
    for seed in 0..8 {
        let mut chance = Chance(seed);
        let mut pool = pool(8);
        let mut changes = 0;
        for _ in 0..300 {
            let before = pool.period();
            pool.run(2.0, |_, _| 0.5 + 0.055 * chance.next());
            changes += u32::from(pool.period() != before);
        }
        assert!(changes < 60, "seed {seed}: {changes} changes in ten minutes");
    }
}

proptest! {
    #[test]
    fn whatever_is_said_the_period_stays_in_its_bounds(
        said in prop::collection::vec((0..6_u32, any::<f32>(), any::<Option<u32>>(), any::<Option<u8>>(), 0..20_000_u64, any::<u64>()), 1..400),
        shortest_ms in 0..2_000_u64,
        longest_ms in 0..60_000_u64,
        budget in prop_oneof![Just(0.0), Just(f64::NAN), Just(-1.0), 0.1..1e6_f64],
    ) {
        let settings = Settings {
            shortest: Duration::from_millis(shortest_ms),
            longest: Duration::from_millis(longest_ms),
            reports_per_s_max: budget,
            tolerance: 0.05,
        };
        let mut phase = Phase::new(settings);
        let mut now = Time::ZERO;
        for (node, load, jobs, health, ms, measured) in said {
            now += Duration::from_millis(ms);
            let report = Report {
                measured_at: Time::from_nanos(measured % (2 * now.as_nanos() + 1)),
                load: Some(load),
                jobs,
                health: health.map(|health| Health::saturating(health.min(100))),
                ..Report::default()
            };
            phase.reported(now, NodeId(node), &report);
            let period = phase.period(now);
            prop_assert!(period >= Duration::from_millis(shortest_ms.max(1)));
            prop_assert!(period <= Duration::from_secs(3600).max(Duration::from_millis(longest_ms)));
        }
    }

    #[test]
    fn within_a_budget_the_longest_period_is_kept(loads in prop::collection::vec(0.0..1.0_f64, 1..200)) {
        let mut pool = pool(3);
        for load in loads {
            pool.run(1.0, |node, _| load * node as f64 / 3.0);
            prop_assert!((SHORTEST..=LONGEST).contains(&pool.period()));
        }
    }
}
