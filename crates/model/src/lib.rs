//! The words of Evener as types: time, nodes, weights, jobs, outcomes.
//!
//! Pure: no I/O, no clock, no randomness. Everything that schedules, simulates
//! or carries jobs speaks in these types.

mod counts;
mod job;
mod node;
mod time;

pub use counts::JobCounts;
pub use job::{Event, Job, Outcome};
pub use node::{Health, NodeId, NodeSpec, Weight, WeightError};
pub use time::Time;
