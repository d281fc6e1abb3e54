//! Paper 000: transactions on four equal database nodes, and on one more that is slower.

use std::time::Duration;

use evener_scheduler::{Order, Policy, Settings, Variant};

use super::cells::{Cell, Measured};
use super::row::{Row, Subject};
use super::sample::Sample;
use super::{Effort, Paper, Runner, makespan};
use crate::{Arrivals, Dispatch, NodeGroup, Run, Scenario, Share, Signals, Size, When};

/// A fast node ended so many transactions in [`MEASURED`], with eight clients, and the slow one so many (6.2.7).
const LONG: (u32, u32) = (166, 41);
const DISK: (u32, u32) = (1850, 422);
const MEASURED: Duration = Duration::from_secs(360);
const RAMP_UP: Duration = Duration::from_secs(30);
/// Clients for each node; they ask again at once.
const CLIENTS: u32 = 8;
/// A short transaction through a client's daemon takes 0.148 ms, of which 0.022 ms in the database (6.3.2).
const SHORT: Duration = Duration::from_micros(22);
const HOP: Duration = Duration::from_micros(63);
/// What the paper gave its nodes, though it found 4.0 and 4.2.
const WEIGHT_FAST: u16 = 5;
const WEIGHT_SLOW: u16 = 1;

#[derive(Clone, Copy, PartialEq)]
enum Load {
    Long,
    Disk,
    /// So many short ones for each long one.
    Mix(u8),
}

impl Load {
    const ALL: [Load; 5] = [Load::Long, Load::Disk, Load::Mix(3), Load::Mix(25), Load::Mix(100)];

    fn name(self) -> String {
        match self {
            Load::Long => "mediumcpu".into(),
            Load::Disk => "longdisk".into(),
            Load::Mix(shorts) => format!("smcpu{shorts}to1"),
        }
    }

    fn counts(self) -> (u32, u32) {
        if self == Load::Disk { DISK } else { LONG }
    }

