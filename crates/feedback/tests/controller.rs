//! Weight controllers in a closed loop with a small model of unequal nodes.

use std::time::Duration;

use evener_feedback::controller::{Controller, Ignored, Law, Settings};
use evener_model::{Health, NodeId, Report, Time, Weight};
use proptest::prelude::*;

/// What a node says.
#[derive(Clone, Copy, PartialEq)]
enum Agent {
    Honest,
    Says(u8),
    Silent,
}

/// A node that is busy in proportion to its jobs, and with other things.
#[derive(Clone, Copy)]
struct Toy {
    /// Jobs in a second that fill it.
    speed: f64,
    /// Load of other work.
    other: f64,
    /// The load as it is measured: a moving average.
    measured: f64,
    agent: Agent,
}

fn toy(speed: f64) -> Toy {
    Toy { speed, other: 0.0, measured: 0.0, agent: Agent::Honest }
}

struct Loop {
    controller: Controller,
    nodes: Vec<Toy>,
    jobs_per_s: f64,
    /// Time constant of the nodes' averages.
    average_s: f64,
    now: Time,
    weights: Vec<(NodeId, Weight)>,
}

impl Loop {
    fn new(settings: Settings, configured: u64, nodes: &[Toy], jobs_per_s: f64) -> Loop {
        let weight = Weight::new(configured).unwrap();
        let pool: Vec<_> = (0..nodes.len() as u32).map(|id| (NodeId(id), weight)).collect();
        let mut controller = Controller::new(settings, &pool);
        let mut weights = Vec::new();
        controller.weights(Time::ZERO, &mut weights);
        let now = Time::from_nanos(1_000_000_000);
        Loop { controller, nodes: nodes.to_vec(), jobs_per_s, average_s: 1.0, now, weights }
    }

    fn share(&self, node: usize) -> f64 {
        let sum: u32 = self.weights.iter().map(|(_, weight)| weight.value()).sum();
        f64::from(self.weights[node].1.value()) / f64::from(sum)
    }

    fn load(&self, node: usize) -> f64 {
        let toy = &self.nodes[node];
        (toy.other + self.jobs_per_s * self.share(node) / toy.speed).min(1.0)
    }

    /// The difference between the most and the least loaded node.
    fn gap(&self) -> f64 {
        let loads: Vec<f64> = (0..self.nodes.len()).map(|node| self.load(node)).collect();
        loads.iter().copied().fold(0.0, f64::max) - loads.iter().copied().fold(1.0, f64::min)
    }

    fn run(&mut self, seconds: u32) {
        for _ in 0..seconds {
            self.second();
        }
    }

    /// A second: loads change, nodes report one after the other.
    fn second(&mut self) {
        let part = Duration::from_nanos(1_000_000_000 / self.nodes.len() as u64);
        for node in 0..self.nodes.len() {
            let load = self.load(node);
            let toy = &mut self.nodes[node];
            toy.measured += (load - toy.measured) * (1.0 / self.average_s).min(1.0);
            self.now += part;
            let health = match toy.agent {
                Agent::Honest => Health::saturating((100.0 * (1.0 - toy.measured)).max(1.0) as u8),
                Agent::Says(health) => Health::saturating(health),
                Agent::Silent => continue,
            };
            let report = Report { measured_at: self.now, health: Some(health), ..Report::default() };
            let (now, id) = (self.now, NodeId(node as u32));
            self.controller.reported(now, id, &report).expect("a good report");
            self.controller.weights(now, &mut self.weights);
        }
        self.controller.weights(self.now, &mut self.weights);
    }

    fn values(&self) -> Vec<u32> {
        self.weights.iter().map(|(_, weight)| weight.value()).collect()
    }
}

fn settings(law: Law) -> Settings {
    Settings { law, ..Settings::default() }
}

fn integral() -> Settings {
    settings(Law::Integral { gain_per_s: 0.2 })
}

