use std::time::Duration;

use evener_model::Time;

use super::Tuning;

/// Moments of the past that are kept of each node, at distances of a quarter of a typical latency or more.
const PAST: usize = 16;
/// Before anything is known of what signs are worth, they are worth what they say, as if seen on so many jobs.
const PRIOR_JOBS: f64 = 64.0;
/// The gains are worked out again with every so many jobs.
const JOBS_PER_SOLUTION: u32 = 8;
/// Keeps sums that are divided by above 0.
const TINY: f64 = 1e-6;

/// What speaks for jobs on a node of which nothing is known here, each in jobs beyond the mean.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Signs {
    /// What the node said.
    pub(super) told: f64,
    /// How late its answers were.
    pub(super) excess: f64,
}

/// How many jobs more than are known of a node seems to have, by how late its last answers were.
///
/// A dispatcher among many that finds a node quick goes on with it until it becomes slower; so it always knows well
/// how the nodes are that it uses, and different dispatchers come to use different nodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excess {
    mean: f64,
    count: f64,
    fed_at: Time,
}

impl Excess {
    pub(super) fn feed(&mut self, now: Time, jobs: f64, tuning: &Tuning) {
        self.mean = self.at(now, tuning);
        self.count = (self.count + 1.0).min(tuning.jobs_recent);
        self.mean += (jobs - self.mean) / (self.count + 3.0).min(tuning.jobs_recent);
        self.fed_at = now;
    }

    #[inline]
    pub(super) fn at(&self, now: Time, tuning: &Tuning) -> f64 {
        self.mean * tuning.kept(now.since(self.fed_at).as_secs_f64())
    }
}

/// What was thought of a node at some moments of the past.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Past {
    moments: [(Time, Signs); PAST],
    next: usize,
}

impl Past {
    /// Notes what is thought now, unless the last moment is less than `gap` ago.
    pub(super) fn note(&mut self, now: Time, gap: Duration, signs: Signs) {
        let last = self.moments[(self.next + PAST - 1) % PAST].0;
        if now.since(last) >= gap {
            self.moments[self.next] = (now, signs);
            self.next = (self.next + 1) % PAST;
        }
    }

    /// What was thought then; `None` if that is not known any more.
    pub(super) fn at(&self, then: Time) -> Option<Signs> {
        let mut newest_first = (1..=PAST).map(|back| self.moments[(self.next + PAST - back) % PAST]);
        newest_first.find(|(at, _)| *at <= then).map(|(_, signs)| signs)
    }
}

/// What signs were worth: how much of what they said when jobs were placed was found when these were done, by
/// least squares over the last jobs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Gains {
    jobs: u32,
    count: f64,
    told_told: f64,
    told_excess: f64,
    excess_excess: f64,
    told_found: f64,
    excess_found: f64,
    /// The gains, each 0 to 1.
    told: f64,
    excess: f64,
}

impl Gains {
    /// A job that was placed when there were these signs found so many jobs beyond the known.
    pub(super) fn feed(&mut self, signs: Signs, found: f64, tuning: &Tuning) {
        let keep = 1.0 - 1.0 / tuning.jobs_steady;
        let sums = [
            (&mut self.count, 1.0),
            (&mut self.told_told, signs.told * signs.told),
            (&mut self.told_excess, signs.told * signs.excess),
            (&mut self.excess_excess, signs.excess * signs.excess),
            (&mut self.told_found, signs.told * found),
            (&mut self.excess_found, signs.excess * found),
        ];
        for (sum, more) in sums {
            *sum = *sum * keep + more;
        }
        self.jobs = self.jobs.wrapping_add(1);
        if self.jobs.is_multiple_of(JOBS_PER_SOLUTION) || self.jobs < JOBS_PER_SOLUTION {
            self.solve();
        }
    }

    fn solve(&mut self) {
        let prior = PRIOR_JOBS / self.count;
        let told_told = self.told_told * (1.0 + prior) + TINY;
        let excess_excess = self.excess_excess * (1.0 + prior) + TINY;
        let told_found = self.told_found + self.told_told * prior + TINY;
        let excess_found = self.excess_found + self.excess_excess * prior + TINY;
        let both = told_told * excess_excess - self.told_excess * self.told_excess;
        let told = (told_found * excess_excess - excess_found * self.told_excess) / both;
        let excess = (excess_found * told_told - told_found * self.told_excess) / both;
        // A sign that would count against itself is left out, and the other has to do alone.
        (self.told, self.excess) = if told <= 0.0 {
            (0.0, excess_found / excess_excess)
        } else if excess <= 0.0 {
            (told_found / told_told, 0.0)
        } else {
            (told, excess)
        };
        self.told = self.told.clamp(0.0, 1.0);
        self.excess = self.excess.clamp(0.0, 1.0);
    }

    /// The jobs that signs speak of, as far as they were worth it.
    #[inline]
    pub(super) fn worth(&self, signs: Signs) -> f64 {
        self.told * signs.told + self.excess * signs.excess
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// The gains after many jobs that found `told · a + excess · b`, and noise.
    fn gains(a: f64, b: f64) -> (f64, f64) {
        let mut rng = Rng::new(1);
        let mut draw = move || rng.below(2001) as f64 / 1000.0 - 1.0;
        let mut gains = Gains::default();
        for _ in 0..20_000 {
            let signs = Signs { told: 3.0 * draw(), excess: 2.0 * draw() };
            gains.feed(signs, a * signs.told + b * signs.excess + 3.0 * draw(), &Tuning::default());
        }
        (gains.told, gains.excess)
    }

    #[test]
    fn signs_are_worth_what_was_found() {
        for (a, b) in [(0.0, 0.0), (0.7, 0.2), (0.0, 0.5), (1.0, 0.0), (-0.5, 0.4)] {
            let (told, excess) = gains(a, b);
            assert!((told - a.max(0.0)).abs() < 0.12, "{a} {told}");
            assert!((excess - b).abs() < 0.12, "{b} {excess}");
        }
    }

    #[test]
    fn the_past_is_kept_as_long_as_there_is_room() {
        let mut past = Past::default();
        let at = |ms: u64| Time::ZERO + Duration::from_millis(ms);
        for ms in 1..=40 {
            past.note(at(ms), Duration::from_millis(2), Signs { told: ms as f64, excess: 0.0 });
        }
        assert_eq!(past.at(at(39)).unwrap().told, 38.0);
        assert_eq!(past.at(at(38)).unwrap().told, 38.0);
        assert_eq!(past.at(at(10)).unwrap().told, 10.0);
        assert!(past.at(at(8)).is_none());
    }
}
