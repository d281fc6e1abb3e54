//! `evener demo`: a director, four unequal nodes and a load, all in this process.
//!
//! In the first part the same arrivals and the same job sizes meet one scheduler after the other; nothing differs but
//! where the jobs are placed. Nobody tells the director how fast the nodes are.
//!
//! In the second part the director is told. Then something else takes the CPU of the fastest node for a while: without
//! agents nobody notices, with agents the weights follow.

mod act;
mod agents;
mod cast;
mod nodes;
mod stretch;
mod summary;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use evener_replay::Report;
use serde::Serialize;

use self::cast::{HOGGED, SCHEDULERS};
use self::nodes::{JobPlan, NodePlan, NodeUse};
use self::stretch::StretchUse;
pub(crate) use self::summary::Summary;
pub(crate) use self::view::View;

/// The nodes: together they do eight times as much as the slowest.
const NODES: [NodePlan; 4] = [
    NodePlan { name: "horse", speed: 4.0 },
    NodePlan { name: "ox", speed: 2.0 },
    NodePlan { name: "mule", speed: 1.0 },
    NodePlan { name: "donkey", speed: 1.0 },
];

/// Jobs that each node works on at a time.
const PLACES: usize = 4;

/// Mean time of a job on the slowest node: all nodes together do 1,000 jobs a second.
const JOB_TIME: Duration = Duration::from_millis(32);

/// How unequal jobs are (sigma of the lognormal): one in a hundred takes over ten times the mean.
const SIGMA: f64 = 1.5;

/// Descriptors beyond those of the connections of jobs.
const DESCRIPTORS_SPARE: u64 = 200;

/// Descriptors of a job under way: both ends of its connection to the director and of that to the node.
const DESCRIPTORS_PER_JOB: u64 = 4;

/// What to show.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Requests a second.
    pub(crate) rate: f64,
    /// How long requests arrive in each act of the first part.
    pub(crate) duration: Duration,
    /// Determines arrivals and job sizes.
    pub(crate) seed: u64,
}

/// What happened in an act.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Act {
    #[serde(skip)]
    pub(crate) name: &'static str,
    pub(crate) scheduler: &'static str,
    /// Whether nodes had agents.
    pub(crate) agents: bool,
    #[serde(flatten)]
    pub(crate) report: Report,
    pub(crate) nodes: Vec<ActNode>,
    /// Before, during and after the hog, if there was one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stretches: Vec<StretchUse>,
    /// The nodes' weights, ten times a second.
    #[serde(skip)]
    pub(crate) weights: Vec<Vec<u32>>,
}

/// A node in one act.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ActNode {
    pub(crate) name: &'static str,
    pub(crate) speed: f64,
    #[serde(flatten)]
    pub(crate) usage: NodeUse,
}

impl Plan {
    /// Part of what the nodes can do that the load asks for.
    pub(crate) fn utilisation(&self) -> f64 {
        let speed: f64 = NODES.iter().map(|node| node.speed).sum();
        let capacity = speed * PLACES as f64 / JOB_TIME.as_secs_f64();
        self.rate / capacity
    }

    fn jobs(&self) -> JobPlan {
        JobPlan { seed: self.seed, mean: JOB_TIME, sigma: SIGMA, places: PLACES }
    }
}

/// Plays all acts; `None` if it was interrupted.
pub(crate) fn play(plan: &Plan, view: &mut View) -> anyhow::Result<Option<Summary>> {
    let jobs_max = room_for_jobs()?;
    let interrupted = interrupts()?;
    let mut parts = [Vec::new(), Vec::new()];
    view.begin(plan)?;
    for (acts, casts) in parts.iter_mut().zip([&SCHEDULERS[..], &HOGGED[..]]) {
        view.part(plan, casts)?;
        for (index, cast) in casts.iter().enumerate() {
            view.act(plan, index, casts.len(), cast);
            let Some(act) = act::play(plan, cast, jobs_max, &interrupted, view)? else {
                return Ok(None);
            };
            acts.push(act);
            view.done(acts)?;
        }
    }
    let [schedulers, hogged] = parts;
    Ok(Some(Summary::new(plan, schedulers, hogged)))
}

/// Becomes true when the user interrupts; the second time ends the process at once.
pub(crate) fn interrupts() -> io::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&flag))?;
        signal_hook::flag::register(signal, Arc::clone(&flag))?;
    }
    Ok(flag)
}

/// Raises the limit of open files as far as it goes; how many jobs may then be under way at a time.
fn room_for_jobs() -> io::Result<usize> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let files = limit.maximum.unwrap_or(u64::MAX);
    let jobs = files.saturating_sub(DESCRIPTORS_SPARE) / DESCRIPTORS_PER_JOB;
    Ok(usize::try_from(jobs.clamp(16, 20_000)).expect("it fits"))
}