fn smoothing() -> Settings {
    settings(Law::Smoothing { alpha: 0.3 })
}

#[test]
fn integral_closes_the_gap_that_smoothing_leaves() {
    // One of four equal nodes has work of another kind.
    let mut nodes = [toy(100.0); 4];
    nodes[0].other = 0.5;
    let gaps = [Law::Off, Law::Smoothing { alpha: 0.3 }, Law::Integral { gain_per_s: 0.2 }].map(|law| {
        let mut pool = Loop::new(settings(law), 1, &nodes, 200.0);
        pool.run(300);
        pool.gap()
    });
    assert!(gaps[0] > 0.49, "without feedback nothing changes: {gaps:?}");
    assert!(gaps[1] < gaps[0] - 0.1 && gaps[1] > 0.2, "smoothing droops: {gaps:?}");
    assert!(gaps[2] < 0.08, "the integral closes it: {gaps:?}");
}

#[test]
fn integral_settles_and_then_rests() {
    for average_s in [1.0, 2.0, 3.0] {
        let nodes = [toy(50.0), toy(100.0), toy(100.0), toy(180.0)];
        let mut pool = Loop::new(integral(), 1, &nodes, 300.0);
        pool.average_s = average_s;
        pool.run(200);
        let settled = pool.values();
        for _ in 0..300 {
            pool.second();
            assert!(
                pool.gap() < 0.1,
                "average over {average_s} s: gap {:.3}, {:?}",
                pool.gap(),
                pool.values()
            );
            for (now, then) in pool.values().iter().zip(&settled) {
                let moved = f64::from(now.abs_diff(*then)) / f64::from(*then);
                assert!(moved < 0.06, "average over {average_s} s: {settled:?} became {:?}", pool.values());
            }
        }
    }
}

#[test]
fn smoothing_settles_and_then_rests() {
    let mut pool = Loop::new(smoothing(), 1, &[toy(60.0), toy(100.0), toy(140.0)], 150.0);
    pool.run(100);
    let settled = pool.values();
    for _ in 0..200 {
        pool.second();
        for (now, then) in pool.values().iter().zip(&settled) {
            assert!(now.abs_diff(*then) <= 3, "{settled:?} became {:?}", pool.values());
        }
    }
}

/// The loop with a new controller, as after a restart of the director; nodes have reported to it.
fn restarted(mut pool: Loop, settings: Settings, configured: u64, resumes: bool) -> Loop {
    let weight = Weight::new(configured).unwrap();
    let nodes: Vec<_> = pool.weights.iter().map(|(id, _)| (*id, weight)).collect();
    let before = pool.weights.clone();
    pool.controller = Controller::new(settings, &nodes);
    for node in 0..nodes.len() {
        let health = Some(Health::saturating((100.0 * (1.0 - pool.nodes[node].measured)).max(1.0) as u8));
        let report = Report { measured_at: pool.now, health, ..Report::default() };
        pool.controller.reported(pool.now, NodeId(node as u32), &report).expect("a good report");
    }
    if resumes {
        pool.controller.resume(pool.now, &before);
    }
    pool.controller.weights(pool.now, &mut pool.weights);
    pool
}

#[test]
fn a_new_controller_goes_on_where_the_last_one_was() {
    let nodes = [toy(50.0), toy(100.0), toy(100.0), toy(180.0)];
    let moved = |settings: Settings, resumes| {
        let mut pool = Loop::new(settings, 5, &nodes, 300.0);
        pool.run(200);
        let before: Vec<f64> = (0..nodes.len()).map(|node| pool.share(node)).collect();
        let mut pool = restarted(pool, settings, 5, resumes);
        let mut most: f64 = 0.0;
        for _ in 0..60 {
            for (node, share) in before.iter().enumerate() {
                most = most.max((pool.share(node) / share - 1.0).abs());
            }
            pool.second();
        }
        most
    };
    for settings in [integral(), smoothing()] {
        let (resumed, anew) = (moved(settings, true), moved(settings, false));
        assert!(
            resumed < 0.15 && anew > 0.3,
            "{:?}: {resumed:.2}, and {anew:.2} from the start",
            settings.law
        );
    }
}

