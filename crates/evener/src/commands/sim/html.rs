//! Results as one page that needs nothing else: no script, no font, no picture from elsewhere.

use std::fmt::Write;

use evener_sim::{Estimate, Measure, PointResults, PolicyResults, Results};

use super::svg::{self, Axis, Frame, Series, TimeLine, escape};
use super::table::{difference_text, estimate_text, heading, load, losses};

/// Plots of jobs over time at the most; with more, only those of the last load are drawn.
const TIME_PLOTS_MAX: usize = 48;

/// How far up plots of times reach: so many times the highest point of the lowest line.
const TIMES_BEST_MAX: f64 = 20.0;

/// The figures that have a plot over the load.
const CURVES: [Measure; 7] = [
    Measure::Mean,
    Measure::P50,
    Measure::P99,
    Measure::P999,
    Measure::Throughput,
    Measure::Imbalance,
    Measure::Losses,
];

/// An experiment and the file it came from.
pub(super) struct Part<'a> {
    pub(super) results: &'a Results,
    pub(super) source: &'a str,
}

/// The page of some experiments.
pub(super) fn page(parts: &[Part<'_>]) -> String {
    let names: Vec<String> = parts.iter().map(|part| escape(&part.results.name)).collect();
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{}</style>\n<body>\n",
        names.join(", "),
        include_str!("page.css")
    );
    for part in parts {
        section(&mut out, part);
    }
    let _ = writeln!(out, "<p class=\"note\">Simulated by evener {}.</p>", env!("CARGO_PKG_VERSION"));
    out.push_str("</body>\n</html>\n");
    out
}

fn section(out: &mut String, part: &Part<'_>) {
    let results = part.results;
    let _ = writeln!(out, "<section>\n<h1>{}</h1>", escape(&results.name));
    if !results.description.is_empty() {
        let _ = writeln!(out, "<p>{}</p>", escape(results.description.trim()));
    }
    for fact in heading(results) {
        let _ = writeln!(out, "<p class=\"facts\">{}</p>", escape(&fact));
    }
    legend(out, &results.points[0].policies.iter().map(|policy| policy.policy.as_str()).collect::<Vec<_>>());
    if results.points.len() > 1 {
        curves(out, results);
    }
    comparisons(out, results);
    over_time(out, results);
    tables(out, results);
    let _ = writeln!(
        out,
        "<details><summary>The file</summary>\n<pre>{}</pre></details>\n</section>",
        escape(part.source.trim_end())
    );
}

fn legend(out: &mut String, names: &[&str]) {
    out.push_str("<ul class=\"legend\">");
    for (index, name) in names.iter().enumerate() {
        let _ = write!(
            out,
            "<li><svg viewBox=\"0 0 30 10\" aria-hidden=\"true\"><line class=\"line {}\" x1=\"0\" x2=\"30\" \
             y1=\"5\" y2=\"5\"/></svg>{}</li>",
            svg::class(index),
            escape(name)
        );
    }
    out.push_str("</ul>\n");
}

/// Each figure against the load.
fn curves(out: &mut String, results: &Results) {
    out.push_str(
        "<h2>Against the load</h2>\n<p class=\"note\">Bands are 95 % intervals over the seeds. Times have a logarithmic \
         scale; what leaves a plot at its upper end is more than 20 times the best.</p>\n",
    );
    out.push_str("<div class=\"plots\">\n");
    let loads: Option<Vec<f64>> = results.points.iter().map(|point| Some(point.load? * 100.0)).collect();
    let (xs, x_label) = match loads {
        Some(loads) => (loads, "load, % of what the nodes can do"),
        None => (results.points.iter().filter_map(|point| point.rate).collect(), "jobs/s"),
    };
    for measure in CURVES {
        let policies = 0..results.points[0].policies.len();
        let series: Vec<Series<'_>> = policies
            .map(|index| Series {
                name: &results.points[0].policies[index].policy,
                class: index,
                points: xs
                    .iter()
                    .zip(&results.points)
                    .filter_map(|(x, point)| Some((*x, point.policies[index].figures.of(measure)?)))
                    .collect(),
            })
            .filter(|series| !series.points.is_empty())
            .collect();
        let is_zero = |line: &Series<'_>| line.points.iter().all(|(_, estimate)| estimate.mean == 0.0);
        if series.is_empty() || (measure == Measure::Losses && series.iter().all(is_zero)) {
            continue;
        }
        let means = |series: &Series<'_>| {
            series.points.iter().map(|(_, estimate)| estimate.mean).collect::<Vec<f64>>().into_iter()
        };
        let best = series.iter().map(|line| means(line).fold(0.0, f64::max)).fold(f64::MAX, f64::min);
        let all = series.iter().flat_map(means);
        let y = match measure.is_time() {
            true => Axis::log_up_to(TIMES_BEST_MAX, all, best),
            false => Axis::from_zero(all),
        };
        let title = title(measure);
        let frame = Frame {
            title: &title,
            x_label,
            y_label: if measure.is_time() { "ms" } else { measure.title() },
            x: Axis::around(xs.iter().copied()),
            y,
        };
        let _ = writeln!(out, "{}", svg::lines(&frame, &series));
    }
    out.push_str("</div>\n");
}

