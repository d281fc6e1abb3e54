//! Counters: written by one worker each, read by anyone.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use evener_model::{Outcome, Report, Time};

/// One `T` for each worker, each on cache lines of its own.
#[derive(Debug)]
pub struct PerWorker<T>(Box<[Aligned<T>]>);

#[derive(Debug, Default)]
#[repr(align(64))]
struct Aligned<T>(T);

impl<T: Default> PerWorker<T> {
    /// Fresh counters for `workers` workers.
    pub fn new(workers: usize) -> PerWorker<T> {
        PerWorker((0..workers).map(|_| Aligned::default()).collect())
    }
}

impl<T> PerWorker<T> {
    /// The counters of worker `worker`; only that worker may write them.
    pub fn of(&self, worker: usize) -> &T {
        &self.0[worker].0
    }

    /// All workers' counters.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|aligned| &aligned.0)
    }

    /// The sum over all workers of what `counter` reads.
    pub fn sum(&self, counter: impl Fn(&T) -> u64) -> u64 {
        self.iter().map(counter).sum()
    }
}

/// A number that one thread changes and any may read.
///
/// With a single writer a load and a store do: no locked instruction.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. Only for the one writer.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Takes `n` away (for gauges). Only for the one writer.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Makes it `n` (for gauges). Only for the one writer.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The value now.
    #[inline]
    pub fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What happened at a listener.
#[derive(Debug, Default)]
pub struct ListenerStats {
    /// Connections accepted.
    pub accepted: Counter,
    /// Connections open now (a gauge).
    pub open: Counter,
    /// Connections refused or closed because a limit was reached.
    pub limited: Counter,
    /// Requests whose head was complete and valid (HTTP), or connections placed (TCP).
    pub jobs: Counter,
    /// Responses by class: `[i]` counts statuses from `100 * (i + 1)`.
    pub responses: [Counter; 5],
    /// Requests refused as malformed or ambiguous (400, 431, 501, 505).
    pub refused: Counter,
    /// Clients that ran into a timeout.
    pub client_timeouts: Counter,
    /// Clients that left before their answer was complete.
    pub aborted: Counter,
    /// Bytes from clients.
    pub bytes_in: Counter,
    /// Bytes to clients.
    pub bytes_out: Counter,
    /// Time from the end of a request's head to the end of its response.
    pub duration: Histogram,
}

/// What happened in a pool, on one worker.
#[derive(Debug, Default)]
pub struct PoolStats {
    /// Jobs waiting for a node now (a gauge).
    pub queued: Counter,
    /// Jobs that ever waited.
    pub queued_total: Counter,
    /// Jobs refused because the queue was full.
    pub queue_full: Counter,
    /// Jobs refused because they waited too long.
    pub queue_timeouts: Counter,
    /// Jobs refused because no node could take one.
    pub no_node: Counter,
    /// Tries beyond the first.
    pub retries: Counter,
    /// Retries not made because the budget was spent.
    pub retries_denied: Counter,
    /// Reports in responses (ORCA) that the scheduler was told. Of those that a node says in quick succession only
    /// some are.
    pub orca_reports: Counter,
    /// Reports in responses (ORCA) that could not be understood.
    pub orca_malformed: Counter,
}

/// What happened on a node, as one worker saw it.
#[derive(Debug, Default)]
pub struct NodeStats {
    /// Jobs placed on the node.
    pub picks: Counter,
    /// How they ended, by [`Outcome::index`].
    pub outcomes: [Counter; Outcome::ALL.len()],
    /// Connections opened to the node.
    pub connects: Counter,
    /// Jobs that used a connection again.
    pub reused: Counter,
    /// Connections open now, idle ones included (a gauge).
    pub connections: Counter,
    /// Connections without a job now (a gauge).
    pub idle: Counter,
    /// Bytes to the node.
    pub bytes_out: Counter,
    /// Bytes from the node.
    pub bytes_in: Counter,
    /// Time from the pick to the first byte of the answer.
    pub latency: Histogram,
    /// What the node said last in a response (ORCA).
    pub said: Said,
}

impl PerWorker<NodeStats> {
    /// What the node said of itself in responses (ORCA), to whichever worker it said it last; without a lock.
    pub fn said(&self) -> Option<Report> {
        self.iter().filter_map(|stats| stats.said.load()).max_by_key(|report| report.measured_at)
    }
}

/// A report that one thread changes and any may read: its time, load, jobs and errors a second, which is what
/// responses can say.
///
/// The writer never waits. A reader that comes while it writes looks again.
#[derive(Debug, Default)]
pub struct Said {
    /// Odd while a report is written; 0 before the first one.
    version: AtomicU64,
    measured_at: AtomicU64,
    /// Which of the numbers are there: bits 0 to 2. In the upper half the bits of the load.
    load: AtomicU64,
    /// The bits of jobs a second, and in the upper half of errors a second.
    rates: AtomicU64,
}

