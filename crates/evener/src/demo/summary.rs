use std::cmp::Ordering;

use serde::Serialize;

use super::{Act, Plan};
use crate::output::{self, ms};

/// What the acts say together.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    seed: u64,
    rate: f64,
    seconds: f64,
    utilisation: f64,
    acts: Vec<Act>,
    /// The scheduler with the best figure that [`Summary::verdict`] compares.
    winner: &'static str,
    verdict: String,
}

impl Summary {
    pub(crate) fn new(plan: &Plan, acts: Vec<Act>) -> Summary {
        let (winner, verdict) = verdict(&acts);
        Summary {
            seed: plan.seed,
            rate: plan.rate,
            seconds: plan.duration.as_secs_f64(),
            utilisation: plan.utilisation(),
            acts,
            winner,
            verdict,
        }
    }

    /// Whether a request failed in any act.
    pub(crate) fn failed(&self) -> bool {
        self.acts.iter().any(|act| act.report.failed.total() > 0)
    }

    /// For people.
    pub(crate) fn render(&self) -> String {
        format!("\n{}\n{}\n{}", times(&self.acts), jobs(&self.acts), self.closing())
    }

    fn closing(&self) -> String {
        let failed: u64 = self.acts.iter().map(|act| act.report.failed.total()).sum();
        let failed = if failed > 0 { format!("{failed} requests failed.\n") } else { String::new() };
        format!("{}\n{failed}", self.verdict)
    }
}

/// Response times by scheduler.
fn times(acts: &[Act]) -> String {
    let mut table = output::table(
        &["response time", "p50", "p99", "p99.9", "mean", "max", "requests", "failed"],
        &[1, 2, 3, 4, 5, 6, 7],
    );
    for act in acts {
        let times = &act.report.corrected;
        table.add_row([
            act.scheduler.to_string(),
            ms(times.p50_ms),
            ms(times.p99_ms),
            ms(times.p999_ms),
            ms(Some(times.mean_ms)),
            ms(Some(times.max_ms)),
            act.report.requests.to_string(),
            act.report.failed.total().to_string(),
        ]);
    }
    output::lines(&table)
}

/// Jobs on each node by scheduler.
fn jobs(acts: &[Act]) -> String {
    let Some(first) = acts.first() else { return String::new() };
    let mut header = vec!["jobs: mean (max)".to_string()];
    header.extend(first.nodes.iter().map(|node| format!("{} x{}", node.name, node.speed)));
    let header: Vec<_> = header.iter().map(String::as_str).collect();
    let mut table = output::table(&header, &(1..header.len()).collect::<Vec<_>>());
    for act in acts {
        let mut row = vec![act.scheduler.to_string()];
        row.extend(
            act.nodes.iter().map(|node| format!("{:.1} ({})", node.usage.jobs_mean, node.usage.jobs_max)),
        );
        table.add_row(row);
    }
    output::lines(&table)
}

/// Who won, and a sentence that says by how much.
fn verdict(acts: &[Act]) -> (&'static str, String) {
    // The 99th percentile where every act has one, else the mean: short runs have too few samples.
    let p99s: Option<Vec<f64>> = acts.iter().map(|act| act.report.corrected.p99_ms).collect();
    let (figures, measure) = match p99s {
        Some(figures) => (figures, "99 of 100 requests were answered within"),
        None => (
            acts.iter().map(|act| act.report.corrected.mean_ms).collect(),
            "requests were answered on average within",
        ),
    };
    let mut order: Vec<_> = acts.iter().zip(figures).collect();
    order.sort_by(|(_, a), (_, b)| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    let Some((&(best, figure), others)) = order.split_first() else {
        return ("", String::new());
    };
    let others: Vec<_> = others
        .iter()
        .map(|(act, other)| format!("{} times as long with {}", factor(other / figure), act.scheduler))
        .collect();
    let sentence = format!(
        "With {} {measure} {}; it took {}, on the same nodes and for the same requests.",
        best.scheduler,
        ms(Some(figure)),
        others.join(" and ")
    );
    (best.scheduler, sentence)
}

/// A ratio with the digits that matter.
fn factor(ratio: f64) -> String {
    if ratio >= 10.0 { format!("{ratio:.0}") } else { format!("{ratio:.1}") }
}

#[cfg(test)]
mod tests {
    use evener_replay::{Failures, Latencies, Report};

    use super::*;

    fn act(scheduler: &'static str, p99_ms: Option<f64>, mean_ms: f64) -> Act {
        let times = Latencies {
            samples: 1000,
            mean_ms,
            p50_ms: None,
            p90_ms: None,
            p99_ms,
            p999_ms: None,
            max_ms: 9.0 * mean_ms,
        };
        let report = Report {
            requests: 1000,
            answered: 1000,
            failed: Failures::default(),
            statuses: [0, 1000, 0, 0, 0],
            duration_s: 10.0,
            rate_asked: 100.0,
            rate_sent: 100.0,
            goodput: 100.0,
            bytes: 0,
            connections: 10,
            resent: 0,
            corrected: times,
            uncorrected: times,
            lag: times,
            invalid: None,
        };
        Act { scheduler, report, nodes: Vec::new() }
    }

    #[test]
    fn the_best_wins_by_what_was_measured() {
        let (winner, sentence) = verdict(&[
            act("round-robin", Some(2000.0), 1.0),
            act("least-jobs", Some(100.0), 2.0),
            act("two-choices", Some(150.0), 3.0),
        ]);
        assert_eq!(winner, "least-jobs");
        assert_eq!(
            sentence,
            "With least-jobs 99 of 100 requests were answered within 100 ms; it took 1.5 times as long with \
             two-choices and 20 times as long with round-robin, on the same nodes and for the same requests."
        );
    }

    #[test]
    fn without_enough_samples_the_mean_decides() {
        let (winner, sentence) =
            verdict(&[act("round-robin", None, 20.0), act("two-choices", Some(5.0), 10.0)]);
        assert_eq!(winner, "two-choices");
        assert!(sentence.contains("on average within 10.0 ms; it took 2.0 times"), "{sentence}");
    }
}
