//! What own counts of jobs say against a weight.

use std::time::Duration;

use evener_model::{NodeId, Time};

use super::Node;

/// The time between two looks at the counts.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A node with so many times as many jobs for its weight as the others has got more than it can do.
const CROWD: f64 = 4.0;
/// Fewer jobs than this are no crowd.
const CROWD_MIN: u32 = 8;
/// For how long its reports then give it no more than its share, the first time; each further time it is twice as long.
const REST: Duration = Duration::from_secs(10);
const REST_DOUBLINGS_MAX: u32 = 6;

/// Whether jobs pile up on a node.
///
/// A node may say that it is idle and be wrong, or lie, or say what was so a minute ago. What it cannot hide is that the
/// jobs it got do not end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crowd {
    until: Option<Time>,
    times: u32,
}

impl Crowd {
    pub(super) fn is_refuted(&self, now: Time) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    pub(super) fn refuted_until(&self) -> Option<Time> {
        self.until
    }

    fn rest(&self) -> Duration {
        REST * (1 << self.times.min(REST_DOUBLINGS_MAX))
    }

    fn found(&mut self, now: Time, crowded: bool) {
        if self.is_refuted(now) {
            return;
        }
        if crowded {
            self.until = Some(now + self.rest());
            self.times += 1;
        } else if self.until.is_some_and(|until| now >= until + self.rest()) {
            *self = Crowd::default();
        }
    }
}

/// Compares the jobs of each node that has more than its configured share with those of the others.
pub(super) fn look(nodes: &mut [Node], now: Time, jobs: impl Fn(NodeId) -> u32) {
    let (mut all, mut weights, mut capacity) = (0.0, 0.0, 0.0);
    for node in nodes.iter() {
        all += f64::from(jobs(node.id));
        weights += f64::from(node.weight.value());
        capacity += node.capacity();
    }
    for node in nodes {
        let (own, weight) = (jobs(node.id), f64::from(node.weight.value()));
        let others = (all - f64::from(own) + 1.0) / (weights - weight).max(1.0);
        let has_more = weight * capacity > node.capacity() * weights;
        node.crowd.found(now, has_more && own >= CROWD_MIN && f64::from(own) > CROWD * others * weight);
    }
}