impl Said {
    /// Only for the one writer.
    #[inline]
    pub fn store(&self, report: &Report) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let Report { measured_at, load, jobs_per_s, errors_per_s, .. } = *report;
        let there = u64::from(load.is_some())
            | u64::from(jobs_per_s.is_some()) << 1
            | u64::from(errors_per_s.is_some()) << 2;
        let bits = |number: Option<f32>| u64::from(number.unwrap_or(0.0).to_bits());
        self.measured_at.store(measured_at.as_nanos(), Ordering::Relaxed);
        self.load.store(there | bits(load) << 32, Ordering::Relaxed);
        self.rates.store(bits(jobs_per_s) | bits(errors_per_s) << 32, Ordering::Relaxed);
        self.version.store(version + 2, Ordering::Release);
    }

    /// The last report, if there ever was one.
    pub fn load(&self) -> Option<Report> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            if version == 0 {
                return None;
            }
            let measured_at = self.measured_at.load(Ordering::Relaxed);
            let load = self.load.load(Ordering::Relaxed);
            let rates = self.rates.load(Ordering::Relaxed);
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                let number =
                    |bit: u64, bits: u64| (load >> bit & 1 != 0).then(|| f32::from_bits(bits as u32));
                return Some(Report {
                    measured_at: Time::from_nanos(measured_at),
                    load: number(0, load >> 32),
                    jobs_per_s: number(1, rates),
                    errors_per_s: number(2, rates >> 32),
                    ..Report::default()
                });
            }
            std::hint::spin_loop();
        }
    }
}

/// Counts of durations in buckets that grow with the duration: 4 to each doubling,
/// from 1 µs to 2^26 µs (67 s); the quantiles it gives are at most 25 % too high.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; Histogram::BUCKETS],
    sum_us: Counter,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { buckets: std::array::from_fn(|_| Counter::default()), sum_us: Counter::default() }
    }
}

impl Histogram {
    /// Number of buckets.
    pub const BUCKETS: usize = 4 * 26;

    /// Counts one duration. Only for the one writer.
    #[inline]
    pub fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[Histogram::bucket(us)].add(1);
        self.sum_us.add(us);
    }

    /// How many durations bucket `i` holds; see [`Histogram::upper_us`].
    pub fn count(&self, bucket: usize) -> u64 {
        self.buckets[bucket].load()
    }

    /// The sum of all durations, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load()
    }

    /// Bucket `i` holds durations below this many microseconds, and not below that of bucket `i - 1`.
    /// The last bucket holds all longer ones too.
    pub fn upper_us(bucket: usize) -> u64 {
        let next = bucket as u64 + 1;
        if next < 4 { next } else { (4 + next % 4) << (next / 4 - 1) }
    }

    fn bucket(us: u64) -> usize {
        if us < 4 {
            return us as usize;
        }
        let doubling = us.ilog2() as usize;
        let quarter = (us >> (doubling - 2)) as usize & 3;
        (4 * (doubling - 1) + quarter).min(Histogram::BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_bounds_agree() {
        for us in (0..5_000).chain([1 << 20, (1 << 26) - 1]) {
            let bucket = Histogram::bucket(us);
            assert!(us < Histogram::upper_us(bucket), "{us} in {bucket}");
            assert!(bucket == 0 || us >= Histogram::upper_us(bucket - 1), "{us} in {bucket}");
        }
        assert_eq!(Histogram::bucket(u64::MAX), Histogram::BUCKETS - 1);
    }

    #[test]
    fn what_was_said_is_read_whole_while_it_is_written() {
        let said = Said::default();
        assert_eq!(said.load(), None);
        // All numbers of a report are the same, so a mixture of two shows.
        let report = |number: u64| Report {
            measured_at: Time::from_nanos(number),
            load: Some(number as f32),
            jobs_per_s: number.is_multiple_of(2).then_some(number as f32),
            errors_per_s: Some(number as f32),
            ..Report::default()
        };
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = 0;
                while last < 100_000 {
                    let Some(seen) = said.load() else { continue };
                    let number = seen.measured_at.as_nanos();
                    assert!(number >= last, "{number} after {last}");
                    assert_eq!(seen, report(number));
                    last = number;
                }
            });
            (1..=100_000).for_each(|number| said.store(&report(number)));
            reader.join().unwrap();
        });
    }

    #[test]
    fn the_newest_report_of_all_workers_counts() {
        let stats: PerWorker<NodeStats> = PerWorker::new(3);
        assert_eq!(stats.said(), None);
        for (worker, at) in [(0, 5), (2, 9)] {
            let load = Some(at as f32);
            let measured_at = Time::from_nanos(at);
            stats.of(worker).said.store(&Report { measured_at, load, ..Report::default() });
        }
        assert_eq!(stats.said().unwrap().load, Some(9.0));
    }
}
