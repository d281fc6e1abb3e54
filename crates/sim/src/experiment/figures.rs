//! What is told of a run.

use std::time::Duration;

use evener_model::Outcome;

use crate::{Run, Scenario};

/// Nodes up to which each has a line of its own over time.
const LINES_MAX: usize = 8;

/// A figure that is told of each policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Mean response time.
    Mean,
    /// Of the response times, the median.
    P50,
    /// 95th percentile.
    P95,
    /// 99th percentile.
    P99,
    /// 99.5th percentile.
    P995,
    /// 99.9th percentile.
    P999,
    /// Jobs answered a second.
    Throughput,
    /// Share of the cores' time in use.
    Utilisation,
    /// Transfers between nodes for each job.
    Transfers,
    /// Jobs on the fullest node over the mean of all.
    Imbalance,
    /// Share of the jobs that were not answered.
    Losses,
}

impl Measure {
    /// All of them, in the order of tables.
    pub const ALL: [Measure; 11] = [
        Measure::Mean,
        Measure::P50,
        Measure::P95,
        Measure::P99,
        Measure::P995,
        Measure::P999,
        Measure::Throughput,
        Measure::Utilisation,
        Measure::Transfers,
        Measure::Imbalance,
        Measure::Losses,
    ];

    /// The name for machines, with the unit where there is one.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::Mean => "mean_ms",
            Measure::P50 => "p50_ms",
            Measure::P95 => "p95_ms",
            Measure::P99 => "p99_ms",
            Measure::P995 => "p99_5_ms",
            Measure::P999 => "p99_9_ms",
            Measure::Throughput => "throughput",
            Measure::Utilisation => "utilisation",
            Measure::Transfers => "transfers_per_job",
            Measure::Imbalance => "max_over_mean_jobs",
            Measure::Losses => "losses",
        }
    }

    /// The name for people.
    pub const fn title(self) -> &'static str {
        match self {
            Measure::Mean => "mean",
            Measure::P50 => "p50",
            Measure::P95 => "p95",
            Measure::P99 => "p99",
            Measure::P995 => "p99.5",
            Measure::P999 => "p99.9",
            Measure::Throughput => "jobs/s",
            Measure::Utilisation => "in use",
            Measure::Transfers => "transfers/job",
            Measure::Imbalance => "max/mean jobs",
            Measure::Losses => "lost",
        }
    }

    /// Whether it is a response time, in milliseconds.
    pub const fn is_time(self) -> bool {
        matches!(
            self,
            Measure::Mean | Measure::P50 | Measure::P95 | Measure::P99 | Measure::P995 | Measure::P999
        )
    }

    /// Whether it is a share, 0–1.
    pub const fn is_share(self) -> bool {
        matches!(self, Measure::Utilisation | Measure::Losses)
    }

    /// Whether smaller is better; of the others, neither is.
    pub const fn is_cost(self) -> bool {
        !matches!(self, Measure::Throughput | Measure::Utilisation)
    }

    const fn index(self) -> usize {
        self as usize
    }

    /// Share of the response times that lie below, times 10,000.
    const fn per_myriad(self) -> Option<u64> {
        match self {
            Measure::P50 => Some(5_000),
            Measure::P95 => Some(9_500),
            Measure::P99 => Some(9_900),
            Measure::P995 => Some(9_950),
            Measure::P999 => Some(9_990),
            _ => None,
        }
    }
}

/// Jobs over time, on a node or on nodes that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// What it is of.
    pub label: String,
    /// At equal distances.
    pub jobs: Vec<f32>,
}

/// The figures of a run.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    measures: [Option<f64>; Measure::ALL.len()],
    pub(super) jobs: f64,
    pub(super) losses: LossFigures,
    pub(super) retries_per_job: f64,
    pub(super) hedges_per_job: f64,
    pub(super) groups: Vec<GroupFigures>,
    pub(super) lines: Vec<Line>,
    pub(super) step: Duration,
}

/// Shares of the jobs that were not answered, by reason.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossFigures {
    pub(super) rejected: f64,
    pub(super) failed: [f64; Outcome::ALL.len()],
    pub(super) unfinished: f64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupFigures {
    nodes: f64,
    pub(super) share: f64,
    pub(super) utilisation: f64,
    pub(super) jobs_mean: f64,
    pub(super) jobs_max: f64,
}

