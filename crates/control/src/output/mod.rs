//! The `output` of a pool: another balancer that carries out what the pool comes to.
//!
//! Each such pool has a task, which looks what the pool wants, and tells the balancer what is new: at most every
//! [`PACE`], the newest only. It looks at the balancer every [`LOOK`] beside, as that may have been started anew, or
//! changed by another. The balancer goes on with what it has while the director is not there, or cannot reach it;
//! a director that comes back goes on from that, too.

mod resume;
mod wanted;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use evener_model::Time;
use evener_plane::haproxy::Haproxy;
use evener_plane::ipvs::Ipvs;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::config::Output;
use crate::director::Director;
use wanted::Wanted;

pub(crate) use wanted::virtual_service;

/// Between two looks at what a pool wants.
const PACE: Duration = Duration::from_millis(200);
/// Between two looks at what the balancer has.
const LOOK: Duration = Duration::from_secs(1);
/// A director that runs for no longer than this goes on from the weights that it finds.
const YOUNG: Duration = Duration::from_secs(60);
/// Within this, weights are what their controllers want.
const TURN: Duration = Duration::from_millis(400);
/// The first and the longest wait after a balancer could not be told; each is twice the one before.
const WAIT_MIN: Duration = Duration::from_millis(400);
const WAIT_MAX: Duration = Duration::from_secs(5);

/// The outputs that are carried out, by pool.
#[derive(Debug, Default)]
pub(crate) struct Outputs(BTreeMap<String, Running>);

#[derive(Debug)]
struct Running {
    output: Output,
    task: JoinHandle<()>,
}

impl Outputs {
    /// Carries out what the director's configuration has. An output that did not change goes on.
    pub(crate) fn follow(&mut self, director: &Arc<Director>) {
        let config = director.config();
        let mut running = std::mem::take(&mut self.0);
        for pool in &config.pools {
            let Some(output) = &pool.output else { continue };
            let kept = running.remove(&pool.name).filter(|old| {
                let is_same = old.output == *output;
                if !is_same {
                    old.task.abort();
                }
                is_same
            });
            let running = kept.unwrap_or_else(|| Running {
                output: output.clone(),
                task: tokio::spawn(carry_out(Arc::clone(director), pool.name.clone(), output.clone())),
            });
            self.0.insert(pool.name.clone(), running);
        }
        for (pool, old) in running {
            old.task.abort();
            tracing::info!(pool, to = %old.output, "no output any more: it goes on with what it has");
        }
    }

    /// Tells balancers nothing any more.
    pub(crate) fn stop(&mut self) {
        for (_, running) in std::mem::take(&mut self.0) {
            running.task.abort();
        }
    }
}

/// How an output fares, for metrics and views.
#[derive(Debug, Default)]
pub(crate) struct OutputStats {
    /// Whether the balancer did what it was told last.
    pub(crate) is_up: AtomicBool,
    /// Changes that were made.
    pub(crate) changes: AtomicU64,
    /// Changes that the balancer refused.
    pub(crate) refused: AtomicU64,
    /// Times that the balancer could not be told.
    pub(crate) failures: AtomicU64,
    /// Times that the balancer was found started anew.
    pub(crate) restarts: AtomicU64,
    /// Nodes that have left and have connections there yet.
    pub(crate) leaving: AtomicU64,
    /// What is wrong.
    error: Mutex<Option<String>>,
}

impl OutputStats {
    /// What is wrong, if something is.
    pub(crate) fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes what is wrong; says whether that is news.
    fn set_error(&self, error: Option<String>) -> bool {
        let mut known = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let is_news = *known != error;
        *known = error;
        is_news
    }
}

/// What was done with a balancer.
#[derive(Debug, Default)]
struct Applied {
    changes: u64,
    leaving: u64,
    restarted: bool,
    /// What it refused, and why.
    refused: Vec<String>,
}

/// A balancer, as it is reached.
#[derive(Debug)]
enum Balancer {
    Haproxy(Box<Haproxy>),
    /// `None`: the kernel could not be asked yet.
    Ipvs(Option<Ipvs>),
}

impl Balancer {
    fn new(output: &Output) -> Balancer {
        match output {
            Output::Haproxy { endpoint, .. } => Balancer::Haproxy(Box::new(Haproxy::new(endpoint.clone()))),
            Output::Ipvs { .. } => Balancer::Ipvs(None),
        }
    }

    /// The weights that somebody has given the balancer's nodes before, by address. Blocks while it answers.
    fn present(&mut self, wanted: &Wanted) -> Result<Vec<(SocketAddr, u32)>, String> {
        match (self, wanted) {
            (Balancer::Haproxy(haproxy), Wanted::Haproxy(wanted)) => {
                let present = haproxy.present(wanted).map_err(|error| error.to_string())?;
                Ok(present
                    .into_iter()
                    .map(|(place, weight)| (wanted.nodes()[place].address, weight))
                    .collect())
            }
            (Balancer::Ipvs(ipvs), Wanted::Ipvs(wanted)) => {
                let ipvs = opened(ipvs)?;
                let mut present = Vec::new();
                for service in wanted.services() {
                    let found = ipvs.destinations(service.service()).map_err(|error| error.to_string())?;
                    present.extend(found.into_iter().map(|found| (found.address, found.weight)));
                }
                Ok(present)
            }
            _ => unreachable!("what is wanted is made from the output that the balancer was made from"),
        }
    }