#[test]
fn what_is_resumed_is_bound_as_all_weights_are() {
    let weights = |weights: [u64; 3]| {
        let of = |(id, weight): (usize, u64)| (NodeId(id as u32), Weight::new(weight).unwrap());
        weights.into_iter().enumerate().map(of).collect::<Vec<_>>()
    };
    for law in [smoothing(), integral()] {
        let pool = Loop::new(law, 1, &[toy(100.0); 3], 150.0);
        let mut pool = restarted(pool, law, 1, false);
        pool.controller.resume(pool.now, &weights([256, 1, 0]));
        pool.controller.weights(pool.now, &mut pool.weights);
        let values = pool.values();
        assert!(values[1] >= 1 && values[0] <= 256 && values[2] >= 1, "{:?}: {values:?}", law.law);
        pool.run(400);
        assert!(pool.gap() < 0.1, "{:?}: {:?}", law.law, pool.values());
    }
    let mut off = Loop::new(settings(Law::Off), 3, &[toy(100.0); 3], 150.0);
    off.controller.resume(off.now, &weights([1, 2, 3]));
    off.controller.weights(off.now, &mut off.weights);
    assert_eq!(off.values(), [3, 3, 3]);
}

#[test]
fn weights_move_back_when_the_burden_is_gone() {
    let mut pool = Loop::new(integral(), 5, &[toy(100.0); 4], 200.0);
    pool.nodes[0].other = 0.6;
    pool.run(120);
    assert!(pool.share(0) < 0.15, "{:?}", pool.values());
    pool.nodes[0].other = 0.0;
    pool.run(180);
    assert!((0.22..0.28).contains(&pool.share(0)), "{:?}", pool.values());
}

#[test]
fn a_node_that_always_says_100_draws_little_more_than_its_share() {
    let mut nodes = [toy(100.0); 4];
    nodes[2].agent = Agent::Says(100);
    let mut pool = Loop::new(integral(), 1, &nodes, 280.0);
    let mut sum = 0.0;
    for _ in 0..1800 {
        pool.second();
        sum += pool.share(2);
        assert!(pool.share(2) < 0.39, "half more than its share: {:?}", pool.values());
    }
    let mean = sum / 1800.0;
    assert!(mean < 0.28, "{mean:.3} of the jobs");
    // Smoothing believes it, but by no more than health is worth.
    let mut pool = Loop::new(smoothing(), 1, &nodes, 280.0);
    pool.run(600);
    assert!(pool.share(2) < 0.6, "{:?}", pool.values());
}

#[test]
fn a_node_gets_no_more_than_its_odds_however_fast_it_is() {
    let mut nodes = [toy(100.0); 4];
    nodes[1].speed = 1000.0;
    for (odds_max, share) in [(3.0, 0.5), (6.0, 0.667)] {
        let mut pool = Loop::new(Settings { odds_max, ..integral() }, 1, &nodes, 300.0);
        pool.run(600);
        assert!((share - 0.03..share + 0.02).contains(&pool.share(1)), "{:?}", pool.values());
    }
}

#[test]
fn a_node_that_always_says_0_gets_nothing_and_the_others_go_on() {
    for settings in [integral(), smoothing(), settings(Law::Off)] {
        let mut nodes = [toy(100.0); 4];
        nodes[1].agent = Agent::Says(0);
        let mut pool = Loop::new(settings, 1, &nodes, 200.0);
        pool.second();
        assert_eq!(pool.values()[1], 0, "at once");
        pool.run(200);
        assert_eq!(pool.values()[1], 0);
        for node in [0, 2, 3] {
            assert!((0.3..0.37).contains(&pool.share(node)), "{:?}", pool.values());
        }
    }
}

