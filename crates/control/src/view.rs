//! What the admin API tells of pools, nodes and placements.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use evener_engine::{Command, Explanation};
use evener_model::{NodeId, Outcome, Report, Time};
use evener_scheduler::{NodeState as Standing, PickError, Said};
use serde::Serialize;

use crate::config;
use crate::director::{Director, NodeState, PoolState};

/// A worker that does not answer within this is reported as such.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// All pools.
#[derive(Debug, Serialize)]
pub struct PoolsView {
    /// By name.
    pub pools: Vec<PoolView>,
}

/// A pool and its nodes.
#[derive(Debug, Serialize)]
pub struct PoolView {
    /// As configured.
    pub name: String,
    /// How nodes are chosen.
    pub scheduler: String,
    /// How weights follow reports: off, smoothing or integral.
    pub weights: &'static str,
    /// The time between reports of a node.
    pub phase_ms: f64,
    /// Jobs that wait for a node.
    pub queued: u32,
    /// Tries beyond the first, and retries not made because the budget was spent.
    pub retries: u64,
    /// Retries that the budget forbade.
    pub retries_denied: u64,
    /// The balancer that carries out what the pool comes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputView>,
    /// The nodes, as configured.
    pub nodes: Vec<NodeView>,
    /// Workers that did not answer in time; their view of the nodes is missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub silent_workers: Vec<usize>,
}

/// How the `output` of a pool fares.
#[derive(Debug, Serialize)]
pub struct OutputView {
    /// What it is.
    pub to: String,
    /// Whether it did what it was told last.
    pub up: bool,
    /// What is wrong.
    pub error: Option<String>,
    /// Changes that were made in it.
    pub changes: u64,
    /// Nodes that have left and have connections there yet.
    pub leaving: u64,
}

/// A node: summed over all workers, and as each worker sees it.
#[derive(Debug, Serialize)]
pub struct NodeView {
    /// As configured.
    pub name: String,
    /// As configured.
    pub address: String,
    /// up, down, refusing (its agents want no jobs), stopped (its agent has not started the service), draining,
    /// ejected (by all workers) or partly-ejected.
    pub state: String,
    /// By which jobs are placed: that of `weight_configured`, unless the pool's weights follow reports.
    pub weight: u32,
    /// Configured, or set by an operator.
    pub weight_configured: u32,
    /// started or stopped, as the node's agent says over NECP; `null` if none speaks for it.
    pub agent: Option<&'static str>,
    /// Jobs in flight, over all workers.
    pub jobs: u32,
    /// Jobs placed so far.
    pub picks: u64,
    /// How jobs ended.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// Connections open, idle ones included.
    pub connections: u64,
    /// Connections without a job.
    pub idle: u64,
    /// Quantiles of the last minute, in milliseconds: from the pick to the first byte of the answer.
    pub latency_ms: BTreeMap<&'static str, Option<f64>>,
    /// What placements are based on, and how old it is.
    pub signals: Vec<SignalView>,
    /// What each worker's scheduler holds of the node.
    pub workers: Vec<WorkerView>,
}

/// Something known of a node.
#[derive(Debug, Serialize)]
pub struct SignalView {
    /// What.
    pub name: &'static str,
    /// By which way it was told, if a node told it: necp, agent_check, orca, push, pull or datagram.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
    /// How much.
    pub value: serde_json::Value,
    /// How long it has been known; 0 is exact now.
    pub age_ms: Option<f64>,
}

/// What one worker's scheduler holds of a node.
#[derive(Debug, Serialize)]
pub struct WorkerView {
    /// Its number.
    pub worker: usize,
    /// up, down, draining or ejected.
    pub state: String,
    /// For how much longer an ejected node stays out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ejected_for_ms: Option<f64>,
    /// The weight, as far as slow start lets it.
    pub effective_weight: f32,
    /// Average latency that the scheduler keeps.
    pub latency_ms: Option<f64>,
    /// Since its last change.
    pub latency_age_ms: Option<f64>,
    /// Share of failures lately, 0–1.
    pub failure_share: f32,
    /// How often the node was ejected.
    pub ejections: u32,
}

/// Why jobs were placed where they were.
#[derive(Debug, Serialize)]
pub struct ExplanationView {
    /// The pool.
    pub pool: String,
    /// The newest first, over all workers.
    pub placements: Vec<PlacementView>,
}

/// One placement.
#[derive(Debug, Serialize)]
pub struct PlacementView {
    /// How long ago.
    pub age_ms: f64,
    /// Which worker placed.
    pub worker: usize,
    /// The policy.
    pub scheduler: &'static str,
    /// The node; `null` if none was chosen.
    pub choice: Option<String>,
    /// Why none was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'static str>,
    /// Whether most of the pool looked dead, so that all of it was used.
    pub panic: bool,
    /// How many nodes were candidates; `candidates` lists at most 8.
    pub candidates_total: u32,
    /// What was compared.
    pub candidates: Vec<CandidateView>,
}

