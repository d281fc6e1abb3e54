//! Weights that follow what nodes report.

use evener_feedback::controller::{Controller, Law, Settings};
use evener_model::{Event as Told, JobCounts, NodeId, Report, Time, Weight};
use evener_scheduler::Scheduler;

use crate::scenario::{Scenario, Steering};

/// What a dispatcher makes of reports, and which weights it told its scheduler.
pub(crate) struct Helm {
    controller: Controller,
    weights: Vec<(NodeId, Weight)>,
    told: Vec<(NodeId, Weight)>,
}

impl Helm {
    pub(crate) fn new(scenario: &Scenario) -> Option<Helm> {
        let settings = match scenario.steering? {
            // Nothing but the equation, and as fast as it says.
            Steering::Smoothing { alpha, dead_band } => {
                let law = Law::Smoothing { alpha };
                Settings { law, dead_band, step_per_s_max: f64::INFINITY, ..Settings::default() }
            }
            Steering::Integral { gain_per_s, dead_band } => {
                let settings = Settings::default();
                let dead_band = dead_band.unwrap_or(settings.dead_band);
                Settings { law: Law::Integral { gain_per_s }, dead_band, ..settings }
            }
        };
        let groups = scenario.nodes.iter();
        let weights = groups.flat_map(|group| (0..group.count).map(|_| group.weight));
        let weights = weights.map(|weight| Weight::new(u64::from(weight)).unwrap_or(Weight::MAX));
        let told: Vec<_> = weights.enumerate().map(|(id, weight)| (NodeId(id as u32), weight)).collect();
        Some(Helm {
            controller: Controller::new(settings, &told),
            weights: Vec::with_capacity(told.len()),
            told,
        })
    }

    /// Tells the scheduler what a report changes; `counts` are its jobs in flight.
    pub(crate) fn reported(
        &mut self,
        now: Time,
        node: NodeId,
        report: &Report,
        counts: &JobCounts,
        scheduler: &mut Scheduler,
    ) {
        if self.controller.reported(now, node, report).is_err() {
            return;
        }
        self.controller.counted(now, |node| counts.jobs(node));
        self.controller.weights(now, &mut self.weights);
        for (told, wanted) in self.told.iter_mut().zip(&self.weights) {
            if told != wanted {
                *told = *wanted;
                scheduler.handle(now, Told::Weight { node: wanted.0, weight: wanted.1 });
            }
        }
    }
}
