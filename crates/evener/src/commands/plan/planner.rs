//! What is simulated for a plan, and what follows from it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evener_sim::{Arrivals, Contender, Dispatchers, Estimate, Failure, Fault, NodeGroup, Patience, Scenario};

use super::log::Log;
use super::nodes::{Counts, Nodes};
use super::report::{
    Certainty, Given, LostNode, OnTheseNodes, Plan, PolicyPlan, Recommended, WeightsPlan, kinds, rounded,
};
use super::search::{Crossing, Search, crossing};
use super::trial::{Runner, Sample, Trial, estimate};

/// Loads at which the percentile is looked at to find the capacity, as shares of what the nodes can do.
const LOADS: [f64; 12] = [0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.76, 0.82, 0.87, 0.91, 0.95, 0.98];
/// The same for a short look.
const QUICK_LOADS: [f64; 5] = [0.25, 0.5, 0.7, 0.85, 0.95];

/// The share of logs put together from parts of the log that must meet the goal to be sure of it.
const SURE: f64 = 0.95;

/// As the director does by default: every two seconds; three failures are one too many.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Of a log that lasts longer, the begin is enough to see a node die.
const DEATH_MAX: Duration = Duration::from_secs(86_400);

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Goal {
    /// 50 to below 100.
    pub(super) percentile: f64,
    pub(super) within_ms: f64,
    /// Times the rate of the log.
    pub(super) load: f64,
    /// The same in jobs a second.
    pub(super) rate: f64,
}

/// How much is done for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    pub(super) quick: bool,
    pub(super) seed: u64,
    pub(super) seeds: u32,
    /// Logs drawn from parts of the log.
    pub(super) redraws: u32,
    /// Nodes in all at the most.
    pub(super) nodes_max: u32,
}

/// Finds a plan.
pub(super) struct Planner<'a> {
    pub(super) log: &'a Log,
    pub(super) nodes: &'a Nodes,
    pub(super) contenders: &'a [Contender],
    pub(super) goal: Goal,
    pub(super) effort: Effort,
    pub(super) runner: Runner,
    /// The jobs at the rate of the goal.
    pub(super) planned: Arrivals,
}

/// A cluster with a policy under a load.
struct Case<'a> {
    counts: &'a Counts,
    weights: &'a [u16],
    contender: usize,
    arrivals: &'a Arrivals,
}

/// What came of one, seed by seed.
#[derive(Clone, Debug)]
struct Outcome {
    samples: Vec<Sample>,
    percentile_ms: Estimate,
}

impl Outcome {
    fn of(samples: Vec<Sample>) -> Outcome {
        let percentile_ms = estimate(&samples, |sample| sample.percentile_ms);
        Outcome { samples, percentile_ms }
    }

    /// None if jobs were left without an answer.
    fn percentile(&self) -> Option<f64> {
        self.samples.iter().all(|sample| sample.lost == 0).then_some(self.percentile_ms.mean)
    }

    fn meets(&self, goal: &Goal) -> bool {
        self.percentile().is_some_and(|ms| ms <= goal.within_ms)
    }

    fn utilisation(&self) -> f64 {
        estimate(&self.samples, |sample| sample.utilisation).mean
    }
}

/// What was found for each number of nodes of the kind that is sought, policy by policy.
type Found = Vec<(Search, BTreeMap<u32, Outcome>)>;

