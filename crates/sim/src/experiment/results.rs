//! What came of an experiment: every figure over its replications, and against the first policy.

use std::time::Duration;

use evener_model::Outcome;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::figures::{Figures, GroupFigures, Line, Measure};
use super::statistics::{Estimate, rounded, rounded_if_any};
use super::{Experiment, Point};

/// What the form of the results is called; it changes when a name in them does.
const SCHEMA: &str = "evener-sim/1";

/// What came of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Results {
    /// The form of what follows.
    pub schema: &'static str,
    /// [`Experiment::name`].
    pub name: String,
    /// [`Experiment::description`].
    pub description: String,
    /// The seed of the first replication.
    pub seed: u64,
    /// Runs of each policy at each point, with seeds that follow each other.
    pub replications: u32,
    /// Jobs came for this long.
    pub duration_s: f64,
    /// Those that came before this are not counted.
    pub warm_up_s: f64,
    /// How many nodes there were.
    pub nodes: u32,
    /// Jobs a second that the nodes can do.
    #[serde(serialize_with = "rounded")]
    pub capacity: f64,
    /// Load by load.
    pub points: Vec<PointResults>,
}

/// What came of all policies under a load.
#[derive(Clone, Debug, Serialize)]
pub struct PointResults {
    /// Jobs a second that come; `None` for clients that wait for answers.
    #[serde(serialize_with = "rounded_if_any")]
    pub rate: Option<f64>,
    /// The same as a share of what the nodes can do.
    #[serde(serialize_with = "rounded_if_any")]
    pub load: Option<f64>,
    /// Policy by policy, in the order that was asked for.
    pub policies: Vec<PolicyResults>,
}

/// What came of a policy under a load.
#[derive(Clone, Debug, Serialize)]
pub struct PolicyResults {
    /// What it is called.
    pub policy: String,
    /// Jobs that counted in a run, on average.
    #[serde(serialize_with = "rounded")]
    pub jobs: f64,
    /// Every figure.
    pub figures: Estimates,
    /// Every figure less that of the first policy, seed by seed; none for the first.
    pub difference: Option<Differences>,
    /// Jobs that were not answered.
    pub losses: Losses,
    /// Attempts for each job because one before failed.
    #[serde(serialize_with = "rounded")]
    pub retries_per_job: f64,
    /// Attempts for each job because there was no answer yet.
    #[serde(serialize_with = "rounded")]
    pub hedges_per_job: f64,
    /// Group of nodes by group.
    pub groups: Vec<GroupResults>,
    /// Jobs on nodes over time, with the first seed.
    #[serde(skip)]
    pub lines: Vec<Line>,
    /// The distance of their samples.
    #[serde(skip)]
    pub step: Duration,
}

/// A figure of each [`Measure`], over replications.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates([Option<Estimate>; Measure::ALL.len()]);

/// How much a policy differs from the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Differences([Option<Difference>; Measure::ALL.len()]);

/// Difference of two policies in a figure. What both have in common, above all the jobs, is not in it, which is why it
/// is surer than the figures themselves.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// This policy less the first.
    #[serde(flatten)]
    pub absolute: Estimate,
    /// The same in percent of the first, seed by seed; `None` if that is 0 with any of them.
    pub percent: Option<Estimate>,
}

/// Shares of the jobs that were not answered, by reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Losses {
    /// No node could take them.
    #[serde(serialize_with = "rounded")]
    pub rejected: f64,
    /// The node failed.
    #[serde(serialize_with = "rounded")]
    pub error: f64,
    /// The node refused them.
    #[serde(serialize_with = "rounded")]
    pub refused: f64,
    /// The node went down with them.
    #[serde(serialize_with = "rounded")]
    pub reset: f64,
    /// They took too long.
    #[serde(serialize_with = "rounded")]
    pub timeout: f64,
    /// They had no end when the run was given up.
    #[serde(serialize_with = "rounded")]
    pub unfinished: f64,
}

/// What came of nodes that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GroupResults {
    /// Share of all jobs that these nodes did.
    pub share: Estimate,
    /// Share of their cores' time in use.
    pub utilisation: Estimate,
    /// Jobs on each, averaged over time.
    pub jobs_mean: Estimate,
    /// The most jobs on one.
    pub jobs_max: Estimate,
}

