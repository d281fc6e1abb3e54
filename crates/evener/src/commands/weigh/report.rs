//! For people.

use super::document::{Document, Drive, Node, Probed, Probes, Range, Trusted, Verdict, WEIGHT_MAX, Weight};
use super::measured::is_disk;
use crate::output;

/// What the probes found.
pub(super) fn probes(document: &Document, scale: f64) -> String {
    let mut out = String::new();
    for node in &document.nodes {
        if let Some(probes) = &node.probes {
            out += &head(node, probes);
            out += &table(probes);
            out += &conclusion(node, probes, scale);
        }
        out += &warnings(node);
    }
    out
}

fn head(node: &Node, probes: &Probes) -> String {
    let cpus = |count: usize| if count == 1 { "1 CPU".to_owned() } else { format!("{count} CPUs") };
    let mut head = format!("{}: {}, {}", node.name, probes.cpu, cpus(probes.cpus));
    if let Some(quota) = probes.quota {
        head += &format!(", of which a quota allows {quota:.2}");
    }
    let rounds = probes.list.iter().map(|probe| probe.all.len()).max().unwrap_or(0);
    head + &format!("; {rounds} rounds in {:.0} s\n\n", probes.seconds)
}

fn table(probes: &Probes) -> String {
    let copies = if probes.copies == 1 { "1 copy".to_owned() } else { format!("{} copies", probes.copies) };
    let header = ["probe", "one copy", "score", &copies, "score", "spread"];
    let mut table = output::table(&header, &[1, 2, 3, 4, 5]);
    for probe in &probes.list {
        table.add_row(row(probe));
    }
    if !probes.list.iter().any(Probed::ran) {
        return output::lines(&table);
    }
    let score = |score: f64| format!("{score:.2}");
    let spread = percent(probes.score.spread());
    let mean = ["mean".to_owned(), String::new(), score(probes.speed.median), String::new()];
    table.add_row(mean.into_iter().chain([score(probes.score.median), spread]).collect::<Vec<_>>());
    output::lines(&table)
}

fn row(probe: &Probed) -> Vec<String> {
    let mut row = vec![probe.name.clone()];
    if !probe.ran() {
        row.resize(6, "-".to_owned());
        return row;
    }
    for rates in [&probe.one, &probe.all] {
        let median = Range::of(rates).median;
        row.extend([si(median, &probe.unit), format!("{:.2}", median / probe.reference)]);
    }
    row.push(percent(Range::of(&probe.all).spread()));
    row
}

fn conclusion(node: &Node, probes: &Probes, scale: f64) -> String {
    let mut out = String::new();
    for probe in &probes.list {
        if let Some(reason) = &probe.skipped {
            out += &format!("{} was left out: {reason}\n", probe.name);
        }
    }
    let Some(found) = node.weight else { return out + "\nno weight: no probe ran\n" };
    out += &format!("\nweight {}", weight(found));
    let has_disk = probes.list.iter().any(|probe| probe.ran() && is_disk(probe));
    let without = probes.score_over(|probe| probe.ran() && !is_disk(probe));
    if let Some(without) = without.filter(|_| has_disk) {
        out += &format!("; without the disk {}", weight(Weight::of(without.times(scale))));
    }
    out += &format!("\nby probes: {}\n", node.why);
    if found.exact > WEIGHT_MAX {
        out += &format!(
            "Take care: {:.0} would be its weight if there were such: use a smaller --scale for all nodes, or --compare.\n",
            found.exact
        );
    } else if found.exact < WEIGHT_MIN {
        out += "Take care: so small a weight is coarse: use a larger --scale for all nodes, or --compare.\n";
    }
    out
}

/// Below this, a step to the next weight is more than a fifth.
const WEIGHT_MIN: f64 = 5.0;

