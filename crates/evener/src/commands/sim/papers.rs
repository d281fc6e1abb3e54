//! `evener sim --paper`: what papers report, beside what comes of it here.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::sync::Mutex;

use clap::ValueEnum;
use comfy_table::Cell;
use evener_sim::Progress;
use evener_sim::papers::{Done, Effort, Paper, Row, Verdict};

use super::progress::ProgressLine;
use crate::output::{self, Status};

/// Which papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Which {
    /// Haney, Madsen: Load-balancing for MySQL, 2003
    #[value(name = "000")]
    Database,
    /// LBKVD, a Load Balancer for Key-value Database
    #[value(name = "001")]
    KeyValue,
    /// Sasaki, Tanaka: Transferring Load in Virtual Node Distance Order, 2008
    #[value(name = "003")]
    Distance,
    /// Kerr: Using Dynamic Feedback to Optimise Load Balancing Decisions, 2002
    #[value(name = "004")]
    Feedback,
    /// All of them
    All,
}

impl Which {
    fn papers(self) -> &'static [Paper] {
        match self {
            Which::Database => &[Paper::Database],
            Which::KeyValue => &[Paper::KeyValue],
            Which::Distance => &[Paper::Distance],
            Which::Feedback => &[Paper::Feedback],
            Which::All => &Paper::ALL,
        }
    }
}

/// Simulates papers and prints their rows: as tables, or one JSON object a line. A trial has no verdict: it is done.
pub(super) fn run(which: Which, effort: Effort, threads: NonZeroUsize, json: bool) -> anyhow::Result<Status> {
    let mut outside = 0;
    for paper in which.papers() {
        let line = Mutex::new(ProgressLine::new(&format!("paper {paper}")));
        let show = |done: Done| {
            let share = done.runs as f64 / done.of as f64;
            if let Ok(mut line) = line.lock() {
                let _ = line.show(Progress { done: done.runs, total: done.of, share });
            }
        };
        let rows = paper.reproduce(effort, threads, &show);
        if let Ok(line) = line.lock() {
            line.clear();
        }
        outside += count(&rows, Verdict::Outside);
        let text = if json { lines(&rows)? } else { render(*paper, &rows) };
        output::print(&text)?;
        io::stdout().flush()?;
    }
    Ok(if outside > 0 && effort == Effort::Full { Status::Failed } else { Status::Done })
}

fn count(rows: &[Row], verdict: Verdict) -> usize {
    rows.iter().filter(|row| row.verdict == verdict).count()
}

fn lines(rows: &[Row]) -> anyhow::Result<String> {
    let mut out = String::new();
    for row in rows {
        out += &serde_json::to_string(row)?;
        out.push('\n');
    }
    Ok(out)
}

/// A table, the notes that its rows refer to by number, and how many rows have which verdict.
fn render(paper: Paper, rows: &[Row]) -> String {
    let mut notes: Vec<&str> = Vec::new();
    let header =
        ["row", "quantity", "unit", "paper", "ours", "95 % interval", "tolerance", "verdict", "note"];
    let mut table = output::table(&header, &[3, 4, 5, 6, 8]);
    for row in rows {
        let note = notes.iter().position(|note| *note == row.note).unwrap_or_else(|| {
            notes.push(&row.note);
            notes.len() - 1
        });
        let interval = match (row.low, row.high) {
            (Some(low), Some(high)) => format!("{} – {}", figure(low), figure(high)),
            _ => "-".to_owned(),
        };
        let or_dash = |value: Option<f64>| value.map_or("-".to_owned(), figure);
        table.add_row([
            Cell::new(&row.row),
            Cell::new(row.quantity),
            Cell::new(row.unit),
            Cell::new(or_dash(row.paper_value)),
            Cell::new(or_dash(row.ours)),
            Cell::new(interval),
            Cell::new(or_dash(row.tolerance)),
            Cell::new(row.verdict.name()),
            Cell::new(note + 1),
        ]);
    }
    let mut out = format!("{paper}  {}\n\n{}\n", paper.title(), output::lines(&table));
    for (number, note) in notes.iter().enumerate() {
        out += &format!("{:>3}  {note}\n", number + 1);
    }
    let of = |verdict| count(rows, verdict);
    out += &format!(
        "\n{} rows within their tolerance, {} outside, {} not reproduced\n\n",
        of(Verdict::Within),
        of(Verdict::Outside),
        of(Verdict::NotReproduced)
    );
    out
}

/// Four digits, or all of a large number's before the point.
fn figure(value: f64) -> String {
    let before = if value == 0.0 { 1 } else { value.abs().log10().floor() as i32 + 1 };
    let after = usize::try_from(4 - before.max(1)).unwrap_or(0);
    let text = format!("{value:.after$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_four_digits() {
        let shown: Vec<_> = [0.0, 0.65432, -9.41, 40.0, 162.17, 14_717.0, -1.0].map(figure).into();
        assert_eq!(shown, ["0", "0.654", "-9.41", "40", "162.2", "14717", "-1"]);
    }

    #[test]
    fn a_note_is_said_once() {
        let rows = Paper::KeyValue.reproduce(Effort::Trial, NonZeroUsize::MIN, &|_| {});
        let text = render(Paper::KeyValue, &rows);
        assert_eq!(text.matches("and half a second of rounding").count(), 1);
        assert!(text.contains("\ntime/1/1 "), "{text}");
        assert_eq!(lines(&rows).unwrap().lines().count(), rows.len());
    }
}
