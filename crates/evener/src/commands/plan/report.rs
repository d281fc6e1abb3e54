//! A plan for people and for machines.

use evener_sim::Estimate;
use serde::{Serialize, Serializer};

use super::nodes::{Counts, Nodes};
use super::search::Crossing;
use crate::output::{self, ms};

/// What the form of a plan is called; it changes when a name in it does.
pub(super) const SCHEMA: &str = "evener-plan/1";

/// A plan.
#[derive(Debug, Serialize)]
pub(super) struct Plan {
    pub(super) schema: &'static str,
    pub(super) log: LogFacts,
    pub(super) goal: GoalFacts,
    pub(super) work: WorkFacts,
    /// By the nodes that were given; if none were, by some number of them.
    pub(super) met: bool,
    /// Why there is none.
    pub(super) reason: Option<String>,
    pub(super) given: Option<Given>,
    pub(super) recommended: Option<Recommended>,
    pub(super) policies: Vec<PolicyPlan>,
    pub(super) on_these_nodes: Vec<OnTheseNodes>,
    pub(super) weights: Vec<WeightsPlan>,
    pub(super) lost_node: Option<LostNode>,
    pub(super) certainty: Option<Certainty>,
    pub(super) seed: u64,
    pub(super) seeds: u32,
    pub(super) assumed: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct LogFacts {
    pub(super) file: String,
    pub(super) jobs: usize,
    pub(super) seconds: f64,
    /// Jobs a second.
    pub(super) rate: f64,
    pub(super) busiest_rate: f64,
    pub(super) simulated_jobs: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct GoalFacts {
    pub(super) percentile: f64,
    pub(super) within_ms: f64,
    pub(super) load: f64,
    pub(super) rate: f64,
}

#[derive(Debug, Serialize)]
pub(super) struct WorkFacts {
    /// `logged` or `quiet`.
    pub(super) from: &'static str,
    pub(super) mean_ms: f64,
    pub(super) logged_mean_ms: f64,
    pub(super) quiet_jobs: usize,
    pub(super) quiet_mean_ms: f64,
    pub(super) busy_mean_ms: Option<f64>,
}

/// The nodes that were asked about.
#[derive(Debug, Serialize)]
pub(super) struct Given {
    pub(super) nodes: u32,
    pub(super) kinds: Vec<KindPlan>,
    pub(super) load: f64,
    pub(super) policies_that_meet: Vec<String>,
}

/// Nodes that are alike.
#[derive(Clone, Debug, Serialize)]
pub(super) struct KindPlan {
    pub(super) count: u32,
    pub(super) cores: u32,
    pub(super) speed: f64,
    pub(super) weight: u16,
}

#[derive(Debug, Serialize)]
pub(super) struct Recommended {
    pub(super) policy: String,
    pub(super) nodes: u32,
    pub(super) kinds: Vec<KindPlan>,
    pub(super) percentile_ms: Estimate,
    pub(super) mean_ms: Estimate,
    pub(super) utilisation: f64,
    /// Policies that may be as good.
    pub(super) as_good: Vec<String>,
}

/// How many nodes a policy needs.
#[derive(Debug, Serialize)]
pub(super) struct PolicyPlan {
    pub(super) policy: String,
    /// Whether it only says how far others are from what is possible.
    #[serde(skip)]
    pub(super) is_bound: bool,
    pub(super) nodes: Option<u32>,
    pub(super) percentile_ms: Option<Estimate>,
    pub(super) utilisation: Option<f64>,
    /// None if they were overloaded, or there were none.
    pub(super) one_less_ms: Option<Estimate>,
    pub(super) one_less_load: Option<f64>,
}

/// What a policy does on the nodes that are recommended.
#[derive(Debug, Serialize)]
pub(super) struct OnTheseNodes {
    pub(super) policy: String,
    #[serde(skip)]
    pub(super) is_bound: bool,
    pub(super) percentile_ms: Estimate,
    pub(super) meets: bool,
    pub(super) capacity: Crossing,
    pub(super) capacity_over_seeds: Option<Estimate>,
}

#[derive(Debug, Serialize)]
pub(super) struct WeightsPlan {
    pub(super) name: String,
    pub(super) weights: Vec<u16>,
    pub(super) percentile_ms: Estimate,
    pub(super) meets: bool,
}

#[derive(Debug, Default, Serialize)]
pub(super) struct LostNode {
    /// Of which kind, from 1.
    pub(super) kind: usize,
    pub(super) nodes_left: u32,
    pub(super) load: f64,
    /// None if what is left is overloaded.
    pub(super) percentile_ms: Option<Estimate>,
    pub(super) meets: bool,
    /// Jobs that it failed when it died, or until that was known.
    pub(super) jobs_hit: Option<Estimate>,
    /// Of them, those that had no answer from another node either.
    pub(super) jobs_lost: Option<Estimate>,
    pub(super) nodes_for_one_to_spare: Option<u32>,
}

#[derive(Debug, Serialize)]
pub(super) struct Certainty {
    pub(super) redraws: u32,
    /// Of them, those that met the goal.
    pub(super) met: u32,
    pub(super) low_ms: Option<f64>,
    pub(super) high_ms: Option<f64>,
    /// Nodes with which at least 95 % of them meet it.
    pub(super) nodes_to_be_sure: Option<u32>,
}

/// A figure with six digits: what comes after them is noise.
pub(super) fn rounded(figure: f64) -> f64 {
    format!("{figure:.5e}").parse().unwrap_or(figure)
}

pub(super) fn round<S: Serializer>(figure: &f64, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(rounded(*figure))
}

/// The nodes as they are told.
pub(super) fn kinds(nodes: &Nodes, counts: &Counts, weights: &[u16]) -> Vec<KindPlan> {
    let all = nodes.kinds.iter().zip(&counts.0).zip(weights);
    all.map(|((kind, count), weight)| KindPlan {
        count: *count,
        cores: kind.cores,
        speed: kind.speed,
        weight: *weight,
    })
    .collect()
}

/// All of it as text.
pub(super) fn render(plan: &Plan) -> String {
    let mut out = heading(plan);
    out.push_str(&answer(plan));
    if !plan.policies.is_empty() {
        out.push_str(&format!("\nNodes needed\n{}", needed(plan)));
    }
    if !plan.on_these_nodes.is_empty() {
        out.push_str(&format!("\nOn {}\n{}", on_title(plan), on_these_nodes(plan)));
    }
    if plan.weights.len() > 1 {
        out.push_str(&format!("\nWeights\n{}", weights(plan)));
    }
    if let Some(lost) = &plan.lost_node {
        out.push_str(&format!("\nOne node lost\n{}", lost_node(plan, lost)));
    }
    if let Some(certainty) = &plan.certainty {
        out.push_str(&format!("\nHow sure\n{}", how_sure(plan, certainty)));
    }
    out.push_str("\nAssumed\n");
    for line in &plan.assumed {
        out.push_str(&format!("- {line}\n"));
    }
    out
}

fn heading(plan: &Plan) -> String {
    let (log, goal) = (&plan.log, &plan.goal);
    format!(
        "{}: {} jobs in {}, {} a second on average, {} in the busiest twentieth of that time\n\
         goal: {} within {} at {}, {} jobs a second\n\n",
        log.file,
        log.jobs,
        seconds(log.seconds),
        number(log.rate),
        number(log.busiest_rate),
        percentile(plan),
        ms(Some(goal.within_ms)),
        if goal.load == 1.0 {
            "that load".to_owned()
        } else {
            format!("{} times that load", number(goal.load))
        },
        number(goal.rate)
    )
}

fn answer(plan: &Plan) -> String {
    let mut out = String::new();
    if let Some(reason) = &plan.reason {
        out.push_str(&format!("{}\n", capitalised(reason)));
    }
    if let Some(given) = &plan.given {
        let verdict = if given.policies_that_meet.is_empty() {
            "do not meet it with any of the policies".to_owned()
        } else {
            format!("meet it with {}", listed(&given.policies_that_meet))
        };
        out.push_str(&format!(
            "The {} given ({} % in use) {verdict}.\n",
            count(given.nodes),
            share(given.load)
        ));
    }
    if let Some(best) = &plan.recommended {
        let more = if plan.met { "" } else { "needed: " };
        out.push_str(&format!(
            "{}{} on {}: {} {}, cores {} % in use.\n",
            capitalised(more),
            best.policy,
            these(&best.kinds, best.nodes),
            percentile(plan),
            interval(&best.percentile_ms),
            share(best.utilisation)
        ));
        if !best.as_good.is_empty() {
            out.push_str(&format!("As good as far as can be told: {}.\n", listed(&best.as_good)));
        }
        match plan.certainty.as_ref().map(|certainty| certainty.nodes_to_be_sure) {
            Some(Some(nodes)) if nodes > best.nodes => {
                out.push_str(&format!("That is close to the limit: {nodes} nodes are safer (see below).\n"));
            }
            Some(None) => out.push_str("It is not sure, and more nodes do not make it so (see below).\n"),
            _ if best.percentile_ms.high.is_some_and(|high| high > plan.goal.within_ms) => {
                out.push_str("The interval reaches beyond the limit: more --seeds say more.\n");
            }
            _ => {}
        }
    }
    out
}

fn needed(plan: &Plan) -> String {
    let name = percentile(plan);
    let header = ["scheduler", "nodes", "in use", &name, "with one less"];
    let mut table = output::table(&header, &[1, 2, 3, 4]);
    for policy in &plan.policies {
        let one_less = match (policy.one_less_ms, policy.one_less_load) {
            (Some(percentile), _) => interval(&percentile),
            (None, Some(load)) if load >= 1.0 => format!("{} % of what they can do", share(load)),
            _ => "-".to_owned(),
        };
        table.add_row([
            label(&policy.policy, policy.is_bound),
            policy.nodes.map_or("none".to_owned(), |nodes| nodes.to_string()),
            policy.utilisation.map_or("-".to_owned(), |used| format!("{} %", share(used))),
            policy.percentile_ms.map_or("-".to_owned(), |percentile| interval(&percentile)),
            one_less,
        ]);
    }
    output::lines(&table)
}

fn on_title(plan: &Plan) -> String {
    plan.recommended.as_ref().map_or_else(String::new, |best| these(&best.kinds, best.nodes))
}

fn on_these_nodes(plan: &Plan) -> String {
    let name = percentile(plan);
    let header = ["scheduler", &name, "meets it", "up to jobs/s", "times the log"];
    let mut table = output::table(&header, &[1, 3, 4]);
    for policy in &plan.on_these_nodes {
        let sign = match policy.capacity {
            Crossing::Below { .. } => "< ",
            Crossing::At { .. } => "",
            Crossing::AtLeast { .. } => "≥ ",
        };
        let (Crossing::Below { rate } | Crossing::At { rate } | Crossing::AtLeast { rate }) = policy.capacity;
        let half = policy.capacity_over_seeds.as_ref().and_then(half_width);
        let half = half.map_or_else(String::new, |half| format!(" ±{}", digits(half, 2)));
        table.add_row([
            label(&policy.policy, policy.is_bound),
            interval(&policy.percentile_ms),
            if policy.meets { "yes" } else { "no" }.to_owned(),
            format!("{sign}{}{half}", number(rate)),
            format!("{sign}{}", number(rate / plan.log.rate)),
        ]);
    }
    output::lines(&table)
}

fn weights(plan: &Plan) -> String {
    let name = percentile(plan);
    let mut table = output::table(&["weights", "of each kind", &name, "meets it"], &[2]);
    for row in &plan.weights {
        let numbers: Vec<String> = row.weights.iter().map(u16::to_string).collect();
        table.add_row([
            row.name.clone(),
            numbers.join(", "),
            interval(&row.percentile_ms),
            if row.meets { "yes" } else { "no" }.to_owned(),
        ]);
    }
    output::lines(&table) + &better_weights(&plan.weights)
}

/// Says which weights are better than those planned with, if some are beyond doubt.
fn better_weights(rows: &[WeightsPlan]) -> String {
    let Some((planned, others)) = rows.split_first() else { return String::new() };
    let better = |row: &&WeightsPlan| match (row.percentile_ms.high, planned.percentile_ms.low) {
        (Some(high), Some(low)) => high < low,
        _ => false,
    };
    let best =
        others.iter().filter(better).min_by(|a, b| a.percentile_ms.mean.total_cmp(&b.percentile_ms.mean));
    best.map_or_else(String::new, |best| {
        format!("Weights that are {} do better than those planned with.\n", best.name)
    })
}

fn lost_node(plan: &Plan, lost: &LostNode) -> String {
    if lost.nodes_left == 0 {
        return format!("There is no other: until it is back, no job is answered.\n{}", spare(lost));
    }
    let load = share(lost.load);
    let left = count(lost.nodes_left);
    let mut out = match &lost.percentile_ms {
        None => format!(
            "The {left} left would have to do {load} % of what they can: jobs pile up until it is back.\n"
        ),
        Some(estimate) => format!(
            "The {left} left are {load} % in use: {} {}, {} the limit.\n",
            percentile(plan),
            interval(estimate),
            if lost.meets { "within" } else { "beyond" }
        ),
    };
    if let (Some(hit), Some(jobs)) = (&lost.jobs_hit, &lost.jobs_lost) {
        out.push_str(&format!(
            "When it dies, jobs that must be tried on another node: {}; jobs without an answer: {}.\n",
            jobs_text(hit),
            jobs_text(jobs)
        ));
    }
    out + &spare(lost)
}

fn spare(lost: &LostNode) -> String {
    match lost.nodes_for_one_to_spare {
        Some(_) if lost.meets => "So there is one to spare.\n".to_owned(),
        Some(nodes) => format!("To meet the goal without it: {nodes} nodes in all.\n"),
        None => String::new(),
    }
}

fn jobs_text(jobs: &Estimate) -> String {
    match half_width(jobs) {
        Some(half) => format!("{} ±{}", number(jobs.mean), digits(half, 2)),
        None => number(jobs.mean),
    }
}

fn how_sure(plan: &Plan, certainty: &Certainty) -> String {
    let last = plan.seed.wrapping_add(u64::from(plan.seeds) - 1);
    let seeds = match plan.seeds {
        1 => format!("Seed {}; a single run does not say how sure its figures are.\n", plan.seed),
        _ => format!(
            "± is the 95 % interval over seeds {} to {last}: chance in what schedulers and jobs do, not in the log.\n",
            plan.seed
        ),
    };
    let spread = match (certainty.low_ms, certainty.high_ms) {
        (Some(low), Some(high)) => format!(
            "Of {} logs put together from random twentieths of this one, {} meet the goal; {} lies from {} to {}.\n",
            certainty.redraws,
            certainty.met,
            percentile(plan),
            ms(Some(low)),
            ms(Some(high))
        ),
        _ => String::new(),
    };
    let sure = match (certainty.nodes_to_be_sure, &plan.recommended) {
        (Some(nodes), Some(best)) if nodes > best.nodes => {
            format!("With {nodes} nodes, at least 95 % of them do.\n")
        }
        _ => String::new(),
    };
    seeds + &spread + &sure
}

fn label(policy: &str, is_bound: bool) -> String {
    if is_bound { format!("{policy} (nobody has it)") } else { policy.to_owned() }
}

/// Nodes as a sentence has them.
fn these(kinds: &[KindPlan], total: u32) -> String {
    let there: Vec<&KindPlan> = kinds.iter().filter(|kind| kind.count > 0).collect();
    let one = |kind: &KindPlan| {
        let cores = if kind.cores == 1 { "1 core".to_owned() } else { format!("{} cores", kind.cores) };
        let speed =
            if kind.speed == 1.0 { String::new() } else { format!(" of speed {}", number(kind.speed)) };
        format!("{cores}{speed}")
    };
    match there.as_slice() {
        // Nodes that are alike need no weight.
        [kind] => format!("{} ({}{})", count(total), one(kind), if total > 1 { " each" } else { "" }),
        kinds => {
            let all: Vec<String> = kinds
                .iter()
                .map(|kind| format!("{} × {}, weight {}", kind.count, one(kind), kind.weight))
                .collect();
            format!("{} ({})", count(total), all.join("; "))
        }
    }
}

fn count(nodes: u32) -> String {
    if nodes == 1 { "1 node".to_owned() } else { format!("{nodes} nodes") }
}

fn percentile(plan: &Plan) -> String {
    format!("p{}", plan.goal.percentile)
}

fn listed(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [names @ .., last] => format!("{} and {last}", names.join(", ")),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// A time with its interval, in milliseconds.
fn interval(estimate: &Estimate) -> String {
    let mean = ms(Some(estimate.mean));
    match half_width(estimate) {
        Some(half) => format!("{mean} ±{}", ms(Some(half))),
        None => mean,
    }
}

/// Half the width of an interval, if it is more than what rounding leaves.
fn half_width(estimate: &Estimate) -> Option<f64> {
    estimate.half_width().filter(|half| *half > 1e-9 * estimate.mean.abs())
}

fn seconds(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{} s", number(seconds)),
        seconds if seconds < 7200.0 => format!("{} min", number(seconds / 60.0)),
        seconds if seconds < 172_800.0 => format!("{} h", number(seconds / 3600.0)),
        seconds => format!("{} days", number(seconds / 86_400.0)),
    }
}

/// A share in percent.
fn share(share: f64) -> String {
    digits(share * 100.0, 3)
}

/// A number with four digits that matter.
pub(super) fn number(value: f64) -> String {
    digits(value, 4)
}

/// A number with so many digits that matter, without zeros behind them.
fn digits(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let rounded: f64 = format!("{value:.*e}", digits as usize - 1).parse().unwrap_or(value);
    format!("{rounded}")
}