/// A node that was considered.
#[derive(Debug, Serialize)]
pub struct CandidateView {
    /// Its name.
    pub node: String,
    /// Whether it was chosen.
    pub chosen: bool,
    /// As the policy compares, lower is better; `null` where it does not score.
    pub score: Option<f32>,
    /// What the score is made of, and how old it was.
    pub signals: Vec<SignalView>,
}

impl Director {
    /// All pools as they are now. Waits for the workers, half a second at the most.
    pub fn pools(&self) -> PoolsView {
        let states: Vec<(config::Pool, PoolState)> = {
            let mut state = self.state();
            // What is shown is what jobs are placed by.
            self.tell(&mut state);
            let pools = state.config.pools.iter();
            pools.map(|pool| (pool.clone(), state.pools[&pool.name].clone())).collect()
        };
        PoolsView { pools: states.iter().map(|(config, pool)| self.pool_view(config, pool)).collect() }
    }

    fn pool_view(&self, config: &config::Pool, pool: &PoolState) -> PoolView {
        let now = self.now();
        let answers = self.ask(|reply| Command::Inspect { pool: pool.id, reply });
        let silent_workers = answers
            .iter()
            .enumerate()
            .filter(|(_, answer)| answer.is_none())
            .map(|(worker, _)| worker)
            .collect();
        let nodes = pool.nodes.iter().map(|node| {
            let workers: Vec<WorkerView> = answers
                .iter()
                .enumerate()
                .filter_map(|(worker, view)| {
                    let view = view.as_ref()?;
                    let seen = view.nodes.iter().find(|seen| seen.node == node.id)?;
                    Some(worker_view(worker, view.now, seen))
                })
                .collect();
            node_view(now, pool, node, workers)
        });
        PoolView {
            name: config.name.clone(),
            scheduler: config.scheduler.policy.name().to_owned(),
            weights: config.feedback.weights.law.name(),
            phase_ms: ms(pool.phase),
            queued: pool.waiting.total(),
            retries: pool.stats.sum(|stats| stats.retries.load()),
            retries_denied: pool.stats.sum(|stats| stats.retries_denied.load()),
            output: config.output.as_ref().map(|output| OutputView {
                to: output.to_string(),
                up: pool.output.is_up.load(Ordering::Relaxed),
                error: pool.output.error(),
                changes: pool.output.changes.load(Ordering::Relaxed),
                leaving: pool.output.leaving.load(Ordering::Relaxed),
            }),
            nodes: nodes.collect(),
            silent_workers,
        }
    }

    /// The last `count` placements of a pool; `None` if there is no such pool.
    pub fn explain(&self, pool: &str, count: usize) -> Option<ExplanationView> {
        let state = self.state().pools.get(pool)?.clone();
        let answers = self.ask(|reply| Command::Explain { pool: state.id, count, reply });
        let name = |id: NodeId| {
            let known = state.nodes.iter().find(|node| node.id == id);
            known.map_or_else(|| format!("(gone, {id})"), |node| node.node.name.clone())
        };
        let mut placements: Vec<PlacementView> = answers
            .into_iter()
            .enumerate()
            .filter_map(|(worker, answer)| Some((worker, answer?)))
            .flat_map(|(worker, Explanation { now, placements })| {
                let name = &name;
                placements
                    .into_iter()
                    .map(move |placement| placement_view(worker, now, &placement, name))
                    .collect::<Vec<_>>()
            })
            .collect();
        placements.sort_by(|a, b| a.age_ms.total_cmp(&b.age_ms));
        placements.truncate(count);
        Some(ExplanationView { pool: pool.into(), placements })
    }

    /// Waits until the workers have carried out what they were told so far, half a second at the most:
    /// who is told that a configuration is served may rely on it.
    pub(crate) fn settle(&self) {
        let Some(pool) = self.state().pools.values().next().map(|pool| pool.id) else { return };
        // Commands are carried out in order: an answer says that those before are done.
        let _ = self.ask(|reply| Command::Inspect { pool, reply });
    }

    /// Asks all workers at once; `None` for those that do not answer in time.
    fn ask<T>(&self, question: impl Fn(mpsc::Sender<T>) -> Command) -> Vec<Option<T>> {
        let questions: Vec<mpsc::Receiver<T>> = self
            .workers()
            .iter()
            .map(|worker| {
                let (reply, answer) = mpsc::channel();
                worker.send(question(reply));
                answer
            })
            .collect();
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        questions
            .into_iter()
            .map(|answer| answer.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok())
            .collect()
    }
}

fn worker_view(worker: usize, now: Time, seen: &evener_scheduler::NodeView) -> WorkerView {
    let ejected_for_ms = match seen.state {
        Standing::Ejected { until } => Some(ms(until.since(now))),
        _ => None,
    };
    WorkerView {
        worker,
        state: seen.state.name().into(),
        ejected_for_ms,
        effective_weight: seen.effective_weight,
        latency_ms: seen.latency.map(|(latency, _)| ms(latency)),
        latency_age_ms: seen.latency.map(|(_, fed)| ms(now.since(fed))),
        failure_share: seen.failure_share,
        ejections: seen.ejections,
    }
}