impl Figures {
    /// Of a run; `with_lines` if jobs over time are wanted.
    pub(super) fn of(run: &Run, scenario: &Scenario, with_lines: bool) -> Figures {
        let arrived = run.arrived as f64;
        // Not above 0 jobs: nothing can be said per job.
        let share = |jobs: u64| if arrived > 0.0 { jobs as f64 / arrived } else { 0.0 };
        let measured = run.measured.as_secs_f64();
        // What is counted over all jobs is told as if it were spread evenly over them.
        let of_all = |count: u64| share(count) * measured / scenario.duration.as_secs_f64();
        let mut measures = [None; Measure::ALL.len()];
        let mut set = |measure: Measure, value: Option<f64>| measures[measure.index()] = value;
        let answered = run.response.len();
        set(Measure::Mean, (answered > 0).then(|| run.response_sum_nanos as f64 / answered as f64 / 1e6));
        for measure in Measure::ALL {
            if let Some(below) = measure.per_myriad() {
                set(measure, percentile_ms(run, below));
            }
        }
        set(Measure::Throughput, Some(run.done as f64 / measured));
        set(Measure::Utilisation, Some(utilisation(run, scenario)));
        set(Measure::Transfers, (arrived > 0.0).then(|| of_all(run.transfers)));
        set(Measure::Imbalance, (run.imbalance > 0.0).then_some(run.imbalance));
        set(Measure::Losses, (arrived > 0.0).then(|| share(run.arrived.saturating_sub(run.done))));
        Figures {
            measures,
            jobs: arrived,
            losses: LossFigures {
                rejected: share(run.rejected),
                failed: run.failed.map(share),
                unfinished: share(run.unfinished),
            },
            retries_per_job: of_all(run.retries),
            hedges_per_job: of_all(run.hedges),
            groups: groups(run, scenario),
            lines: if with_lines { lines(run, scenario) } else { Vec::new() },
            step: run.series.step,
        }
    }

    pub(super) fn measure(&self, measure: Measure) -> Option<f64> {
        self.measures[measure.index()]
    }
}

/// A percentile, if ten response times lie above it: with fewer it is little more than the worst of them.
fn percentile_ms(run: &Run, per_myriad: u64) -> Option<f64> {
    let enough = run.response.len() * (10_000 - per_myriad) >= 10 * 10_000;
    enough.then(|| run.response.value_at_quantile(per_myriad as f64 / 10_000.0) as f64 / 1e6)
}

fn utilisation(run: &Run, scenario: &Scenario) -> f64 {
    let cores = |group: usize| f64::from(scenario.nodes[group].cores);
    let all: f64 = run.nodes.iter().map(|node| cores(node.group)).sum();
    run.nodes.iter().map(|node| node.utilisation * cores(node.group)).sum::<f64>() / all
}

fn groups(run: &Run, scenario: &Scenario) -> Vec<GroupFigures> {
    let mut groups = vec![GroupFigures::default(); scenario.nodes.len()];
    let done: u64 = run.nodes.iter().map(|node| node.done).sum();
    for node in &run.nodes {
        let group = &mut groups[node.group];
        group.nodes += 1.0;
        group.share += node.done as f64 / done.max(1) as f64;
        group.utilisation += node.utilisation;
        group.jobs_mean += node.jobs_mean;
        group.jobs_max = group.jobs_max.max(f64::from(node.jobs_max));
    }
    for group in &mut groups {
        group.utilisation /= group.nodes;
        group.jobs_mean /= group.nodes;
    }
    groups
}

/// Jobs on each of a few nodes; of many, the mean of each group and the fullest.
fn lines(run: &Run, scenario: &Scenario) -> Vec<Line> {
    let nodes = run.nodes.len();
    let samples = || run.series.jobs.chunks_exact(nodes);
    if nodes <= LINES_MAX {
        let line = |node: usize| Line {
            label: format!("node {}{}", node + 1, speed(scenario, run.nodes[node].group)),
            jobs: samples().map(|jobs| jobs[node] as f32).collect(),
        };
        return (0..nodes).map(line).collect();
    }
    let group_line = |group: usize| {
        let members: Vec<usize> = (0..nodes).filter(|node| run.nodes[*node].group == group).collect();
        let mean =
            |jobs: &[u32]| members.iter().map(|node| jobs[*node] as f32).sum::<f32>() / members.len() as f32;
        Line {
            label: format!("mean of {} nodes{}", members.len(), speed(scenario, group)),
            jobs: samples().map(mean).collect(),
        }
    };
    let fullest = Line {
        label: "fullest node".into(),
        jobs: samples().map(|jobs| jobs.iter().copied().max().unwrap_or(0) as f32).collect(),
    };
    (0..scenario.nodes.len()).map(group_line).chain([fullest]).collect()
}

fn speed(scenario: &Scenario, group: usize) -> String {
    if scenario.nodes.iter().all(|group| group.speed == scenario.nodes[0].speed) {
        return String::new();
    }
    format!(", speed {}", scenario.nodes[group].speed)
}
