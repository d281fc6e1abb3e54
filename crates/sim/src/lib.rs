//! Simulates clusters on a virtual clock, with the scheduler that the director runs.

mod arrivals;
mod check;
mod experiment;
mod node;
pub mod papers;
mod queue;
mod random;
mod record;
mod reports;
mod run;
mod scenario;
mod size;
mod steering;
mod task;
mod transfers;
mod world;

pub use check::Finding;
pub use experiment::{
    Contender, Difference, Differences, Estimate, Estimates, Experiment, GroupResults, Line, Located, Losses,
    Measure, Overrides, Point, PointResults, PolicyResults, Progress, Results, TraceFile, TraceReader,
};
pub use run::{NodeRun, Run, Series};
pub use scenario::{
    Arrivals, Costs, Dispatchers, Failure, Fault, Lie, NodeGroup, Patience, Period, Scenario, Share, Signals,
    Size, Steering, Trace, Transfers, When,
};

use evener_scheduler::Settings;

/// Who decides where jobs go.
#[derive(Clone, Debug, PartialEq)]
pub enum Dispatch {
    /// A scheduler with these settings in each dispatcher.
    Scheduler(Settings),
    /// All jobs wait in one queue that knows all, without delay; the fastest node with a free core takes the next.
    /// Nobody has it; how near others come says how good they are.
    Central,
}

/// Simulates a scenario. The same arguments give the same run, bit for bit, on every machine; with the same
/// `seed`, jobs come at the same times and are the same work whatever the dispatch.
///
/// # Panics
/// If the scenario is none that [`Scenario::check`] accepts.
pub fn simulate(scenario: &Scenario, dispatch: &Dispatch, seed: u64) -> Run {
    world::World::new(scenario, dispatch, seed).run()
}