impl Planner<'_> {
    /// Fills in all of a plan that takes simulation.
    pub(super) fn fill(&mut self, plan: &mut Plan) {
        let fastest = self.nodes.kinds.iter().map(|kind| kind.speed).fold(0.0, f64::max);
        let alone_ms = self.log.alone_ms(self.goal.percentile, fastest);
        if alone_ms > self.goal.within_ms {
            plan.reason = Some(format!(
                "no number of nodes meets it: {} % of the jobs take up to {} by themselves, without any wait. A longer \
                 --within or faster cores (speed=…) are needed",
                self.goal.percentile,
                crate::output::ms(Some(alone_ms))
            ));
            return;
        }
        let weights = self.nodes.weights();
        let given = self.nodes.given().map(|counts| (self.on(&counts, &weights), counts));
        let found = self.search(&weights);
        plan.policies = self.policies(&found);
        if let Some((outcomes, counts)) = &given {
            plan.given = Some(Given {
                nodes: counts.total(),
                kinds: kinds(self.nodes, counts, &weights),
                load: rounded(self.load(counts)),
                policies_that_meet: self.labels(&self.that_meet(outcomes)),
            });
        }
        let (winner, counts) = match given {
            Some((outcomes, counts)) if self.best(&outcomes).is_some() => {
                let Some(winner) = self.best(&outcomes) else { return };
                (winner, counts)
            }
            _ => match self.winner(&found) {
                Some((winner, open)) => (winner, self.nodes.with(open)),
                None => {
                    plan.reason = Some(format!(
                        "no policy meets it with {} nodes or fewer (--nodes-max)",
                        self.effort.nodes_max
                    ));
                    return;
                }
            },
        };
        let outcomes = self.on(&counts, &weights);
        // Of those that cannot be told apart, the one that was named first.
        let winner = self.as_good(&outcomes, winner).into_iter().fold(winner, usize::min);
        let outcome = &outcomes[winner];
        plan.recommended = Some(Recommended {
            policy: self.contenders[winner].label.clone(),
            nodes: counts.total(),
            kinds: kinds(self.nodes, &counts, &weights),
            percentile_ms: outcome.percentile_ms,
            mean_ms: estimate(&outcome.samples, |sample| sample.mean_ms),
            utilisation: rounded(outcome.utilisation()),
            as_good: self.labels(&self.as_good(&outcomes, winner)),
        });
        plan.met = plan.given.as_ref().is_none_or(|given| !given.policies_that_meet.is_empty());
        plan.on_these_nodes = self.capacities(&counts, &weights, &outcomes);
        plan.weights = self.compare_weights(&counts, winner, &outcomes[winner]);
        plan.lost_node = Some(self.lose_one(&counts, &weights, winner));
        plan.certainty = Some(self.certainty(&counts, &weights, winner));
    }

    /// All policies on so many nodes at the rate of the goal.
    fn on(&mut self, counts: &Counts, weights: &[u16]) -> Vec<Outcome> {
        let planned = self.planned.clone();
        let cases: Vec<Case<'_>> = (0..self.contenders.len())
            .map(|contender| Case { counts, weights, contender, arrivals: &planned })
            .collect();
        self.run(&format!("policies on {} nodes", counts.total()), &cases)
    }

    /// Seeks, for each policy, the smallest number of nodes that meets the goal; all policies side by side.
    fn search(&mut self, weights: &[u16]) -> Found {
        let from = self.stable_from();
        let others = self.nodes.with(0).total();
        let max = self.effort.nodes_max.saturating_sub(others);
        let mut found: Found = vec![(Search::new(from, max), BTreeMap::new()); self.contenders.len()];
        let planned = self.planned.clone();
        loop {
            let wanted: Vec<(usize, u32, Counts)> = (0..found.len())
                .filter_map(|index| found[index].0.next().map(|open| (index, open, self.nodes.with(open))))
                .collect();
            if wanted.is_empty() {
                return found;
            }
            let case = |(contender, _, counts)| Case { counts, weights, contender, arrivals: &planned };
            let cases: Vec<Case<'_>> =
                wanted.iter().map(|(contender, open, counts)| case((*contender, open, counts))).collect();
            let outcomes = self.run("how many nodes", &cases);
            for ((index, open, _), outcome) in wanted.into_iter().zip(outcomes) {
                found[index].0.tell(open, outcome.meets(&self.goal));
                found[index].1.insert(open, outcome);
            }
        }
    }

    /// Of the kind that is sought, the fewest that are not overloaded.
    fn stable_from(&self) -> u32 {
        let max = self.effort.nodes_max;
        let fewest = self.nodes.fewest();
        (fewest..=max).find(|open| self.load(&self.nodes.with(*open)) < 1.0).unwrap_or(max.saturating_add(1))
    }

    /// What the jobs ask for, as a share of what the nodes can do.
    fn load(&self, counts: &Counts) -> f64 {
        self.goal.rate * self.log.service.mean_ms / 1e3 / self.nodes.power(counts)
    }

    fn policies(&self, found: &Found) -> Vec<PolicyPlan> {
        let plan = |(contender, (search, tried)): (&Contender, &(Search, BTreeMap<u32, Outcome>))| {
            let at = search.found();
            let less = at.and_then(|open| open.checked_sub(1)).filter(|open| *open >= self.nodes.fewest());
            PolicyPlan {
                policy: contender.label.clone(),
                is_bound: contender.is_central(),
                nodes: at.map(|open| self.nodes.with(open).total()),
                percentile_ms: at.and_then(|open| tried.get(&open)).map(|outcome| outcome.percentile_ms),
                utilisation: at
                    .and_then(|open| tried.get(&open))
                    .map(|outcome| rounded(outcome.utilisation())),
                one_less_ms: less.and_then(|open| tried.get(&open)).map(|outcome| outcome.percentile_ms),
                one_less_load: less.map(|open| rounded(self.load(&self.nodes.with(open)))),
            }
        };
        self.contenders.iter().zip(found).map(plan).collect()
    }

    /// The policy that needs the fewest nodes; of several, the one that is fastest on them.
    fn winner(&self, found: &Found) -> Option<(usize, u32)> {
        let of = |index: usize| {
            let open = found[index].0.found()?;
            Some((open, found[index].1.get(&open)?.percentile_ms.mean))
        };
        let candidates = self.buildable().filter_map(|index| of(index).map(|(open, ms)| (index, open, ms)));
        let best = candidates.min_by(|a, b| a.1.cmp(&b.1).then(a.2.total_cmp(&b.2)));
        best.map(|(index, open, _)| (index, open))
    }

    /// The fastest that meets the goal.
    fn best(&self, outcomes: &[Outcome]) -> Option<usize> {
        let meets = self.that_meet(outcomes).into_iter();
        meets.min_by(|a, b| outcomes[*a].percentile_ms.mean.total_cmp(&outcomes[*b].percentile_ms.mean))
    }

    fn that_meet(&self, outcomes: &[Outcome]) -> Vec<usize> {
        self.buildable().filter(|index| outcomes[*index].meets(&self.goal)).collect()
    }

    /// Policies that can be had.
    fn buildable(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.contenders.len()).filter(|index| !self.contenders[*index].is_central())
    }

    fn labels(&self, contenders: &[usize]) -> Vec<String> {
        contenders.iter().map(|index| self.contenders[*index].label.clone()).collect()
    }

    /// Policies whose difference to the winner, seed by seed, may be chance.
    fn as_good(&self, outcomes: &[Outcome], winner: usize) -> Vec<usize> {
        let same = |index: usize| {
            let pairs = outcomes[index].samples.iter().zip(&outcomes[winner].samples);
            let differences: Vec<f64> = pairs.map(|(a, b)| a.percentile_ms - b.percentile_ms).collect();
            Estimate::of(&differences).is_some_and(|difference| {
                difference.mean == 0.0 || difference.low.is_some_and(|low| low <= 0.0)
            })
        };
        let others = self.that_meet(outcomes).into_iter();
        others.filter(|index| *index != winner && same(*index)).collect()
    }

    /// Up to which rate each policy meets the goal on these nodes.
    fn capacities(&mut self, counts: &Counts, weights: &[u16], outcomes: &[Outcome]) -> Vec<OnTheseNodes> {
        let full = self.nodes.power(counts) * 1e3 / self.log.service.mean_ms;
        let loads: &[f64] = if self.effort.quick { &QUICK_LOADS } else { &LOADS };
        let planned = self.goal.rate;
        // That of the goal is known already.
        let mut rates: Vec<f64> = loads.iter().map(|load| load * full).chain([planned]).collect();
        rates.sort_by(f64::total_cmp);
        let mut tried: Vec<Vec<Outcome>> = vec![Vec::new(); self.contenders.len()];
        for rate in &rates {
            let open: Vec<usize> = (0..tried.len()).filter(|index| !self.is_beyond(&tried[*index])).collect();
            let arrivals = self.log.at_rate(*rate);
            let cases: Vec<Case<'_>> = open
                .iter()
                .map(|contender| Case { counts, weights, contender: *contender, arrivals: &arrivals })
                .collect();
            let done = if *rate == planned {
                open.iter().map(|index| outcomes[*index].clone()).collect()
            } else {
                self.run("up to which load", &cases)
            };
            for (index, outcome) in open.into_iter().zip(done) {
                tried[index].push(outcome);
            }
        }
        let on = |(index, tried): (usize, &Vec<Outcome>)| {
            let percentiles: Vec<Option<f64>> = tried.iter().map(Outcome::percentile).collect();
            OnTheseNodes {
                policy: self.contenders[index].label.clone(),
                is_bound: self.contenders[index].is_central(),
                percentile_ms: outcomes[index].percentile_ms,
                meets: outcomes[index].meets(&self.goal),
                capacity: crossing(&rates, &percentiles, self.goal.within_ms),
                capacity_over_seeds: self.capacity_over_seeds(&rates, tried),
            }
        };
        tried.iter().enumerate().map(on).collect()
    }

    /// Whether every seed has been above the limit: higher rates say nothing more.
    fn is_beyond(&self, tried: &[Outcome]) -> bool {
        let above = |seed: usize| {
            tried.iter().any(|outcome| outcome.samples[seed].percentile_ms > self.goal.within_ms)
        };
        (0..self.effort.seeds as usize).all(above)
    }

    /// The mean of what each seed says, if each says a rate.
    fn capacity_over_seeds(&self, rates: &[f64], tried: &[Outcome]) -> Option<Estimate> {
        let of = |seed: usize| {
            let one = |outcome: &Outcome| {
                let sample = &outcome.samples[seed];
                (sample.lost == 0).then_some(sample.percentile_ms)
            };
            let percentiles: Vec<Option<f64>> = tried.iter().map(one).collect();
            match crossing(rates, &percentiles, self.goal.within_ms) {
                Crossing::At { rate } => Some(rate),
                Crossing::Below { .. } | Crossing::AtLeast { .. } => None,
            }
        };
        let rates: Option<Vec<f64>> = (0..self.effort.seeds as usize).map(of).collect();
        Estimate::of(&rates?)
    }

    /// What other weights would do; nothing if nodes are alike.
    fn compare_weights(&mut self, counts: &Counts, winner: usize, planned: &Outcome) -> Vec<WeightsPlan> {
        if self.nodes.are_alike(counts) && !self.nodes.has_weights() {
            return Vec::new();
        }
        let own = self.nodes.weights();
        let mut all = vec![("as planned", own.clone())];
        for (name, weights) in
            [("by cores and speed", self.nodes.weights_by_power()), ("all the same", vec![1; own.len()])]
        {
            if all.iter().all(|(_, other)| *other != weights) {
                all.push((name, weights));
            }
        }
        let arrivals = self.planned.clone();
        let cases: Vec<Case<'_>> = all[1..]
            .iter()
            .map(|(_, weights)| Case { counts, weights, contender: winner, arrivals: &arrivals })
            .collect();
        let others = self.run("other weights", &cases);
        let outcomes = std::iter::once(planned).chain(&others);
        all.iter()
            .zip(outcomes)
            .map(|((name, weights), outcome)| WeightsPlan {
                name: (*name).to_owned(),
                weights: weights.clone(),
                percentile_ms: outcome.percentile_ms,
                meets: outcome.meets(&self.goal),
            })
            .collect()
    }

    /// What becomes of it without the node that can do most: in the long run, and when it dies.
    fn lose_one(&mut self, counts: &Counts, weights: &[u16], winner: usize) -> LostNode {
        let lost = self.nodes.strongest(counts).map_or(0, |kind| kind + 1);
        let Some(less) = self.nodes.less_one(counts) else {
            let spare = self.spare(counts, weights, winner);
            return LostNode { kind: lost, nodes_for_one_to_spare: spare, ..LostNode::default() };
        };
        let load = self.load(&less);
        let arrivals = self.planned.clone();
        let mut left =
            LostNode { kind: lost, nodes_left: less.total(), load: rounded(load), ..LostNode::default() };
        if load < 1.0 {
            let case = Case { counts: &less, weights, contender: winner, arrivals: &arrivals };
            if let [outcome] = self.run("a node less", &[case]).as_slice() {
                left.percentile_ms = Some(outcome.percentile_ms);
                left.meets = outcome.meets(&self.goal);
            }
        }
        let (hit, lost) = self.death(&less, weights, winner, lost - 1);
        (left.jobs_hit, left.jobs_lost) = (Some(hit), Some(lost));
        left.nodes_for_one_to_spare =
            if left.meets { Some(counts.total()) } else { self.spare(counts, weights, winner) };
        left
    }

    /// Nodes that are enough though one is lost.
    fn spare(&mut self, counts: &Counts, weights: &[u16], winner: usize) -> Option<u32> {
        let arrivals = self.planned.clone();
        let open = self.nodes.open(counts);
        let max = open.saturating_add(self.effort.nodes_max.saturating_sub(counts.total()));
        let less = |open: u32| self.nodes.less_one(&self.nodes.with(open));
        let stable = |open: &u32| less(*open).is_some_and(|less| self.load(&less) < 1.0);
        let mut search = Search::new((open.saturating_add(1)..=max).find(stable)?, max);
        while let Some(open) = search.next() {
            let less = self.nodes.less_one(&self.nodes.with(open))?;
            let case = Case { counts: &less, weights, contender: winner, arrivals: &arrivals };
            let does = self.run("a node to spare", &[case]).iter().all(|outcome| outcome.meets(&self.goal));
            search.tell(open, does);
        }
        search.found().map(|open| self.nodes.with(open).total())
    }

    /// Jobs that fail at first when a node of this kind dies at half time, and those that stay without an answer.
    fn death(&mut self, less: &Counts, weights: &[u16], winner: usize, kind: usize) -> (Estimate, Estimate) {
        let mut groups = self.nodes.groups(less, weights);
        let strongest = &self.nodes.kinds[kind];
        let duration = end(&self.planned).min(DEATH_MAX);
        groups.push(NodeGroup {
            cores: strongest.cores,
            concurrency: strongest.concurrency,
            speed: strongest.speed,
            weight: weights[kind],
            faults: vec![Fault { what: Failure::Dead, from: duration / 2, to: None }],
            ..NodeGroup::default()
        });
        let scenario = Scenario {
            nodes: groups,
            dispatchers: Dispatchers { check_every: Some(CHECK_EVERY), ..Dispatchers::default() },
            patience: Patience { retries: 1, ..Patience::default() },
            duration,
            ..self.scenario(&self.planned)
        };
        let samples = self.runner.run("a node dies", &self.trials(&Arc::new(scenario), winner));
        let of = |figure: fn(&Sample) -> u64| estimate(&samples, |sample| figure(sample) as f64);
        (of(|sample| sample.retries), of(|sample| sample.lost))
    }

    /// How far the answer depends on which log it was.
    fn certainty(&mut self, counts: &Counts, weights: &[u16], winner: usize) -> Certainty {
        let logs: Vec<(u64, Arrivals)> = (0..u64::from(self.effort.redraws))
            .map(|redraw| self.effort.seed.wrapping_add(redraw))
            .map(|seed| (seed, self.log.redrawn(seed, self.goal.load)))
            .collect();
        let samples = self.redrawn(&logs, counts, weights, winner);
        let mut all: Vec<f64> = samples.iter().map(|sample| sample.percentile_ms).collect();
        all.sort_by(f64::total_cmp);
        // Of 40, the second and the last but one: 95 % lie between.
        let cut = all.len() / 40;
        let met = self.met(&samples);
        Certainty {
            redraws: self.effort.redraws,
            met,
            low_ms: all.get(cut).copied().map(rounded),
            high_ms: all.len().checked_sub(cut + 1).and_then(|place| all.get(place)).copied().map(rounded),
            nodes_to_be_sure: if self.is_sure(met) {
                Some(counts.total())
            } else {
                self.sure_with(&logs, counts, weights, winner)
            },
        }
    }

    /// Nodes with which nearly all of these logs meet the goal, if more than there are.
    fn sure_with(
        &mut self,
        logs: &[(u64, Arrivals)],
        counts: &Counts,
        weights: &[u16],
        winner: usize,
    ) -> Option<u32> {
        let open = self.nodes.open(counts);
        let max = open.saturating_add(self.effort.nodes_max.saturating_sub(counts.total()));
        let mut search = Search::new(open.saturating_add(1), max);
        while let Some(open) = search.next() {
            let samples = self.redrawn(logs, &self.nodes.with(open), weights, winner);
            let met = self.met(&samples);
            search.tell(open, self.is_sure(met));
        }
        search.found().map(|open| self.nodes.with(open).total())
    }

    fn redrawn(
        &mut self,
        logs: &[(u64, Arrivals)],
        counts: &Counts,
        weights: &[u16],
        winner: usize,
    ) -> Vec<Sample> {
        let trial = |(seed, arrivals): &(u64, Arrivals)| {
            let nodes = self.nodes.groups(counts, weights);
            let scenario = Arc::new(Scenario { nodes, ..self.scenario(arrivals) });
            Trial { scenario, dispatch: self.contenders[winner].dispatch.clone(), seed: *seed }
        };
        let trials: Vec<Trial> = logs.iter().map(trial).collect();
        self.runner.run("logs redrawn", &trials)
    }

    /// How many of them met the goal.
    fn met(&self, samples: &[Sample]) -> u32 {
        let meets = |sample: &&Sample| sample.lost == 0 && sample.percentile_ms <= self.goal.within_ms;
        samples.iter().filter(meets).count() as u32
    }

    fn is_sure(&self, met: u32) -> bool {
        f64::from(met) >= SURE * f64::from(self.effort.redraws)
    }

    fn run(&mut self, stage: &str, cases: &[Case<'_>]) -> Vec<Outcome> {
        let mut trials = Vec::new();
        for case in cases {
            let nodes = self.nodes.groups(case.counts, case.weights);
            let scenario = Arc::new(Scenario { nodes, ..self.scenario(case.arrivals) });
            trials.extend(self.trials(&scenario, case.contender));
        }
        let samples = self.runner.run(stage, &trials);
        samples.chunks(self.effort.seeds as usize).map(|samples| Outcome::of(samples.to_vec())).collect()
    }

    /// The same with each seed.
    fn trials(&self, scenario: &Arc<Scenario>, contender: usize) -> Vec<Trial> {
        let trial = |number: u32| Trial {
            scenario: Arc::clone(scenario),
            dispatch: self.contenders[contender].dispatch.clone(),
            seed: self.effort.seed.wrapping_add(u64::from(number)),
        };
        (0..self.effort.seeds).map(trial).collect()
    }

    /// The jobs, on a node that is none of those planned.
    fn scenario(&self, arrivals: &Arrivals) -> Scenario {
        Scenario {
            arrivals: arrivals.clone(),
            size: self.log.size().clone(),
            duration: end(arrivals),
            ..Scenario::default()
        }
    }
}

/// Right after the last job.
fn end(arrivals: &Arrivals) -> Duration {
    match arrivals {
        Arrivals::Trace(trace) => Duration::from_nanos(trace.at_nanos.last().map_or(1, |last| last + 1)),
        _ => Duration::from_secs(1),
    }
}
