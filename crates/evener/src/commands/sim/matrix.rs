//! `evener sim --matrix`: all scenarios against all policies, as a table in Markdown and as a picture.

use std::fmt::Write;

use evener_sim::{Contender, Measure, PolicyResults, Results};

/// Up to this many times the best, a policy is as good as it.
const GOOD: f64 = 1.05;
/// More than this share of jobs without an answer, and there is no 99th percentile.
const LOST_MAX: f64 = 0.01;
/// What bounds the colours of the picture, and these.
const COLOURS: [(f64, &str); 5] =
    [(GOOD, "#2e8b57"), (1.25, "#9dc183"), (2.0, "#f2d16b"), (5.0, "#e8935a"), (f64::INFINITY, "#c44e52")];
const ROW: usize = 18;
const COLUMN: usize = 34;
const LEFT: usize = 260;
const TOP: usize = 170;

/// All policies that do not go by keys, and the queue that knows all.
pub(super) fn contenders() -> Vec<Contender> {
    let policies = evener_scheduler::Policy::ALL.into_iter().filter(|policy| !policy.hashes());
    let named = policies.map(|policy| policy.name()).chain(["central"]);
    named.map(|name| Contender::named(name).expect("it is the name of a policy")).collect()
}

/// A scenario, and how each policy did in it: times the best of all but the queue that knows all.
struct Row<'a> {
    results: &'a Results,
    p99: Vec<f64>,
    mean: Vec<f64>,
}

/// A comparison of the same policies in several scenarios.
pub(super) struct Matrix<'a> {
    policies: Vec<&'a str>,
    rows: Vec<Row<'a>>,
}

