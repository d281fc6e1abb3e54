//! Experiments: a scenario, the policies that are compared on it, at which loads, and how often.
//!
//! - `file`: from TOML to an [`Experiment`]; `document` knows what stands where in it, `policy` and `trace` read parts
//! - `run`: all runs on all cores, in an order that nobody sees
//! - `figures`: what is told of a run; `results`: the same over replications; `statistics`: means and intervals

mod document;
mod figures;
mod file;
mod policy;
mod results;
mod run;
mod statistics;
mod trace;

pub use document::Located;
pub use figures::{Line, Measure};
pub use file::Overrides;
pub use policy::Contender;
pub use results::{
    Difference, Differences, Estimates, GroupResults, Losses, PointResults, PolicyResults, Results,
};
pub use run::Progress;
pub use statistics::Estimate;
pub use trace::{TraceFile, TraceReader};

use crate::{Arrivals, Scenario};

/// A scenario, and what is compared on it.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What it is called; may be empty.
    pub name: String,
    /// What it shows; may be empty.
    pub description: String,
    /// Cluster and load. The rate of its arrivals is that of the first point.
    pub scenario: Scenario,
    /// Who is compared; the others with the first.
    pub contenders: Vec<Contender>,
    /// At which loads.
    pub points: Vec<Point>,
    /// The seed of the first replication; each further one adds 1.
    pub seed: u64,
    /// Runs of each policy at each point.
    pub replications: u32,
}

/// A load under which policies are compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Jobs a second; `None` for clients that wait for answers.
    pub rate: Option<f64>,
    /// The same as a share of what the nodes can do.
    pub load: Option<f64>,
}

impl Experiment {
    /// Runs in all.
    pub fn runs(&self) -> usize {
        self.points.len() * self.contenders.len() * self.replications as usize
    }

    /// The scenario at one of the points.
    pub fn scenario_at(&self, point: &Point) -> Scenario {
        let mut scenario = self.scenario.clone();
        if let Some(rate) = point.rate {
            scenario.arrivals = scenario.arrivals.at_rate(rate);
        }
        if let Arrivals::Trace(trace) = &scenario.arrivals {
            // At a higher rate a trace is over sooner.
            scenario.duration = scenario.duration.min(trace::end(trace));
        }
        scenario
    }
}
