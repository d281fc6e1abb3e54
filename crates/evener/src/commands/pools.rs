//! Pools and their nodes as a table.

use std::collections::BTreeMap;

use comfy_table::{Cell, Color};
use serde::Deserialize;

use crate::output::{self, ms};

/// The answer of `/pools`.
#[derive(Debug, Deserialize)]
pub(crate) struct Pools {
    pub(crate) pools: Vec<Pool>,
}

/// The answer of `/pools/NAME`.
#[derive(Debug, Deserialize)]
pub(crate) struct Pool {
    name: String,
    scheduler: String,
    /// How weights follow reports.
    #[serde(default)]
    weights: String,
    #[serde(default)]
    queued: u64,
    #[serde(default)]
    output: Option<Output>,
    nodes: Vec<Node>,
}

/// Another balancer that carries out what the pool comes to.
#[derive(Debug, Deserialize)]
struct Output {
    to: String,
    up: bool,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    leaving: u64,
}

impl Output {
    fn line(&self) -> String {
        let state = match (&self.error, self.up) {
            (Some(error), _) => error.clone(),
            (None, true) => "follows".to_owned(),
            (None, false) => "not told anything yet".to_owned(),
        };
        let leaving = match self.leaving {
            0 => String::new(),
            1 => ", 1 node leaves".to_owned(),
            many => format!(", {many} nodes leave"),
        };
        format!("output to {}: {state}{leaving}\n", self.to)
    }
}

impl Pool {
    /// Nodes that take jobs.
    pub(crate) fn nodes_up(&self) -> usize {
        self.nodes
            .iter()
            .filter(|node| matches!(node.state.as_str(), "up" | "warming" | "partly-ejected"))
            .count()
    }

    /// For machines: whether the pool takes jobs.
    pub(crate) fn health(&self) -> serde_json::Value {
        let (up, nodes) = (self.nodes_up(), self.nodes.len());
        serde_json::json!({ "name": self.name, "nodes": nodes, "nodes_up": up })
    }

    /// For people.
    pub(crate) fn health_line(&self) -> String {
        let (up, nodes) = (self.nodes_up(), self.nodes.len());
        format!("pool {}: {up} of {nodes} nodes take jobs", self.name)
    }
}

#[derive(Debug, Deserialize)]
struct Node {
    name: String,
    address: String,
    state: String,
    weight: u32,
    /// Where the weight follows reports, it differs from this one.
    #[serde(default)]
    weight_configured: Option<u32>,
    jobs: u64,
    picks: u64,
    #[serde(default)]
    outcomes: BTreeMap<String, u64>,
    #[serde(default)]
    connections: u64,
    #[serde(default)]
    idle: u64,
    #[serde(default)]
    latency_ms: BTreeMap<String, Option<f64>>,
    #[serde(default)]
    signals: Vec<Signal>,
}

/// Something that is known of a node, and for how long.
#[derive(Debug, Deserialize)]
pub(crate) struct Signal {
    pub(crate) name: String,
    /// By which way the node told it, if it did.
    #[serde(default)]
    pub(crate) source: Option<String>,
    pub(crate) value: serde_json::Value,
    #[serde(default)]
    pub(crate) age_ms: Option<f64>,
}

impl Signal {
    /// What it is, without the unit that the value carries.
    pub(crate) fn label(&self) -> &str {
        self.name.strip_suffix("_ms").unwrap_or(&self.name)
    }

    /// How much, and since when that is known; what is exact at any time has no age.
    pub(crate) fn value_and_age(&self) -> String {
        let value = match (&self.value, self.value.as_f64()) {
            (serde_json::Value::String(text), _) => text.clone(),
            (_, Some(number)) if self.name.ends_with("_ms") => ms(Some(number)),
            (_, Some(number)) if self.name.ends_with("_share") => format!("{:.0} %", 100.0 * number),
            (_, Some(number)) => short(number),
            (other, None) => other.to_string(),
        };
        match (self.age_ms, &self.source) {
            (Some(age_ms), Some(source)) => format!("{value} ({source}, {} ago)", age(age_ms)),
            (Some(age_ms), None) if age_ms > 0.0 => format!("{value} ({} ago)", age(age_ms)),
            _ => value,
        }
    }

    /// Whether it says anything that the columns of a node do not.
    fn is_news(&self) -> bool {
        let is_zero = self.value.as_f64() == Some(0.0);
        let is_column = matches!(self.name.as_str(), "jobs" | "weight");
        let says_nothing = is_zero && self.age_ms.is_none();
        !is_column && !says_nothing
    }
}

/// A number without digits that say nothing.
fn short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

