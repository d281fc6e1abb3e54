//! `evener plan`: which scheduler, which weights and how many nodes a load needs.

mod log;
mod nodes;
mod planner;
mod report;
mod search;
mod trial;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use evener_sim::{Contender, Scenario};

use self::log::{Log, ServiceTimes};
use self::nodes::Nodes;
use self::planner::{Effort, Goal, Planner};
use self::report::{GoalFacts, LogFacts, Plan, SCHEMA, WorkFacts, number, rounded};
use self::trial::Runner;
use super::load::duration;
use crate::Wrong;
use crate::output::{self, Status};

/// Jobs in a run at the most.
const JOBS_MAX: usize = 200_000;
/// The same for a short look.
const QUICK_JOBS_MAX: usize = 20_000;

/// The longest that a log may last at the load that is planned for: three years.
const SECONDS_MAX: f64 = 1e8;

/// Response times that must lie above a percentile in a run; with fewer it is little more than the worst of them.
const ABOVE_MIN: f64 = 10.0;

/// Says which scheduler, which weights and how many nodes a load needs.
///
/// The load is a log: an access log with the time that each job took, or a recording of `evener run --record`. It is played
/// faster or slower on simulated nodes, with the schedulers that the director runs, until the goal is met with the fewest
/// nodes. What was assumed is said with the answer, and how sure it is.
///
/// Exit status 0 if the goal is met (by the nodes that are given, if all have a count), 1 if it is not, 2 if something is
/// wrong with the log or the options.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener plan access.log --within 300ms --nodes cores=4
  evener plan access.log --within 300ms --percentile 99 --load 1.5 --nodes count=4,cores=2
  evener plan access.json --pool app --within 1s --nodes count=2,cores=8 --nodes cores=4,speed=0.5
  evener plan app.rec --within 50ms --nodes nodes.toml --policies informed,two-choices,central
  evener plan access.log --within 300ms --quick --json | jq .recommended")]
pub(crate) struct PlanCommand {
    /// An access log (common, combined, JSON of `evener run`) with the time that each job took, a recording, or a list of
    /// lines `seconds,milliseconds`
    #[arg(value_name = "LOG")]
    file: PathBuf,
    /// The limit that the percentile must keep
    #[arg(long, value_name = "TIME", value_parser = duration)]
    within: Duration,
    /// Which percentile of the response times, from 50 to below 100
    #[arg(long, value_name = "P", default_value_t = 99.5, value_parser = percentile)]
    percentile: f64,
    /// The load to plan for, times that of the log
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    load: f64,
    /// A kind of node, such as count=4,cores=2,speed=0.8,weight=3,concurrency=8, or a TOML file with `[[node]]`; may be said
    /// several times. Of the kind without `count`, else of the last, it is found out how many are needed. Speed 1 is that of
    /// the nodes that the log is from
    #[arg(long, value_name = "KIND|FILE", default_value = "cores=1")]
    nodes: Vec<String>,
    /// Nodes in all at the most
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes_max: u32,
    /// Schedulers to choose from; `central` shows what would be possible if everything were known
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "informed,weighted-least-jobs,two-choices,weighted-round-robin"
    )]
    policies: Vec<String>,
    /// Jobs of this pool only
    #[arg(long, value_name = "POOL")]
    pool: Option<String>,
    /// What the work of jobs is taken from: logged times have waiting in them
    #[arg(long, value_enum, default_value_t = ServiceTimes::Auto)]
    service_times: ServiceTimes,
    /// Runs of everything that is compared
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// The first seed; the others follow it
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    seed: u64,
    /// Threads; all cores if it is not said. The output does not depend on it
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// A short look: few seeds, few jobs, figures that are not to be trusted
    #[arg(long)]
    quick: bool,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

