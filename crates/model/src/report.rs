use std::time::Duration;

use crate::{Health, Time};

/// What a node said of itself. What it did not say is `None`.
///
/// It is about the past: whoever uses it weighs it by its age, `now − measured_at`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Report {
    /// When it was measured, on the driver's clock.
    pub measured_at: Time,
    /// Jobs on the node, whoever sent them, waiting ones included.
    pub jobs: Option<u32>,
    /// How much of its capacity was in use: 0 idle, 1 all of it; above 1 work waits.
    pub load: Option<f32>,
    /// How well it says it is.
    pub health: Option<Health>,
    /// Jobs that it can take beyond those it has.
    pub credits: Option<u32>,
    /// Jobs that it ends in a second.
    pub jobs_per_s: Option<f32>,
    /// Jobs in a second that end with an error of its own.
    pub errors_per_s: Option<f32>,
    /// How long a job that came at that moment would have taken, as far as the node can tell.
    pub latency: Option<Duration>,
}