/// Time since something, in the largest unit that tells it.
pub(crate) fn age(age_ms: f64) -> String {
    match age_ms {
        ms if ms < 1_000.0 => format!("{ms:.0} ms"),
        ms if ms < 60_000.0 => format!("{:.1} s", ms / 1_000.0),
        ms if ms < 3_600_000.0 => format!("{:.0} min", ms / 60_000.0),
        ms => format!("{:.0} h", ms / 3_600_000.0),
    }
}

/// All pools, each with its nodes.
pub(crate) fn render(pools: &[Pool], colour: bool) -> String {
    let each = |pool: &Pool| {
        let queued = if pool.queued > 0 { format!(", {} waiting", pool.queued) } else { String::new() };
        let weights = match pool.weights.as_str() {
            "" | "off" => String::new(),
            law => format!(", weights follow reports: {law}"),
        };
        let output = pool.output.as_ref().map(Output::line).unwrap_or_default();
        let nodes = nodes(&pool.nodes, colour);
        format!("pool {} ({}{weights}{queued})\n{output}{nodes}", pool.name, pool.scheduler)
    };
    pools.iter().map(each).collect::<Vec<_>>().join("\n")
}

fn nodes(nodes: &[Node], colour: bool) -> String {
    let header = [
        "node", "address", "state", "weight", "jobs", "picks", "failed", "p50", "p99", "open", "idle",
        "signals",
    ];
    let mut table = output::table(&header, &[3, 4, 5, 6, 7, 8, 9, 10]);
    for node in nodes {
        let signals = node.signals.iter().filter(|signal| signal.is_news());
        let signals: Vec<_> =
            signals.map(|signal| format!("{} {}", signal.label(), signal.value_and_age())).collect();
        let quantile = |name| ms(node.latency_ms.get(name).copied().flatten());
        let mut state = Cell::new(&node.state);
        if colour {
            state = state.fg(state_colour(&node.state));
        }
        table.add_row([
            Cell::new(&node.name),
            Cell::new(&node.address),
            state,
            Cell::new(node.weight()),
            Cell::new(node.jobs),
            Cell::new(node.picks),
            Cell::new(node.failed()),
            Cell::new(quantile("p50")),
            Cell::new(quantile("p99")),
            Cell::new(node.connections),
            Cell::new(node.idle),
            Cell::new(signals.join(", ")),
        ]);
    }
    output::lines(&table)
}

impl Node {
    /// The weight in use, and the configured one where that is another.
    fn weight(&self) -> String {
        match self.weight_configured.filter(|configured| *configured != self.weight) {
            Some(configured) => format!("{} (of {configured})", self.weight),
            None => self.weight.to_string(),
        }
    }

    /// Jobs that ended by the node's fault.
    fn failed(&self) -> u64 {
        let faults = ["error", "refused", "reset", "timeout"];
        faults.iter().filter_map(|fault| self.outcomes.get(*fault)).sum()
    }
}

fn state_colour(state: &str) -> Color {
    match state {
        "up" => Color::Green,
        "down" => Color::Red,
        _ => Color::Yellow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_shown_with_its_nodes() {
        let pools: Pools = serde_json::from_value(serde_json::json!({ "pools": [{
            "name": "app", "scheduler": "two-choices", "weights": "integral", "queued": 2,
            "output": { "to": "HAProxy at /run/h.sock, proxy app", "up": true, "error": null, "leaving": 2 },
            "nodes": [{
                "name": "rat", "address": "10.0.0.1:80", "state": "up", "weight": 5, "weight_configured": 7,
                "jobs": 3, "picks": 120,
                "outcomes": { "success": 115, "reset": 1, "timeout": 1 }, "connections": 7, "idle": 4,
                "latency_ms": { "p50": 1.25, "p90": 2.0, "p99": null },
                "signals": [
                    { "name": "jobs", "value": 3, "age_ms": 0.0 },
                    { "name": "latency_ms", "value": 1.234, "age_ms": 1500.0 },
                    { "name": "failure_share", "value": 0.016, "age_ms": null },
                    { "name": "reported_load", "source": "necp", "value": 0.5, "age_ms": 800.0 },
                ],
                "workers": []
            }]
        }]}))
        .unwrap();
        let shown = render(&pools.pools, false);
        let lines: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0].join(" "), "pool app (two-choices, weights follow reports: integral, 2 waiting)");
        assert_eq!(lines[1].join(" "), "output to HAProxy at /run/h.sock, proxy app: follows, 2 nodes leave");
        assert_eq!(
            lines[2].join(" "),
            "NODE ADDRESS STATE WEIGHT JOBS PICKS FAILED P50 P99 OPEN IDLE SIGNALS"
        );
        assert_eq!(
            lines[3].join(" "),
            "rat 10.0.0.1:80 up 5 (of 7) 3 120 2 1.25 ms - 7 4 latency 1.23 ms (1.5 s ago), failure_share 2 %, \
             reported_load 0.50 (necp, 800 ms ago)"
        );
    }
}