/// What came of driving nodes.
pub(super) fn driven(document: &Document) -> String {
    let mut out = String::new();
    for (node, drive) in document.nodes.iter().filter_map(|node| Some((node, node.drive.as_ref()?))) {
        out += &trials(drive);
        out += &format!("\n{} {}\n", node.name, carried(drive));
        match node.weight {
            Some(found) => out += &format!("weight {}\nby a drive: {}\n", weight(found), node.why),
            None if drive.rate.is_some() => {
                out += "no weight: there is nothing to compare with. Name the rate that is worth weight 100 with \
                        --reference, drive all nodes of the pool, or keep this with --json for --compare\n";
            }
            None => {}
        }
        out += &warnings(node);
        out.push('\n');
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn trials(drive: &Drive) -> String {
    let percentile = format!("p{}", drive.percentile);
    let header = ["trial", "rate", "requests", "failed", "late", &percentile, ""];
    let mut table = output::table(&header, &[1, 2, 3, 4, 5]);
    for trial in &drive.trials {
        let verdict = match (trial.carried, trial.ended_early) {
            (true, _) => "carried",
            (false, true) => "not carried (ended early)",
            (false, false) => "not carried",
        };
        table.add_row([
            trial.phase.clone(),
            format!("{}/s", digits(trial.rate)),
            trial.requests.to_string(),
            trial.failed.to_string(),
            trial.late.to_string(),
            output::ms(trial.percentile_ms),
            verdict.to_owned(),
        ]);
    }
    if drive.trials.is_empty() { String::new() } else { output::lines(&table) }
}

/// A sentence without its subject.
fn carried(drive: &Drive) -> String {
    let question = format!(
        "with p{} within {} and {} % successes",
        drive.percentile,
        output::ms(Some(drive.limit_ms)),
        // Of a share, the percents may have digits that nobody said.
        (drive.success * 1e6).round() / 1e4
    );
    match (drive.verdict, drive.rate) {
        (Verdict::Found, Some(rate)) => format!("carries {} {question}", rates(rate)),
        (Verdict::AtLeast, Some(rate)) => {
            let reason = drive.reason.as_deref().unwrap_or("that was the highest rate allowed");
            format!("carries at least {}/s {question}; {reason}", digits(rate.median))
        }
        (Verdict::Below, _) => {
            let reason = drive.reason.as_deref().map_or(String::new(), |reason| format!(": {reason}"));
            format!("does not carry even the lowest rate {question}{reason}")
        }
        _ => format!("was not driven to an end: {}", drive.reason.as_deref().unwrap_or("nothing was found")),
    }
}

fn rates(rate: Range) -> String {
    format!("{}/s ({}–{})", digits(rate.median), digits(rate.low), digits(rate.high))
}

/// A rate with three digits that matter.
fn digits(rate: f64) -> String {
    match rate {
        _ if rate >= 99.5 => format!("{rate:.0}"),
        _ if rate >= 9.95 => format!("{rate:.1}"),
        _ => format!("{rate:.2}"),
    }
}

/// Weights for a pool.
pub(super) fn compared(document: &Document) -> String {
    let mut out = weights(document);
    out += "\n";
    out += &toml(document);
    let said: Vec<String> =
        document.nodes.iter().map(|node| warnings(node).replace("Take care", &node.name)).collect();
    if said.iter().any(|said| !said.is_empty()) {
        out += "\n";
        out += &said.concat();
    }
    out
}

/// A table of the weights, and what they are from.
pub(super) fn weights(document: &Document) -> String {
    let mut table = output::table(&["node", "weight", "by", "carries", "score"], &[1, 3, 4]);
    for node in &document.nodes {
        let by = match node.trusted {
            Trusted::Drive => "drive",
            Trusted::Probes => "probes",
        };
        let rate = node.drive.as_ref().and_then(|drive| drive.rate);
        table.add_row([
            node.name.clone(),
            node.weight.map_or("-".to_owned(), weight),
            by.to_owned(),
            rate.map_or("-".to_owned(), rates),
            node.probes.as_ref().map_or("-".to_owned(), |probes| format!("{:.2}", probes.score.median)),
        ]);
    }
    let mut out = output::lines(&table);
    let mut reasons: Vec<_> = document.nodes.iter().map(|node| (node.trusted, node.why.as_str())).collect();
    reasons.sort_by_key(|(trusted, why)| (*trusted == Trusted::Probes, *why));
    reasons.dedup();
    for (trusted, why) in reasons {
        out += &match trusted {
            Trusted::Drive => format!("by drive: {why}\n"),
            Trusted::Probes => format!("by probes: {why}\n"),
        };
    }
    out
}

/// Nodes of a pool, to paste into a configuration.
pub(super) fn toml(document: &Document) -> String {
    let is_known = document.nodes.iter().all(|node| node.address.is_some());
    let mut out = String::new();
    if !is_known {
        out += "# Where no address is known, it is the name and port 80.\n";
    }
    out += "node = [\n";
    for node in &document.nodes {
        let address = node.address.clone().unwrap_or_else(|| format!("{}:80", node.name));
        // TOML's basic strings are written as JSON's are.
        let quoted = |text: &str| serde_json::Value::from(text).to_string();
        let weight = node.weight.map_or(1, |weight| weight.value);
        out += &format!(
            "  {{ name = {}, address = {}, weight = {weight} }},\n",
            quoted(&node.name),
            quoted(&address)
        );
    }
    out + "]\n"
}

/// What makes a node's weight unreliable.
fn warnings(node: &Node) -> String {
    node.warnings.iter().map(|warning| format!("Take care: {warning}.\n")).collect()
}

/// A weight with its spread.
pub(super) fn weight(weight: Weight) -> String {
    format!("{} ({}–{})", weight.value, weight.low, weight.high)
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// A figure with three digits that matter and a prefix of its unit.
pub(super) fn si(value: f64, unit: &str) -> String {
    let (scaled, prefix) = match value {
        _ if value >= 1e9 => (value / 1e9, "G"),
        _ if value >= 1e6 => (value / 1e6, "M"),
        _ if value >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled {
        _ if scaled == scaled.round() || scaled >= 99.95 => 0,
        _ if scaled >= 9.995 => 1,
        _ => 2,
    };
    // Bytes take the prefix; what is counted in words stands apart from it.
    let gap = if unit.starts_with('B') || prefix.is_empty() { "" } else { " " };
    format!("{scaled:.digits$} {prefix}{gap}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        let shown = [
            (3.3e8, "B/s"),
            (12.34e6, "reads/s"),
            (9_876.0, "calls/s"),
            (98_765.0, "calls/s"),
            (1.234e9, "B/s"),
        ]
        .map(|(value, unit)| si(value, unit));
        assert_eq!(shown, ["330 MB/s", "12.3 M reads/s", "9876 calls/s", "98.8 k calls/s", "1.23 GB/s"]);
    }
}
