//! Paper 001: a balancer with a queue for each database node, and so many workers that serve it.

use std::time::Duration;

use evener_scheduler::{Policy, Settings};

use super::cells::{Cell, Measured};
use super::row::{Row, Subject};
use super::sample::Sample;
use super::{Effort, Paper, Runner};
use crate::{Arrivals, Costs, Dispatch, NodeGroup, Run, Scenario, Size};

const INSERTS: f64 = 300_000.0;
/// Workers for each node, and what 1 to 4 nodes did in a second, and how many seconds they took.
const TABLE: [(u32, [f64; 4], [f64; 4]); 4] = [
    (1, [1827.0, 3925.0, 5700.0, 7111.0], [169.0, 80.0, 56.0, 44.0]),
    (2, [3640.0, 7049.0, 9347.0, 12422.0], [86.0, 45.0, 34.0, 25.0]),
    (3, [5011.0, 9062.0, 12445.0, 17065.0], [129.0, 34.0, 25.0, 17.0]),
    (6, [9018.0, 14588.0, 14717.0, 14476.0], [33.0, 20.0, 20.0, 21.0]),
];

/// One worker takes so long for an insert, from the first cell of the table.
const INSERT: Duration = Duration::from_nanos(1_000_000_000 / 1827);
/// Of this, so long the balancer is at work, and for one worker at a time: from the best cell.
const BALANCER: Duration = Duration::from_nanos(1_000_000_000 / 17065);

fn cell(workers: u32, nodes: u32, duration: Duration, replications: u32) -> Cell {
    let scenario = Scenario {
        // A worker that has its answer takes the next insert at once: there is always one in its queue.
        arrivals: Arrivals::Closed { clients: workers * nodes, think: Duration::ZERO },
        size: Size::Exponential { mean: INSERT - BALANCER },
        duration,
        warm_up: duration / 10,
        nodes: vec![NodeGroup { count: nodes, cores: workers, ..NodeGroup::default() }],
        costs: Costs { pick: BALANCER, ..Costs::default() },
        ..Scenario::default()
    };
    let settings = Settings { policy: Policy::LeastJobs, outlier: None, ..Settings::default() };
    Cell { scenario, dispatch: Dispatch::Scheduler(settings), seed: 1, replications, measure }
}

fn measure(run: &Run) -> Vec<f64> {
    vec![run.done as f64 / run.measured.as_secs_f64()]
}

pub(super) fn reproduce(effort: Effort, run: &Runner<'_>) -> Vec<Row> {
    let (duration, replications) = match effort {
        Effort::Full => (Duration::from_secs(20), 4),
        Effort::Trial => (Duration::from_millis(200), 2),
    };
    let cells = TABLE
        .iter()
        .flat_map(|(workers, ..)| (1..=4).map(|nodes| cell(*workers, nodes, duration, replications)));
    let results = run(cells.collect());
    let mut rows = Vec::new();
    for ((workers, rates, times), measured) in TABLE.iter().zip(results.chunks(4)) {
        for (node, measured) in measured.iter().enumerate() {
            rows.extend(cell_rows(*workers, node, rates[node], times[node], &measured[0]));
        }
    }
    rows.push(knee(&results));
    rows
}

fn subject(row: String, quantity: &'static str, unit: &'static str) -> Subject {
    Subject { paper: Paper::KeyValue, row, quantity, unit }
}

fn cell_rows(workers: u32, node: usize, rate: f64, time: f64, ours: &Sample) -> [Row; 2] {
    let place = format!("{workers}/{}", node + 1);
    let row = subject(format!("throughput/{place}"), "inserts", "1/s");
    let rate_row = row.compare(rate, ours, 0.15 * rate, "15 %: one run, of which nothing more is said");
    let times: Sample = ours.figures().iter().map(|rate| INSERTS / rate).collect();
    let row = subject(format!("time/{place}"), "time for 300,000 inserts", "s");
    let time_row = row.compare(time, &times, 0.15 * time + 0.5, "15 %, and half a second of rounding");
    let is_misprint = (INSERTS / rate / time - 1.0).abs() > 0.5;
    let misprint = "a misprint: it contradicts the throughput of the same cell";
    let locks = "three and more workers share the lock of a queue, and more than 12 threads the balancer: not modelled";
    [
        rate_row.unless_known(workers >= 3, locks),
        time_row.unless_known(workers >= 3, if is_misprint { misprint } else { locks }),
    ]
}

/// Workers, of all nodes together, with which throughput was largest.
fn knee(results: &[Measured]) -> Row {
    let all = TABLE.iter().flat_map(|(workers, ..)| (1..=4).map(move |nodes| workers * nodes)).zip(results);
    let largest = results.iter().map(|measured| measured[0].mean()).fold(0.0, f64::max);
    let enough =
        all.filter(|(_, measured)| measured[0].mean() >= 0.9 * largest).map(|(workers, _)| workers).min();
    let ours = Sample::from_iter([f64::from(enough.unwrap_or(0))]);
    let row = subject("sec5/knee".into(), "workers from which on more bring no more than a tenth", "workers");
    row.compare(12.0, &ours, 3.0, "3: the table has 9, 12 and 18 workers, and none between")
}
