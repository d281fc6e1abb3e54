//! Paper 000, 3.1: four jobs that come at once, and the 8 ways to share them out between two equal nodes.

use super::Paper;
use super::row::{Row, Subject};
use super::sample::Sample;

/// Jobs J1 to J4: how long each takes alone.
const JOBS: [f64; 4] = [24.0, 8.0, 6.0, 2.0];

/// Which jobs the first node gets, the mean response, and when all are done; the second node gets the others.
const SCHEDULES: [(&str, &[usize], f64, f64); 8] = [
    ("1,4|2,3", &[0, 3], 14.0, 26.0),
    ("1,3|2,4", &[0, 2], 14.0, 30.0),
    ("1|2,3,4", &[0], 15.0, 24.0),
    ("1,2|3,4", &[0, 1], 15.0, 32.0),
    ("2|1,3,4", &[1], 15.0, 32.0),
    ("1,2,4|3", &[0, 1, 3], 16.0, 34.0),
    ("1,2,3|4", &[0, 1, 2], 20.0, 38.0),
    ("|1,2,3,4", &[], 23.0, 40.0),
];

/// When jobs are done that begin at once on a node which shares itself out evenly: the shortest first, after each has
/// got as much as it.
pub(super) fn ends(jobs: &[f64]) -> Vec<f64> {
    let mut left = jobs.to_vec();
    left.sort_by(f64::total_cmp);
    let (mut now, mut got) = (0.0, 0.0);
    let mut ends = Vec::with_capacity(left.len());
    for (done, job) in left.iter().enumerate() {
        now += (job - got) * (left.len() - done) as f64;
        got = *job;
        ends.push(now);
    }
    ends
}

/// Mean response, and when all is done.
fn schedule(first: &[usize]) -> (f64, f64) {
    let of = |is_first: bool| {
        let jobs = JOBS.iter().enumerate().filter(|(job, _)| first.contains(job) == is_first);
        ends(&jobs.map(|(_, work)| *work).collect::<Vec<_>>())
    };
    let all = [of(true), of(false)].concat();
    (all.iter().sum::<f64>() / all.len() as f64, all.iter().copied().fold(0.0, f64::max))
}

pub(super) fn rows() -> Vec<Row> {
    let subject = |row: String, quantity, unit| Subject {
        paper: Paper::Database,
        row: format!("sec3.1/{row}"),
        quantity,
        unit,
    };
    let exactly = |value: f64| Sample::from_iter([value]);
    let mut rows = Vec::new();
    for (name, first, response, time) in SCHEDULES {
        let ours = schedule(first);
        let note = "computed, not simulated: must be equal";
        let row = subject(format!("{name}/response"), "mean response", "time units");
        rows.push(row.compare(response, &exactly(ours.0), 0.0, note));
        let row = subject(format!("{name}/time"), "time until all are done", "time units");
        rows.push(row.compare(time, &exactly(ours.1), 0.0, note));
    }
    let all = SCHEDULES.map(|(_, first, ..)| schedule(first));
    let best = |by: fn(&(f64, f64)) -> (f64, f64)| {
        all.into_iter().min_by(|a, b| by(a).partial_cmp(&by(b)).expect("no NaN"))
    };
    // Of the schedules with the least of one, the one with the least of the other.
    if let (Some(response), Some(time)) = (best(|both| *both), best(|both| (both.1, both.0))) {
        let note = "rounded in the paper";
        let row = subject("least-response/slower".into(), "longer than the shortest time", "%");
        rows.push(row.compare(8.3, &exactly((response.1 / time.1 - 1.0) * 100.0), 0.05, note));
        let row = subject("least-time/response".into(), "above the least mean response", "%");
        rows.push(row.compare(7.0, &exactly((time.0 / response.0 - 1.0) * 100.0), 0.5, note));
    }
    rows
}
