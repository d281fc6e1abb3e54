use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::sample::Sample;
use crate::{Dispatch, Run, Scenario, simulate};

/// Simulations that differ in nothing but their seed.
pub(super) struct Cell {
    pub(super) scenario: Scenario,
    pub(super) dispatch: Dispatch,
    /// The seed of the first replication; each further one adds 1. Cells with the same have the same jobs.
    pub(super) seed: u64,
    pub(super) replications: u32,
    /// What is measured of each run.
    pub(super) measure: Measure,
}

pub(super) type Measure = fn(&Run) -> Vec<f64>;

/// What came of a cell: a sample over the replications for each figure that it measures.
pub(super) type Measured = Vec<Sample>;

/// How far a reproduction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Simulations that are done.
    pub runs: usize,
    /// Of how many.
    pub of: usize,
}

/// Runs all replications of all cells, and gives what came of them in the order of the cells.
pub(super) fn run(cells: &[Cell], threads: NonZeroUsize, done: &(dyn Fn(Done) + Sync)) -> Vec<Measured> {
    let tasks: Vec<(usize, u32)> = (cells.iter().enumerate())
        .flat_map(|(at, cell)| (0..cell.replications).map(move |replication| (at, replication)))
        .collect();
    let figures: Vec<Mutex<Vec<f64>>> = tasks.iter().map(|_| Mutex::default()).collect();
    let (next, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((task, (at, replication))) = {
            let task = next.fetch_add(1, Ordering::Relaxed);
            tasks.get(task).map(|what| (task, *what))
        } {
            let cell = &cells[at];
            let run = simulate(&cell.scenario, &cell.dispatch, cell.seed + u64::from(replication));
            *figures[task].lock().unwrap_or_else(PoisonError::into_inner) = (cell.measure)(&run);
            done(Done { runs: 1 + ended.fetch_add(1, Ordering::Relaxed), of: tasks.len() });
        }
    };
    thread::scope(|scope| {
        for _ in 0..threads.get() {
            scope.spawn(work);
        }
    });
    let mut measured: Vec<Measured> = cells.iter().map(|_| Vec::new()).collect();
    for ((at, _), figures) in tasks.iter().zip(figures) {
        let figures = figures.into_inner().unwrap_or_else(PoisonError::into_inner);
        measured[*at].resize_with(figures.len(), Sample::default);
        for (sample, figure) in measured[*at].iter_mut().zip(figures) {
            sample.push(figure);
        }
    }
    measured
}
