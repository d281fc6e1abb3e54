//! Weights that reports have made, and jobs that pile up all the same.

use std::time::Duration;

use evener_feedback::controller::{Controller, Law, Settings};
use evener_model::{Health, NodeId, Report, Time, Weight};

const NODES: u32 = 4;
const LIAR: NodeId = NodeId(3);

struct Pool {
    controller: Controller,
    now: Time,
    weights: Vec<(NodeId, Weight)>,
}

impl Pool {
    fn new(law: Law) -> Pool {
        let nodes: Vec<_> = (0..NODES).map(|id| (NodeId(id), Weight::DEFAULT)).collect();
        let settings = Settings { law, dead_band: 0.0, step_per_s_max: 1.0, ..Settings::default() };
        let controller = Controller::new(settings, &nodes);
        Pool { controller, now: Time::from_nanos(1_000_000_000), weights: Vec::new() }
    }

    /// A second: three nodes say that half of them is in use, the fourth that it is idle; and so many jobs are in flight.
    fn second(&mut self, others: u32, liar: u32) {
        self.now += Duration::from_secs(1);
        for node in (0..NODES).map(NodeId) {
            let load = if node == LIAR { 0.01 } else { 0.5 };
            let health = Some(Health::saturating((100.0 * (1.0 - load)) as u8));
            let report = Report { measured_at: self.now, load: Some(load), health, ..Report::default() };
            self.controller.reported(self.now, node, &report).unwrap();
        }
        self.controller.counted(self.now, |node| if node == LIAR { liar } else { others });
        self.controller.weights(self.now, &mut self.weights);
    }

    /// The share of the fourth node.
    fn share(&self) -> f64 {
        let sum: u32 = self.weights.iter().map(|(_, weight)| weight.value()).sum();
        f64::from(self.weights[3].1.value()) / f64::from(sum)
    }
}

const LAWS: [Law; 2] = [Law::Smoothing { alpha: 0.5 }, Law::Integral { gain_per_s: 0.5 }];

#[test]
fn a_node_that_says_it_is_idle_gets_more_while_its_jobs_end() {
    for law in LAWS {
        let mut pool = Pool::new(law);
        (0..8).for_each(|_| pool.second(4, 6));
        assert!(pool.share() > 0.30, "{law:?}: {}", pool.share());
        assert_eq!(pool.controller.standing(LIAR).unwrap().refuted_until, None);
    }
}

#[test]
fn where_jobs_pile_up_it_has_its_configured_share_at_the_most() {
    for law in LAWS {
        let mut pool = Pool::new(law);
        (0..8).for_each(|_| pool.second(4, 6));
        pool.second(4, 60);
        assert!((pool.share() - 0.25).abs() < 0.02, "{law:?}: {}", pool.share());
        let until = pool.controller.standing(LIAR).unwrap().refuted_until;
        assert_eq!(until, Some(pool.now + Duration::from_secs(10)), "{law:?}");
    }
}

#[test]
fn it_is_tried_again_later_and_later() {
    for law in LAWS {
        let mut pool = Pool::new(law);
        let mut refuted = 0;
        for _ in 0..150 {
            // What it gets beyond its share piles up, and is done when it gets no more.
            let has_more = pool.weights.len() == 4 && pool.share() > 0.28;
            pool.second(4, if has_more { 60 } else { 4 });
            refuted += u32::from(has_more);
        }
        assert!((3..12).contains(&refuted), "{law:?}: more than its share in {refuted} of 150 seconds");
    }
}

#[test]
fn a_small_node_that_is_full_is_left_to_its_law() {
    let mut pool = Pool::new(Law::Integral { gain_per_s: 0.5 });
    // Its share is no more than configured: nothing is to be taken back.
    pool.second(1, 60);
    assert_eq!(pool.controller.standing(NodeId(0)).unwrap().refuted_until, None);
}
