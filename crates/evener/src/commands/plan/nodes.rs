//! The nodes that a plan is for: some that are there, and a kind of which as many as needed are taken.

use std::path::Path;

use evener_sim::NodeGroup;
use serde::{Deserialize, Serialize};

/// The largest weight that a node can have.
const WEIGHT_MAX: f64 = 256.0;

/// By how much a weight may be off what the node can do, to be a small number.
const WEIGHT_ERROR: f64 = 0.02;

/// Nodes that are alike.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Kind {
    /// How many there are; of the kind that does not say it, as many as needed.
    count: Option<u32>,
    /// Jobs that run at full speed side by side.
    pub(super) cores: u32,
    /// How fast a core is; those that the log is from have 1.
    pub(super) speed: f64,
    /// Jobs begun at the most; as many as cores if it is not said, 0: all.
    pub(super) concurrency: Option<u32>,
    weight: Option<u16>,
}

impl Default for Kind {
    fn default() -> Kind {
        Kind { count: None, cores: 1, speed: 1.0, concurrency: None, weight: None }
    }
}

impl Kind {
    /// Seconds of work that one of them does in a second.
    pub(super) fn power(&self) -> f64 {
        let side_by_side = match self.concurrency {
            Some(most) if most > 0 => most.min(self.cores),
            _ => self.cores,
        };
        f64::from(side_by_side) * self.speed
    }
}

/// The form of a file with nodes.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    node: Vec<Kind>,
}

/// All kinds, and which of them there may be any number of.
#[derive(Clone, Debug)]
pub(super) struct Nodes {
    pub(super) kinds: Vec<Kind>,
    /// The kind that is searched for.
    open: usize,
}

/// So many nodes of each kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Counts(pub(super) Vec<u32>);

impl Nodes {
    /// Reads what `--nodes` says: each a kind such as `count=4,cores=2`, or a file with `[[node]]`.
    pub(super) fn parse(texts: &[String]) -> Result<Nodes, String> {
        let mut kinds = Vec::new();
        for text in texts {
            if text.contains('=') {
                kinds.push(inline(text)?);
            } else {
                kinds.extend(file(Path::new(text))?);
            }
        }
        if kinds.is_empty() {
            kinds.push(Kind::default());
        }
        let without: Vec<usize> = (0..kinds.len()).filter(|kind| kinds[*kind].count.is_none()).collect();
        if without.len() > 1 {
            return Err(
                "--nodes: more than one kind has no `count`: say how many there are of all but the one that \
                 is sought"
                    .to_owned(),
            );
        }
        Ok(Nodes { open: without.first().copied().unwrap_or(kinds.len() - 1), kinds })
    }

    /// What there is, if it is said of all kinds.
    pub(super) fn given(&self) -> Option<Counts> {
        self.kinds.iter().map(|kind| kind.count).collect::<Option<Vec<u32>>>().map(Counts)
    }

    /// What there is with so many of the kind that is sought.
    pub(super) fn with(&self, open: u32) -> Counts {
        let count =
            |(index, kind): (usize, &Kind)| if index == self.open { open } else { kind.count.unwrap_or(0) };
        Counts(self.kinds.iter().enumerate().map(count).collect())
    }

    /// Of the kind that is sought, the fewest that make sense.
    pub(super) fn fewest(&self) -> u32 {
        u32::from(self.with(0).total() == 0)
    }

    /// How many there are of the kind that is sought.
    pub(super) fn open(&self, counts: &Counts) -> u32 {
        counts.0[self.open]
    }

    /// Seconds of work that they do in a second.
    pub(super) fn power(&self, counts: &Counts) -> f64 {
        counts.0.iter().zip(&self.kinds).map(|(count, kind)| f64::from(*count) * kind.power()).sum()
    }

    /// Whether all of them that there are can do the same.
    pub(super) fn are_alike(&self, counts: &Counts) -> bool {
        let mut powers = counts.0.iter().zip(&self.kinds).filter(|(count, _)| **count > 0);
        let first = powers.next().map(|(_, kind)| kind.power());
        powers.all(|(_, kind)| Some(kind.power()) == first)
    }

    /// The same less one of those that can do most.
    pub(super) fn less_one(&self, counts: &Counts) -> Option<Counts> {
        let strongest = self.strongest(counts)?;
        let mut less = counts.clone();
        less.0[strongest] -= 1;
        (less.total() > 0).then_some(less)
    }

    /// The kind, of those there are, of which each can do most.
    pub(super) fn strongest(&self, counts: &Counts) -> Option<usize> {
        let there = (0..self.kinds.len()).filter(|kind| counts.0[*kind] > 0);
        there.max_by(|a, b| self.kinds[*a].power().total_cmp(&self.kinds[*b].power()))
    }