impl PlanCommand {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        let nodes = Nodes::parse(&self.nodes).map_err(Wrong)?;
        check(&nodes, self.nodes_max).map_err(Wrong)?;
        let contenders = contenders(&self.policies).map_err(Wrong)?;
        let jobs_max = if self.quick { QUICK_JOBS_MAX } else { JOBS_MAX };
        let log = log::read(&self.file, self.pool.clone(), self.service_times, jobs_max).map_err(Wrong)?;
        self.check_length(&log).map_err(Wrong)?;
        let goal = Goal {
            percentile: self.percentile,
            within_ms: self.within.as_secs_f64() * 1e3,
            load: self.load,
            rate: log.rate * self.load,
        };
        let effort = Effort {
            quick: self.quick,
            seed: self.seed,
            seeds: self.seeds.unwrap_or(if self.quick { 3 } else { 5 }),
            redraws: if self.quick { 10 } else { 40 },
            nodes_max: self.nodes_max,
        };
        let mut plan = self.begun(&log, &goal, &effort, &nodes);
        let threads = self.threads.or(std::thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get);
        let mut planner = Planner {
            planned: log.at_rate(goal.rate),
            log: &log,
            nodes: &nodes,
            contenders: &contenders,
            goal,
            effort,
            runner: Runner::new(threads, self.percentile),
        };
        planner.fill(&mut plan);
        planner.runner.clear();
        if self.json {
            output::json(&plan)?;
        } else {
            output::print(&report::render(&plan))?;
        }
        Ok(if plan.met { Status::Done } else { Status::Failed })
    }

    fn check_length(&self, log: &Log) -> Result<(), String> {
        if log.seconds / self.load > SECONDS_MAX {
            return Err(format!(
                "{}: at {} times its load it would last {} years: take a shorter log, or a higher --load",
                self.file.display(),
                self.load,
                number(log.seconds / self.load / (365.0 * 86_400.0))
            ));
        }
        let needed = (ABOVE_MIN / (1.0 - self.percentile / 100.0)).round() as usize;
        if log.simulated_jobs() >= needed {
            return Ok(());
        }
        let help = if self.quick { "leave out --quick, or take" } else { "take a longer log, or" };
        Err(format!(
            "{}: p{} needs {needed} jobs, and there are {}: {help} a lower --percentile",
            self.file.display(),
            self.percentile,
            log.simulated_jobs()
        ))
    }

    /// A plan with all that is known before anything is simulated.
    fn begun(&self, log: &Log, goal: &Goal, effort: &Effort, nodes: &Nodes) -> Plan {
        let service = &log.service;
        Plan {
            schema: SCHEMA,
            log: LogFacts {
                file: self.file.display().to_string(),
                jobs: log.jobs,
                seconds: rounded(log.seconds),
                rate: rounded(log.rate),
                busiest_rate: rounded(log.busiest_rate),
                simulated_jobs: log.simulated_jobs(),
            },
            goal: GoalFacts {
                percentile: goal.percentile,
                within_ms: goal.within_ms,
                load: goal.load,
                rate: rounded(goal.rate),
            },
            work: WorkFacts {
                from: if service.is_quiet { "quiet" } else { "logged" },
                mean_ms: rounded(service.mean_ms),
                logged_mean_ms: rounded(service.logged_mean_ms),
                quiet_jobs: service.quiet.jobs,
                quiet_mean_ms: rounded(service.quiet.mean_ms),
                busy_mean_ms: service.busy.map(|busy| rounded(busy.mean_ms)),
            },
            met: false,
            reason: None,
            given: None,
            recommended: None,
            policies: Vec::new(),
            on_these_nodes: Vec::new(),
            weights: Vec::new(),
            lost_node: None,
            certainty: None,
            seed: effort.seed,
            seeds: effort.seeds,
            assumed: self.assumed(log, nodes),
        }
    }

    /// What the plan takes for granted, in sentences.
    fn assumed(&self, log: &Log, nodes: &Nodes) -> Vec<String> {
        let mut all = vec![work(log, self.service_times)];
        all.extend(nodes.kinds.iter().enumerate().map(|(index, kind)| {
            let name = if nodes.kinds.len() == 1 {
                "A node".into()
            } else {
                format!("A node of kind {}", index + 1)
            };
            let cores = match kind.cores {
                1 => "one job at a time".to_owned(),
                cores => format!("{cores} jobs side by side, each at full speed"),
            };
            let more = match kind.concurrency {
                None => "the others wait there in order".to_owned(),
                Some(0) => "more share its cores".to_owned(),
                Some(most) => format!("begins {most} at the most, and the others wait there in order"),
            };
            format!("{name} does {cores}; {more}.")
        }));
        all.push(
            "Speed 1 is that of the nodes that the log is from. What jobs need besides cores is never short."
                .into(),
        );
        let gaps = match self.load {
            1.0 => String::new(),
            load => format!(", with all gaps {} times as long", number(1.0 / load)),
        };
        all.push(format!(
            "Jobs come as in the log{gaps}: its bursts stay, and nobody waits for an answer before asking again. The \
             time of a line is when its job came."
        ));
        if log.is_coarse {
            all.push(
                "The log has whole seconds: jobs are spread over theirs at random. If they come in bursts within a \
                 second, this is too good."
                    .into(),
            );
        }
        if log.simulated_jobs() < log.jobs {
            all.push(format!(
                "Of the log, {} jobs are simulated: the begin of each twentieth of it.",
                log.simulated_jobs()
            ));
        }
        all.push(
            "One director, which knows of nodes what their answers say: they report nothing, so that policies that go by \
             reports look worse than they are. The network takes no time."
                .into(),
        );
        all.push(
            "A node that dies refuses jobs and loses those it has. It is looked at every 2 s and taken out after three \
             failures; a failed job is tried once more, on another node."
                .into(),
        );
        all
    }
}

