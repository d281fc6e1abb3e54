//! Paper 004: weights from reported health, on three nodes that serve a page and one that runs a script for it.

use std::time::Duration;

use evener_scheduler::{Policy, Settings};

use super::cells::{Cell, Measured};
use super::row::{Row, Subject};
use super::sample::Sample;
use super::{Effort, Paper, Runner};
use crate::{Arrivals, Dispatch, NodeGroup, Patience, Run, Scenario, Signals, Size, Steering, When};

/// Four nodes with the page carried 2,880 requests a second.
const PAGES_PER_S: f64 = 720.0;
/// The script is not described. At 640 requests a second a node with the page is busy for 22 %, and the one
/// with the script was for 50 to 80 points more: at 65 more it carries this.
const SCRIPTS_PER_S: f64 = 183.0;
/// Neither how much of a new report counted is said, nor how often the nodes were asked.
const ALPHA: f64 = 0.2;
const PERIOD: Duration = Duration::from_secs(1);
const TIMEOUT: Duration = Duration::from_secs(8);
const STEP: u32 = 320;
const STEPS: u32 = 13;

#[derive(Clone, Copy, PartialEq)]
enum SetUp {
    Even,
    Uneven,
    Smoothed,
    Integral,
}

impl SetUp {
    const ALL: [SetUp; 4] = [SetUp::Even, SetUp::Uneven, SetUp::Smoothed, SetUp::Integral];

    /// The figure of its results, or what it is called here.
    fn figure(self) -> &'static str {
        match self {
            SetUp::Even => "fig3",
            SetUp::Uneven => "fig5",
            SetUp::Smoothed => "fig7",
            SetUp::Integral => "integral",
        }
    }

    fn steering(self) -> Option<Steering> {
        match self {
            SetUp::Even | SetUp::Uneven => None,
            SetUp::Smoothed => Some(Steering::Smoothing { alpha: ALPHA, dead_band: 0.0 }),
            SetUp::Integral => Some(Steering::Integral { gain_per_s: 0.2, dead_band: None }),
        }
    }
}

#[derive(Clone, Copy)]
struct Extent {
    warm_up: Duration,
    duration: Duration,
    replications: u32,
}

fn cell(set_up: SetUp, rate: u32, extent: Extent) -> Cell {
    // A server with a process for each request: they share its processor.
    let node = |count, speed| NodeGroup { count, speed, concurrency: Some(0), ..NodeGroup::default() };
    let when =
        if set_up.steering().is_some() { When::Continuous { phase: PERIOD.into() } } else { When::Never };
    let scenario = Scenario {
        arrivals: Arrivals::Poisson { rate: f64::from(rate) },
        size: Size::Exponential { mean: Duration::from_secs_f64(1.0 / PAGES_PER_S) },
        duration: extent.duration,
        warm_up: extent.warm_up,
        nodes: match set_up {
            SetUp::Even => vec![node(4, 1.0)],
            _ => vec![node(3, 1.0), node(1, SCRIPTS_PER_S / PAGES_PER_S)],
        },
        signals: Signals { when, ..Signals::default() },
        steering: set_up.steering(),
        patience: Patience { timeout: Some(TIMEOUT), ..Patience::default() },
        ..Scenario::default()
    };
    let settings = Settings { policy: Policy::WeightedRoundRobin, outlier: None, ..Settings::default() };
    let (seed, replications) = (1, extent.replications);
    Cell { scenario, dispatch: Dispatch::Scheduler(settings), seed, replications, measure }
}

/// Of a run: answers a second, the share of requests without an answer in percent, and by how many points the
/// last node is busier than the mean of the others.
fn measure(run: &Run) -> Vec<f64> {
    let busy = |node: usize| run.nodes[node].utilisation * 100.0;
    let gap = busy(3) - (busy(0) + busy(1) + busy(2)) / 3.0;
    let errors = (1.0 - run.done as f64 / run.arrived.max(1) as f64) * 100.0;
    vec![run.done as f64 / run.measured.as_secs_f64(), errors, gap]
}

const RESPONSES: usize = 0;
const ERRORS: usize = 1;
const GAP: usize = 2;

pub(super) fn reproduce(effort: Effort, run: &Runner<'_>) -> Vec<Row> {
    let s = Duration::from_secs;
    // All of a test counts, as it did; the gap was read off when it was under way.
    let (whole, settled) = match effort {
        Effort::Full => (
            Extent { warm_up: s(0), duration: s(60), replications: 8 },
            Extent { warm_up: s(30), duration: s(90), replications: 8 },
        ),
        Effort::Trial => (
            Extent { warm_up: s(0), duration: s(1), replications: 2 },
            Extent { warm_up: s(5), duration: s(10), replications: 2 },
        ),
    };
    let rates: Vec<u32> = (1..=STEPS).map(|step| step * STEP).collect();
    let mut cells: Vec<Cell> = SetUp::ALL.map(|set_up| cell(set_up, 2 * STEP, settled)).into();
    for set_up in SetUp::ALL {
        cells.extend(rates.iter().map(|rate| cell(set_up, *rate, whole)));
    }
    let results = run(cells);
    let (gaps, sweeps) = results.split_at(SetUp::ALL.len());
    let sweeps: Vec<&[Measured]> = sweeps.chunks(rates.len()).collect();
    let mut rows = curves(&rates, &sweeps);
    rows.extend(text(gaps, &sweeps));
    rows.extend(successes(&rates, &sweeps));
    rows
}

fn subject(row: String, quantity: &'static str, unit: &'static str) -> Subject {
    Subject { paper: Paper::Feedback, row, quantity, unit }
}

