//! Writes down what happens.

use std::time::Duration;

use evener_model::Outcome;
use hdrhistogram::Histogram;

use crate::node::Node;
use crate::run::{NodeRun, Run, Series};
use crate::scenario::Scenario;
use crate::task::Tasks;
use crate::world::SAMPLES;

/// Responses are told apart to 3 digits from a nanosecond; the longest is counted as a day.
const RESPONSE_NANOS_MAX: u64 = 86_400_000_000_000;

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) run: Run,
    warm_at: u64,
    step_nanos: u64,
    imbalance_sum: f64,
    imbalances: u32,
}

impl Record {
    pub(crate) fn new(scenario: &Scenario, nodes: usize) -> Record {
        let response = Histogram::new_with_bounds(1, RESPONSE_NANOS_MAX, 3).expect("bounds in order");
        let step = scenario.duration / SAMPLES as u32;
        let step_nanos = (step.as_nanos() as u64).max(1);
        let run = Run {
            response,
            response_sum_nanos: 0,
            arrived: 0,
            done: 0,
            failed: [0; Outcome::ALL.len()],
            rejected: 0,
            unfinished: 0,
            retries: 0,
            hedges: 0,
            transfers: 0,
            reports: 0,
            events: 0,
            measured: scenario.duration.saturating_sub(scenario.warm_up),
            nodes: Vec::with_capacity(nodes),
            series: Series { step: Duration::from_nanos(step_nanos), jobs: Vec::new() },
            imbalance: 0.0,
        };
        let groups = scenario.nodes.iter().enumerate();
        let mut record = Record {
            run,
            warm_at: scenario.warm_up.as_nanos() as u64,
            step_nanos,
            imbalance_sum: 0.0,
            imbalances: 0,
        };
        record.run.nodes.extend(groups.flat_map(|(group, spec)| {
            (0..spec.count).map(move |_| NodeRun {
                group,
                done: 0,
                utilisation: 0.0,
                jobs_mean: 0.0,
                jobs_max: 0,
            })
        }));
        record
    }

    pub(crate) fn step_nanos(&self) -> u64 {
        self.step_nanos
    }

    #[inline]
    fn counts(&self, came_at: u64) -> bool {
        came_at >= self.warm_at
    }

    #[inline]
    pub(crate) fn arrived(&mut self, came_at: u64) {
        self.run.arrived += u64::from(self.counts(came_at));
    }

    #[inline]
    pub(crate) fn served(&mut self, node: u32, came_at: u64) {
        self.run.nodes[node as usize].done += u64::from(self.counts(came_at));
    }

    #[inline]
    pub(crate) fn done(&mut self, came_at: u64, now: u64) {
        if self.counts(came_at) {
            self.run.done += 1;
            self.respond(now - came_at);
        }
    }

    pub(crate) fn timed_out(&mut self, came_at: u64, now: u64) {
        if self.counts(came_at) {
            self.run.failed[Outcome::Timeout.index()] += 1;
            self.respond(now - came_at);
        }
    }

    fn respond(&mut self, nanos: u64) {
        self.run.response.saturating_record(nanos.max(1));
        self.run.response_sum_nanos += u128::from(nanos);
    }

    pub(crate) fn failed(&mut self, came_at: u64, outcome: Outcome) {
        self.run.failed[outcome.index()] += u64::from(self.counts(came_at));
    }

    pub(crate) fn rejected(&mut self, came_at: u64) {
        self.run.rejected += u64::from(self.counts(came_at));
    }

    pub(crate) fn sample(&mut self, jobs: impl Iterator<Item = u32>, warm: bool) {
        let series = &mut self.run.series.jobs;
        let nodes = self.run.nodes.len();
        if series.len() > nodes * SAMPLES as usize {
            return;
        }
        series.extend(jobs);
        let sample = &series[series.len() - nodes..];
        let total: u64 = sample.iter().map(|jobs| u64::from(*jobs)).sum();
        if let Some(most) = sample.iter().max().filter(|_| warm && total > 0) {
            self.imbalance_sum += f64::from(*most) * nodes as f64 / total as f64;
            self.imbalances += 1;
        }
    }

    /// The measured time is over.
    pub(crate) fn close(&mut self, nodes: &[Node]) {
        let measured = self.run.measured.as_nanos() as f64;
        for (node, run) in nodes.iter().zip(&mut self.run.nodes) {
            run.utilisation = node.gauge.busy_nanos / measured / f64::from(node.cores());
            run.jobs_mean = node.gauge.jobs_nanos / measured;
            run.jobs_max = node.gauge.jobs_max;
        }
        if self.imbalances > 0 {
            self.run.imbalance = self.imbalance_sum / f64::from(self.imbalances);
        }
    }

    pub(crate) fn finish(mut self, tasks: &Tasks) -> Run {
        self.run.unfinished = tasks.pending_since(self.warm_at);
        self.run
    }
}
