//! Weights for a pool, from what was found of each of its nodes.

use std::collections::BTreeSet;
use std::path::Path;

use super::document::{Document, Drive, Node, Probed, Probes, Range, SCHEMA, Trusted, Weight};
use crate::Wrong;

/// The weight of the strongest node.
const STRONGEST: f64 = 100.0;
/// Where it is the greatest that there is, since the weakest would be coarse.
const STRONGEST_MAX: f64 = 256.0;
const WEAKEST_MIN: f64 = 10.0;

/// Probes and drives that differ by more say different things of a node.
const DISAGREEMENT_MAX: f64 = 0.25;

/// Reads what was saved by `--json`.
pub(super) fn read(path: &Path) -> anyhow::Result<Vec<Node>> {
    let place = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| Wrong(format!("{place}: {error}")))?;
    let document: Document = serde_json::from_str(&text)
        .map_err(|error| Wrong(format!("{place}: expected what evener weigh --json prints: {error}")))?;
    if document.schema != SCHEMA {
        return Err(Wrong(format!(
            "{place}: it is of schema {}, and this program knows {SCHEMA}: weigh that node again",
            document.schema
        ))
        .into());
    }
    Ok(document.nodes)
}

/// What is known of the same node in several files, together. Of two probings or two drives of a node the later file's
/// counts.
pub(super) fn merge(nodes: Vec<Node>) -> Vec<Node> {
    let mut merged: Vec<Node> = Vec::new();
    for node in nodes {
        let Some(known) = merged.iter_mut().find(|known| known.name == node.name) else {
            merged.push(node);
            continue;
        };
        known.warnings.extend(node.warnings);
        known.address = node.address.or(known.address.take());
        known.probes = node.probes.or(known.probes.take());
        known.drive = node.drive.or(known.drive.take());
    }
    merged
}

/// Gives all nodes weights in proportion. What a drive found is trusted before what probes found.
///
/// # Errors
/// If the nodes cannot be compared: a sentence for the user.
pub(super) fn weigh(nodes: Vec<Node>) -> Result<Document, String> {
    let mut nodes = merge(nodes);
    let scores = scores(&nodes);
    let rates: Vec<Option<Range>> = nodes.iter().map(rate).collect();
    let calibration = calibration(&scores, &rates);
    let some_driven = rates.iter().any(Option::is_some);
    let mut figures = Vec::new();
    for ((node, score), rate) in nodes.iter_mut().zip(&scores).zip(&rates) {
        let (trusted, why, figure) = match (rate, score, calibration) {
            (Some(rate), ..) => (Trusted::Drive, DRIVE, *rate),
            (None, Some(score), _) if !some_driven => (Trusted::Probes, PROBES, *score),
            (None, Some(score), Some(factor)) => (Trusted::Probes, CALIBRATED, score.times(factor)),
            (None, Some(_), None) => {
                return Err(format!(
                    "{} is known by its probes only and others by drives only: drive it too, or weigh one of the \
                     others by probes, under the same --name",
                    node.name
                ));
            }
            (None, None, _) => return Err(format!("nothing was found of {}", node.name)),
        };
        node.trusted = trusted;
        why.clone_into(&mut node.why);
        figures.push(figure);
    }
    count_what_all_ran(&mut nodes, &scores);
    warn_of_disagreement(&mut nodes, &scores, &rates, calibration);
    warn_of_other_questions(&mut nodes);
    let factor = factor(&figures);
    for (node, figure) in nodes.iter_mut().zip(figures) {
        node.weight = Some(Weight::of(figure.times(factor)));
    }
    Ok(Document { schema: SCHEMA, nodes })
}

const DRIVE: &str = "it was measured with the node's own jobs; what probes find says nothing of those";
const PROBES: &str = "no node was driven; a weight from --drive would be trusted before it";
const CALIBRATED: &str =
    "it was not driven; its probes were brought to the scale of nodes of which both are known";

/// What a drive found, if it came to its end.
fn rate(node: &Node) -> Option<Range> {
    node.drive.as_ref().and_then(|drive| drive.rate)
}

