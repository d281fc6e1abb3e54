use std::cmp::Ordering;

use serde::Serialize;

use super::stretch::Stretch;
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
    /// The acts in which a hog took a node's CPU.
    hogged: Vec<Act>,
    /// The scheduler with the best figure that [`Summary::verdict`] compares.
    winner: &'static str,
    verdict: String,
    /// What the agents were good for.
    feedback: String,
}

impl Summary {
    pub(crate) fn new(plan: &Plan, acts: Vec<Act>, hogged: Vec<Act>) -> Summary {
        let (winner, verdict) = verdict(&acts);
        Summary {
            seed: plan.seed,
            rate: plan.rate,
            seconds: plan.duration.as_secs_f64(),
            utilisation: plan.utilisation(),
            feedback: feedback(&hogged),
            acts,
            hogged,
            winner,
            verdict,
        }
    }

    /// Whether a request failed in any act.
    pub(crate) fn failed(&self) -> bool {
        self.failures() > 0
    }

    /// For people.
    pub(crate) fn render(&self) -> String {
        let (times, jobs) = (times(&self.acts), jobs(&self.acts));
        let hogged = format!("{}\n{}", stretches(&self.hogged), weights(&self.hogged));
        let failed = match self.failures() {
            0 => String::new(),
            failed => format!("{failed} requests failed.\n"),
        };
        format!("\n{times}\n{jobs}\n{}\n\n{hogged}\n{}\n{failed}", self.verdict, self.feedback)
    }

    fn failures(&self) -> u64 {
        self.acts.iter().chain(&self.hogged).map(|act| act.report.failed.total()).sum()
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

/// What the acts with a hog were like before, during and after it.
fn stretches(acts: &[Act]) -> String {
    let mut table =
        output::table(&["", "p99 before", "during the hog", "after", "requests", "failed"], &[1, 2, 3, 4, 5]);
    for act in acts {
        let mut row = vec![act.name.to_string()];
        row.extend(act.stretches.iter().map(|stretch| ms(stretch.p99_ms)));
        row.extend([act.report.requests.to_string(), act.report.failed.total().to_string()]);
        table.add_row(row);
    }
    output::lines(&table)
}

/// How each node's weight went in the act with agents, as a share of all weights.
fn weights(acts: &[Act]) -> String {
    let Some(act) = acts.iter().find(|act| act.agents) else { return String::new() };
    let mut header = vec!["share of the jobs", "before", "during the hog", "after"];
    let title = format!("weight, {}", act.name);
    header.push(&title);
    let mut table = output::table(&header, &[1, 2, 3]);
    for (index, node) in act.nodes.iter().enumerate() {
        let mut row = vec![format!("{} x{}", node.name, node.speed)];
        row.extend(act.stretches.iter().map(|stretch| format!("{:.0} %", 100.0 * stretch.shares[index])));
        row.push(line_of(&act.weights, index));
        table.add_row(row);
    }
    output::lines(&table)
}

/// Columns of the picture of a weight.
const PICTURE: usize = 32;

/// A node's share of the weights over time, in eighths of the height.
fn line_of(weights: &[Vec<u32>], node: usize) -> String {
    const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let share = |weights: &Vec<u32>| {
        let all: u32 = weights.iter().sum();
        f64::from(weights.get(node).copied().unwrap_or(0)) / f64::from(all.max(1))
    };
    let most = weights.iter().map(share).fold(f64::MIN_POSITIVE, f64::max);
    let columns = PICTURE.min(weights.len());
    let column = |index: usize| {
        let height = share(&weights[index * weights.len() / columns]) / most;
        HEIGHTS[(height * 7.0).round() as usize]
    };
    (0..columns).map(column).collect()
}

/// What the agents were good for, in a sentence.
fn feedback(acts: &[Act]) -> String {
    let during = |agents: bool| {
        let act = acts.iter().find(|act| act.agents == agents)?;
        act.stretches.iter().find(|stretch| stretch.stretch == Stretch::During)?.p99_ms
    };
    let (Some(without), Some(with)) = (during(false), during(true)) else { return String::new() };
    format!(
        "While the hog was there, 99 of 100 requests were answered within {} where agents reported and the\n\
         weights followed, and within {} where nobody told the director.",
        ms(Some(with)),
        ms(Some(without))
    )
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
        Act {
            name: scheduler,
            scheduler,
            agents: false,
            report,
            nodes: Vec::new(),
            stretches: Vec::new(),
            weights: Vec::new(),
        }
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
    fn a_weight_that_moves_is_a_line_that_moves() {
        let weights = |horse| vec![horse, 10];
        let going: Vec<Vec<u32>> = [40; 16].into_iter().chain([0; 16]).map(weights).collect();
        assert_eq!(line_of(&going, 0), format!("{}{}", "█".repeat(16), "▁".repeat(16)));
        assert_eq!(line_of(&[], 0), "");
    }

    #[test]
    fn without_enough_samples_the_mean_decides() {
        let (winner, sentence) =
            verdict(&[act("round-robin", None, 20.0), act("two-choices", Some(5.0), 10.0)]);
        assert_eq!(winner, "two-choices");
        assert!(sentence.contains("on average within 10.0 ms; it took 2.0 times"), "{sentence}");
    }
}
