//! All runs of an experiment, on several threads.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::Experiment;
use super::figures::Figures;
use super::results::Results;
use crate::{Scenario, simulate};

/// How far an experiment is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Runs that are done.
    pub done: usize,
    /// Runs in all.
    pub total: usize,
    /// The share of the work that is done, 0–1: runs with more jobs are more work.
    pub share: f64,
}

impl Experiment {
    /// Does all runs on so many threads (at least one) and gathers their figures, which do not depend on `threads`.
    ///
    /// `progress` is told after each run, and each `interval` between; if it breaks, runs that are not begun are left
    /// out, and there are no results.
    pub fn run(
        &self,
        threads: usize,
        interval: Duration,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Option<Results> {
        let scenarios: Vec<Scenario> = self.points.iter().map(|point| self.scenario_at(point)).collect();
        let work: Vec<f64> = scenarios.iter().map(|scenario| scenario.jobs_expected().max(1.0)).collect();
        let runs_per_point = self.contenders.len() * self.replications as usize;
        let work_total: f64 = work.iter().map(|jobs| jobs * runs_per_point as f64).sum();
        let mut figures: Vec<Option<Figures>> = Vec::new();
        figures.resize_with(self.runs(), || None);
        let mut told = Progress { done: 0, total: figures.len(), share: 0.0 };
        let (next, given_up) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let (send, receive) = mpsc::channel();
            for _ in 0..threads.clamp(1, figures.len()) {
                let (send, next, given_up, scenarios) = (send.clone(), &next, &given_up, &scenarios);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= self.runs() || given_up.load(Ordering::Relaxed) {
                            return;
                        }
                        let figures = self.one(&scenarios[index / runs_per_point], index % runs_per_point);
                        if send.send((index, figures)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(send);
            loop {
                match receive.recv_timeout(interval) {
                    Ok((index, done)) => {
                        figures[index] = Some(done);
                        told.done += 1;
                        told.share += work[index / runs_per_point] / work_total;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                if progress(told).is_break() {
                    given_up.store(true, Ordering::Relaxed);
                    return;
                }
            }
        });
        let figures: Option<Vec<Figures>> = figures.into_iter().collect();
        Some(Results::gather(self, figures?))
    }

    fn one(&self, scenario: &Scenario, index: usize) -> Figures {
        let replications = self.replications as usize;
        let (contender, replication) = (&self.contenders[index / replications], index % replications);
        let seed = self.seed.wrapping_add(replication as u64);
        let scenario = contender.scenario(scenario);
        let run = simulate(&scenario, &contender.dispatch, seed);
        Figures::of(&run, &scenario, replication == 0)
    }
}
