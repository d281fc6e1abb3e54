//! The smallest number that meets a goal, and the rate up to which it is met.

use serde::Serialize;

use super::report::round;

/// Seeks the smallest number that will do, assuming that a larger one does where a smaller does.
#[derive(Clone, Debug)]
pub(super) struct Search {
    /// The largest that is known not to do, plus one.
    from: u32,
    /// The smallest that is known to do.
    does: Option<u32>,
    max: u32,
    step: u32,
}

impl Search {
    /// Among `from..=max`.
    pub(super) fn new(from: u32, max: u32) -> Search {
        Search { from, does: None, max, step: 1 }
    }

    /// What to try next; `None` at the end.
    pub(super) fn next(&self) -> Option<u32> {
        match self.does {
            // The answer is mostly near where nodes are just not overloaded: from there up in growing steps.
            None => (self.from <= self.max).then(|| self.from.saturating_add(self.step - 1).min(self.max)),
            Some(does) => (self.from < does).then(|| self.from + (does - self.from) / 2),
        }
    }

    /// Whether the number that [`Search::next`] said does.
    pub(super) fn tell(&mut self, number: u32, does: bool) {
        if does {
            self.does = Some(number);
        } else {
            self.from = number.saturating_add(1);
            self.step = self.step.saturating_mul(2);
        }
    }

    /// The smallest that does.
    pub(super) fn found(&self) -> Option<u32> {
        self.does.filter(|does| self.from >= *does)
    }
}

/// Up to which rate a goal is met.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub(super) enum Crossing {
    /// Not even at the first rate.
    Below {
        #[serde(serialize_with = "round")]
        rate: f64,
    },
    /// Up to here, by a straight line between two rates.
    At {
        #[serde(serialize_with = "round")]
        rate: f64,
    },
    /// At this rate still; the next failed or was not tried.
    AtLeast {
        #[serde(serialize_with = "round")]
        rate: f64,
    },
}

/// Where a percentile first passes a limit. `None` is a rate that failed: nothing is drawn towards it.
pub(super) fn crossing(rates: &[f64], percentiles: &[Option<f64>], limit: f64) -> Crossing {
    let mut below: Option<(f64, f64)> = None;
    for (rate, percentile) in rates.iter().zip(percentiles) {
        match (below, percentile) {
            (_, Some(at)) if *at <= limit => below = Some((*rate, *at)),
            (None, _) => return Crossing::Below { rate: *rate },
            (Some((from, low)), Some(at)) => {
                return Crossing::At { rate: from + (rate - from) * (limit - low) / (at - low) };
            }
            (Some((from, _)), None) => return Crossing::AtLeast { rate: from },
        }
    }
    match below {
        Some((rate, _)) => Crossing::AtLeast { rate },
        None => Crossing::Below { rate: 0.0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_is_found_wherever_it_is() {
        for smallest in 3..200 {
            let mut search = Search::new(3, 150);
            let mut tried = Vec::new();
            while let Some(number) = search.next() {
                assert!(!tried.contains(&number), "{number} twice");
                tried.push(number);
                search.tell(number, number >= smallest);
            }
            if smallest > 150 {
                assert_eq!(search.found(), None);
                continue;
            }
            assert_eq!(search.found(), Some(smallest));
            assert!(smallest == 3 || tried.contains(&(smallest - 1)), "{smallest}: one below was not tried");
            assert!(tried.len() <= 16, "{tried:?}");
        }
    }

    #[test]
    fn capacity_is_where_the_line_first_crosses() {
        let rates = [10.0, 20.0, 30.0];
        let of = |percentiles: [Option<f64>; 3]| crossing(&rates, &percentiles, 100.0);
        assert_eq!(of([Some(50.0), Some(90.0), Some(110.0)]), Crossing::At { rate: 25.0 });
        assert_eq!(of([Some(50.0), Some(150.0), Some(90.0)]), Crossing::At { rate: 15.0 });
        assert_eq!(of([Some(150.0), Some(90.0), Some(90.0)]), Crossing::Below { rate: 10.0 });
        assert_eq!(of([Some(50.0), Some(90.0), Some(100.0)]), Crossing::AtLeast { rate: 30.0 });
        assert_eq!(of([Some(50.0), Some(90.0), None]), Crossing::AtLeast { rate: 20.0 });
        assert_eq!(of([None, Some(90.0), None]), Crossing::Below { rate: 10.0 });
    }
}
