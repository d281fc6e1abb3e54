use evener_model::Time;

use super::Tuning;

/// A node is taken for slower or faster no sooner than after so many jobs, older ones counting less.
const JOBS_MIN: f64 = 16.0;
/// A smaller difference than this part is none.
const OFF_MIN: f64 = 0.01;
/// No node is taken for more than this many times slower or faster than the others.
const SLOWNESS_MAX: f64 = 64.0;

/// How long jobs take for each job that is there, and how sure that is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    steady: Sums,
    recent: Sums,
    fed_at: Time,
}

/// Sums over jobs, older ones counting less.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    count: f64,
    seconds: f64,
    jobs: f64,
    /// Of what a job's time differed from what those before let expect, the squares.
    squares: f64,
}

impl Sums {
    fn feed(&mut self, seconds: f64, jobs: f64) {
        let off = seconds - self.ratio().unwrap_or(seconds / jobs) * jobs;
        self.count += 1.0;
        self.seconds += seconds;
        self.jobs += jobs;
        self.squares += off * off;
    }

    fn fade(&mut self, keep: f64) {
        self.count *= keep;
        self.seconds *= keep;
        self.jobs *= keep;
        self.squares *= keep;
    }

    /// Seconds for each job.
    fn ratio(&self) -> Option<f64> {
        (self.jobs > 0.0).then(|| self.seconds / self.jobs)
    }

    /// Square of the standard error of the ratio.
    fn error_squared(&self) -> f64 {
        self.squares / (self.jobs * self.jobs)
    }
}

impl Pace {
    /// A job took so many seconds where there were so many, itself included, on one of so many nodes.
    pub(super) fn feed(&mut self, now: Time, seconds: f64, jobs: f64, nodes: usize, tuning: &Tuning) {
        let keep = tuning.kept(now.since(self.fed_at).as_secs_f64());
        self.fed_at = now;
        let nodes = nodes.max(1) as f64;
        for (sums, over) in [(&mut self.steady, tuning.jobs_steady), (&mut self.recent, tuning.jobs_recent)] {
            sums.fade(keep * (1.0 - 1.0 / (over * nodes)));
            sums.feed(seconds, jobs);
        }
        let (Some(steady), Some(recent)) = (self.steady.ratio(), self.recent.ratio()) else { return };
        let chance = tuning.errors * tuning.errors * self.recent.error_squared();
        if self.recent.count >= JOBS_MIN && (recent - steady) * (recent - steady) > chance {
            // It is not what it was: what was before does not count.
            self.steady = self.recent;
        }
    }

    /// Seconds for each job; `None` before the first.
    pub(super) fn seconds_per_job(&self) -> Option<f64> {
        self.steady.ratio()
    }

    /// How many times slower than all together this node is: 1 while that may be chance, and near what was
    /// measured when it hardly can be.
    pub(super) fn slowness(&self, now: Time, all: &Pace, tuning: &Tuning) -> f64 {
        let (Some(own), Some(typical)) = (self.steady.ratio(), all.steady.ratio()) else { return 1.0 };
        let off = own - typical;
        if self.steady.count < JOBS_MIN || off.abs() <= OFF_MIN * typical {
            return 1.0;
        }
        let stale = tuning.kept(now.since(self.fed_at).as_secs_f64());
        let error_squared = self.steady.error_squared() / stale + all.steady.error_squared();
        let chance = tuning.errors * tuning.errors * error_squared / (off * off);
        let sure = (1.0 - chance).max(0.0);
        (1.0 + off / typical * sure).clamp(1.0 / SLOWNESS_MAX, SLOWNESS_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Two kinds of jobs, mean 10 ms, and a node so many times slower than three others.
    fn slowness(times: f64, jobs: u32, seed: u64) -> f64 {
        let tuning = Tuning::default();
        let mut rng = Rng::new(seed);
        let (mut node, mut all) = (Pace::default(), Pace::default());
        let mut now = Time::ZERO;
        for job in 0..jobs {
            now += std::time::Duration::from_millis(10);
            let seconds = if rng.below(10) == 0 { 0.055 } else { 0.005 };
            let there = 1.0 + rng.below(4) as f64;
            let on_node = job % 4 == 0;
            let seconds = seconds * there * if on_node { times } else { 1.0 };
            if on_node {
                node.feed(now, seconds, there, 1, &tuning);
            }
            all.feed(now, seconds, there, 4, &tuning);
        }
        node.slowness(now, &all, &tuning)
    }

    #[test]
    fn chance_is_not_believed() {
        for seed in 0..50 {
            let slowness = slowness(1.0, 4000, seed);
            assert!(slowness == 1.0, "{slowness}");
        }
    }

    #[test]
    fn a_slow_node_is_known_after_a_while() {
        for seed in 0..10 {
            // It is one of the four, which together take 7/4 of what the others take.
            let slowness = slowness(4.0, 8000, seed);
            assert!((1.6..2.7).contains(&slowness), "{slowness}");
        }
    }

    #[test]
    fn a_change_shows_soon() {
        let tuning = Tuning::default();
        let (mut node, mut all) = (Pace::default(), Pace::default());
        let mut now = Time::ZERO;
        let mut feed = |seconds: f64, jobs: u32, node: &mut Pace| {
            for _ in 0..jobs {
                now += std::time::Duration::from_millis(1);
                node.feed(now, seconds, 1.0, 1, &tuning);
                all.feed(now, 0.01, 1.0, 1000, &tuning);
            }
            node.slowness(now, &all, &tuning)
        };
        assert_eq!(feed(0.01, 5000, &mut node), 1.0);
        assert!(feed(0.04, 40, &mut node) > 2.0);
        assert!(feed(0.04, 100, &mut node) > 3.5);
        assert!(feed(0.01, 100, &mut node) < 1.5);
    }
}