    fn size(self) -> Size {
        let long = Size::Fixed { mean: MEASURED / self.counts().0 };
        match self {
            Load::Mix(shorts) => Size::Mix {
                of: vec![
                    Share { share: f64::from(shorts), size: Size::Fixed { mean: SHORT } },
                    Share { share: 1.0, size: long },
                ],
            },
            _ => long,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Algorithm {
    RoundRobin,
    WeightedRoundRobin,
    WeightedRandom,
    JobInformed,
    JobInformedShort,
    LoadInformed,
}

impl Algorithm {
    const ALL: [Algorithm; 6] = [
        Algorithm::RoundRobin,
        Algorithm::WeightedRoundRobin,
        Algorithm::WeightedRandom,
        Algorithm::JobInformed,
        Algorithm::JobInformedShort,
        Algorithm::LoadInformed,
    ];

    /// The name in the paper, and the figure of its results.
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Algorithm::RoundRobin => ("rr", "fig6.1"),
            Algorithm::WeightedRoundRobin => ("wrr", "fig6.3"),
            Algorithm::WeightedRandom => ("wrandom", "fig6.4"),
            Algorithm::JobInformed => ("ji", "fig6.5"),
            Algorithm::JobInformedShort => ("jis", "fig6.8"),
            Algorithm::LoadInformed => ("li", "fig6.9"),
        }
    }

    fn settings(self) -> Settings {
        let settings = Settings { outlier: None, ..Settings::default() };
        let phase = Duration::from_secs(if self == Algorithm::JobInformed { 10 } else { 2 });
        match self {
            Algorithm::RoundRobin => Settings { policy: Policy::RoundRobin, ..settings },
            Algorithm::WeightedRoundRobin => {
                Settings { policy: Policy::WeightedRoundRobin, order: Order::Tokens, ..settings }
            }
            Algorithm::WeightedRandom => Settings { policy: Policy::WeightedRandom, ..settings },
            Algorithm::JobInformed | Algorithm::JobInformedShort => {
                Settings { policy: Policy::JobInformed, phase, ..settings }
            }
            Algorithm::LoadInformed => Settings {
                policy: Policy::LoadInformed,
                variant: Variant::Artificial,
                report_expiry: Duration::from_secs(60),
                ..settings
            },
        }
    }
}

/// Nodes: one, four equal ones, or four and a slow one.
fn cell(load: Load, algorithm: Algorithm, nodes: u32, replications: u32, measured: Duration) -> Cell {
    let fast =
        NodeGroup { count: nodes.min(4), concurrency: Some(0), weight: WEIGHT_FAST, ..NodeGroup::default() };
    let (done_by_fast, done_by_slow) = load.counts();
    let speed = f64::from(done_by_slow) / f64::from(done_by_fast);
    let slow = NodeGroup { count: 1, speed, weight: WEIGHT_SLOW, ..fast.clone() };
    let reports = match algorithm {
        Algorithm::LoadInformed => When::Continuous { phase: Duration::from_secs(10).into() },
        _ => When::Never,
    };
    let ramp_up = RAMP_UP.min(measured);
    let scenario = Scenario {
        arrivals: Arrivals::Closed { clients: CLIENTS * nodes, think: Duration::ZERO },
        size: load.size(),
        duration: ramp_up + measured,
        warm_up: ramp_up,
        nodes: if nodes > 4 { vec![fast, slow] } else { vec![fast] },
        dispatchers: Default::default(),
        signals: Signals { when: reports, ..Signals::default() },
        steering: None,
        transfer: None,
        costs: Default::default(),
        hop: HOP,
        patience: Default::default(),
    };
    Cell { scenario, dispatch: Dispatch::Scheduler(algorithm.settings()), seed: 1, replications, measure }
}

/// Of a run: transactions a second, mean response in s, and the share of the clients on the last node at the end.
fn measure(run: &Run) -> Vec<f64> {
    let done = run.done.max(1) as f64;
    let last: Vec<u32> = run.series.jobs.iter().rev().take(run.nodes.len()).copied().collect();
    let on_last = f64::from(last.first().copied().unwrap_or(0)) / f64::from(last.iter().sum::<u32>().max(1));
    vec![done / run.measured.as_secs_f64(), run.response_sum_nanos as f64 / done / 1e9, on_last]
}

const THROUGHPUT: usize = 0;
const RESPONSE: usize = 1;
const ON_LAST: usize = 2;

/// What came of all benchmarks.
struct Results(Vec<((Load, u32, Algorithm), Measured)>);

impl Results {
    fn measured(&self, load: Load, nodes: u32, algorithm: Algorithm) -> &Measured {
        let found = self.0.iter().find(|(key, _)| *key == (load, nodes, algorithm));
        &found.expect("every benchmark was run").1
    }

    /// Throughput over that of a single node, each by weight, as the paper computes it: 1 is a perfect speed-up.
    fn throughput(&self, load: Load, nodes: u32, algorithm: Algorithm) -> Sample {
        let weights = f64::from(WEIGHT_FAST) * f64::from(nodes.min(4))
            + if nodes > 4 { f64::from(WEIGHT_SLOW) } else { 0.0 };
        let single = &self.measured(load, 1, Algorithm::RoundRobin)[THROUGHPUT];
        let all = &self.measured(load, nodes, algorithm)[THROUGHPUT];
        all.with(single, |all, single| all / weights / (single / f64::from(WEIGHT_FAST)))
    }

    /// How much more the first is, with so many nodes, than the second.
    fn difference(&self, load: Load, one: (u32, Algorithm), two: (u32, Algorithm)) -> Sample {
        self.throughput(load, one.0, one.1).with(&self.throughput(load, two.0, two.1), |one, two| one - two)
    }

