//! Simulates clusters on a virtual clock, with the scheduler that the director runs.

mod run;
mod scenario;

pub use run::{NodeRun, Run, Series};
pub use scenario::{
    Arrivals, Costs, Dispatchers, Failure, Fault, NodeGroup, Patience, Scenario, Share, Signals, Size, Trace,
    Transfers, When,
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
