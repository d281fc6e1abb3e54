//! Finds the highest rate that a node carries, by asking again and again whether it carries one.
//!
//! Rates grow by a factor until one is too high; the gap is halved until it is small; then rates go up after each one
//! that was carried and down after each one that was not. Around the true rate these are by turns carried and
//! not, so their mean is what the node carries, and how far they lie apart says how sure that is.

use super::document::{Range, Verdict};

/// How to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    /// Requests a second.
    pub(super) rate_start: f64,
    pub(super) rate_min: f64,
    pub(super) rate_max: f64,
    /// Up to which the gap is closed, as a factor above 1; and by how much it is gone up and down.
    pub(super) step: f64,
    /// Trials that count after the gap is closed.
    pub(super) confirmations: usize,
}

/// What a trial is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Growth,
    Bisection,
    Confirmation,
}

impl Phase {
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Growth => "growth",
            Phase::Bisection => "bisection",
            Phase::Confirmation => "confirmation",
        }
    }
}

/// Factor from one rate to the next while the node carries all of them.
const GROWTH: f64 = 2.0;

/// How many times as many confirmations there are at the most, where they do not turn.
const PATIENCE: usize = 3;

/// A search under way.
#[derive(Debug)]
pub(super) struct Search {
    plan: Plan,
    phase: Phase,
    rate: f64,
    /// The highest rate that was carried, below the lowest that was not.
    carried: Option<f64>,
    not_carried: Option<f64>,
    /// The confirmations: rates, and whether they were carried.
    confirmed: Vec<(f64, bool)>,
    /// Where they first turned: until then, they were on their way to the right rate.
    turn: Option<usize>,
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Next {
    Try(Phase, f64),
    Done(Verdict, Option<Range>),
}

impl Search {
    pub(super) fn new(plan: Plan) -> Search {
        assert!(plan.step > 1.0 && plan.rate_min > 0.0 && plan.confirmations > 0, "a search needs a step");
        let rate = plan.rate_start.clamp(plan.rate_min, plan.rate_max);
        Search {
            plan,
            phase: Phase::Growth,
            rate,
            carried: None,
            not_carried: None,
            confirmed: Vec::new(),
            turn: None,
        }
    }

    /// What to try first.
    pub(super) fn first(&self) -> Next {
        Next::Try(self.phase, self.rate)
    }

    /// Takes whether the rate that was to be tried was carried; what to do next.
    pub(super) fn tried(&mut self, is_carried: bool) -> Next {
        if self.phase == Phase::Confirmation {
            return self.confirmed(is_carried);
        }
        if is_carried {
            self.carried = Some(self.rate);
        } else {
            self.not_carried = Some(self.rate);
        }
        let plan = &self.plan;
        match (self.carried, self.not_carried) {
            (Some(carried), None) if carried >= plan.rate_max => return self.end(Verdict::AtLeast),
            (Some(carried), None) => self.rate = (carried * GROWTH).min(plan.rate_max),
            (None, Some(not)) if not <= plan.rate_min => return self.end(Verdict::Below),
            (None, Some(not)) => self.rate = (not / GROWTH).max(plan.rate_min),
            (Some(carried), Some(not)) if not / carried > plan.step => {
                self.phase = Phase::Bisection;
                // In the middle by factors.
                self.rate = (carried * not).sqrt();
            }
            (Some(carried), Some(_)) => {
                self.phase = Phase::Confirmation;
                self.rate = carried;
            }
            (None, None) => unreachable!("a trial ends one way or the other"),
        }
        Next::Try(self.phase, self.rate)
    }

    fn confirmed(&mut self, is_carried: bool) -> Next {
        let count = self.confirmed.len();
        if self.turn.is_none() && self.confirmed.last().is_some_and(|(_, before)| *before != is_carried) {
            self.turn = Some(count - 1);
        }
        self.confirmed.push((self.rate, is_carried));
        let factor = if is_carried { self.plan.step } else { 1.0 / self.plan.step };
        self.rate *= factor;
        let counting = self.turn.map_or(0, |turn| count + 1 - turn);
        if counting < self.plan.confirmations && count + 1 < PATIENCE * self.plan.confirmations {
            return Next::Try(Phase::Confirmation, self.rate);
        }
        self.end(Verdict::Found)
    }

