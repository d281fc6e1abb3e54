//! How long a node takes to answer.

use std::time::Duration;

use evener_model::Time;

/// Samples are cut here (18 minutes), so that scores cannot overflow.
const NANOS_MAX: u64 = 1 << 40;
/// ln 2 times the decay of 10 s, in whole steps.
const HALF_LIFE_NANOS: u64 = 64 * STEP_NANOS;
/// Readers see a mean fade in steps, so that what is derived from it need not change at every look.
const STEP_NANOS: u64 = 108_304_247;
/// What stands for 1 in fractions.
const ONE: u64 = 1 << 16;

/// Two means of a node's latency. Both fade while no sample comes: a node that was slow
/// and therefore got no jobs must be tried again some time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    mean_nanos: u64,
    peak_nanos: u64,
    fed_at: Option<Time>,
}

impl Latency {
    /// Takes a sample: an eighth of it into the mean; into the peak at once if it is longer, else
    /// with the weight that 10 s decay gives to the time since the last sample.
    pub(crate) fn feed(&mut self, now: Time, sample: Duration) {
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(NANOS_MAX).clamp(1, NANOS_MAX);
        match self.fed_at {
            None => (self.mean_nanos, self.peak_nanos) = (sample, sample),
            Some(before) => {
                let kept = fade(now.since(before));
                self.mean_nanos = (self.mean_nanos * 7 + sample) / 8;
                self.peak_nanos = if sample >= self.peak_nanos {
                    sample
                } else {
                    (self.peak_nanos * kept + sample * (ONE - kept)) / ONE
                };
            }
        }
        self.fed_at = Some(now);
    }

    /// Takes the time that a failure took, unless that would make the node look faster.
    pub(crate) fn feed_failure(&mut self, now: Time, sample: Duration) {
        if sample.as_nanos() > u128::from(self.mean_nanos.max(self.peak_nanos)) && self.fed_at.is_some() {
            self.feed(now, sample);
        }
    }

    /// The mean now, in nanoseconds; `None` before the first sample.
    #[inline]
    pub(crate) fn mean_nanos(&self, now: Time) -> Option<u64> {
        self.fed_at.map(|at| self.mean_nanos * fade_in_steps(now.since(at)) / ONE)
    }

    /// The peak-sensitive mean now, in nanoseconds; `None` before the first sample.
    #[inline]
    pub(crate) fn peak_nanos(&self, now: Time) -> Option<u64> {
        self.fed_at.map(|at| self.peak_nanos * fade_in_steps(now.since(at)) / ONE)
    }

    /// The mean as it was fed, and when it was fed last.
    pub(crate) fn mean(&self) -> Option<(Duration, Time)> {
        self.fed_at.map(|at| (Duration::from_nanos(self.mean_nanos), at))
    }

    /// The peak-sensitive mean as it was fed, and when it was fed last.
    pub(crate) fn peak(&self) -> Option<(Duration, Time)> {
        self.fed_at.map(|at| (Duration::from_nanos(self.peak_nanos), at))
    }
}

/// What is left of 1 after `elapsed`, with a decay of 10 s: exact at whole half-lives, on a straight
/// line between them (at most 6 % above the curve), the same on every machine.
#[inline]
fn fade(elapsed: Duration) -> u64 {
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    let halvings = nanos / HALF_LIFE_NANOS;
    if halvings >= 16 {
        return 0;
    }
    (ONE - (nanos % HALF_LIFE_NANOS) * (ONE / 2) / HALF_LIFE_NANOS) >> halvings
}

/// The same in steps of a 64th of a half-life.
#[inline]
fn fade_in_steps(elapsed: Duration) -> u64 {
    let nanos = u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX);
    let steps = nanos / STEP_NANOS;
    if steps >= 16 * 64 {
        return 0;
    }
    (ONE - steps % 64 * (ONE / 128)) >> (steps / 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_peak_counts_at_once_and_fades() {
        let mut latency = Latency::default();
        latency.feed(Time::ZERO, ms(10));
        latency.feed(Time::ZERO, ms(100));
        assert_eq!(latency.peak_nanos(Time::ZERO), Some(100_000_000));
        assert_eq!(latency.mean_nanos(Time::ZERO), Some(21_250_000));
        let half_life = Time::from_nanos(HALF_LIFE_NANOS);
        assert_eq!(latency.peak_nanos(half_life), Some(50_000_000));
        latency.feed(half_life, ms(10));
        assert_eq!(latency.peak_nanos(half_life), Some(55_000_000));
    }

    #[test]
    fn a_fast_failure_is_no_low_latency() {
        let mut latency = Latency::default();
        latency.feed(Time::ZERO, ms(10));
        latency.feed_failure(Time::ZERO, ms(1));
        assert_eq!(latency.mean_nanos(Time::ZERO), Some(10_000_000));
        latency.feed_failure(Time::ZERO, ms(90));
        assert_eq!(latency.mean_nanos(Time::ZERO), Some(20_000_000));
    }
}
