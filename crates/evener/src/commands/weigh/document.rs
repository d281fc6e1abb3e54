//! What a weighing found, as it is kept in a file and compared with others.

use serde::{Deserialize, Serialize};

/// Changes when a name in the document does, or what a probe does, or its reference.
pub(super) const SCHEMA: u32 = 1;

/// The greatest weight that a node can have.
pub(super) const WEIGHT_MAX: f64 = 256.0;

/// What was found, of one node or of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Document {
    pub(super) schema: u32,
    pub(super) nodes: Vec<Node>,
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Node {
    pub(super) name: String,
    /// Where its jobs go, if that is known.
    pub(super) address: Option<String>,
    /// `None` if there is nothing to compare with, or nothing was found.
    pub(super) weight: Option<Weight>,
    /// What the weight is from.
    pub(super) trusted: Trusted,
    /// Why that is trusted.
    pub(super) why: String,
    pub(super) probes: Option<Probes>,
    pub(super) drive: Option<Drive>,
    /// What makes it unreliable.
    pub(super) warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Trusted {
    Probes,
    Drive,
}

/// A weight, and between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Weight {
    pub(super) value: u16,
    pub(super) low: u16,
    pub(super) high: u16,
    /// Neither rounded nor kept within 1 to 256.
    pub(super) exact: f64,
}

/// A figure and between which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Range {
    pub(super) median: f64,
    pub(super) low: f64,
    pub(super) high: f64,
}

/// What the probes found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Probes {
    pub(super) cpu: String,
    pub(super) architecture: String,
    /// Whether the program was built with optimisation.
    pub(super) optimised: bool,
    /// CPUs that the process may run on.
    pub(super) cpus: usize,
    /// How many CPUs' time its control group has, if that is limited.
    pub(super) quota: Option<f64>,
    pub(super) copies: usize,
    pub(super) seconds: f64,
    /// Of all copies together, in CPUs of the reference machine.
    pub(super) score: Range,
    /// Of one copy.
    pub(super) speed: Range,
    pub(super) list: Vec<Probed>,
}

/// What a probe found.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Probed {
    pub(super) name: String,
    pub(super) unit: String,
    /// One copy on the reference machine.
    pub(super) reference: f64,
    /// A figure for each round.
    pub(super) one: Vec<f64>,
    pub(super) all: Vec<f64>,
    /// Why there are none.
    pub(super) skipped: Option<String>,
}

/// What came of driving a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Drive {
    pub(super) url: String,
    pub(super) percentile: f64,
    pub(super) limit_ms: f64,
    /// The least share of requests that must succeed, from 0 to 1.
    pub(super) success: f64,
    pub(super) verdict: Verdict,
    /// Why, if nothing was found.
    pub(super) reason: Option<String>,
    /// Requests a second that it carries; with `at_least`, the highest that it was seen to carry.
    pub(super) rate: Option<Range>,
    pub(super) trials: Vec<Trial>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// The rate is what the node carries.
    Found,
    /// It carries that, and it is not known how much more.
    AtLeast,
    /// It does not carry the lowest rate.
    Below,
    /// It was given up.
    Stopped,
}

/// One rate that was tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Trial {
    /// What it was for: `warm-up`, `growth`, `bisection` or `confirmation`.
    pub(super) phase: String,
    /// Requests a second.
    pub(super) rate: f64,
    pub(super) carried: bool,
    pub(super) requests: u64,
    pub(super) failed: u64,
    /// Answered later than the limit, or open for longer.
    pub(super) late: u64,
    /// At the percentile that is asked for; `None` of too few answers.
    pub(super) percentile_ms: Option<f64>,
    /// Whether it was ended as soon as it could not be passed any more.
    pub(super) ended_early: bool,
    /// Share of a CPU that the generator of the load used, or waited for.
    pub(super) generator: Option<f64>,
}

impl Weight {
    /// Of exact values.
    pub(super) fn of(range: Range) -> Weight {
        let whole = |exact: f64| exact.round().clamp(1.0, WEIGHT_MAX) as u16;
        Weight {
            value: whole(range.median),
            low: whole(range.low),
            high: whole(range.high),
            exact: range.median,
        }
    }
}

impl Range {
    /// Of some figures, of which there is one at least; the ends are the least and the greatest.
    pub(super) fn of(figures: &[f64]) -> Range {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
        Range { median, low: sorted[0], high: sorted[sorted.len() - 1] }
    }

    pub(super) fn times(self, factor: f64) -> Range {
        Range { median: self.median * factor, low: self.low * factor, high: self.high * factor }
    }

    /// How far the ends are apart, as a share of the median.
    pub(super) fn spread(self) -> f64 {
        if self.median > 0.0 { (self.high - self.low) / self.median } else { 0.0 }
    }
}

impl Probes {
    /// The score over those of the probes that `counts` names: in each round the geometric mean of what each probe did
    /// by what it does on the reference machine. `None` if no such probe ran.
    pub(super) fn score_over(&self, counts: impl Fn(&Probed) -> bool) -> Option<Range> {
        mean_score(
            self.list.iter().filter(|probe| counts(probe)).map(|probe| (&probe.all[..], probe.reference)),
        )
    }

    /// The same of one copy.
    pub(super) fn speed_over(&self, counts: impl Fn(&Probed) -> bool) -> Option<Range> {
        mean_score(
            self.list.iter().filter(|probe| counts(probe)).map(|probe| (&probe.one[..], probe.reference)),
        )
    }
}

impl Probed {
    pub(super) fn ran(&self) -> bool {
        self.skipped.is_none() && !self.all.is_empty()
    }
}

fn mean_score<'a>(probes: impl Iterator<Item = (&'a [f64], f64)>) -> Option<Range> {
    let probes: Vec<_> = probes.filter(|(rates, _)| !rates.is_empty()).collect();
    let rounds = probes.iter().map(|(rates, _)| rates.len()).min()?;
    let mean = |round: usize| {
        let logarithms: f64 = probes.iter().map(|(rates, reference)| (rates[round] / reference).ln()).sum();
        (logarithms / probes.len() as f64).exp()
    };
    Some(Range::of(&(0..rounds).map(mean).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_score_is_the_geometric_mean_of_a_round() {
        let score = mean_score([(&[2.0, 8.0, 4.0][..], 1.0), (&[8.0, 8.0, 4.0], 1.0)].into_iter()).unwrap();
        let close = |one: f64, other: f64| (one - other).abs() < 1e-9;
        assert!(close(score.median, 4.0) && close(score.low, 4.0) && close(score.high, 8.0), "{score:?}");
        assert!(mean_score([(&[][..], 1.0)].into_iter()).is_none());
    }

    #[test]
    fn a_weight_stays_within_what_nodes_can_have() {
        let weight = |median| Weight::of(Range { median, low: median * 0.9, high: median * 1.1 }).value;
        assert_eq!((weight(38.4), weight(0.2), weight(999.0)), (38, 1, 256));
        assert_eq!(
            Weight::of(Range::of(&[41.0, 36.0, 38.0])),
            Weight { value: 38, low: 36, high: 41, exact: 38.0 }
        );
    }
}