/// Policies beside each other, load by load.
fn comparisons(out: &mut String, results: &Results) {
    out.push_str("<h2>Side by side</h2>\n");
    let first = &results.points[0].policies[0].policy;
    if results.points[0].policies.len() > 1 {
        let _ = writeln!(
            out,
            "<p class=\"note\">Bars are 95 % intervals over the seeds. All policies met the same jobs, so that differences are surer \
             than the figures themselves: below 1 is less than {}.</p>",
            escape(first)
        );
    }
    for (index, point) in results.points.iter().enumerate() {
        let open = if index + 1 == results.points.len() { " open" } else { "" };
        let _ = writeln!(
            out,
            "<details{open}><summary>{}</summary>\n<div class=\"plots\">",
            escape(&load(point))
        );
        for measure in [Measure::Mean, Measure::P99] {
            if let Some(plot) = absolute(point, measure) {
                let _ = writeln!(out, "{plot}");
            }
            if let Some(plot) = relative(point, measure) {
                let _ = writeln!(out, "{plot}");
            }
        }
        out.push_str("</div></details>\n");
    }
}

fn absolute(point: &PointResults, measure: Measure) -> Option<String> {
    let rows = rows(point, |policy| policy.figures.of(measure));
    let axis = Axis::log(ends(&rows)?);
    Some(svg::rows(&title(measure), "ms", axis, None, &rows))
}

/// Times the first policy.
fn relative(point: &PointResults, measure: Measure) -> Option<String> {
    let ratio = |percent: f64| 1.0 + percent / 100.0;
    let one = Estimate { mean: 1.0, low: None, high: None };
    let rows = rows(point, |policy| match &policy.difference {
        None => Some(one),
        Some(difference) => difference.of(measure)?.percent.map(|percent| Estimate {
            mean: ratio(percent.mean),
            low: percent.low.map(ratio),
            high: percent.high.map(ratio),
        }),
    });
    if rows.len() < 2 {
        return None;
    }
    let axis = Axis::log(ends(&rows)?);
    let first = &point.policies[0].policy;
    Some(svg::rows(&format!("{}, times that of {first}", measure.title()), "ratio", axis, Some(1.0), &rows))
}

fn rows<'a>(point: &'a PointResults, figure: impl Fn(&PolicyResults) -> Option<Estimate>) -> Vec<Series<'a>> {
    let row = |(class, policy): (usize, &'a PolicyResults)| Series {
        name: &policy.policy,
        class,
        points: figure(policy).map(|estimate| (0.0, estimate)).into_iter().collect(),
    };
    point.policies.iter().enumerate().map(row).collect()
}

