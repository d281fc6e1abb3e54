//! What nodes say of themselves, and how dispatchers hear it.

use std::time::Duration;

use evener_model::{Event as Told, Health, NodeId, Report, Time};

use crate::node::Mode;
use crate::queue::Event;
use crate::scenario::When;
use crate::world::{World, nanos};

/// A report on its way.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) to: Option<u32>,
    pub(crate) node: u32,
    pub(crate) report: Report,
}

impl World<'_> {
    /// What a node says of itself now.
    pub(crate) fn look(&mut self, id: u32) -> Report {
        let node = &mut self.nodes[id as usize];
        node.advance(self.now);
        let cores = node.cores();
        let measured = node.window.look(self.now, cores);
        let idle = 100.0 * (1.0 - measured.load);
        Report {
            measured_at: Time::from_nanos(self.now),
            jobs: Some(node.jobs()),
            load: Some(measured.load),
            // A node that works does not say that it must get nothing.
            health: Some(Health::saturating(idle.clamp(1.0, 100.0) as u8)),
            credits: Some(node.credits()),
            jobs_per_s: Some(measured.jobs_per_s),
            errors_per_s: Some(measured.errors_per_s),
            latency: (measured.sojourn_nanos > 0).then(|| Duration::from_nanos(measured.sojourn_nanos)),
        }
    }

    #[inline]
    pub(crate) fn changed(&mut self, node: u32) {
        if matches!(self.scenario.signals.when, When::Exact) {
            self.report(node, None);
        }
    }

    pub(crate) fn report(&mut self, node: u32, to: Option<u32>) {
        if self.nodes[node as usize].mode == Mode::Dead {
            return;
        }
        let report = self.look(node);
        self.charge(node, self.scenario.costs.report);
        let delay = self.hop + nanos(self.scenario.signals.delay);
        if delay == 0 {
            return self.reported(to, node, report);
        }
        let letter = Letter { to, node, report };
        let place = match self.letters_free.pop() {
            Some(place) => {
                self.letters[place as usize] = letter;
                place
            }
            None => {
                self.letters.push(letter);
                (self.letters.len() - 1) as u32
            }
        };
        self.queue.push(self.now + delay, Event::Reported { letter: place });
    }

    pub(crate) fn reported(&mut self, to: Option<u32>, node: u32, report: Report) {
        let loss = self.scenario.signals.loss;
        let all = 0..self.dispatchers.len();
        let to = to.map_or(all, |one| one as usize..one as usize + 1);
        for dispatcher in &mut self.dispatchers[to] {
            if self.signals.chance(loss) {
                continue;
            }
            if let Some(scheduler) = &mut dispatcher.scheduler {
                self.record.run.reports += 1;
                let now = Time::from_nanos(self.now);
                scheduler.handle(now, Told::Report { node: NodeId(node), report });
                if let Some(helm) = &mut dispatcher.helm {
                    helm.reported(now, NodeId(node), &report, scheduler);
                }
            }
        }
    }

    pub(crate) fn charge(&mut self, node: u32, cost: Duration) {
        if !cost.is_zero() {
            let charged = &mut self.nodes[node as usize];
            charged.advance(self.now);
            charged.charge(cost.as_nanos() as f64);
            self.reschedule(node);
        }
    }
}
