//! The jobs of a recording: when each came, where it went, and how long it took.

use std::collections::BTreeMap;
use std::time::Duration;

use evener_model::{Event, NodeId, Outcome, Time};

use crate::{Entry, What};

/// Puts the picks and the ends of jobs together again.
///
/// A recording does not say which pick an end belongs to. Of the jobs that are open on the node, it is taken for
/// the last that was placed early enough for the latency that was recorded; where there is none, for the oldest. So
/// single times may be exchanged between jobs that were on a node together; their sum is exact.
#[derive(Debug, Default)]
pub struct Jobs {
    pools: BTreeMap<(u16, u32), Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    name: String,
    /// The jobs on each node, the oldest first.
    open: BTreeMap<NodeId, Vec<Open>>,
}

#[derive(Clone, Copy, Debug)]
struct Open {
    at: Time,
    key: u64,
    is_retry: bool,
}

/// A job that has ended, or the try of one on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedJob<'a> {
    /// Name of its pool.
    pub pool: &'a str,
    /// When it was placed, on the director's clock.
    pub at: Time,
    /// Its key; 0 if the policy had no use for one.
    pub key: u64,
    /// Whether it had been tried on another node before: no other job came then.
    pub is_retry: bool,
    /// The node that it was placed on.
    pub node: NodeId,
    /// From there to its end.
    pub took: Duration,
    /// From there to the first byte of its answer.
    pub latency: Option<Duration>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Jobs {
    /// No jobs yet.
    pub fn new() -> Jobs {
        Jobs::default()
    }

    /// Takes the next entry of a worker; gives the job that ended by it. Jobs come in the order in which they
    /// end, worker by worker: who wants them in the order in which they came must sort them.
    pub fn take(&mut self, worker: u16, entry: &Entry<'_>) -> Option<RecordedJob<'_>> {
        let pool = self.pools.entry((worker, entry.pool)).or_default();
        match &entry.what {
            What::Pool { name, .. } => {
                *pool = Pool { name: (*name).to_owned(), ..Pool::default() };
                None
            }
            What::Pick { job, choice: Ok(node), .. } => {
                let open = Open { at: entry.now, key: job.key, is_retry: !job.avoid.is_empty() };
                pool.open.entry(*node).or_default().push(open);
                None
            }
            What::Event(Event::Finish { node, outcome, latency }) => {
                pool.finish(entry.now, *node, *outcome, *latency)
            }
            _ => None,
        }
    }

    /// Jobs that have not ended yet.
    pub fn open(&self) -> usize {
        self.pools.values().flat_map(|pool| pool.open.values()).map(Vec::len).sum()
    }
}

impl Pool {
    fn finish(
        &mut self,
        now: Time,
        node: NodeId,
        outcome: Outcome,
        latency: Option<Duration>,
    ) -> Option<RecordedJob<'_>> {
        let jobs = self.open.get_mut(&node).filter(|jobs| !jobs.is_empty())?;
        let early_enough = latency.map_or(0, |latency| {
            let answered = now - latency;
            jobs.partition_point(|open| open.at <= answered)
        });
        let Open { at, key, is_retry } = jobs.remove(early_enough.saturating_sub(1));
        if outcome == Outcome::Cancelled && at == now {
            // A place that another worker took at the same moment: the job is placed once more, right away.
            return None;
        }
        let pool = &self.name;
        Some(RecordedJob { pool, at, key, is_retry, node, took: now.since(at), latency, outcome })
    }
}

#[cfg(test)]
mod tests {
    use evener_model::Job;

    use super::*;

    const NODE: NodeId = NodeId(3);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn take(jobs: &mut Jobs, at: u64, what: What<'_>) -> Option<(u64, Duration)> {
        let entry = Entry { pool: 0, now: Time::ZERO + ms(at), what };
        jobs.take(0, &entry).map(|job| (job.key, job.took))
    }

    fn pick(jobs: &mut Jobs, at: u64, key: u64) {
        let job = Job { key, ..Job::default() };
        assert_eq!(take(jobs, at, What::Pick { jobs: &[], job, choice: Ok(NODE) }), None);
    }

    fn finish(jobs: &mut Jobs, at: u64, outcome: Outcome, latency: Option<u64>) -> Option<(u64, Duration)> {
        take(jobs, at, What::Event(Event::Finish { node: NODE, outcome, latency: latency.map(ms) }))
    }

    #[test]
    fn an_end_belongs_to_the_pick_that_its_latency_names() {
        let mut jobs = Jobs::new();
        for key in 1..=4 {
            pick(&mut jobs, key, key);
        }
        assert_eq!(finish(&mut jobs, 7, Outcome::Success, Some(5)), Some((2, ms(5))));
        assert_eq!(finish(&mut jobs, 9, Outcome::Error, Some(5)), Some((4, ms(5))));
        assert_eq!(finish(&mut jobs, 10, Outcome::Timeout, None), Some((1, ms(9))));
        assert_eq!(finish(&mut jobs, 11, Outcome::Success, Some(20)), Some((3, ms(8))));
        assert_eq!(finish(&mut jobs, 12, Outcome::Success, None), None, "no job is open");
    }

    #[test]
    fn a_place_that_was_lost_to_another_worker_is_no_job() {
        let mut jobs = Jobs::new();
        pick(&mut jobs, 1, 1);
        assert_eq!(finish(&mut jobs, 1, Outcome::Cancelled, None), None);
        pick(&mut jobs, 1, 1);
        assert_eq!(jobs.open(), 1);
        assert_eq!(finish(&mut jobs, 4, Outcome::Cancelled, None), Some((1, ms(3))));
    }
}