    /// Response of a single node over that of the cluster.
    fn response(&self, load: Load, nodes: u32, algorithm: Algorithm) -> Sample {
        let single = &self.measured(load, 1, Algorithm::RoundRobin)[RESPONSE];
        self.measured(load, nodes, algorithm)[RESPONSE].with(single, |all, single| single / all)
    }
}

pub(super) fn reproduce(effort: Effort, run: &Runner<'_>) -> Vec<Row> {
    let (replications, measured) = match effort {
        Effort::Full => (20, MEASURED),
        Effort::Trial => (2, Duration::from_secs(5)),
    };
    let mut keys = Vec::new();
    for load in Load::ALL {
        keys.push((load, 1, Algorithm::RoundRobin));
        for nodes in [4, 5] {
            keys.extend(Algorithm::ALL.map(|algorithm| (load, nodes, algorithm)));
        }
    }
    let cell = |(load, nodes, algorithm)| cell(load, algorithm, nodes, replications, measured);
    let results = run(keys.iter().copied().map(cell).collect());
    let results = Results(keys.into_iter().zip(results).collect());
    let mut rows = makespan::rows();
    rows.extend(bars(&results));
    rows.extend(claims(&results));
    rows
}

fn subject(row: String, quantity: &'static str, unit: &'static str) -> Subject {
    Subject { paper: Paper::Database, row, quantity, unit }
}

/// Figures 6.1 to 6.9: where the text gives a number, it is compared.
fn bars(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    for algorithm in Algorithm::ALL {
        for load in Load::ALL {
            for nodes in [4, 5] {
                let (name, figure) = algorithm.name();
                let row = |what| format!("{figure}/{name}/{}({nodes})/{what}", load.name());
                let ours = results.throughput(load, nodes, algorithm);
                let bar = subject(row("throughput"), THROUGHPUT_RATIO, "ratio");
                rows.push(match said(load, nodes).filter(|_| algorithm == Algorithm::RoundRobin) {
                    Some((paper, note)) => {
                        bar.compare(paper, &ours, 0.1, note).unless_known(load == Load::Long, TOGETHER)
                    }
                    None => bar.not_reproduced(None, Some(&ours), UNREADABLE),
                });
                let ours = results.response(load, nodes, algorithm);
                rows.push(subject(row("response"), RESPONSE_RATIO, "ratio").not_reproduced(
                    None,
                    Some(&ours),
                    UNREADABLE,
                ));
            }
        }
    }
    rows
}

/// What the text says of round robin; with five nodes in the paper's measure, by weights.
fn said(load: Load, nodes: u32) -> Option<(f64, &'static str)> {
    match (load, nodes) {
        (Load::Long | Load::Disk, 4) => Some((1.0, "almost perfect, says the text: 0.1")),
        (Load::Disk, 5) => Some((5.0 / 21.0, "about the speed of a single node, says the text: 0.1")),
        (Load::Long, 5) => {
            Some((10.0 / 21.0, "about twice a single node until it breaks, says the text: 0.1"))
        }
        _ => None,
    }
}

const UNREADABLE: &str = "the paper's bar cannot be read from its text";
const TOGETHER: &str = "equal jobs that begin together fill the slow node sooner than the paper's did";

/// What the text says of the figures.
fn claims(results: &Results) -> Vec<Row> {
    let slow = &results.measured(Load::Long, 5, Algorithm::RoundRobin)[ON_LAST];
    let row = subject("fig6.2/on-slow-node".into(), "clients on the slow node at the end", "share");
    let mut rows = vec![row.compare(1.0, slow, 0.1, "it ends up with all the work, says the text: 0.1")];
    for (fewer, more) in [(3, 25), (25, 100)] {
        let of = |shorts| results.throughput(Load::Mix(shorts), 4, Algorithm::RoundRobin);
        let ours = Sample::from_iter([(of(more).mean() - of(fewer).mean()).signum()]);
        let row = format!("fig6.1/rr/smcpu{more}to1-after-{fewer}to1(4)");
        let row = subject(row, "sign of what more short ones change", "sign");
        let row = row.compare(-1.0, &ours, 0.5, "the more short ones, the worse, says the text");
        let why = "from 25 short ones on, the long ones fall to nodes at random already: no further change";
        rows.push(row.unless_known(more == 100, why));
    }
    for load in Load::ALL {
        use Algorithm::{RoundRobin, WeightedRandom, WeightedRoundRobin};
        let pairs = [
            ("fig6.3/wrr-minus-rr", "(4)", (4, WeightedRoundRobin), (4, RoundRobin), 0.02, IDENTICAL),
            (
                "fig6.3/wrr",
                "(5)-minus-(4)",
                (5, WeightedRoundRobin),
                (4, WeightedRoundRobin),
                0.1,
                LITTLE_LESS,
            ),
            ("fig6.4/wrandom-minus-wrr", "(4)", (4, WeightedRandom), (4, WeightedRoundRobin), 0.1, SAME),
        ];
        for (figure, nodes, one, two, tolerance, note) in pairs {
            let ours = results.difference(load, one, two);
            let row = subject(format!("{figure}/{}{nodes}", load.name()), "difference of speed-ups", "ratio");
            rows.push(row.compare(0.0, &ours, tolerance, note));
        }
    }
    rows.extend(ranks(results));
    rows.extend(disputed(results));
    rows
}

const IDENTICAL: &str = "identical, says the text: 0.02";
const LITTLE_LESS: &str = "the slow node changes little, says the text: 0.1";
const SAME: &str = "differs only in disk mixes, says the text: 0.1";

/// Who is better in how many benchmarks.
fn ranks(results: &Results) -> Vec<Row> {
    use Algorithm::{JobInformed, JobInformedShort, LoadInformed, WeightedRoundRobin};
    let mut rows = Vec::new();
    let pairs = [
        ("fig6.5/ji-against-wrr", JobInformed, WeightedRoundRobin),
        ("fig6.8/jis-against-ji", JobInformedShort, JobInformed),
    ];
    for (row, one, two) in pairs {
        let keeps_up = |(load, nodes): &(Load, u32)| {
            results.difference(*load, (*nodes, one), (*nodes, two)).mean() >= -0.005
        };
        let benchmarks = Load::ALL.into_iter().flat_map(|load| [(load, 4), (load, 5)]);
        let share = benchmarks.filter(keeps_up).count() as f64 / (2 * Load::ALL.len()) as f64;
        let row = subject(row.into(), "benchmarks where it is as good or better", "share");
        let note = "in most, says the text: in more than half; 0.005 less counts as equal";
        rows.push(row.compare(1.0, &Sample::from_iter([share]), 0.49, note));
    }
    for (nodes, place) in [(4, 6.0), (5, 5.0)] {
        let is_ahead = |load: Load, other: &Algorithm| {
            results.difference(load, (nodes, *other), (nodes, LoadInformed)).mean() > 0.0
        };
        let places =
            Load::ALL.map(|load| 1 + Algorithm::ALL.iter().filter(|other| is_ahead(load, other)).count());
        let mean = places.iter().sum::<usize>() as f64 / places.len() as f64;
        let row =
            subject(format!("fig6.9/li({nodes})"), "place among the six, mean over benchmarks", "place");
        let row = row.compare(place, &Sample::from_iter([mean]), 0.5, "half a place");
        rows.push(row.unless_known(true, OUR_LOAD));
    }
    rows
}

const OUR_LOAD: &str =
    "load-informed here finds out what load a job adds; what the paper's added was a guess";

/// What the paper says of the worst benchmark and of its own best result, and what cannot be.
fn disputed(results: &Results) -> Vec<Row> {
    let mut rows = Vec::new();
    let load = Load::Mix(100);
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| *algorithm != Algorithm::JobInformedShort)
    {
        let row = |what| format!("fig6.12/{}/smcpu100to1(4)/{what}", algorithm.name().0);
        let ours = results.throughput(load, 4, algorithm);
        let row_of_throughput = subject(row("throughput"), THROUGHPUT_RATIO, "ratio");
        rows.push(row_of_throughput.compare(0.75, &ours, 0.1, "about 75 %: 0.1").unless_known(true, LAW));
        let ours = results.response(load, 4, algorithm);
        rows.push(subject(row("response"), RESPONSE_RATIO, "ratio").not_reproduced(
            Some(0.5),
            Some(&ours),
            LAW,
        ));
    }
    let ours = results.response(load, 4, Algorithm::JobInformedShort);
    let row = subject("sec6.3.6/jis/smcpu100to1(4)/response".into(), RESPONSE_RATIO, "ratio");
    rows.push(row.not_reproduced(Some(2.25), Some(&ours), LAW));
    rows
}

const THROUGHPUT_RATIO: &str = "throughput, speed-up by weight";
const RESPONSE_RATIO: &str = "response, speed-up";
const LAW: &str = "clients ask again at once, so throughput times response is their number: the two speed-ups must be equal";
