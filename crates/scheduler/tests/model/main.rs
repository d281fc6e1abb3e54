//! Random events against a reference that works out, in the simplest way, which nodes may be picked.

mod world;

use proptest::prelude::*;
use world::{World, settings, step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    /// Never a node that drains, is down, ejected, full, excluded or to be avoided; always one if there is one; each
    /// pick reserves one place and each end gives one back; no node has more jobs than it may.
    #[test]
    fn picks_are_those_that_may_be(
        settings in settings(),
        seed: u64,
        silent in prop_oneof![2 => Just(0_u32), 1 => 60..80_u32],
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new(settings, seed, silent);
        for step in steps {
            world.play(step);
            prop_assert_eq!(world.total() as usize, world.in_flight.len());
        }
        world.finish_all();
        prop_assert_eq!(world.total(), 0);
    }

    /// The same calls give the same picks.
    #[test]
    fn runs_repeat(settings in settings(), seed: u64, steps in prop::collection::vec(step(), 1..100)) {
        let run = || {
            let mut world = World::new(settings.clone(), seed, 0);
            let mut picks = Vec::new();
            for step in steps.clone() {
                world.play(step);
                picks.push(world.in_flight.clone());
            }
            picks
        };
        prop_assert_eq!(run(), run());
    }
}