/// The names of the probes that ran on all nodes which were probed.
fn common(nodes: &[Node]) -> BTreeSet<String> {
    let names = |probes: &Probes| -> BTreeSet<String> {
        probes.list.iter().filter(|probe| probe.ran()).map(|probe| probe.name.clone()).collect()
    };
    let all = nodes.iter().filter_map(|node| node.probes.as_ref()).map(names);
    all.reduce(|one, other| one.intersection(&other).cloned().collect()).unwrap_or_default()
}

/// Scores over these.
fn scores(nodes: &[Node]) -> Vec<Option<Range>> {
    let common = common(nodes);
    let counts = |probe: &Probed| common.contains(&probe.name);
    nodes.iter().map(|node| node.probes.as_ref()?.score_over(counts)).collect()
}

/// Requests a second for each point of a score, by the nodes of which both are known.
fn calibration(scores: &[Option<Range>], rates: &[Option<Range>]) -> Option<f64> {
    let ratios: Vec<f64> = scores
        .iter()
        .zip(rates)
        .filter_map(|(score, rate)| Some((*rate)?.median / (*score)?.median))
        .filter(|ratio| ratio.is_finite() && *ratio > 0.0)
        .collect();
    (!ratios.is_empty()).then(|| Range::of(&ratios).median)
}

/// Shows the scores that were compared, and tells what did not count.
fn count_what_all_ran(nodes: &mut [Node], scores: &[Option<Range>]) {
    let common = common(nodes);
    for (node, score) in nodes.iter_mut().zip(scores) {
        let Some((probes, score)) = node.probes.as_mut().zip(*score) else { continue };
        probes.score = score;
        if let Some(speed) = probes.speed_over(|probe| common.contains(&probe.name)) {
            probes.speed = speed;
        }
        let others = probes.list.iter().filter(|probe| probe.ran() && !common.contains(&probe.name));
        let others: Vec<&str> = others.map(|probe| probe.name.as_str()).collect();
        if !others.is_empty() {
            node.warnings.push(format!("{} did not count, since not all nodes have that", others.join(", ")));
        }
    }
}

fn factor(figures: &[Range]) -> f64 {
    let medians = Range::of(&figures.iter().map(|figure| figure.median).collect::<Vec<_>>());
    let strongest =
        if medians.low / medians.high * STRONGEST < WEAKEST_MIN { STRONGEST_MAX } else { STRONGEST };
    strongest / medians.high
}

fn warn_of_disagreement(
    nodes: &mut [Node],
    scores: &[Option<Range>],
    rates: &[Option<Range>],
    calibration: Option<f64>,
) {
    let Some(factor) = calibration else { return };
    for ((node, score), rate) in nodes.iter_mut().zip(scores).zip(rates) {
        let Some((score, rate)) = score.zip(*rate) else { continue };
        let off = score.median * factor / rate.median - 1.0;
        if off.abs() > DISAGREEMENT_MAX {
            let how = if off > 0.0 { "more" } else { "less" };
            node.warnings.push(format!(
                "its probes promise {:.0} % {how} than it carries: its jobs need something that the probes do not \
                 measure, or the two were measured under different circumstances",
                off.abs() * 100.0
            ));
        }
    }
}

