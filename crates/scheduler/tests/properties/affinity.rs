//! Keys that may go to a few nodes only.

use std::collections::BTreeSet;

use evener_model::{Event, NodeId};
use evener_scheduler::{Policy, Settings};
use proptest::prelude::*;

use crate::pool::{Pool, settings};

const KEYS: u64 = 30;

fn pool(policy: Policy, affinity: u16, weights: &[u64], jobs_max: Option<u32>) -> Pool {
    let settings = Settings { affinity, panic_percent: 0, ..settings(policy) };
    let mut pool = Pool::new(settings, 1, &[]);
    (0..).zip(weights).for_each(|(node, weight)| pool.join(node, *weight, jobs_max));
    pool
}

/// The nodes of each key: two jobs at a time, so that more than one node is needed.
fn nodes_of_keys(pool: &mut Pool) -> Vec<BTreeSet<NodeId>> {
    let nodes = |key: u64| {
        let picks: Vec<_> = (0..20).map(|_| pool.pick(key).expect("an open node")).collect();
        (0..20).for_each(|_| pool.finish(0));
        picks.into_iter().collect()
    };
    (0..KEYS).map(|key| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).map(nodes).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the policy, a key goes to its nodes only, and these are the same under every policy.
    #[test]
    fn keys_keep_to_their_nodes(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        affinity in 1..4_u16,
        weights in prop_oneof![prop::collection::vec(1..5_u64, 5..20), prop::collection::vec(1..5_u64, 65..90)],
    ) {
        let by_count = nodes_of_keys(&mut pool(Policy::LeastJobs, affinity, &weights, None));
        prop_assert!(by_count.iter().all(|nodes| nodes.len() == usize::from(affinity)));
        for (nodes, all) in nodes_of_keys(&mut pool(policy, affinity, &weights, None)).iter().zip(&by_count) {
            prop_assert!(nodes.is_subset(all), "{nodes:?} of {all:?}");
        }
    }

    /// A node that goes takes nothing with it but its own place, and gets it back.
    #[test]
    fn a_node_that_goes_leaves_the_keys_of_others(
        weights in prop::collection::vec(1..5_u64, 5..20),
        which: prop::sample::Index,
    ) {
        let mut pool = pool(Policy::LeastJobs, 3, &weights, None);
        let before = nodes_of_keys(&mut pool);
        let node = NodeId(which.index(weights.len()) as u32);
        pool.handle(Event::Check { node, up: false });
        for (without, before) in nodes_of_keys(&mut pool).iter().zip(&before) {
            prop_assert_eq!(without.len(), 3);
            let kept = before.iter().filter(|kept| **kept != node);
            prop_assert!(kept.clone().all(|kept| without.contains(kept)), "{:?} {:?}", before, without);
            prop_assert!(before.contains(&node) || before == without);
        }
        pool.handle(Event::Check { node, up: true });
        prop_assert_eq!(nodes_of_keys(&mut pool), before);
    }

    /// Where all of a key's nodes are full, its jobs go to others.
    #[test]
    fn jobs_are_not_refused_while_any_node_has_room(
        policy in prop::sample::select(Policy::ALL.to_vec()),
        nodes in prop_oneof![5..12_usize, 65..80_usize],
    ) {
        let mut pool = pool(policy, 2, &vec![1; nodes], Some(2));
        for _ in 0..2 * nodes {
            prop_assert!(pool.pick(7).is_some());
        }
        prop_assert!(pool.pick(7).is_none());
    }
}

/// Keys are spread over all nodes, by weight.
#[test]
fn all_nodes_are_among_those_of_some_keys() {
    let mut pool = pool(Policy::LeastJobs, 2, &[1, 1, 2, 4], None);
    let mut keys = [0; 4];
    for key in 0..2_000_u64 {
        let first = pool.pick(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
        let second = pool.pick(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)).unwrap();
        assert_ne!(first, second);
        keys[first.index()] += 1;
        keys[second.index()] += 1;
        (0..2).for_each(|_| pool.finish(0));
    }
    assert!(keys[0].min(keys[1]) > 300 && keys[2] > keys[0].max(keys[1]) && keys[3] > keys[2], "{keys:?}");
}