/// Figures 3, 5 and 7, and the same for the other controller.
fn curves(rates: &[u32], sweeps: &[&[Measured]]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (set_up, sweep) in SetUp::ALL.iter().zip(sweeps) {
        for (rate, measured) in rates.iter().zip(*sweep) {
            let row = |what| format!("{}/{what}/{rate}", set_up.figure());
            let (responses, errors) = (&measured[RESPONSES], &measured[ERRORS]);
            let row_of_responses = subject(row("responses"), "answers", "requests/s");
            let row_of_errors = subject(row("errors"), "requests without an answer in 8 s", "%");
            if *set_up == SetUp::Even && *rate <= 9 * STEP {
                let note = "linear up to here, says the text: 5 %; the rate of the last was used for the work of a page";
                rows.push(row_of_responses.compare(
                    f64::from(*rate),
                    responses,
                    0.05 * f64::from(*rate),
                    note,
                ));
                rows.push(row_of_errors.compare(0.0, errors, 1.0, "low up to here, says the text: 1 point"));
            } else {
                rows.push(row_of_responses.not_reproduced(None, Some(responses), UNREADABLE));
                rows.push(row_of_errors.not_reproduced(None, Some(errors), UNREADABLE));
            }
        }
    }
    rows
}

const UNREADABLE: &str = "the paper's curve cannot be read from its text, or there is none";

/// What the text says.
fn text(gaps: &[Measured], sweeps: &[&[Measured]]) -> Vec<Row> {
    let gap = |row: &str| subject(row.into(), "how much busier the node with the script is", "points");
    let of = |set_up: SetUp| &gaps[set_up as usize][GAP];
    let mut rows = vec![
        gap("fig6/gap/640").compare(
            65.0,
            of(SetUp::Uneven),
            15.0,
            "50 to 80, from which the work of the script follows",
        ),
        gap("fig8/gap/640").compare(30.0, of(SetUp::Smoothed), 5.0, "25 to 35"),
        gap("integral/gap/640").compare(
            0.0,
            of(SetUp::Integral),
            10.0,
            "the paper leaves an equal load to others; below 10 is asked for",
        ),
    ];
    let sign = |row: &str, one: &Sample, two: &Sample, paper: f64, note: &str| {
        let ours = Sample::from_iter([(one.mean() - two.mean()).signum()]);
        subject(row.into(), "sign of the difference", "sign").compare(paper, &ours, 0.5, note)
    };
    let at =
        |set_up: SetUp, rate: u32, what: usize| &sweeps[set_up as usize][(rate / STEP - 1) as usize][what];
    rows.push(sign(
        "fig3/responses/3520-after-2880",
        at(SetUp::Even, 3520, RESPONSES),
        at(SetUp::Even, 2880, RESPONSES),
        -1.0,
        "the response rate drops when the servers are fully loaded",
    ));
    for rate in [960, 1280, 1600, 1920] {
        rows.push(sign(
            &format!("fig10/errors/{rate}/with-minus-without"),
            at(SetUp::Smoothed, rate, ERRORS),
            at(SetUp::Uneven, rate, ERRORS),
            -1.0,
            "a marked improvement with feedback",
        ));
    }
    let plateau =
        at(SetUp::Uneven, 2560, ERRORS).with(at(SetUp::Uneven, 1600, ERRORS), |late, early| late - early);
    rows.push(subject("fig5/errors/2560-minus-1600".into(), "growth of the errors", "points").compare(
        0.0,
        &plateau,
        5.0,
        "the error rate levels off until the other nodes are full: 5 points",
    ));
    rows
}

/// The load at which 99.5 % succeed: how many times as much with feedback.
fn successes(rates: &[u32], sweeps: &[&[Measured]]) -> Vec<Row> {
    let of = |set_up: SetUp| load_at(rates, sweeps[set_up as usize]);
    let without = of(SetUp::Uneven);
    let mut rows = Vec::new();
    for set_up in [SetUp::Uneven, SetUp::Smoothed, SetUp::Integral] {
        let row = subject(
            format!("{}/load-at-99.5", set_up.figure()),
            "load at which 99.5 % succeed",
            "requests/s",
        );
        rows.push(row.not_reproduced(
            None,
            Some(&of(set_up)),
            "the paper gives only how many times as much it is",
        ));
    }
    let times = |set_up| of(set_up).with(&without, |with, without| with / without);
    let note = "a step of the load is half the load without feedback: 0.5";
    let row = subject("sec5/load-at-99.5".into(), "times the load without feedback", "ratio");
    rows.push(row.compare(2.3, &times(SetUp::Smoothed), 0.5, note));
    let row = subject("integral/times-at-99.5".into(), "times the load without feedback", "ratio");
    rows.push(row.not_reproduced(None, Some(&times(SetUp::Integral)), "the paper has no such controller"));
    rows
}

/// Where the share of errors first passes 0.5 %, by straight lines, in each replication.
fn load_at(rates: &[u32], sweep: &[Measured]) -> Sample {
    let errors = |at: usize, replication: usize| sweep[at][ERRORS].figures()[replication];
    let crossing = |replication: usize| {
        let first = f64::from(rates[0]);
        let Some(above) = (0..rates.len()).find(|at| errors(*at, replication) > 0.5) else {
            return f64::from(rates[rates.len() - 1]);
        };
        let Some(below) = above.checked_sub(1) else { return first };
        let (low, high) = (errors(below, replication), errors(above, replication));
        f64::from(rates[below]) + f64::from(STEP) * (0.5 - low) / (high - low)
    };
    (0..sweep[0][ERRORS].figures().len()).map(crossing).collect()
}