    /// The weights that are planned with: those that are said, else what each node can do.
    pub(super) fn weights(&self) -> Vec<u16> {
        if self.has_weights() {
            return self.kinds.iter().map(|kind| kind.weight.unwrap_or(1)).collect();
        }
        self.weights_by_power()
    }

    /// Whether weights are said.
    pub(super) fn has_weights(&self) -> bool {
        self.kinds.iter().any(|kind| kind.weight.is_some())
    }

    /// Whole numbers in proportion to what each node can do, the smallest that are near enough.
    pub(super) fn weights_by_power(&self) -> Vec<u16> {
        let powers: Vec<f64> = self.kinds.iter().map(Kind::power).collect();
        let least = powers.iter().copied().fold(f64::INFINITY, f64::min);
        let most = powers.iter().copied().fold(0.0, f64::max);
        let near = |unit: f64| {
            let ok = |power: &f64| {
                let exact = power / least * unit;
                exact.round() <= WEIGHT_MAX && (exact.round() / exact - 1.0).abs() <= WEIGHT_ERROR
            };
            powers.iter().all(ok)
        };
        let unit = (1..=256).map(f64::from).find(|unit| near(*unit)).unwrap_or(WEIGHT_MAX * least / most);
        powers.iter().map(|power| (power / least * unit).round().clamp(1.0, WEIGHT_MAX) as u16).collect()
    }

    /// As the simulator wants them.
    pub(super) fn groups(&self, counts: &Counts, weights: &[u16]) -> Vec<NodeGroup> {
        let all = counts.0.iter().zip(&self.kinds).zip(weights);
        all.filter(|((count, _), _)| **count > 0)
            .map(|((count, kind), weight)| NodeGroup {
                count: *count,
                cores: kind.cores,
                concurrency: kind.concurrency,
                speed: kind.speed,
                weight: *weight,
                ..NodeGroup::default()
            })
            .collect()
    }
}

impl Counts {
    /// Nodes in all.
    pub(super) fn total(&self) -> u32 {
        self.0.iter().sum()
    }
}

fn inline(text: &str) -> Result<Kind, String> {
    // The same keys and words as in a file.
    let wrong = match toml::from_str::<Document>(&format!("node = [{{ {text} }}]")) {
        Ok(mut document) => match (document.node.pop(), document.node.is_empty()) {
            (Some(kind), true) => return Ok(kind),
            _ => "expected one kind of node".to_owned(),
        },
        Err(error) => error.message().to_owned(),
    };
    Err(format!(
        "--nodes '{text}': {wrong} (such as 'count=4,cores=2,speed=1,weight=1'; the kind without `count` is sought)"
    ))
}

fn file(path: &Path) -> Result<Vec<Kind>, String> {
    let name = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| {
        format!("--nodes {name}: {error} (a kind of node such as 'cores=2', or a TOML file with [[node]])")
    })?;
    let document: Document = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let before = &text[..at.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        format!("{name}:{line}:{column}: {}", error.message())
    })?;
    if document.node.is_empty() {
        return Err(format!("{name}: no [[node]]"));
    }
    Ok(document.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(texts: &[&str]) -> Result<Nodes, String> {
        Nodes::parse(&texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_kind_without_a_count_is_sought() {
        let nodes = nodes(&["count=2,cores=4", "cores=2,speed=0.5"]).unwrap();
        assert_eq!(nodes.given(), None);
        assert_eq!(nodes.with(3), Counts(vec![2, 3]));
        assert_eq!(nodes.fewest(), 0);
        assert_eq!(nodes.power(&nodes.with(3)), 11.0);
        assert_eq!(nodes.less_one(&nodes.with(3)), Some(Counts(vec![1, 3])));
    }

    #[test]
    fn weights_are_what_nodes_can_do_in_small_numbers() {
        let weights = |texts: &[&str]| nodes(texts).unwrap().weights();
        assert_eq!(weights(&["cores=8"]), [1]);
        assert_eq!(weights(&["count=1,cores=4", "cores=2,speed=0.75"]), [8, 3]);
        assert_eq!(weights(&["count=1,cores=1000", "cores=1"]), [256, 1]);
        assert_eq!(weights(&["count=1,cores=4,weight=9", "cores=2"]), [9, 1]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (texts, expected) in [
            (&["cores=2", "cores=3"][..], "more than one kind has no `count`"),
            (&["core=2"], "unknown field `core`"),
            (&["cores=two"], "--nodes 'cores=two'"),
            (&["/no/such/file"], "No such file"),
        ] {
            let wrong = nodes(texts).unwrap_err();
            assert!(wrong.contains(expected), "{wrong}");
        }
    }
}