#[test]
fn refusals_of_most_nodes_are_not_followed() {
    let mut nodes = [toy(100.0); 4];
    for liar in &mut nodes[..3] {
        liar.agent = Agent::Says(0);
    }
    let mut pool = Loop::new(integral(), 1, &nodes, 100.0);
    pool.run(5);
    assert!(pool.values().iter().all(|&weight| weight > 0), "{:?}", pool.values());
    pool.nodes[0].agent = Agent::Honest;
    pool.second();
    assert_eq!(pool.values()[1..3], [0, 0], "half of them is enough");
}

#[test]
fn a_node_that_always_says_1_keeps_the_least_weight() {
    let mut nodes = [toy(100.0); 4];
    nodes[3].agent = Agent::Says(1);
    for settings in [integral(), smoothing()] {
        let mut pool = Loop::new(settings, 1, &nodes, 200.0);
        pool.run(900);
        assert!(pool.values()[3] >= 1 && pool.share(3) < 0.04, "{:?}", pool.values());
        assert!(pool.nodes[..3].iter().all(|node| node.measured < 0.7));
    }
}

#[test]
fn a_silent_node_has_its_configured_share_after_the_expiry() {
    for settings in [integral(), smoothing()] {
        let mut pool = Loop::new(settings, 3, &[toy(50.0), toy(100.0), toy(100.0), toy(100.0)], 200.0);
        pool.run(200);
        let before = pool.share(0);
        assert!(before < 0.22, "{:?}", pool.values());
        pool.nodes[0].agent = Agent::Silent;
        pool.run(9);
        assert!((pool.share(0) - before).abs() < 0.02, "what it said is still believed: {:?}", pool.values());
        pool.run(2);
        assert!((0.24..0.26).contains(&pool.share(0)), "{:?}", pool.values());
    }
}

#[test]
fn when_all_are_silent_weights_are_as_configured() {
    for settings in [integral(), smoothing()] {
        let configured = [3, 7, 0, 19].map(|weight| Weight::new(weight).unwrap());
        let pool: Vec<_> = (0..).map(NodeId).zip(configured).collect();
        let mut controller = Controller::new(settings, &pool);
        let second = |seconds: u64| Time::from_nanos(seconds * 1_000_000_000);
        for now in 1..60 {
            for (node, load) in [(0, 0.9), (1, 0.2), (3, 0.4)] {
                let report = Report { measured_at: second(now), load: Some(load), ..Report::default() };
                controller.reported(second(now), NodeId(node), &report).unwrap();
            }
        }
        let mut weights = Vec::new();
        controller.weights(second(59), &mut weights);
        assert_ne!(weights[0].1.value() * 7, weights[1].1.value() * 3, "{weights:?}");
        assert_eq!(controller.next_expiry(second(59)), Some(second(69)));
        controller.weights(second(69), &mut weights);
        let values: Vec<_> = weights.iter().map(|(_, weight)| weight.value()).collect();
        let unit = values[0] / 3;
        assert_eq!(values, [3 * unit, 7 * unit, 0, 19 * unit]);
        assert_eq!(controller.next_expiry(second(69)), None);
    }
}

#[test]
fn smoothing_is_what_it_says() {
    let settings =
        Settings { step_per_s_max: 1.0, dead_band: 0.0, ..settings(Law::Smoothing { alpha: 0.5 }) };
    let mut controller = Controller::new(settings, &[(NodeId(0), Weight::DEFAULT)]);
    let mut weights = Vec::new();
    let mut seen = Vec::new();
    for (second, health) in [(1, 100), (2, 50), (3, 50), (4, 0), (5, 80), (6, 1)] {
        let now = Time::from_nanos(second * 1_000_000_000);
        let report =
            Report { measured_at: now, health: Some(Health::saturating(health)), ..Report::default() };
        controller.reported(now, NodeId(0), &report).unwrap();
        controller.weights(now, &mut weights);
        seen.push(weights[0].1.value());
    }
    // 100, (50 + 100)/2, (50 + 75)/2, 0: alone it is not let go; (80 + 1)/2, (1 + 40.5)/2.
    assert_eq!(seen, [100, 75, 63, 1, 41, 21]);
}

