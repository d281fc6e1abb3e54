//! Results as tables for a terminal.

use evener_sim::{Estimate, Measure, PointResults, PolicyResults, Results};

use crate::output;

/// All of an experiment.
pub(super) fn render(results: &Results) -> String {
    let mut out = format!("{}\n", results.name);
    if !results.description.is_empty() {
        out.push_str(&format!("{}\n", results.description.trim()));
    }
    for line in heading(results) {
        out.push_str(&format!("{line}\n"));
    }
    for point in &results.points {
        out.push_str(&format!("\n{}\n", load(point)));
        out.push_str(&figures(point));
        if point.policies.len() > 1 {
            out.push('\n');
            out.push_str(&differences(point));
        }
    }
    out
}

/// What was simulated, and how often: in sentences.
pub(super) fn heading(results: &Results) -> Vec<String> {
    let nodes = if results.nodes == 1 { "node" } else { "nodes" };
    let warm_up = match results.warm_up_s {
        0.0 => String::new(),
        seconds => format!(", of which the first {} s do not count", significant(seconds, 4)),
    };
    let what = format!(
        "{} {nodes} that can do {} jobs/s, for {} s{warm_up}",
        results.nodes,
        significant(results.capacity, 4),
        significant(results.duration_s, 4),
    );
    let last = results.seed.wrapping_add(u64::from(results.replications) - 1);
    let seeds = match results.replications {
        1 => format!("seed {}; a single run does not say how sure its figures are", results.seed),
        _ => format!("seeds {} to {last}; ± is the 95 % interval over them", results.seed),
    };
    vec![what, seeds]
}

/// Under which load.
pub(super) fn load(point: &PointResults) -> String {
    let share = point.load.map(|load| format!("load {} %", significant(load * 100.0, 3)));
    match (point.rate, share) {
        (Some(rate), Some(share)) => format!("{share}, {} jobs/s", significant(rate, 4)),
        (Some(rate), None) => format!("{} jobs/s", significant(rate, 4)),
        _ => "clients that wait for answers".to_owned(),
    }
}

fn figures(point: &PointResults) -> String {
    let (times, others): (Vec<Measure>, Vec<Measure>) =
        Measure::ALL.into_iter().partition(|measure| measure.is_time());
    let cell = |policy: &PolicyResults, measure: Measure| match policy.figures.of(measure) {
        Some(estimate) => estimate_text(&estimate, measure),
        None => "-".to_owned(),
    };
    let any = |measure: Measure| {
        let mut all = point.policies.iter().filter_map(|policy| policy.figures.of(measure));
        all.any(|estimate| estimate.mean > 0.0)
    };
    // What nobody did needs no column.
    let others: Vec<Measure> =
        others.into_iter().filter(|measure| *measure != Measure::Transfers || any(*measure)).collect();
    let mut out = table("response time, ms", &point.policies, &times, cell);
    out.push('\n');
    out.push_str(&table("", &point.policies, &others, cell));
    for policy in &point.policies {
        let reasons = losses(policy);
        if !reasons.is_empty() {
            out.push_str(&format!("{} lost: {}\n", policy.policy, reasons.join(", ")));
        }
    }
    out
}

/// Why jobs were not answered, and how many for each reason.
pub(super) fn losses(policy: &PolicyResults) -> Vec<String> {
    let losses = &policy.losses;
    let reasons = [
        ("rejected", losses.rejected),
        ("failed", losses.error),
        ("refused", losses.refused),
        ("reset", losses.reset),
        ("timed out", losses.timeout),
        ("unfinished", losses.unfinished),
    ];
    let some = reasons.into_iter().filter(|(_, share)| *share > 0.0);
    some.map(|(reason, share)| format!("{} % {reason}", significant(share * 100.0, 2))).collect()
}

fn differences(point: &PointResults) -> String {
    let cell = |policy: &PolicyResults, measure| {
        policy
            .difference
            .as_ref()
            .and_then(|all| all.of(measure))
            .and_then(|difference| difference.percent)
            .map_or("-".to_owned(), |percent| difference_text(&percent))
    };
    let times: Vec<Measure> = Measure::ALL.into_iter().filter(|measure| measure.is_time()).collect();
    let title = format!("% against {}", point.policies[0].policy);
    table(&title, &point.policies[1..], &times, cell)
}

fn table(
    title: &str,
    policies: &[PolicyResults],
    measures: &[Measure],
    cell: impl Fn(&PolicyResults, Measure) -> String,
) -> String {
    let titles: Vec<String> = measures.iter().map(|measure| column(*measure)).collect();
    let header: Vec<&str> = std::iter::once(title).chain(titles.iter().map(String::as_str)).collect();
    let mut table = output::table(&header, &(1..header.len()).collect::<Vec<_>>());
    for policy in policies {
        let cells = measures.iter().map(|measure| cell(policy, *measure));
        table.add_row(std::iter::once(policy.policy.clone()).chain(cells));
    }
    output::lines(&table)
}

/// What a column is called; times have their unit in the corner of the table.
fn column(measure: Measure) -> String {
    let unit = if measure.is_share() { " %" } else { "" };
    format!("{}{unit}", measure.title())
}

/// A figure with its interval, in milliseconds, in percent or without a unit.
pub(super) fn estimate_text(estimate: &Estimate, measure: Measure) -> String {
    let factor = if measure.is_share() { 100.0 } else { 1.0 };
    let mean = significant(estimate.mean * factor, 4);
    match estimate.half_width() {
        Some(half) if half > 0.0 => format!("{mean} ±{}", significant(half * factor, 2)),
        _ => mean,
    }
}

/// A difference in percent with its interval.
pub(super) fn difference_text(percent: &Estimate) -> String {
    let mean = format!("{:+.1}", percent.mean);
    // What is rounded to nothing has no sign.
    let mean = if mean == "-0.0" || mean == "+0.0" { "0.0" } else { &mean };
    match percent.half_width() {
        Some(half) => format!("{mean} ±{}", significant(half, 2)),
        None => mean.to_owned(),
    }
}

/// A number with so many digits that matter, without zeros behind them.
pub(super) fn significant(number: f64, digits: usize) -> String {
    if number == 0.0 || !number.is_finite() {
        return format!("{number}");
    }
    // The exponent after rounding: 99.999 with two digits is 100.
    let rounded = format!("{number:.*e}", digits - 1);
    let magnitude: i32 = rounded.split_once('e').and_then(|(_, power)| power.parse().ok()).unwrap_or(0);
    let decimals = usize::try_from(digits as i32 - 1 - magnitude).unwrap_or(0).min(6);
    let text = format!("{number:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown = [0.0, 1.0, 12.3456, 1234.56, 0.001_234_56, 99.999].map(|number| significant(number, 4));
        assert_eq!(shown, ["0", "1", "12.35", "1235", "0.001235", "100"]);
    }
}