    /// The highest rate so far that was carried, for a search that does not come to its end.
    pub(super) fn carried(&self) -> Option<f64> {
        self.carried
    }

    fn end(&self, verdict: Verdict) -> Next {
        let range = match verdict {
            Verdict::Found => {
                // Where they never turned, the end of the way is all there is.
                let from = self.turn.unwrap_or(self.confirmed.len() - self.plan.confirmations);
                let mut levels: Vec<f64> = self.confirmed[from..].iter().map(|(rate, _)| *rate).collect();
                levels.push(self.rate);
                let logarithms: f64 = levels.iter().map(|level| level.ln()).sum();
                let mean = (logarithms / levels.len() as f64).exp();
                Some(Range { median: mean, ..Range::of(&levels) })
            }
            Verdict::AtLeast => self.carried.map(|rate| Range::of(&[rate])),
            Verdict::Below | Verdict::Stopped => None,
        };
        Next::Done(verdict, range)
    }
}

#[cfg(test)]
mod tests {
    use evener_replay::Random;

    use super::*;

    const PLAN: Plan = Plan { rate_start: 10.0, rate_min: 1.0, rate_max: 1e5, step: 1.05, confirmations: 5 };

    /// Searches where `carries` says whether a rate is; how many trials it took.
    fn search(plan: Plan, mut carries: impl FnMut(f64) -> bool) -> (Verdict, Option<Range>, usize) {
        let mut search = Search::new(plan);
        let mut next = search.first();
        let mut trials = 0;
        loop {
            match next {
                Next::Try(_, rate) => next = search.tried(carries(rate)),
                Next::Done(verdict, range) => return (verdict, range, trials),
            }
            trials += 1;
            assert!(trials < 100, "it does not end");
        }
    }

    #[test]
    fn a_node_with_a_sharp_limit_is_found_wherever_it_lies() {
        for capacity in [1.3, 9.0, 10.5, 437.0, 80_000.0] {
            let (verdict, range, trials) = search(PLAN, |rate| rate <= capacity);
            let range = range.unwrap();
            assert_eq!(verdict, Verdict::Found);
            assert!((range.median / capacity).ln().abs() < 0.06, "{capacity}: {range:?}");
            assert!(range.low <= capacity && capacity <= range.high * 1.001, "{capacity}: {range:?}");
            assert!(range.spread() < 0.12 && trials < 30, "{capacity}: {range:?} after {trials}");
        }
    }

    #[test]
    fn chance_in_the_trials_moves_the_answer_little() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            // From 350 to 450 it is ever less likely that a trial is passed.
            let (verdict, range, _) =
                search(PLAN, |rate| random.uniform() > ((rate - 350.0) / 100.0).clamp(0.0, 1.0));
            let range = range.unwrap();
            assert_eq!(verdict, Verdict::Found);
            assert!((300.0..480.0).contains(&range.median), "seed {seed}: {range:?}");
        }
    }

    #[test]
    fn a_wrong_answer_on_the_way_up_is_made_good() {
        let mut trials = 0;
        let (_, range, _) = search(PLAN, |rate| {
            trials += 1;
            trials != 3 && rate <= 50.0
        });
        assert!((47.0..53.0).contains(&range.unwrap().median), "{range:?}");
    }

    #[test]
    fn what_lies_outside_the_rates_is_told() {
        assert_eq!(search(PLAN, |_| false).0, Verdict::Below);
        let (verdict, range, _) = search(PLAN, |_| true);
        assert_eq!((verdict, range.unwrap().median), (Verdict::AtLeast, 1e5));
    }
}