#[test]
fn a_weight_moves_no_faster_than_the_step_limit() {
    let mut pool = Loop::new(smoothing(), 1, &[toy(100.0); 2], 20.0);
    pool.nodes[0].agent = Agent::Says(1);
    let mut before = pool.values()[0];
    for _ in 0..20 {
        pool.second();
        assert!(before.abs_diff(pool.values()[0]) <= 11, "from {before} to {:?}", pool.values());
        before = pool.values()[0];
    }
    assert!(before < 10);
    // Many reports in a second move no further than one.
    let mut controller =
        Controller::new(smoothing(), &[(NodeId(0), Weight::DEFAULT), (NodeId(1), Weight::DEFAULT)]);
    let mut weights = Vec::new();
    for milli in 0..1000 {
        let now = Time::from_nanos(1_000_000_000 + milli * 1_000_000);
        let report = Report { measured_at: now, health: Some(Health::saturating(1)), ..Report::default() };
        controller.reported(now, NodeId(0), &report).unwrap();
        controller.weights(now, &mut weights);
    }
    assert!(weights[0].1.value() >= 89, "{weights:?}");
}

/// Reports of two nodes once a second; the weights after each.
fn weights_of(settings: Settings, reports: impl Iterator<Item = (u8, u8)>) -> Vec<(u32, u32)> {
    let mut controller =
        Controller::new(settings, &[(NodeId(0), Weight::DEFAULT), (NodeId(1), Weight::DEFAULT)]);
    let (mut weights, mut now) = (Vec::new(), Time::ZERO);
    let each = reports.map(|(first, second)| {
        now += Duration::from_secs(1);
        say(&mut controller, now, 0, first);
        say(&mut controller, now, 1, second);
        controller.weights(now, &mut weights);
        (weights[0].1.value(), weights[1].1.value())
    });
    each.collect()
}

#[test]
fn what_is_within_the_dead_band_moves_nothing() {
    let even = weights_of(integral(), (0..300).map(|_| (50, 45)));
    assert!(even.iter().all(|weights| *weights == (100, 100)), "off the mean by 0.025: {even:?}");
    let quick = Settings { dead_band: 0.05, ..settings(Law::Smoothing { alpha: 1.0 }) };
    let steady = weights_of(quick, (0..300_u32).map(|second| (60 + (second % 4) as u8, 97)));
    assert!(steady[100..].iter().all(|weights| *weights == steady[100]), "{steady:?}");
}

#[test]
fn the_integral_moves_no_faster_than_the_step_limit() {
    let fast = settings(Law::Integral { gain_per_s: 1.0 });
    let weights = weights_of(fast, (0..5).map(|_| (1, 100)));
    let ratio = |(first, second): (u32, u32)| f64::from(second) / f64::from(first);
    for pair in weights.windows(2) {
        let grown = ratio(pair[1]) / ratio(pair[0]);
        assert!((1.0..1.27).contains(&grown), "one down and the other up by a tenth: {weights:?}");
    }
}

#[test]
fn a_node_that_was_full_for_long_comes_back() {
    let mut nodes = [toy(100.0); 4];
    nodes[3].agent = Agent::Says(1);
    let mut pool = Loop::new(integral(), 1, &nodes, 200.0);
    pool.run(900);
    pool.nodes[3].agent = Agent::Honest;
    pool.run(120);
    assert!(pool.share(3) > 0.2, "{:?}", pool.values());
}

#[test]
fn a_node_that_does_not_answer_is_tried_ever_more_rarely() {
    let mut nodes = [toy(100.0); 4];
    nodes[2].agent = Agent::Says(100);
    let mut pool = Loop::new(integral(), 1, &nodes, 280.0);
    let (mut tries, mut high) = (0, false);
    for _ in 0..3600 {
        pool.second();
        let now_high = pool.share(2) > 0.32;
        tries += u32::from(now_high && !high);
        high = now_high;
    }
    assert!((2..=8).contains(&tries), "{tries} in an hour");
}

