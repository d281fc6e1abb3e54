//! The words of Evener as types: time, nodes, weights, jobs, outcomes, reports.
//!
//! Pure: no I/O, no clock, no randomness. Everything that schedules, simulates
//! or carries jobs speaks in these types.

mod counts;
mod job;
mod node;
mod report;
mod time;

pub use counts::JobCounts;
pub use job::{Event, Job, Outcome};
pub use node::{Health, NodeId, NodeSpec, Weight, WeightError};
pub use report::Report;
pub use time::Time;
