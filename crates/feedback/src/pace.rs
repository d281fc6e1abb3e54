//! When to report: each node in the same rhythm, and no two of them in step.

use std::time::Duration;

use evener_model::Time;

use crate::rng::Rng;

/// The times at which a node reports.
///
/// Nodes that report all at once make every dispatcher move at once, and burden the network in bursts. So the
/// first report comes anywhere within an interval, and each next one after an interval that varies.
#[derive(Clone, Debug)]
pub struct Pace {
    interval: Duration,
    jitter: Duration,
    due: Time,
    rng: Rng,
}

impl Pace {
    /// Reports every `interval`, longer or shorter by up to `jitter` (at most the interval), from `now` on.
    pub fn new(interval: Duration, jitter: Duration, now: Time, seed: u64) -> Pace {
        let mut rng = Rng::new(seed);
        Pace { interval, jitter: jitter.min(interval), due: now + rng.up_to(interval), rng }
    }

    /// When the next report is due.
    pub fn due(&self) -> Time {
        self.due
    }

    /// Whether a report is due at `now`; if so, sets when the next is. What was missed is not made up for.
    pub fn is_due(&mut self, now: Time) -> bool {
        if now < self.due {
            return false;
        }
        let interval = self.interval - self.jitter + self.rng.up_to(2 * self.jitter);
        let next = self.due + interval;
        self.due = if next > now { next } else { now + interval };
        true
    }

    /// Another interval from the next report on.
    pub fn change(&mut self, interval: Duration, jitter: Duration) {
        (self.interval, self.jitter) = (interval, jitter.min(interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn nodes_that_start_together_do_not_report_together() {
        let start = Time::from_nanos(5);
        let mut due: Vec<Time> =
            (0..100).map(|seed| Pace::new(SECOND, SECOND / 5, start, seed).due()).collect();
        due.sort();
        let tenths =
            (1..=10).map(|tenth| due.iter().filter(|at| **at <= start + SECOND * tenth / 10).count());
        assert!(tenths.enumerate().all(|(i, count)| count.abs_diff((i + 1) * 10) < 15), "{due:?}");
        assert!(due[99] <= start + SECOND);
    }

    #[test]
    fn the_rhythm_holds_on_average_and_nothing_is_made_up_for() {
        let mut pace = Pace::new(SECOND, SECOND / 5, Time::ZERO, 7);
        let mut reports = 0;
        for milli in 0..600_000_u64 {
            reports += u32::from(pace.is_due(Time::from_nanos(milli * 1_000_000)));
        }
        assert!((590..=610).contains(&reports), "{reports} in 600 s");
        let late = Time::from_nanos(1_000_000_000_000);
        assert!(pace.is_due(late) && !pace.is_due(late));
        assert!(pace.due() >= late + SECOND * 4 / 5);
    }
}