/// What an axis must reach; `None` if there is no figure. An interval that reaches below 0 sets no end.
fn ends<'a>(rows: &'a [Series<'a>]) -> Option<impl Iterator<Item = f64> + Clone + 'a> {
    let ends = rows.iter().flat_map(|row| &row.points).flat_map(|(_, estimate)| {
        // A wide interval must not push all figures into a corner.
        let low = estimate.low.map(|low| low.max(estimate.mean / 3.0));
        let high = estimate.high.map(|high| high.min(estimate.mean * 3.0));
        [Some(estimate.mean), low, high].into_iter().flatten()
    });
    ends.clone().next().is_some().then_some(ends)
}

/// Jobs on nodes over time.
fn over_time(out: &mut String, results: &Results) {
    let policies = results.points[0].policies.len();
    let skipped = if results.points.len() * policies > TIME_PLOTS_MAX { results.points.len() - 1 } else { 0 };
    let _ = writeln!(
        out,
        "<h2>Jobs on nodes over time</h2>\n<p class=\"note\">With the first seed. Each plot has a scale of its own. \
         What is shaded does not count.</p>"
    );
    let labels = &results.points[0].policies[0].lines;
    legend(out, &labels.iter().map(|line| line.label.as_str()).collect::<Vec<_>>());
    for (index, point) in results.points.iter().enumerate().skip(skipped) {
        let open = if index + 1 == results.points.len() { " open" } else { "" };
        let _ = writeln!(
            out,
            "<details{open}><summary>{}</summary>\n<div class=\"plots\">",
            escape(&load(point))
        );
        for policy in &point.policies {
            let _ = writeln!(out, "{}", times(results, policy));
        }
        out.push_str("</div></details>\n");
    }
}

fn times(results: &Results, policy: &PolicyResults) -> String {
    let step = policy.step.as_secs_f64();
    let lines = policy.lines.iter().map(|line| {
        let points = line.jobs.iter().enumerate();
        let points = points.map(|(sample, jobs)| (sample as f64 * step, f64::from(*jobs)));
        TimeLine { name: &line.label, points: points.collect() }
    });
    let lines: Vec<TimeLine<'_>> = lines.collect();
    let most = policy.lines.iter().flat_map(|line| line.jobs.iter().map(|jobs| f64::from(*jobs)));
    let frame = Frame {
        title: &policy.policy,
        x_label: "seconds",
        y_label: "jobs",
        x: Axis::from_zero([results.duration_s / 1.05].into_iter()),
        y: Axis::from_zero(most),
    };
    svg::times(&frame, results.warm_up_s, &lines)
}

/// All figures.
fn tables(out: &mut String, results: &Results) {
    out.push_str("<h2>All figures</h2>\n");
    for (index, point) in results.points.iter().enumerate() {
        let open = if index + 1 == results.points.len() { " open" } else { "" };
        let _ =
            writeln!(out, "<details{open}><summary>{}</summary>\n<div class=\"wide\">", escape(&load(point)));
        figures(out, point);
        if point.policies.len() > 1 {
            differences(out, point);
        }
        groups(out, point);
        out.push_str("</div></details>\n");
    }
}

fn figures(out: &mut String, point: &PointResults) {
    let header = Measure::ALL.iter().map(|measure| match measure {
        measure if measure.is_time() => format!("{}, ms", measure.title()),
        measure if measure.is_share() => format!("{}, %", measure.title()),
        measure => measure.title().to_owned(),
    });
    let any_lost = point.policies.iter().any(|policy| !losses(policy).is_empty());
    let why = any_lost.then(|| "why lost".to_owned());
    table_head(out, "± is the 95 % interval", &header.chain(why).collect::<Vec<_>>());
    for policy in &point.policies {
        row_head(out, &policy.policy);
        for measure in Measure::ALL {
            let text =
                policy.figures.of(measure).map_or("–".to_owned(), |figure| estimate_text(&figure, measure));
            let _ = write!(out, "<td>{text}</td>");
        }
        if any_lost {
            let _ = write!(out, "<td>{}</td>", losses(policy).join(", "));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}

fn differences(out: &mut String, point: &PointResults) {
    let times: Vec<Measure> = Measure::ALL.into_iter().filter(|measure| measure.is_time()).collect();
    let header: Vec<String> = times.iter().map(|measure| format!("{}, %", measure.title())).collect();
    table_head(out, &format!("Against {}, seed by seed", point.policies[0].policy), &header);
    for policy in &point.policies[1..] {
        row_head(out, &policy.policy);
        for measure in &times {
            let difference = policy.difference.as_ref().and_then(|all| all.of(*measure));
            let _ = match difference.and_then(|difference| difference.percent) {
                Some(percent) => write!(out, "<td{}>{}</td>", sign(&percent), difference_text(&percent)),
                None => write!(out, "<td>–</td>"),
            };
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}

/// Which way a difference goes, if its interval leaves no doubt.
fn sign(percent: &Estimate) -> &'static str {
    match (percent.low, percent.high) {
        (_, Some(high)) if high < 0.0 => " class=\"better\"",
        (Some(low), _) if low > 0.0 => " class=\"worse\"",
        _ => "",
    }
}

fn groups(out: &mut String, point: &PointResults) {
    let count = point.policies[0].groups.len();
    if count < 2 {
        return;
    }
    let header: Vec<String> = (1..=count)
        .flat_map(|group| {
            [format!("{group}: jobs done, %"), format!("{group}: in use, %"), format!("{group}: jobs")]
        })
        .collect();
    table_head(out, "Groups of nodes, as in the file", &header);
    for policy in &point.policies {
        row_head(out, &policy.policy);
        for group in &policy.groups {
            let _ = write!(
                out,
                "<td>{}</td><td>{}</td><td>{}</td>",
                estimate_text(&group.share, Measure::Utilisation),
                estimate_text(&group.utilisation, Measure::Utilisation),
                estimate_text(&group.jobs_mean, Measure::Imbalance)
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table>\n");
}

fn table_head(out: &mut String, caption: &str, header: &[String]) {
    let _ =
        write!(out, "<table><caption>{}</caption><thead><tr><th scope=\"col\">policy</th>", escape(caption));
    for name in header {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(name));
    }
    out.push_str("</tr></thead>\n<tbody>\n");
}

fn row_head(out: &mut String, name: &str) {
    let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(name));
}

fn title(measure: Measure) -> String {
    match measure {
        Measure::Throughput => "jobs answered a second".to_owned(),
        Measure::Losses => "share of jobs that were lost".to_owned(),
        Measure::Imbalance => "jobs on the fullest node over the mean".to_owned(),
        Measure::Mean => "mean response time".to_owned(),
        measure => format!("{} of the response time", measure.title()),
    }
}
