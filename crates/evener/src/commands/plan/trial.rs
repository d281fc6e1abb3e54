//! Runs on several threads, and what of each is needed.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use evener_sim::{Dispatch, Estimate, Scenario, simulate};

use crate::output;

/// A run to do.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) scenario: Arc<Scenario>,
    pub(super) dispatch: Dispatch,
    pub(super) seed: u64,
}

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// The percentile of the goal, in milliseconds.
    pub(super) percentile_ms: f64,
    pub(super) mean_ms: f64,
    /// Of the cores' time, the share in use.
    pub(super) utilisation: f64,
    /// Jobs without an answer.
    pub(super) lost: u64,
    /// Attempts after the first.
    pub(super) retries: u64,
}

/// Does runs, and tells how far it is.
#[derive(Debug)]
pub(super) struct Runner {
    threads: usize,
    percentile: f64,
    /// Begun when.
    begun: Instant,
    /// Runs done.
    done: usize,
    /// Nobody looks.
    silent: bool,
}

impl Runner {
    pub(super) fn new(threads: usize, percentile: f64) -> Runner {
        Runner { threads, percentile, begun: Instant::now(), done: 0, silent: !io::stderr().is_terminal() }
    }

    /// Does the runs, in an order that nobody sees.
    pub(super) fn run(&mut self, stage: &str, trials: &[Trial]) -> Vec<Sample> {
        let mut samples = vec![None; trials.len()];
        let next = AtomicUsize::new(0);
        thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            for _ in 0..self.threads.clamp(1, trials.len().max(1)) {
                let (send, next, percentile) = (send.clone(), &next, self.percentile);
                scope.spawn(move || {
                    while let Some((index, trial)) = {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        trials.get(index).map(|trial| (index, trial))
                    } {
                        if send.send((index, trial.sample(percentile))).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            for (round, (index, sample)) in receive.iter().enumerate() {
                samples[index] = Some(sample);
                self.done += 1;
                self.show(stage, round + 1, trials.len());
            }
        });
        samples.into_iter().flatten().collect()
    }

    /// What it comes to is not known before; so it is told what is being done, and for how long.
    fn show(&mut self, stage: &str, done: usize, total: usize) {
        if !self.silent {
            let seconds = self.begun.elapsed().as_secs();
            output::rewrite_line(&format!(
                "plan: {stage}: {done} of {total} runs; {} in all, {seconds} s",
                self.done
            ));
        }
    }

    pub(super) fn clear(&self) {
        if !self.silent && self.done > 0 {
            output::rewrite_line("");
        }
    }
}

impl Trial {
    fn sample(&self, percentile: f64) -> Sample {
        let run = simulate(&self.scenario, &self.dispatch, self.seed);
        let cores = |group: usize| f64::from(self.scenario.nodes[group].cores);
        let all: f64 = run.nodes.iter().map(|node| cores(node.group)).sum();
        let busy: f64 = run.nodes.iter().map(|node| node.utilisation * cores(node.group)).sum();
        Sample {
            percentile_ms: run.response.value_at_quantile(percentile / 100.0) as f64 / 1e6,
            mean_ms: run.response_sum_nanos as f64 / run.response.len().max(1) as f64 / 1e6,
            utilisation: busy / all,
            lost: run.arrived.saturating_sub(run.done),
            retries: run.retries,
        }
    }
}

/// A figure over runs.
pub(super) fn estimate(samples: &[Sample], of: impl Fn(&Sample) -> f64) -> Estimate {
    let figures: Vec<f64> = samples.iter().map(of).collect();
    Estimate::of(&figures).unwrap_or(Estimate { mean: f64::NAN, low: None, high: None })
}