/// A controller of two nodes, the first of which has said for a while that it is full.
fn lowered() -> (Controller, Vec<(NodeId, Weight)>, Time) {
    let mut controller =
        Controller::new(smoothing(), &[(NodeId(0), Weight::DEFAULT), (NodeId(1), Weight::DEFAULT)]);
    let mut now = Time::ZERO;
    for _ in 0..60 {
        now += Duration::from_secs(1);
        for (node, health) in [(0, 20), (1, 100)] {
            say(&mut controller, now, node, health);
        }
    }
    let mut weights = Vec::new();
    controller.weights(now, &mut weights);
    assert!(weights[0].1.value() < 25 && weights[1].1.value() == 100, "{weights:?}");
    (controller, weights, now)
}

fn say(controller: &mut Controller, now: Time, node: u32, health: u8) {
    let report = Report { measured_at: now, health: Some(Health::saturating(health)), ..Report::default() };
    controller.reported(now, NodeId(node), &report).unwrap();
}

#[test]
fn a_weight_does_not_jump_after_a_pause() {
    let (mut controller, mut weights, mut now) = lowered();
    let before = weights[0].1.value();
    now += Duration::from_secs(9);
    say(&mut controller, now, 0, 100);
    controller.weights(now, &mut weights);
    assert!(weights[0].1.value() <= before + 21, "{before} became {weights:?}");
}

#[test]
fn after_silence_a_node_starts_from_its_configured_weight() {
    let (mut controller, mut weights, mut now) = lowered();
    // Nobody asked for weights while it was silent.
    now += Duration::from_secs(30);
    say(&mut controller, now, 0, 20);
    say(&mut controller, now, 1, 100);
    controller.weights(now, &mut weights);
    assert_eq!(weights[0].1.value(), 100, "{weights:?}");
}

#[test]
fn a_weight_does_not_flicker_between_two_values() {
    // The configured weights put every factor's weight near a half: 7 · 14 · factor.
    let mut controller = Controller::new(
        Settings { dead_band: 0.0, ..smoothing() },
        &[(NodeId(0), Weight::new(7).unwrap()), (NodeId(1), Weight::new(7).unwrap())],
    );
    let (mut weights, mut seen) = (Vec::new(), Vec::new());
    for second in 1..300 {
        let now = Time::from_nanos(second * 1_000_000_000);
        say(&mut controller, now, 0, 50 + (second % 2) as u8);
        say(&mut controller, now, 1, 100);
        controller.weights(now, &mut weights);
        seen.push(weights[0].1.value());
    }
    let late = &seen[100..];
    let changes = late.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert_eq!(changes, 0, "{late:?}");
}

#[test]
fn what_cannot_be_used_is_ignored_and_said() {
    let mut controller = Controller::new(integral(), &[(NodeId(1), Weight::DEFAULT)]);
    let now = Time::from_nanos(100_000_000_000);
    let mut report = |node, report: Report| controller.reported(now, NodeId(node), &report);
    let good = Report { measured_at: now, load: Some(0.5), ..Report::default() };
    assert_eq!(report(0, good), Err(Ignored::Unknown));
    assert_eq!(report(1, Report { load: Some(f32::NAN), ..good }), Err(Ignored::Impossible));
    assert_eq!(report(1, Report { load: Some(-0.1), ..good }), Err(Ignored::Impossible));
    assert_eq!(report(1, Report { load: None, jobs: Some(3), ..good }), Err(Ignored::Empty));
    assert_eq!(report(1, Report { measured_at: now - Duration::from_secs(10), ..good }), Err(Ignored::Old));
    assert_eq!(report(1, good), Ok(()));
    assert_eq!(report(1, Report { measured_at: now - Duration::from_secs(1), ..good }), Err(Ignored::Old));
    assert_eq!(report(1, Report { load: Some(f32::INFINITY), ..good }), Ok(()));
    // A clock that is ahead wins nothing.
    assert_eq!(report(1, Report { measured_at: now + Duration::from_secs(3600), ..good }), Ok(()));
    let standing = controller.standing(NodeId(1)).unwrap();
    assert_eq!((standing.measured_at, standing.load), (Some(now), Some(0.5)));
}

