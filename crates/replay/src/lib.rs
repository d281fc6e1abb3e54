//! Load generation and measurement for Evener.
//!
//! A [`Load`] is an open loop: requests are sent when they are due, whether or not earlier
//! ones were answered, as the users of a public service do. Response times count from when a
//! request was *due*, so that a slow answer cannot hide the requests that it delayed.

mod alarm;
mod connection;
mod load;
mod random;
mod report;
mod target;

pub use alarm::Alarm;
pub use load::{Arrivals, Load, Tick};
pub use random::Random;
pub use report::{Failures, Latencies, Quantile, Report, quantile};
pub use target::{Target, TargetError};

pub use hdrhistogram::Histogram;