/// How the work of jobs is known.
fn work(log: &Log, asked: ServiceTimes) -> String {
    let service = &log.service;
    let time = |ms: f64| output::ms(Some(ms));
    let others =
        |count: usize| if count == 1 { "1 other was".into() } else { format!("{count} others were") };
    let seen = match &service.busy {
        Some(busy) => {
            let few = match service.quiet.others {
                0 => "no other was".to_owned(),
                count => format!("at most {}", others(count)),
            };
            format!(
                "jobs that came while {few} under way took {} on average, while at least {}, {}",
                time(service.quiet.mean_ms),
                others(busy.others),
                time(busy.mean_ms)
            )
        }
        None => format!("about as many, {}, were always under way", service.quiet.others),
    };
    let why = if asked == ServiceTimes::Auto { "" } else { ", as asked for" };
    if service.is_quiet {
        format!(
            "Work is drawn from the {} jobs of quiet moments{why}, {} on average, for logged times have waiting in them \
             ({} on average): {seen}. Which work came when is lost with that.",
            service.quiet.jobs,
            time(service.mean_ms),
            time(service.logged_mean_ms)
        )
    } else {
        format!(
            "The time that a job took is its work{why}, {} on average, as if none had waited: {seen}.",
            time(service.mean_ms)
        )
    }
}

/// What the simulator says against the nodes.
fn check(nodes: &Nodes, nodes_max: u32) -> Result<(), String> {
    let counts = nodes.given().unwrap_or_else(|| nodes.with(1));
    let total: u64 = counts.0.iter().map(|count| u64::from(*count)).sum();
    if total == 0 {
        return Err("--nodes: there are none: every `count` is 0".to_owned());
    }
    if total > u64::from(nodes_max) {
        return Err(format!(
            "--nodes: {total} nodes, and --nodes-max is {nodes_max}: say more there, 10000 at the most"
        ));
    }
    // One of each, so that none is left out.
    let one_of_each = nodes::Counts(vec![1; nodes.kinds.len()]);
    // Of nodes that can do nothing no weights follow.
    let weights = if nodes.has_weights() { nodes.weights() } else { vec![1; nodes.kinds.len()] };
    let scenario = Scenario { nodes: nodes.groups(&one_of_each, &weights), ..Scenario::default() };
    let wrong =
        scenario.check().into_iter().find(|finding| !finding.is_warning && finding.key.starts_with("node"));
    match wrong {
        Some(finding) => {
            let help = finding.help.map_or_else(String::new, |help| format!(" ({help})"));
            Err(format!("--nodes: {}: {}{help}", finding.key, finding.message))
        }
        None => Ok(()),
    }
}

fn contenders(names: &[String]) -> Result<Vec<Contender>, String> {
    let mut all: Vec<Contender> = Vec::new();
    for name in names.iter().map(|name| name.trim()) {
        let contender = Contender::named(name).map_err(|wrong| format!("--policies: {wrong}"))?;
        if all.iter().all(|other| other.label != contender.label) {
            all.push(contender);
        }
    }
    if all.iter().all(Contender::is_central) {
        return Err("--policies: `central` is nothing that one could run: name another beside it".to_owned());
    }
    Ok(all)
}

fn percentile(text: &str) -> Result<f64, String> {
    let number = text.trim_start_matches('p').parse::<f64>().ok();
    number
        .filter(|number| (50.0..=99.99).contains(number))
        .ok_or_else(|| "expected a number from 50 to 99.99, such as 99.5".to_string())
}

fn factor(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.001..=1000.0).contains(number));
    number.ok_or_else(|| "expected a number from 0.001 to 1000, such as 1.5".to_string())
}
