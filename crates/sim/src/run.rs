use std::time::Duration;

use evener_model::Outcome;
use hdrhistogram::Histogram;

/// What came of one simulated run. Only jobs that came after the warm-up count, except where it says otherwise.
#[derive(Clone, Debug)]
pub struct Run {
    /// From a job's coming to its answer, in nanoseconds, 3 significant digits. Jobs that timed out
    /// count as answered at the limit; jobs that failed otherwise do not count.
    pub response: Histogram<u64>,
    /// Sum of the same, exact.
    pub response_sum_nanos: u128,
    /// Jobs that came.
    pub arrived: u64,
    /// Jobs that were answered.
    pub done: u64,
    /// Jobs that failed for good, by [`Outcome::index`].
    pub failed: [u64; Outcome::ALL.len()],
    /// Jobs that no node could take, and for which there was no place or time to wait.
    pub rejected: u64,
    /// Jobs without an end when the run was given up (see [`Scenario::duration`](crate::Scenario::duration)).
    pub unfinished: u64,
    /// Attempts after the first that were made because one failed. All jobs count.
    pub retries: u64,
    /// Attempts made because there was no answer yet. All jobs count.
    pub hedges: u64,
    /// Jobs handed from node to node. All jobs count.
    pub transfers: u64,
    /// Reports that reached a dispatcher.
    pub reports: u64,
    /// Events simulated.
    pub events: u64,
    /// The time that was measured: from the end of the warm-up to the end of the arrivals.
    pub measured: Duration,
    /// Each node.
    pub nodes: Vec<NodeRun>,
    /// Jobs over time.
    pub series: Series,
    /// Jobs on the fullest node over the mean of all: averaged over the samples of the series, after the warm-up.
    pub imbalance: f64,
}

/// A node in a run.
#[derive(Clone, Debug)]
pub struct NodeRun {
    /// Which of [`Scenario::nodes`](crate::Scenario::nodes) it is one of.
    pub group: usize,
    /// Jobs that it answered, of those that count.
    pub done: u64,
    /// The share of its cores' time in use while measured, 0–1.
    pub utilisation: f64,
    /// Jobs on it, averaged over the measured time.
    pub jobs_mean: f64,
    /// The most jobs on it in the measured time.
    pub jobs_max: u32,
}

/// Jobs on nodes at equal distances of time, warm-up included.
#[derive(Clone, Debug)]
pub struct Series {
    /// The distance.
    pub step: Duration,
    /// Node after node for each sample: `jobs[sample * nodes + node]`.
    pub jobs: Vec<u32>,
}
