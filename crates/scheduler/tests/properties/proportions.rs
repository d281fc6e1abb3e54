//! Rotations: how often, and that nothing starts over.

use std::collections::BTreeMap;

use evener_model::{Event, NodeId};
use evener_scheduler::{Order, Policy, Settings};
use proptest::prelude::*;

use crate::pool::{Pool, settings};

#[derive(Clone, Debug)]
enum Change {
    Join { node: u32, weight: u64 },
    Leave(u32),
    Weight { node: u32, weight: u64 },
    Check { node: u32, up: bool },
}

fn change() -> impl Strategy<Value = Change> {
    let (node, weight) = (0..6_u32, 0..12_u64);
    prop_oneof![
        (node.clone(), weight.clone()).prop_map(|(node, weight)| Change::Join { node, weight }),
        node.clone().prop_map(Change::Leave),
        (node.clone(), weight).prop_map(|(node, weight)| Change::Weight { node, weight }),
        (node, any::<bool>()).prop_map(|(node, up)| Change::Check { node, up }),
    ]
}

/// A pool and the weights of those of its nodes that are up.
struct Weighed {
    pool: Pool,
    nodes: BTreeMap<u32, (u64, bool)>,
}

impl Weighed {
    fn new(settings: Settings, weights: &[u64]) -> Weighed {
        let settings = Settings { panic_percent: 0, ..settings };
        let nodes = (0..).zip(weights.iter().map(|weight| (*weight, true))).collect();
        Weighed { pool: Pool::new(settings, 1, weights), nodes }
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            Change::Join { node, weight } => {
                self.nodes.entry(node).or_insert((weight, true)).0 = weight;
                self.pool.join(node, weight, None);
            }
            Change::Leave(node) => {
                self.nodes.remove(&node);
                self.pool.handle(Event::Leave { node: NodeId(node) });
            }
            Change::Weight { node, weight } => {
                if let Some(known) = self.nodes.get_mut(&node) {
                    known.0 = weight;
                }
                self.pool.weigh(node, weight);
            }
            Change::Check { node, up } => {
                if let Some(known) = self.nodes.get_mut(&node) {
                    known.1 = up;
                }
                self.pool.handle(Event::Check { node: NodeId(node), up });
            }
        }
    }

    fn weights(&self) -> BTreeMap<u32, u64> {
        let up = self.nodes.iter().filter(|(_, (weight, up))| *weight > 0 && *up);
        up.map(|(node, (weight, _))| (*node, *weight)).collect()
    }

    fn picks(&mut self, count: u64) -> Vec<u32> {
        if self.weights().is_empty() {
            return Vec::new();
        }
        (0..count).map(|_| self.pool.touch(0).0).collect()
    }
}

fn tally(picks: &[u32]) -> BTreeMap<u32, u64> {
    let mut tally = BTreeMap::new();
    for pick in picks {
        *tally.entry(*pick).or_default() += 1;
    }
    tally
}

fn tokens() -> Settings {
    Settings { order: Order::Tokens, ..settings(Policy::WeightedRoundRobin) }
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// Any W picks in a row after a change, wherever they begin, hold exactly w of each node.
    #[test]
    fn smooth_rounds_are_exact_wherever_they_begin(
        weights in prop::collection::vec(1..12_u64, 1..6),
        changes in prop::collection::vec((change(), 0..30_u64), 0..12),
    ) {
        let mut world = Weighed::new(settings(Policy::WeightedRoundRobin), &weights);
        for (change, between) in &changes {
            world.picks(*between);
            world.apply(change);
        }
        let expected = world.weights();
        let round: u64 = expected.values().sum();
        let picks = world.picks(3 * round);
        for window in picks.windows(round.max(1) as usize) {
            prop_assert_eq!(&tally(window), &expected, "{:?}", picks);
        }
    }

    /// After a change the round is finished, and from then on each round holds exactly w of each node.
    #[test]
    fn rounds_of_tokens_are_exact(
        weights in prop::collection::vec(1..12_u64, 1..6),
        changes in prop::collection::vec((change(), 0..30_u64), 0..12),
    ) {
        let mut world = Weighed::new(tokens(), &weights);
        for (change, between) in &changes {
            world.picks(*between);
            world.apply(change);
        }
        let expected = world.weights();
        let round = expected.values().sum::<u64>() as usize;
        let picks = world.picks(5 * round as u64);
        let exact = |start: usize| (0..3).all(|n| {
            tally(&picks[start + n * round..start + (n + 1) * round]) == expected
        });
        prop_assert!((0..=2 * round).any(exact), "{:?} of {:?}", picks, expected);
    }

    /// Any n picks in a row hold each of the n nodes once.
    #[test]
    fn round_robin_is_exact_wherever_it_begins(
        weights in prop::collection::vec(1..12_u64, 1..6),
        changes in prop::collection::vec((change(), 0..30_u64), 0..12),
    ) {
        let mut world = Weighed::new(settings(Policy::RoundRobin), &weights);
        for (change, between) in &changes {
            world.picks(*between);
            world.apply(change);
        }
        let expected: BTreeMap<_, _> = world.weights().keys().map(|node| (*node, 1)).collect();
        let picks = world.picks(3 * expected.len() as u64);
        for window in picks.windows(expected.len().max(1)) {
            prop_assert_eq!(&tally(window), &expected);
        }
    }

    /// Whatever happens to one node, the others are picked in the order in which they would have been.
    #[test]
    fn what_happens_to_one_node_restarts_no_rotation(
        weights in prop::collection::vec(1..8_u64, 2..6),
        changes in prop::collection::vec((change(), 0..20_u64), 1..8),
        which in 0..3_usize,
    ) {
        let settings = [settings(Policy::RoundRobin), settings(Policy::WeightedRoundRobin), tokens()][which].clone();
        let changed = 0;
        let others = |picks: Vec<u32>| -> Vec<u32> { picks.into_iter().filter(|node| *node != changed).collect() };

        let mut world = Weighed::new(settings.clone(), &weights);
        let mut with = others(world.picks(1));
        for (change, between) in &changes {
            world.apply(&match *change {
                Change::Join { weight, .. } => Change::Join { node: changed, weight },
                Change::Leave(_) => Change::Leave(changed),
                Change::Weight { weight, .. } => Change::Weight { node: changed, weight },
                Change::Check { up, .. } => Change::Check { node: changed, up },
            });
            with.extend(others(world.picks(*between)));
        }
        let mut without = Weighed::new(settings, &weights);
        let plain = others(without.picks(600));
        prop_assert_eq!(&with[..], &plain[..with.len()]);
    }

    /// Drawn by weight: each node within five standard deviations of its share.
    #[test]
    fn draws_follow_the_weights(weights in prop::collection::vec(1..50_u64, 1..20), seed: u64) {
        let mut pool = Pool::new(settings(Policy::WeightedRandom), seed, &weights);
        let draws = 4_000;
        let picks: Vec<u32> = (0..draws).map(|_| pool.touch(0).0).collect();
        let tally = tally(&picks);
        let total: u64 = weights.iter().sum();
        for (node, weight) in (0..).zip(&weights) {
            let share = *weight as f64 / total as f64;
            let (expected, deviation) = (draws as f64 * share, (draws as f64 * share * (1.0 - share)).sqrt());
            let seen = tally.get(&node).copied().unwrap_or(0) as f64;
            prop_assert!((seen - expected).abs() <= 5.0 * deviation + 1.0, "{seen} for {expected}");
        }
    }
}
