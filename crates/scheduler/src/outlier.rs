//! A node judged by how its jobs end: the penalty on its score, and ejection.

use std::time::Duration;

use evener_model::{Outcome, Time};

use crate::Outlier;
use crate::nodes::UNIT;

/// The share of failures that stands for 1.
const ALL: u32 = 1024;
/// How often time forgives.
const FORGIVE_EVERY: Duration = Duration::from_secs(1);
/// No ejection doubles more often: the limit would be reached long before.
const DOUBLINGS_MAX: u32 = 24;

/// What is known of how a node's jobs end.
///
/// `share`, the recent share of failures f, moves an eighth of the way to 1 with each failure and to 0
/// with each success, and loses a sixteenth every second, so that a node is tried again.
/// The penalty that multiplies the node's score is `1 + 255 f³`: one failure among
/// successes costs a half, two in a row fourfold, five in a row thirtyfold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Conduct {
    share: u32,
    forgiven_at: Time,
    in_a_row: u32,
    interval_at: Time,
    ended: u32,
    failed: u32,
    ejected_until: Option<Time>,
    doublings: u32,
    back_at: Time,
    ejections: u32,
}

impl Conduct {
    /// Takes the end of a job; says whether the penalty or the ejection changed.
    pub(crate) fn ended(&mut self, now: Time, outcome: Outcome, rules: Option<&Outlier>) -> bool {
        if outcome == Outcome::Cancelled {
            return false;
        }
        let before = self.share;
        if outcome.is_failure() {
            if self.share == 0 {
                self.forgiven_at = now;
            }
            self.share += (ALL - self.share) / 8;
        } else {
            self.share -= self.share.div_ceil(8);
        }
        let ejected =
            self.ejected_until.is_none() && rules.is_some_and(|rules| self.judge(now, outcome, rules));
        ejected || self.share != before
    }

    /// Forgives what time forgives, and ends the ejection if it is time.
    pub(crate) fn advance(&mut self, now: Time) {
        if let Some(until) = self.ejected_until.filter(|until| *until <= now) {
            self.ejected_until = None;
            self.back_at = until;
        }
        while self.share > 0 && self.forgiven_at + FORGIVE_EVERY <= now {
            self.forgiven_at += FORGIVE_EVERY;
            self.share -= self.share.div_ceil(16);
        }
    }

    /// When time changes something next.
    pub(crate) fn due(&self) -> Option<Time> {
        let forgiveness = (self.share > 0).then(|| self.forgiven_at + FORGIVE_EVERY);
        [self.ejected_until, forgiveness].into_iter().flatten().min()
    }

    /// What multiplies the score, in [`UNIT`]s, at least one.
    pub(crate) fn penalty(&self) -> u32 {
        let f = u64::from(self.share);
        let all = u64::from(ALL);
        UNIT + (255 * u64::from(UNIT) * f * f * f / (all * all * all)) as u32
    }

    /// Until when the node is ejected.
    pub(crate) fn ejected_until(&self) -> Option<Time> {
        self.ejected_until
    }

    /// The node may come back at once: ejection was switched off.
    pub(crate) fn pardon(&mut self) {
        self.ejected_until = None;
    }

    /// Recent share of failures, 0–1.
    pub(crate) fn failure_share(&self) -> f32 {
        self.share as f32 / ALL as f32
    }

    /// Times the node was ejected.
    pub(crate) fn ejections(&self) -> u32 {
        self.ejections
    }

    fn judge(&mut self, now: Time, outcome: Outcome, rules: &Outlier) -> bool {
        if now.since(self.interval_at) >= rules.interval {
            (self.interval_at, self.ended, self.failed) = (now, 0, 0);
        }
        self.ended = self.ended.saturating_add(1);
        if !outcome.is_failure() {
            self.in_a_row = 0;
            return false;
        }
        self.failed = self.failed.saturating_add(1);
        self.in_a_row = self.in_a_row.saturating_add(1);

        let in_a_row = rules.consecutive > 0 && self.in_a_row >= rules.consecutive;
        let share = rules.error_percent > 0
            && self.ended >= rules.requests_min
            && u64::from(self.failed) * 100 >= u64::from(self.ended) * u64::from(rules.error_percent);
        if in_a_row || share {
            self.eject(now, rules);
        }
        in_a_row || share
    }

    fn eject(&mut self, now: Time, rules: &Outlier) {
        let good = now.since(self.back_at).as_nanos() / rules.interval.as_nanos().max(1);
        let forgiven = u32::try_from(good).unwrap_or(u32::MAX);
        self.doublings = self.doublings.saturating_sub(forgiven);
        let ejection = rules.ejection.saturating_mul(1 << self.doublings).min(rules.ejection_max);
        self.ejected_until = Some(now + ejection);
        self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX);
        self.ejections += 1;
        (self.in_a_row, self.ended, self.failed) = (0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn fail(conduct: &mut Conduct, now: Time, times: u32) {
        for _ in 0..times {
            conduct.ended(now, Outcome::Refused, Some(&Outlier::default()));
        }
    }

    #[test]
    fn ejections_double_and_good_behaviour_halves_them() {
        let mut conduct = Conduct::default();
        let mut ejected = |now: u64| {
            conduct.advance(at(now));
            fail(&mut conduct, at(now), 5);
            conduct.ejected_until().unwrap().since(at(now)).as_secs()
        };
        assert_eq!(ejected(100), 5);
        assert_eq!(ejected(105), 10);
        assert_eq!(ejected(115), 20);
        // Back since 135, good for one interval of 10 s: one doubling less.
        assert_eq!((ejected(135), ejected(175 + 15)), (40, 40));
        assert_eq!(ejected(100_000), 5);
    }

    #[test]
    fn a_share_of_failures_ejects_only_with_enough_jobs() {
        let rules = Outlier { consecutive: 0, ..Outlier::default() };
        let mut conduct = Conduct::default();
        let outcomes = [Outcome::Error, Outcome::Success];
        let ejected_at = (0..100).find(|i| {
            conduct.ended(at(1), outcomes[i % 2], Some(&rules));
            conduct.ejected_until().is_some()
        });
        // Failures are at even places; the 21st job is the first failure with 20 jobs or more.
        assert_eq!(ejected_at, Some(20));
    }

    #[test]
    fn the_penalty_grows_with_each_failure_and_fades() {
        let mut conduct = Conduct::default();
        let mut penalties = Vec::new();
        for _ in 0..5 {
            conduct.ended(at(0), Outcome::Error, None);
            penalties.push(conduct.penalty() / UNIT);
        }
        assert_eq!(penalties, [1, 4, 10, 18, 30]);
        assert_eq!(conduct.due(), Some(at(1)));
        conduct.advance(at(10));
        assert_eq!(conduct.penalty() / UNIT, 5);
        conduct.advance(at(200));
        assert_eq!((conduct.penalty(), conduct.due()), (UNIT, None));
    }
}