impl<'a> Matrix<'a> {
    /// Of experiments that all have the same contenders, each at its first load.
    pub(super) fn new(all: &'a [Results]) -> Matrix<'a> {
        let of = |results: &'a Results| &results.points[0].policies;
        let policies = all.first().map_or(Vec::new(), |first| of(first).iter().map(name).collect());
        let rows = all.iter().map(|results| Row {
            results,
            p99: against_best(of(results), |policy| cost(policy, Measure::P99)),
            mean: against_best(of(results), |policy| cost(policy, Measure::Mean)),
        });
        Matrix { policies, rows: rows.collect() }
    }

    /// The table. `picture` is where the picture is, and `command` what made both.
    pub(super) fn markdown(&self, picture: &str, command: &str) -> String {
        let mut out = String::new();
        let first = self.rows[0].results;
        let _ = write!(
            out,
            "# Schedulers in {} scenarios\n\n\
             Made by `{command}`. Each policy met the same jobs, in {} runs for each scenario. 99th percentile of the response \
             time, and after the stroke its mean, both as multiples of the best policy's in that scenario; ∞ where more than one job in a \
             hundred had no answer. `central` is one queue in front of all nodes that knows which are free at each \
             moment, which nobody has. Policies that place by key are not in it.\n\n![The same as colours]({picture})\n\n",
            self.rows.len(),
            first.replications,
        );
        self.summary(&mut out);
        out.push_str("\n| scenario |");
        self.policies.iter().for_each(|policy| {
            let _ = write!(out, " `{policy}` |");
        });
        let _ = write!(out, "\n|---|{}\n", "---|".repeat(self.policies.len()));
        for row in &self.rows {
            let _ = write!(out, "| {} |", row.results.name);
            for (p99, mean) in row.p99.iter().zip(&row.mean) {
                let mark = if *p99 <= GOOD { "**" } else { "" };
                let _ = write!(out, " {mark}{}{mark} / {} |", ratio(*p99), ratio(*mean));
            }
            out.push('\n');
        }
        out.push_str("\nThe scenarios:\n\n");
        for row in &self.rows {
            let _ = writeln!(out, "- **{}**: {}", row.results.name, row.results.description.trim());
        }
        out
    }

    /// Policy by policy, over all scenarios; the best first.
    fn summary(&self, out: &mut String) {
        out.push_str(
            "| policy | within 5 % of the best p99 | worst p99 | typical p99 | within 5 % of the best mean | worst mean | typical mean |\n\
             |---|---|---|---|---|---|---|\n",
        );
        let mut lines: Vec<(usize, f64, String)> = Vec::new();
        for (place, policy) in self.policies.iter().enumerate().filter(|(_, policy)| **policy != "central") {
            let mut line = format!("| `{policy}` |");
            let p99: Vec<f64> = self.rows.iter().map(|row| row.p99[place]).collect();
            let mean: Vec<f64> = self.rows.iter().map(|row| row.mean[place]).collect();
            for ratios in [&p99, &mean] {
                let worst = ratios.iter().copied().fold(1.0, f64::max);
                let _ = write!(
                    line,
                    " {} of {} | {} | {} |",
                    good(ratios),
                    ratios.len(),
                    ratio(worst),
                    ratio(geometric_mean(ratios))
                );
            }
            lines.push((good(&p99), geometric_mean(&p99), line));
        }
        lines.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.total_cmp(&b.1)));
        lines.iter().for_each(|(_, _, line)| {
            let _ = writeln!(out, "{line}");
        });
    }

    /// The 99th percentiles as colours, a row for each scenario.
    pub(super) fn picture(&self) -> String {
        let (width, height) = (LEFT + COLUMN * self.policies.len() + 20, TOP + ROW * self.rows.len() + 20);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
             <text x=\"10\" y=\"20\" font-size=\"14\">p99 as a multiple of the best policy's</text>\n"
        );
        for (place, policy) in self.policies.iter().enumerate() {
            let x = LEFT + COLUMN * place + COLUMN / 2;
            let weight = if *policy == "informed" { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                out,
                "<text transform=\"translate({x} {}) rotate(-60)\"{weight}>{policy}</text>",
                TOP - 6
            );
        }
        for (line, row) in self.rows.iter().enumerate() {
            let y = TOP + ROW * line;
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                LEFT - 8,
                y + 13,
                row.results.name
            );
            for (place, p99) in row.p99.iter().enumerate() {
                let x = LEFT + COLUMN * place;
                let colour =
                    COLOURS.iter().find(|(most, _)| p99 <= most).map_or("#888", |(_, colour)| colour);
                let _ = writeln!(
                    out,
                    "<rect x=\"{x}\" y=\"{y}\" width=\"{}\" height=\"{}\" fill=\"{colour}\"/>\
                     <text x=\"{}\" y=\"{}\" text-anchor=\"middle\" font-size=\"10\">{}</text>",
                    COLUMN - 2,
                    ROW - 2,
                    x + COLUMN / 2 - 1,
                    y + 12,
                    ratio(*p99)
                );
            }
        }
        out.push_str("</svg>\n");
        out
    }
}

fn name(policy: &PolicyResults) -> &str {
    &policy.policy
}

/// A response time in milliseconds; infinite if too many jobs had no answer.
fn cost(policy: &PolicyResults, measure: Measure) -> f64 {
    let lost = policy.figures.of(Measure::Losses).map_or(0.0, |losses| losses.mean);
    let figure = policy.figures.of(measure).filter(|_| lost <= LOST_MAX);
    figure.map_or(f64::INFINITY, |figure| figure.mean)
}

fn against_best(policies: &[PolicyResults], cost: impl Fn(&PolicyResults) -> f64) -> Vec<f64> {
    let real = policies.iter().filter(|policy| policy.policy != "central");
    let best = real.map(&cost).fold(f64::INFINITY, f64::min);
    policies.iter().map(|policy| cost(policy) / best).collect()
}

fn good(ratios: &[f64]) -> usize {
    ratios.iter().filter(|ratio| **ratio <= GOOD).count()
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    let logs: f64 = ratios.iter().map(|ratio| libm::log(*ratio)).sum();
    libm::exp(logs / ratios.len() as f64)
}

fn ratio(ratio: f64) -> String {
    match ratio {
        ratio if !ratio.is_finite() => "∞".to_owned(),
        ratio if ratio < 9.995 => format!("{ratio:.2}"),
        ratio => format!("{ratio:.0}"),
    }
}
