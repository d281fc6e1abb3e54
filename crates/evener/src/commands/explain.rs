use clap::Args;
use comfy_table::{Cell, Color};
use serde::Deserialize;

use super::ctl::{Place, pass};
use super::pools::{Signal, age};
use crate::admin::{Admin, segment};
use crate::output::{self, Status};

/// Shows the last placements of a pool, and why each job went where it went.
///
/// For each job: the nodes that were compared, what was known of them and for how long, the score that the
/// scheduler gave them (lower is better), and the choice.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener explain app
  evener explain app -n 20
  evener explain app --admin unix:/run/evener/admin.sock --json")]
pub(crate) struct Explain {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    question: Question,
}

/// Which placements.
#[derive(Debug, Args)]
pub(crate) struct Question {
    /// The pool
    pool: String,
    /// How many placements, the latest first
    #[arg(short = 'n', long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    count: u32,
}

impl Explain {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        self.question.ask(&self.place.admin(), self.place.json)
    }
}

impl Question {
    pub(crate) fn ask(&self, admin: &Admin, json: bool) -> anyhow::Result<Status> {
        let answer = admin.read(&format!("/explain?pool={}&n={}", segment(&self.pool), self.count))?;
        if json {
            return pass(&answer);
        }
        let explanation: Explanation = answer.parse()?;
        output::print(&explanation.render(output::colour()))?;
        Ok(Status::Done)
    }
}

/// The answer of `/explain`.
#[derive(Debug, Deserialize)]
struct Explanation {
    pool: String,
    placements: Vec<Placement>,
}

#[derive(Debug, Deserialize)]
struct Placement {
    age_ms: f64,
    worker: usize,
    scheduler: String,
    /// The node, if one was picked.
    choice: Option<String>,
    /// Why none was.
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    panic: bool,
    candidates_total: u32,
    candidates: Vec<Candidate>,
}

#[derive(Debug, Deserialize)]
struct Candidate {
    node: String,
    chosen: bool,
    score: Option<f64>,
    signals: Vec<Signal>,
}

impl Explanation {
    fn render(&self, colour: bool) -> String {
        if self.placements.is_empty() {
            return format!("pool {}: no job has been placed yet\n", self.pool);
        }
        let placements = self.placements.iter().map(|placement| placement.render(colour));
        placements.collect::<Vec<_>>().join("\n")
    }
}

impl Placement {
    fn render(&self, colour: bool) -> String {
        let Placement { worker, scheduler, .. } = self;
        let what = match (&self.choice, &self.error) {
            (Some(node), _) => format!("placed on {node}"),
            (None, Some(error)) => format!("not placed, {error}"),
            (None, None) => "not placed".to_string(),
        };
        let mut out = format!("{} ago, worker {worker}, {scheduler}: {what}", age(self.age_ms));
        let (compared, total) = (self.candidates.len(), self.candidates_total as usize);
        match compared {
            0 => {}
            1 => out.push_str(&format!(" ({total} could be picked)")),
            _ if compared < total => out.push_str(&format!(" ({compared} of {total} compared)")),
            _ => out.push_str(&format!(" ({compared} compared)")),
        }
        out.push('\n');
        if self.panic {
            out.push_str("  most of the pool is down or ejected, so all of it gets jobs (panic threshold)\n");
        }
        if compared > 0 {
            for line in self.candidates(colour).lines() {
                out.push_str(&format!("  {line}\n"));
            }
        }
        out
    }

    /// A row for each node, a column for each signal.
    fn candidates(&self, colour: bool) -> String {
        let mut names: Vec<&str> = Vec::new();
        for signal in self.candidates.iter().flat_map(|candidate| &candidate.signals) {
            if !names.contains(&signal.label()) {
                names.push(signal.label());
            }
        }
        let scored = self.candidates.iter().any(|candidate| candidate.score.is_some());
        let mut header = vec!["", "node"];
        header.extend(scored.then_some("score"));
        header.extend(&names);
        let mut table = output::table(&header, &(2..header.len()).collect::<Vec<_>>());
        for candidate in &self.candidates {
            let mut node = Cell::new(&candidate.node);
            if candidate.chosen && colour {
                node = node.fg(Color::Green);
            }
            let mut row = vec![Cell::new(if candidate.chosen { "→" } else { "" }), node];
            if scored {
                row.push(Cell::new(candidate.score.map_or_else(|| "-".to_string(), score)));
            }
            row.extend(names.iter().map(|name| {
                let signal = candidate.signals.iter().find(|signal| signal.label() == *name);
                Cell::new(signal.map_or_else(|| "-".to_string(), Signal::value_and_age))
            }));
            table.add_row(row);
        }
        output::lines(&table)
    }
}

/// A score with the digits that matter: scores may be counts or seconds.
fn score(score: f64) -> String {
    let size = score.abs();
    if score.fract() == 0.0 && size < 1e9 {
        return format!("{score:.0}");
    }
    if (0.01..1e6).contains(&size) { format!("{score:.3}") } else { format!("{score:.2e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_and_its_reasons_are_shown() {
        let explanation: Explanation =
            serde_json::from_value(serde_json::json!({ "pool": "app", "placements": [
                {
                    "age_ms": 12.0, "worker": 1, "scheduler": "two-choices", "choice": "rat", "panic": false,
                    "candidates_total": 4,
                    "candidates": [
                        { "node": "rat", "chosen": true, "score": 0.4, "signals": [
                            { "name": "jobs", "value": 2, "age_ms": 0.0 },
                            { "name": "latency_ms", "value": 8.125, "age_ms": 40.0 },
                        ] },
                        { "node": "vole", "chosen": false, "score": null, "signals": [
                            { "name": "jobs", "value": 1, "age_ms": 0.0 },
                        ] },
                    ],
                },
                {
                    "age_ms": 61_000.0, "worker": 0, "scheduler": "two-choices", "choice": null,
                    "error": "all nodes are full", "panic": true, "candidates_total": 0, "candidates": [],
                },
            ]}))
            .unwrap();
        let shown = explanation.render(false);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "12 ms ago, worker 1, two-choices: placed on rat (2 of 4 compared)");
        let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words(lines[1]), "NODE SCORE JOBS LATENCY");
        assert_eq!(words(lines[2]), "→ rat 0.400 2 8.12 ms (40 ms ago)");
        assert_eq!(words(lines[3]), "vole - 1 -");
        assert_eq!(lines[5], "1 min ago, worker 0, two-choices: not placed, all nodes are full");
        assert!(lines[6].contains("panic threshold"));
    }

    #[test]
    fn scores_of_every_size_are_readable() {
        assert_eq!(
            [3.0, 0.125, 0.00042, 2.5e10].map(score),
            ["3", "0.125", "4.20e-4", "2.50e10"].map(String::from)
        );
    }
}
