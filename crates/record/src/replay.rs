//! Replay: the same calls to fresh schedulers, and whether they choose the same.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use evener_model::{Event, Job, JobCounts, NodeId, Time};
use evener_scheduler::{NodeView, PickError, Policy, Scheduler};

use crate::{Entry, ReplayError, What};

/// Schedulers of a replay at the most, so that a forged recording cannot take all memory.
const SCHEDULERS_MAX: usize = 65_536;

/// Gives the entries of a recording to fresh schedulers, one for each pool of each worker, and compares
/// their picks with those that were recorded.
///
/// A pick that differs is noted, and the counts are then set to what was recorded, so that one
/// difference does not make all later ones.
#[derive(Debug, Default)]
pub struct Replay {
    drivers: BTreeMap<(u16, u32), Driver>,
    tallies: Vec<Tally>,
    entries: u64,
    first: Option<Time>,
    last: Time,
}

/// A scheduler under replay.
struct Driver {
    pool: String,
    scheduler: Scheduler,
    counts: Arc<JobCounts>,
    names: Vec<String>,
    /// Where its picks are counted.
    tally: usize,
    picks: u64,
    differs: bool,
}

/// The picks of one policy in one pool, over all workers.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The pool's name.
    pub pool: String,
    /// Its policy.
    pub policy: Policy,
    /// Picks that were recorded, those that found no node included.
    pub picks: u64,
    /// Those that the replay chose likewise.
    pub equal: u64,
    /// The first that it did not.
    pub first_difference: Option<Box<Difference>>,
}

/// A pick for which the replay chose otherwise.
#[derive(Clone, Debug)]
pub struct Difference {
    /// On which worker.
    pub worker: u16,
    /// Which of the picks of this pool on this worker, from 1.
    pub pick: u64,
    /// When, on the director's clock.
    pub at: Time,
    /// The job's key.
    pub key: u64,
    /// Names of the nodes that it was to avoid.
    pub avoid: Vec<String>,
    /// Names of the nodes that it excluded.
    pub excluded: Vec<String>,
    /// The node that its client was on.
    pub current: Option<String>,
    /// Name of the node that was recorded, or why there was none.
    pub recorded: Result<String, PickError>,
    /// Name of the node that the replay chose, or why there was none.
    pub replayed: Result<String, PickError>,
    /// The nodes as the replay saw them, without this job.
    pub nodes: Vec<NodeContext>,
}

/// A node beside a [`Difference`].
#[derive(Clone, Debug)]
pub struct NodeContext {
    /// Its name.
    pub name: String,
    /// What the scheduler held of it.
    pub view: NodeView,
}

impl Replay {
    /// A replay of nothing yet.
    pub fn new() -> Replay {
        Replay::default()
    }

    /// Gives the next entry of a worker to its scheduler.
    ///
    /// # Errors
    /// If no director can have recorded it.
    pub fn take(&mut self, worker: u16, entry: &Entry<'_>) -> Result<(), ReplayError> {
        self.entries += 1;
        self.first = Some(self.first.map_or(entry.now, |first| first.min(entry.now)));
        self.last = self.last.max(entry.now);
        let key = (worker, entry.pool);
        if let What::Pool { name, nodes_max, seed, settings } = &entry.what {
            if self.drivers.len() >= SCHEDULERS_MAX {
                return Err(ReplayError::Schedulers(SCHEDULERS_MAX));
            }
            let counts = Arc::new(JobCounts::new(*nodes_max as usize));
            let tally = self.tally(name, settings.policy);
            let driver = Driver {
                pool: (*name).to_owned(),
                scheduler: Scheduler::new(settings.clone(), Arc::clone(&counts), *seed),
                counts,
                names: Vec::new(),
                tally,
                picks: 0,
                differs: false,
            };
            self.drivers.insert(key, driver);
            return Ok(());
        }
        let missing = ReplayError::Pool { worker, pool: entry.pool };
        let driver = self.drivers.get_mut(&key).ok_or(missing)?;
        driver.check_nodes(worker, entry)?;
        match &entry.what {
            What::Pool { .. } => {}
            What::Name { node, name } => driver.name(*node, name),
            What::Settings(settings) => {
                driver.scheduler.reconfigure(entry.now, settings.clone());
                let pool = driver.pool.clone();
                let tally = self.tally(&pool, settings.policy);
                if let Some(driver) = self.drivers.get_mut(&key) {
                    driver.tally = tally;
                }
            }
            What::Event(event) => driver.handle(worker, entry.now, *event)?,
            What::Pick { jobs, job, choice } => {
                let difference = driver.pick(worker, entry.now, jobs, job, *choice);
                let tally = &mut self.tallies[driver.tally];
                tally.picks += 1;
                match difference {
                    None => tally.equal += 1,
                    Some(difference) => {
                        tally.first_difference.get_or_insert(difference);
                    }
                }
            }
        }
        Ok(())
    }

