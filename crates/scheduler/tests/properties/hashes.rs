//! Policies that go by key: which keys move when nodes come and go.

use evener_model::{Event, NodeId};
use evener_scheduler::{Policy, Settings};
use proptest::prelude::*;

use crate::pool::{Pool, settings};

const KEYS: u64 = 2_000;

/// Bounded, but never at the bound: where keys are without load.
fn settings_of(policy: Policy) -> Settings {
    Settings { load_bound_percent: 1_000_000, panic_percent: 0, ..settings(policy) }
}

fn map(pool: &mut Pool) -> Vec<u32> {
    (0..KEYS).map(|key| pool.touch(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).0).collect()
}

/// Keys that moved although their node is still there, and not to the node that came.
fn moved(before: &[u32], after: &[u32], node: u32) -> usize {
    before.iter().zip(after).filter(|(b, a)| a != b && **b != node && **a != node).count()
}

fn by_key() -> impl Strategy<Value = Policy> {
    prop::sample::select(vec![
        Policy::SourceHash,
        Policy::DestinationHash,
        Policy::ConsistentHash,
        Policy::BoundedHash,
        Policy::Maglev,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// A node that goes down, drains or comes back moves its own keys and no others.
    #[test]
    fn eligibility_moves_only_the_nodes_own_keys(
        policy in by_key(),
        weights in prop::collection::vec(1..5_u64, 2..40),
        which: prop::sample::Index,
        drain: bool,
    ) {
        let mut pool = Pool::new(settings_of(policy), 1, &weights);
        let node = NodeId(which.index(weights.len()) as u32);
        let before = map(&mut pool);
        pool.handle(if drain { Event::Drain { node, draining: true } } else { Event::Check { node, up: false } });
        let without = map(&mut pool);
        prop_assert!(!without.contains(&node.0));
        for (before, without) in before.iter().zip(&without) {
            prop_assert!(*before == node.0 || before == without);
        }
        pool.handle(if drain { Event::Drain { node, draining: false } } else { Event::Check { node, up: true } });
        prop_assert_eq!(map(&mut pool), before);
    }

    /// On a ring a node that joins takes keys, one that leaves gives keys, one whose weight changes does one
    /// of both, and no key moves between others.
    #[test]
    fn rings_move_no_key_between_others(
        bounded: bool,
        weights in prop::collection::vec(1..5_u64, 2..40),
        which: prop::sample::Index,
    ) {
        let policy = if bounded { Policy::BoundedHash } else { Policy::ConsistentHash };
        let mut pool = Pool::new(settings_of(policy), 1, &weights);
        let node = which.index(weights.len()) as u32;
        let before = map(&mut pool);
        pool.weigh(node, 9);
        let heavier = map(&mut pool);
        prop_assert_eq!(moved(&before, &heavier, node), 0);
        prop_assert!(before.iter().zip(&heavier).all(|(before, after)| *before != node || *after == node));
        pool.handle(Event::Leave { node: NodeId(node) });
        let without = map(&mut pool);
        prop_assert_eq!(moved(&before, &without, node), 0);
        pool.join(node, weights[node as usize], None);
        prop_assert_eq!(map(&mut pool), before);
    }

    /// In a maglev table, a node that leaves moves besides its own keys at most 4 % of the others'.
    #[test]
    fn maglev_moves_few_keys_between_others(
        weights in prop::collection::vec(1..5_u64, 2..40),
        which: prop::sample::Index,
    ) {
        let mut pool = Pool::new(settings_of(Policy::Maglev), 1, &weights);
        let node = which.index(weights.len()) as u32;
        let before = map(&mut pool);
        pool.handle(Event::Leave { node: NodeId(node) });
        let without = map(&mut pool);
        prop_assert!(moved(&before, &without, node) <= KEYS as usize / 25, "{}", moved(&before, &without, node));
        pool.join(node, weights[node as usize], None);
        prop_assert_eq!(map(&mut pool), before);
    }

    /// Two directors with other seeds, whose nodes joined in another order, map keys alike.
    #[test]
    fn every_director_maps_keys_alike(policy in by_key(), weights in prop::collection::vec(1..5_u64, 2..40)) {
        let mut one = Pool::new(settings_of(policy), 1, &weights);
        let mut other = Pool::new(settings_of(policy), 2, &[]);
        for (node, weight) in weights.iter().enumerate().rev() {
            other.join(node as u32, *weight, None);
        }
        prop_assert_eq!(map(&mut one), map(&mut other));
    }
}

/// Keys per unit of weight: as chance has it (8 %) in a table and on a line; on a ring within a quarter.
#[test]
fn keys_are_shared_by_weight() {
    for (policy, tolerance) in [
        (Policy::Maglev, 0.08),
        (Policy::SourceHash, 0.08),
        (Policy::ConsistentHash, 0.25),
        (Policy::BoundedHash, 0.25),
    ] {
        let weights = [1, 2, 3, 4, 1, 1, 2, 1, 1, 4];
        let mut pool = Pool::new(settings_of(policy), 1, &weights);
        let mut seen = [0_u64; 10];
        for key in 0..100_000_u64 {
            seen[pool.touch(key).index()] += 1;
        }
        for (seen, weight) in seen.iter().zip(weights) {
            let ratio = *seen as f64 / (100_000.0 * weight as f64 / 20.0);
            assert!((1.0 - tolerance..1.0 + tolerance).contains(&ratio), "{policy}: {ratio}");
        }
    }
}
