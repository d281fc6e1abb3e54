//! What an act with a hog was like before, during and after it.

use std::time::Duration;

use evener_replay::{Quantile, quantile};
use hdrhistogram::Histogram;
use serde::Serialize;

/// A part of an act with a hog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stretch {
    Before,
    During,
    After,
}

/// What was so when a stretch ended.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub(crate) ends: Stretch,
    pub(crate) at: Duration,
    /// Response times since the act began, in microseconds.
    pub(crate) corrected: Histogram<u64>,
    /// Jobs that each node has begun.
    pub(crate) jobs: Vec<u64>,
}

/// How a stretch was.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct StretchUse {
    pub(crate) stretch: Stretch,
    /// Of requests answered in it.
    pub(crate) p99_ms: Option<f64>,
    /// Of the jobs begun in it, the share that each node got.
    pub(crate) shares: Vec<f64>,
    /// The weights at its end.
    pub(crate) weights: Vec<u32>,
}

/// What lies between the marks. `weights` are what they were at times of the act, in order.
pub(crate) fn stretches(marks: &[Mark], weights: &[(Duration, Vec<u32>)]) -> Vec<StretchUse> {
    let between = |pair: &[Mark]| {
        let [from, to] = pair else { unreachable!("windows of two have two") };
        let mut answered = to.corrected.clone();
        // What is taken away was in it: histograms of one act only grow.
        let p99_ms =
            answered.subtract(&from.corrected).ok().and_then(|()| quantile(&answered, Quantile::P99));
        let jobs: Vec<u64> = to.jobs.iter().zip(&from.jobs).map(|(to, from)| to - from).collect();
        let all = jobs.iter().sum::<u64>().max(1) as f64;
        let last = weights.iter().rev().find(|(at, _)| *at <= to.at);
        StretchUse {
            stretch: to.ends,
            p99_ms,
            shares: jobs.iter().map(|jobs| *jobs as f64 / all).collect(),
            weights: last.map(|(_, weights)| weights.clone()).unwrap_or_default(),
        }
    };
    marks.windows(2).map(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stretch_has_its_own_times_shares_and_weights() {
        let mut corrected = Histogram::new(3).unwrap();
        let mut mark = |ends, second, micros: u64, jobs: [u64; 2]| {
            corrected.record_n(micros, 2000).unwrap();
            Mark { ends, at: Duration::from_secs(second), corrected: corrected.clone(), jobs: jobs.into() }
        };
        let start = Mark {
            ends: Stretch::Before,
            at: Duration::ZERO,
            corrected: Histogram::new(3).unwrap(),
            jobs: vec![0, 0],
        };
        let marks =
            [start, mark(Stretch::Before, 4, 1_000, [80, 20]), mark(Stretch::During, 8, 9_000, [90, 110])];
        let weights = [(4, vec![8, 2]), (7, vec![1, 9]), (20, vec![5, 5])];
        let weights = weights.map(|(second, weights)| (Duration::from_secs(second), weights));
        let [before, during] = &stretches(&marks, &weights)[..] else { panic!("two stretches") };
        assert_eq!(
            (before.stretch, &before.shares, &before.weights),
            (Stretch::Before, &vec![0.8, 0.2], &vec![8, 2])
        );
        assert_eq!(
            (during.stretch, &during.shares, &during.weights),
            (Stretch::During, &vec![0.1, 0.9], &vec![1, 9])
        );
        assert!((before.p99_ms.unwrap() - 1.0).abs() < 0.01 && (during.p99_ms.unwrap() - 9.0).abs() < 0.05);
    }
}