impl Results {
    /// Gathers the figures of runs: point by point, policy by policy, seed by seed.
    pub(super) fn gather(experiment: &Experiment, figures: Vec<Figures>) -> Results {
        let replications = experiment.replications as usize;
        let mut cells = figures.chunks_exact(replications);
        let points = experiment.points.iter().map(|point| {
            let cells: Vec<&[Figures]> = cells.by_ref().take(experiment.contenders.len()).collect();
            point_results(experiment, point, &cells)
        });
        let points = points.collect();
        let scenario = &experiment.scenario;
        Results {
            schema: SCHEMA,
            name: experiment.name.clone(),
            description: experiment.description.clone(),
            seed: experiment.seed,
            replications: experiment.replications,
            duration_s: scenario.duration.as_secs_f64(),
            warm_up_s: scenario.warm_up.as_secs_f64(),
            nodes: scenario.nodes.iter().map(|group| group.count).sum(),
            capacity: scenario.capacity(),
            points,
        }
    }
}

impl Estimates {
    /// A figure; `None` if a run was too short to have it.
    pub fn of(&self, measure: Measure) -> Option<Estimate> {
        self.0[measure as usize]
    }

    fn over(runs: &[Figures]) -> Estimates {
        Estimates(Measure::ALL.map(|measure| {
            let values: Option<Vec<f64>> = runs.iter().map(|run| run.measure(measure)).collect();
            Estimate::of(&values?)
        }))
    }
}

impl Differences {
    /// A difference; `None` if a run was too short to have the figure.
    pub fn of(&self, measure: Measure) -> Option<Difference> {
        self.0[measure as usize]
    }

    fn between(runs: &[Figures], first: &[Figures]) -> Differences {
        Differences(Measure::ALL.map(|measure| {
            let pairs = runs.iter().zip(first);
            let pairs: Option<Vec<(f64, f64)>> =
                pairs.map(|(run, first)| Some((run.measure(measure)?, first.measure(measure)?))).collect();
            let pairs = pairs?;
            let over = |figure: fn(&(f64, f64)) -> f64| {
                Estimate::of(&pairs.iter().map(figure).collect::<Vec<f64>>())
            };
            let absolute = over(|(run, first)| run - first)?;
            let percent = over(|(run, first)| 100.0 * (run / first - 1.0));
            let percent = percent.filter(|_| pairs.iter().all(|(_, first)| *first > 0.0));
            Some(Difference { absolute, percent })
        }))
    }
}

impl Serialize for Estimates {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        by_name(&self.0, to)
    }
}

impl Serialize for Differences {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        by_name(&self.0, to)
    }
}

fn by_name<T: Serialize, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(values.len()))?;
    for (measure, value) in Measure::ALL.iter().zip(values) {
        map.serialize_entry(measure.name(), value)?;
    }
    map.end()
}

fn point_results(experiment: &Experiment, point: &Point, cells: &[&[Figures]]) -> PointResults {
    let policies = experiment.contenders.iter().zip(cells).enumerate().map(|(index, (contender, runs))| {
        let mean = |figure: fn(&Figures) -> f64| mean(runs, figure);
        let groups = 0..experiment.scenario.nodes.len();
        PolicyResults {
            policy: contender.label.clone(),
            jobs: mean(|run| run.jobs),
            figures: Estimates::over(runs),
            difference: (index > 0).then(|| Differences::between(runs, cells[0])),
            losses: Losses {
                rejected: mean(|run| run.losses.rejected),
                error: mean(|run| run.losses.failed[Outcome::Error.index()]),
                refused: mean(|run| run.losses.failed[Outcome::Refused.index()]),
                reset: mean(|run| run.losses.failed[Outcome::Reset.index()]),
                timeout: mean(|run| run.losses.failed[Outcome::Timeout.index()]),
                unfinished: mean(|run| run.losses.unfinished),
            },
            retries_per_job: mean(|run| run.retries_per_job),
            hedges_per_job: mean(|run| run.hedges_per_job),
            groups: groups.map(|group| group_results(runs, group)).collect(),
            lines: runs[0].lines.clone(),
            step: runs[0].step,
        }
    });
    PointResults { rate: point.rate, load: point.load, policies: policies.collect() }
}

fn group_results(runs: &[Figures], group: usize) -> GroupResults {
    let over = |figure: fn(&GroupFigures) -> f64| {
        let values: Vec<f64> = runs.iter().map(|run| figure(&run.groups[group])).collect();
        Estimate::of(&values).expect("there is a run")
    };
    GroupResults {
        share: over(|group| group.share),
        utilisation: over(|group| group.utilisation),
        jobs_mean: over(|group| group.jobs_mean),
        jobs_max: over(|group| group.jobs_max),
    }
}

fn mean(runs: &[Figures], figure: fn(&Figures) -> f64) -> f64 {
    runs.iter().map(figure).sum::<f64>() / runs.len() as f64
}