    /// Blocks while the balancer answers.
    fn apply(&mut self, now: Time, wanted: &Wanted) -> Result<Applied, String> {
        match (self, wanted) {
            (Balancer::Haproxy(haproxy), Wanted::Haproxy(wanted)) => {
                let changes = haproxy.apply(now, wanted).map_err(|error| error.to_string())?;
                let refused =
                    changes.failed.iter().map(|failure| format!("{}: {}", failure.change, failure.refusal));
                Ok(Applied {
                    changes: changes.done.len() as u64,
                    leaving: changes.leaving as u64,
                    restarted: changes.restarted,
                    refused: refused.collect(),
                })
            }
            (Balancer::Ipvs(ipvs), Wanted::Ipvs(wanted)) => {
                let ipvs = opened(ipvs)?;
                let changes = ipvs.apply(now, wanted).map_err(|error| error.to_string())?;
                let refused =
                    changes.failed.iter().map(|failure| format!("{}: {}", failure.change, failure.error));
                Ok(Applied {
                    changes: changes.done.len() as u64,
                    leaving: changes.leaving as u64,
                    restarted: false,
                    refused: refused.collect(),
                })
            }
            _ => unreachable!("what is wanted is made from the output that the balancer was made from"),
        }
    }
}

fn opened(ipvs: &mut Option<Ipvs>) -> Result<&mut Ipvs, String> {
    match ipvs {
        Some(ipvs) => Ok(ipvs),
        None => Ok(ipvs.insert(Ipvs::open().map_err(|error| error.to_string())?)),
    }
}

/// Carries out one output for ever.
async fn carry_out(director: Arc<Director>, pool: String, output: Output) {
    let Some(stats) = director.state().pools.get(&pool).map(|pool| Arc::clone(&pool.output)) else { return };
    let mut balancer = Balancer::new(&output);
    // Later, what has come of reports is worth more than what somebody has set.
    let mut has_resumed = director.started.elapsed() > YOUNG;
    let mut last: Option<Wanted> = None;
    let mut next = Instant::now();
    let mut wait = WAIT_MIN;
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let now = Instant::now();
        let (wanted, left_out) = match wanted::of(&director.state(), director.started, &pool, &output) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => {
                stats.set_error(Some("waits for reports of all nodes".into()));
                continue;
            }
            Err(error) => {
                if stats.set_error(Some(error.clone())) {
                    tracing::error!(pool, to = %output, error, "the pool cannot be put out");
                }
                continue;
            }
        };
        // What failed is not tried earlier because something else is wanted.
        let is_new = last.as_ref().is_some_and(|last| *last != wanted);
        if now < next && !is_new {
            continue;
        }
        if !has_resumed {
            // If it cannot be asked, it cannot be told either, and this is tried again with that.
            let asked = tokio::task::spawn_blocking({
                let wanted = wanted.clone();
                move || {
                    let present = balancer.present(&wanted);
                    (balancer, present)
                }
            });
            let Ok((same, present)) = asked.await else { return };
            balancer = same;
            if let Ok(present) = present {
                has_resumed = true;
                if resume::from(&director, &pool, &present) {
                    tracing::info!(pool, to = %output, "weights go on from those that are there");
                    // The pool's weights follow in its next turn.
                    tokio::time::sleep(TURN).await;
                    continue;
                }
            }
        }
        let (time, told) = (director.now(), wanted.clone());
        let done = tokio::task::spawn_blocking(move || {
            let result = balancer.apply(time, &wanted);
            (balancer, result)
        });
        // Only a panic ends it otherwise; that has been told already.
        let Ok((same, result)) = done.await else { return };
        balancer = same;
        match result {
            Ok(applied) => {
                note(&stats, &pool, &output, &applied, left_out);
                (last, next, wait) = (Some(told), now + LOOK, WAIT_MIN);
            }
            Err(error) => {
                stats.failures.fetch_add(1, Ordering::Relaxed);
                stats.is_up.store(false, Ordering::Relaxed);
                if stats.set_error(Some(error.clone())) {
                    tracing::warn!(pool, to = %output, error, "the output cannot be told: it goes on with what it has");
                }
                (last, next, wait) = (None, now + wait, (wait * 2).min(WAIT_MAX));
            }
        }
    }
}

fn note(stats: &OutputStats, pool: &str, output: &Output, applied: &Applied, left_out: Option<String>) {
    stats.changes.fetch_add(applied.changes, Ordering::Relaxed);
    stats.refused.fetch_add(applied.refused.len() as u64, Ordering::Relaxed);
    stats.restarts.fetch_add(applied.restarted.into(), Ordering::Relaxed);
    stats.leaving.store(applied.leaving, Ordering::Relaxed);
    for refused in &applied.refused {
        tracing::warn!(pool, to = %output, refused, "the output refuses a change");
    }
    let was_up = stats.is_up.swap(true, Ordering::Relaxed);
    if stats.set_error(left_out.clone())
        && let Some(error) = left_out
    {
        tracing::warn!(pool, to = %output, error, "the output does not get all of the pool");
    }
    if !was_up {
        tracing::info!(pool, to = %output, "the output follows the pool");
    }
    if applied.changes > 0 {
        tracing::debug!(pool, to = %output, changes = applied.changes, "the output was told");
    }
}