#[test]
fn nodes_that_stay_keep_what_is_known_of_them() {
    let mut pool = Loop::new(integral(), 1, &[toy(50.0), toy(100.0), toy(100.0)], 150.0);
    pool.run(100);
    let before = pool.values();
    let nodes = [(NodeId(2), Weight::DEFAULT), (NodeId(7), Weight::DEFAULT), (NodeId(0), Weight::DEFAULT)];
    pool.controller.configure(&nodes);
    let mut weights = Vec::new();
    pool.controller.weights(pool.now, &mut weights);
    assert_eq!(weights[0], (NodeId(0), Weight::new(before[0].into()).unwrap()));
    assert_eq!(weights[1], (NodeId(2), Weight::new(before[2].into()).unwrap()));
    assert_eq!(weights[2].0, NodeId(7));
}

fn law() -> impl Strategy<Value = Law> {
    prop_oneof![
        Just(Law::Off),
        (0.0..1.0).prop_map(|alpha| Law::Smoothing { alpha }),
        (0.0..1.0).prop_map(|gain_per_s| Law::Integral { gain_per_s }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn integral_balances_any_honest_pool(
        speeds in prop::collection::vec(50.0..130.0f64, 2..8),
        used in 0.2..0.9f64,
        average_s in 1.0..2.0f64,
    ) {
        let nodes: Vec<Toy> = speeds.iter().map(|&speed| toy(speed)).collect();
        let jobs_per_s = used * speeds.iter().sum::<f64>();
        let mut pool = Loop::new(integral(), 1, &nodes, jobs_per_s);
        pool.average_s = average_s;
        pool.run(400);
        for _ in 0..30 {
            pool.second();
            prop_assert!(pool.gap() < 0.1, "gap {:.3} with {:?}", pool.gap(), pool.values());
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_reported_weights_are_weights(
        law in law(),
        configured in prop::collection::vec(0u64..=256, 1..6),
        reports in prop::collection::vec((0u64..3_000_000_000, 0u32..7, any::<Option<u8>>(), any::<Option<f32>>()), 0..200),
    ) {
        let pool: Vec<_> = (0..).map(NodeId).zip(configured.iter().map(|&w| Weight::new(w).unwrap())).collect();
        let mut controller = Controller::new(settings(law), &pool);
        let mut again = controller.clone();
        let (mut weights, mut same) = (Vec::new(), Vec::new());
        let mut now = Time::from_nanos(1);
        for (after, node, health, load) in reports {
            now += Duration::from_nanos(after);
            let health = health.map(Health::saturating);
            let report = Report { measured_at: now, health, load, ..Report::default() };
            let taken = controller.reported(now, NodeId(node), &report);
            prop_assert_eq!(taken, again.reported(now, NodeId(node), &report));
            controller.weights(now, &mut weights);
            again.weights(now, &mut same);
            prop_assert_eq!(&weights, &same);
            prop_assert_eq!(weights.len(), configured.len());
            for (&(id, weight), &configured) in weights.iter().zip(&configured) {
                prop_assert!(configured > 0 || weight == Weight::DRAIN);
                let standing = controller.standing(id).unwrap();
                prop_assert!(weight > Weight::DRAIN || configured == 0 || standing.health == Some(Health::NONE));
                prop_assert!(law != Law::Off || u64::from(weight.value()) == configured || weight == Weight::DRAIN);
            }
        }
    }
}