fn node_view(now: Time, pool: &PoolState, node: &NodeState, workers: Vec<WorkerView>) -> NodeView {
    let ejected = workers.iter().filter(|worker| worker.state == "ejected").count();
    let state = if node.draining || node.base_weight().value() == 0 {
        "draining"
    } else if node.drains() {
        "stopped"
    } else if !node.up {
        "down"
    } else if node.refuses {
        "refusing"
    } else if ejected == 0 {
        "up"
    } else if ejected == workers.len() {
        "ejected"
    } else {
        "partly-ejected"
    };
    let jobs = pool.counts.jobs(node.id);
    let mut signals = vec![SignalView::new("jobs", jobs.into(), Some(0.0))];
    let freshest = workers
        .iter()
        .filter_map(|worker| worker.latency_ms.zip(worker.latency_age_ms))
        .min_by(|(_, a), (_, b)| a.total_cmp(b));
    if let Some((latency, age)) = freshest {
        signals.push(SignalView::new("latency_ms", latency.into(), Some(age)));
    }
    let failure_share = workers.iter().map(|worker| worker.failure_share).fold(0.0, f32::max);
    signals.push(SignalView::new("failure_share", failure_share.into(), None));
    if let Some((reason, since)) = &node.check {
        signals.push(SignalView::new("check", reason.as_str().into(), Some(ms(since.elapsed()))));
    }
    for (dialect, report) in node.told.all() {
        let age_ms = ms(now.since(report.measured_at));
        signals.extend(reported(report).map(|(name, value)| SignalView {
            source: Some(dialect.name()),
            ..SignalView::new(name, value, Some(age_ms))
        }));
    }
    NodeView {
        name: node.node.name.clone(),
        address: node.node.text.clone(),
        state: state.into(),
        weight: node.weight().value(),
        weight_configured: node.base_weight().value(),
        agent: node.service.map(|started| if started { "started" } else { "stopped" }),
        jobs,
        picks: node.stats.sum(|stats| stats.picks.load()),
        outcomes: Outcome::ALL
            .iter()
            .map(|outcome| (outcome.name(), node.stats.sum(|stats| stats.outcomes[outcome.index()].load())))
            .collect(),
        connections: node.stats.sum(|stats| stats.connections.load()),
        idle: node.stats.sum(|stats| stats.idle.load()),
        latency_ms: [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)]
            .map(|(name, quantile)| (name, node.latency_ms(quantile)))
            .into(),
        signals,
        workers,
    }
}

fn placement_view(
    worker: usize,
    now: Time,
    placement: &evener_scheduler::Placement,
    name: &impl Fn(NodeId) -> String,
) -> PlacementView {
    let chosen = placement.choice.ok();
    let candidates = placement.candidates().iter().enumerate().map(|(place, candidate)| {
        let mut signals = vec![
            SignalView::new("jobs", candidate.jobs.into(), Some(0.0)),
            SignalView::new("weight", candidate.weight.into(), None),
        ];
        if let Some((latency, fed)) = candidate.latency {
            let age = ms(placement.time.since(fed));
            signals.push(SignalView::new("latency_ms", ms(latency).into(), Some(age)));
        }
        if let Some(Said { measured_at, jobs, load, health }) = placement.said(place) {
            let age = ms(placement.time.since(measured_at));
            let report = Report { measured_at, jobs, load, health, ..Report::default() };
            signals.extend(reported(&report).map(|(name, value)| SignalView::new(name, value, Some(age))));
        }
        CandidateView {
            node: name(candidate.node),
            chosen: chosen == Some(candidate.node),
            score: candidate.score.is_finite().then_some(candidate.score),
            signals,
        }
    });
    PlacementView {
        age_ms: ms(now.since(placement.time)),
        worker,
        scheduler: placement.policy.name(),
        choice: chosen.map(name),
        error: placement.choice.err().map(|error| match error {
            PickError::Full => "all nodes are at their limit",
            PickError::NoNode => "no node can take a job",
            PickError::Excluded => "all nodes that can take a job have excepted this client",
        }),
        panic: placement.panic,
        candidates_total: placement.candidates_total,
        candidates: candidates.collect(),
    }
}

impl SignalView {
    fn new(name: &'static str, value: serde_json::Value, age_ms: Option<f64>) -> SignalView {
        SignalView { name, source: None, value, age_ms }
    }
}

/// What a report says, by name.
fn reported(report: &Report) -> impl Iterator<Item = (&'static str, serde_json::Value)> {
    let said: [(&str, Option<serde_json::Value>); 7] = [
        ("reported_health", report.health.map(|health| health.value().into())),
        ("reported_load", report.load.map(Into::into)),
        ("reported_jobs", report.jobs.map(Into::into)),
        ("reported_credits", report.credits.map(Into::into)),
        ("reported_jobs_per_s", report.jobs_per_s.map(Into::into)),
        ("reported_errors_per_s", report.errors_per_s.map(Into::into)),
        ("reported_latency_ms", report.latency.map(|latency| ms(latency).into())),
    ];
    said.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
