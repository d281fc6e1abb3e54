//! Runs on several threads, and what of each is needed.

use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use evener_sim::{Dispatch, Estimate, Scenario, simulate};

/// Columns of the line that tells how far it is.
const WIDTH: usize = 78;

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
    /// None if nobody looks.
    line: Option<io::Stderr>,
}

impl Runner {
    pub(super) fn new(threads: usize, percentile: f64) -> Runner {
        let line = io::stderr().is_terminal().then(io::stderr);
        Runner { threads, percentile, begun: Instant::now(), done: 0, line }
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
        let Some(out) = &mut self.line else { return };
        let line = format!(
            "plan: {stage}: {done} of {total} runs; {} in all, {} s",
            self.done,
            self.begun.elapsed().as_secs()
        );
        let line: String = line.chars().take(WIDTH).collect();
        // Standard error that takes no more is no reason to stop.
        let _ = write!(out, "\r{line:WIDTH$}\r{line}").and_then(|()| out.flush());
    }

    pub(super) fn clear(&mut self) {
        if let Some(out) = self.line.as_mut().filter(|_| self.done > 0) {
            let _ = write!(out, "\r{:WIDTH$}\r", "").and_then(|()| out.flush());
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
