//! Counters: written by one worker each, read by anyone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evener_model::Outcome;

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
}
