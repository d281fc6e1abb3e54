use hdrhistogram::Histogram;
use serde::Serialize;

/// What a run of a load was like. Times in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests that became due within the run; each ends as answered or failed.
    pub requests: u64,
    /// Complete responses with a status below 500.
    pub answered: u64,
    /// The others, by what happened.
    pub failed: Failures,
    /// Complete responses by class: 1xx to 5xx.
    pub statuses: [u64; 5],
    /// From the first due time to the last completion, in seconds.
    pub duration_s: f64,
    /// Requests a second, as asked for.
    pub rate_asked: f64,
    /// Requests a second that became due and were sent within the time of the plan.
    pub rate_sent: f64,
    /// Answered requests a second.
    pub goodput: f64,
    /// Bytes of responses.
    pub bytes: u64,
    /// Connections opened.
    pub connections: u64,
    /// Requests sent a second time because the peer had closed a kept connection before any answer.
    pub resent: u64,
    /// From when the request was due to the last byte of its response: what a user waits.
    pub corrected: Latencies,
    /// From the first byte sent to the last byte of the response.
    pub uncorrected: Latencies,
    /// From when the request was due to the first byte sent: time lost in the generator, or
    /// waiting for one of its connections.
    pub lag: Latencies,
    /// Why the figures must not be believed, if so.
    pub invalid: Option<String>,
}

/// Requests without a good answer, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Failures {
    /// The connection was not accepted.
    pub refused: u64,
    /// The connection broke before the response was complete.
    pub reset: u64,
    /// No complete response in time. Counts in the percentiles as a response at the limit.
    pub timeout: u64,
    /// What came was not HTTP.
    pub protocol: u64,
    /// A complete response with a status of 500 or above.
    pub error: u64,
}

impl Failures {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Each kind with its name.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("refused", self.refused),
            ("reset", self.reset),
            ("timeout", self.timeout),
            ("protocol", self.protocol),
            ("error", self.error),
        ]
    }
}

/// A distribution of times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// How many.
    pub samples: u64,
    /// The mean, in milliseconds; 0 without samples.
    pub mean_ms: f64,
    /// Quantiles in milliseconds, `None` where the samples are too few to tell; see [`quantile`].
    pub p50_ms: Option<f64>,
    /// Ninety in a hundred are below.
    pub p90_ms: Option<f64>,
    /// 99 in a hundred are below.
    pub p99_ms: Option<f64>,
    /// 999 in a thousand are below.
    #[serde(rename = "p99.9_ms")]
    pub p999_ms: Option<f64>,
    /// The longest.
    pub max_ms: f64,
}

/// The quantiles that a report names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantile {
    /// The median.
    P50,
    /// The 90th percentile.
    P90,
    /// The 99th percentile.
    P99,
    /// The 99.9th percentile.
    P999,
}

impl Quantile {
    /// In a thousand, this many are below.
    const fn per_mille(self) -> u64 {
        match self {
            Quantile::P50 => 500,
            Quantile::P90 => 900,
            Quantile::P99 => 990,
            Quantile::P999 => 999,
        }
    }
}

/// A quantile of a histogram of microseconds, in milliseconds; `None` below `10 / (1 − p)` samples:
/// a 99th percentile of 200 samples is little more than the worst of them.
pub fn quantile(histogram: &Histogram<u64>, p: Quantile) -> Option<f64> {
    let enough = histogram.len() * (1000 - p.per_mille()) >= 10 * 1000;
    enough.then(|| histogram.value_at_quantile(p.per_mille() as f64 / 1000.0) as f64 / 1000.0)
}

impl Latencies {
    /// Of a histogram of microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Latencies {
        let at = |p| quantile(histogram, p);
        Latencies {
            samples: histogram.len(),
            mean_ms: histogram.mean() / 1000.0,
            p50_ms: at(Quantile::P50),
            p90_ms: at(Quantile::P90),
            p99_ms: at(Quantile::P99),
            p999_ms: at(Quantile::P999),
            max_ms: histogram.max() as f64 / 1000.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_needs_enough_samples() {
        let mut histogram = Histogram::new(3).unwrap();
        let mut available = Vec::new();
        for sample in 1..=10_000u64 {
            histogram.record(sample).unwrap();
            if [19, 20, 99, 100, 999, 1_000, 9_999, 10_000].contains(&sample) {
                let latencies = Latencies::of(&histogram);
                let some = [latencies.p50_ms, latencies.p90_ms, latencies.p99_ms, latencies.p999_ms];
                available.push(some.iter().flatten().count());
            }
        }
        assert_eq!(available, [0, 1, 1, 2, 2, 3, 3, 4]);
        let p50 = Latencies::of(&histogram).p50_ms.unwrap();
        assert!((p50 - 5.0).abs() < 0.01, "{p50}");
    }
}