fn warn_of_other_questions(nodes: &mut [Node]) {
    let question = |drive: &Drive| (drive.percentile, drive.limit_ms, drive.success);
    let first = nodes.iter().find_map(|node| node.drive.as_ref()).map(question);
    for node in nodes {
        let own = node.drive.as_ref().map(question);
        if own.is_some() && own != first {
            node.warnings
                .push("it was driven to another limit, percentile or share than the first".to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::weigh::document::Verdict;

    /// A node by what is known of it: probes (a figure of each, by name) and a rate.
    fn node(name: &str, probes: &[(&str, f64)], rate: Option<f64>) -> Node {
        let probed = |&(name, figure): &(&str, f64)| Probed {
            name: name.to_owned(),
            unit: "calls/s".to_owned(),
            reference: 1.0,
            one: vec![figure],
            all: vec![figure],
            skipped: None,
        };
        let none = Range { median: 0.0, low: 0.0, high: 0.0 };
        let found = Probes {
            cpu: String::new(),
            architecture: String::new(),
            optimised: true,
            cpus: 1,
            quota: None,
            copies: 1,
            seconds: 1.0,
            score: none,
            speed: none,
            list: probes.iter().map(probed).collect(),
        };
        let drive = |rate: f64| Drive {
            url: String::new(),
            percentile: 99.0,
            limit_ms: 200.0,
            success: 0.995,
            verdict: Verdict::Found,
            reason: None,
            rate: Some(Range { median: rate, low: rate * 0.9, high: rate * 1.1 }),
            trials: Vec::new(),
        };
        Node {
            name: name.to_owned(),
            address: None,
            weight: None,
            trusted: Trusted::Probes,
            why: String::new(),
            probes: (!probes.is_empty()).then_some(found),
            drive: rate.map(drive),
            warnings: Vec::new(),
        }
    }

    fn weights(nodes: Vec<Node>) -> Vec<(u16, Trusted)> {
        let document = weigh(nodes).unwrap();
        document.nodes.iter().map(|node| (node.weight.unwrap().value, node.trusted)).collect()
    }

    #[test]
    fn probed_nodes_get_weights_in_proportion_over_what_all_of_them_ran() {
        let nodes = vec![
            node("rat", &[("hash", 1.0), ("syscalls", 4.0), ("disk-read", 999.0)], None),
            node("ox", &[("hash", 4.0), ("syscalls", 4.0)], None),
        ];
        let document = weigh(nodes.clone()).unwrap();
        let told = document.nodes[0].warnings.join(" ");
        assert!(told.starts_with("disk-read did not count"), "{told}");
        assert!((document.nodes[0].probes.as_ref().unwrap().score.median - 2.0).abs() < 1e-9);
        assert_eq!(weights(nodes), [(50, Trusted::Probes), (100, Trusted::Probes)]);
    }

    #[test]
    fn a_drive_is_trusted_before_probes() {
        let nodes =
            vec![node("rat", &[("hash", 1.0)], Some(300.0)), node("ox", &[("hash", 4.0)], Some(400.0))];
        assert_eq!(weights(nodes), [(75, Trusted::Drive), (100, Trusted::Drive)]);
    }

    #[test]
    fn nodes_that_were_not_driven_are_brought_to_the_scale_of_those_that_were() {
        let nodes = vec![node("rat", &[("hash", 1.0)], Some(300.0)), node("ox", &[("hash", 2.0)], None)];
        assert_eq!(weights(nodes), [(50, Trusted::Drive), (100, Trusted::Probes)]);
        let nodes = vec![node("rat", &[], Some(300.0)), node("ox", &[("hash", 2.0)], None)];
        assert!(weigh(nodes).unwrap_err().contains("ox is known by its probes only"));
    }

    #[test]
    fn what_is_known_of_a_node_in_two_files_is_put_together() {
        let nodes = vec![
            node("rat", &[("hash", 1.0)], None),
            node("ox", &[("hash", 3.0)], None),
            node("rat", &[], Some(300.0)),
            node("ox", &[], Some(300.0)),
        ];
        let document = weigh(nodes).unwrap();
        assert_eq!(document.nodes.len(), 2);
        assert!(document.nodes.iter().all(|node| node.weight.unwrap().value == 100));
        // One is promised more by its probes than it carries, the other less.
        let told: Vec<_> = document.nodes.iter().map(|node| node.warnings.join(" ")).collect();
        assert!(told[0].contains("33 % less") && told[1].contains("100 % more"), "{told:?}");
    }

    #[test]
    fn a_weak_node_beside_a_strong_one_keeps_resolution() {
        let nodes = vec![node("rat", &[("hash", 1.0)], None), node("ox", &[("hash", 20.0)], None)];
        assert_eq!(weights(nodes), [(13, Trusted::Probes), (256, Trusted::Probes)]);
    }
}