    /// The picks so far, in the order in which pools and their policies appeared.
    pub fn tallies(&self) -> &[Tally] {
        &self.tallies
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Schedulers so far.
    pub fn schedulers(&self) -> usize {
        self.drivers.len()
    }

    /// From the first entry to the last.
    pub fn span(&self) -> std::time::Duration {
        self.first.map_or_else(Default::default, |first| self.last.since(first))
    }

    /// When the first entry was, on the director's clock.
    pub fn started(&self) -> Option<Time> {
        self.first
    }

    fn tally(&mut self, pool: &str, policy: Policy) -> usize {
        let known = self.tallies.iter().position(|tally| tally.pool == pool && tally.policy == policy);
        known.unwrap_or_else(|| {
            let pool = pool.to_owned();
            self.tallies.push(Tally { pool, policy, picks: 0, equal: 0, first_difference: None });
            self.tallies.len() - 1
        })
    }
}

impl Driver {
    /// Every node that an entry names must have a place.
    fn check_nodes(&self, worker: u16, entry: &Entry<'_>) -> Result<(), ReplayError> {
        let check = |node: NodeId| {
            if node.index() < self.counts.len() {
                Ok(())
            } else {
                Err(ReplayError::Node { worker, pool: self.pool.clone(), node: node.0 })
            }
        };
        match &entry.what {
            What::Pool { .. } | What::Settings(_) => Ok(()),
            What::Name { node, .. } => check(*node),
            What::Event(
                Event::Join { node, .. }
                | Event::Leave { node }
                | Event::Weight { node, .. }
                | Event::Drain { node, .. }
                | Event::Check { node, .. }
                | Event::Report { node, .. }
                | Event::Finish { node, .. },
            ) => check(*node),
            What::Pick { jobs, job, choice } => {
                let named = jobs.iter().map(|(node, _)| node).chain(job.avoid);
                let named = named.chain(job.excluded).chain(&job.current);
                named.chain(choice).try_for_each(|node| check(*node))
            }
        }
    }

    fn name(&mut self, node: NodeId, name: &str) {
        if self.names.len() <= node.index() {
            self.names.resize(node.index() + 1, String::new());
        }
        name.clone_into(&mut self.names[node.index()]);
    }

    fn name_of(&self, node: NodeId) -> String {
        let known = self.names.get(node.index()).filter(|name| !name.is_empty());
        known.cloned().unwrap_or_else(|| format!("#{node}"))
    }

    fn handle(&mut self, worker: u16, now: Time, event: Event) -> Result<(), ReplayError> {
        if let Event::Finish { node, .. } = event
            && self.counts.jobs(node) == 0
        {
            if !self.differs {
                return Err(ReplayError::Finish { worker, pool: self.pool.clone(), node: node.0 });
            }
            // The counts of a run that went another way need not fit: what is released must be there.
            self.counts.reserve(node, None);
        }
        self.scheduler.handle(now, event);
        Ok(())
    }

    fn pick(
        &mut self,
        worker: u16,
        now: Time,
        jobs: &[(NodeId, u32)],
        job: &Job<'_>,
        recorded: Result<NodeId, PickError>,
    ) -> Option<Box<Difference>> {
        for (node, jobs) in jobs {
            self.counts.set(*node, *jobs);
        }
        self.picks += 1;
        let replayed = self.scheduler.pick(now, job);
        if replayed == recorded {
            return None;
        }
        self.differs = true;
        if let Ok(node) = replayed {
            self.counts.release(node);
        }
        let nodes = self.scheduler.nodes(now);
        let nodes = nodes.map(|view| NodeContext { name: self.name_of(view.node), view }).collect();
        if let Ok(node) = recorded {
            self.counts.reserve(node, None);
        }
        Some(Box::new(Difference {
            worker,
            pick: self.picks,
            at: now,
            key: job.key,
            avoid: job.avoid.iter().map(|node| self.name_of(*node)).collect(),
            excluded: job.excluded.iter().map(|node| self.name_of(*node)).collect(),
            current: job.current.map(|node| self.name_of(node)),
            recorded: recorded.map(|node| self.name_of(node)),
            replayed: replayed.map(|node| self.name_of(node)),
            nodes,
        }))
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("pool", &self.pool).field("picks", &self.picks).finish_non_exhaustive()
    }
}
