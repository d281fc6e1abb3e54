//! The results of four papers, simulated again: theirs beside ours.
//!
//! - `row`: one figure, and whether it is reproduced; `sample`: figures over replications
//! - `cells`: runs many simulations on all cores, with the same results whatever their number
//! - `distance` (003), `database` (000), `feedback` (004), `keyvalue` (001): a paper each

mod cells;
mod database;
mod distance;
mod feedback;
mod keyvalue;
mod makespan;
mod row;
mod sample;
#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

use thiserror::Error;

pub use cells::Done;
pub use row::{Row, Verdict};

use cells::Cell;

/// A paper whose results are simulated again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paper {
    /// D. Haney, K. S. Madsen, *Load-balancing for MySQL*, 2003.
    Database,
    /// *LBKVD, a Load Balancer for Key-value Database*.
    KeyValue,
    /// S. Sasaki, A. Tanaka, *Cluster System Capacity Improvement by Transferring Load in Virtual Node Distance
    /// Order*, 2008.
    Distance,
    /// J. Kerr, *Using Dynamic Feedback to Optimise Load Balancing Decisions*, 2002.
    Feedback,
}

/// How much is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// What verdicts need.
    Full,
    /// As little as shows that it works: verdicts mean nothing.
    Trial,
}

impl Paper {
    /// All of them.
    pub const ALL: [Paper; 4] = [Paper::Database, Paper::KeyValue, Paper::Distance, Paper::Feedback];

    /// The number that it goes by in rows and on the command line.
    pub const fn number(self) -> &'static str {
        match self {
            Paper::Database => "000",
            Paper::KeyValue => "001",
            Paper::Distance => "003",
            Paper::Feedback => "004",
        }
    }

    /// Authors, title and year.
    pub const fn title(self) -> &'static str {
        match self {
            Paper::Database => "D. Haney, K. S. Madsen: Load-balancing for MySQL, 2003",
            Paper::KeyValue => "LBKVD, a Load Balancer for Key-value Database",
            Paper::Distance => {
                "S. Sasaki, A. Tanaka: Cluster System Capacity Improvement by Transferring Load in Virtual Node \
                 Distance Order, 2008"
            }
            Paper::Feedback => "J. Kerr: Using Dynamic Feedback to Optimise Load Balancing Decisions, 2002",
        }
    }

    /// Simulates the paper's set-ups in so many threads, which change nothing but how long it takes. `done` is told
    /// how far it is, from any of them.
    pub fn reproduce(self, effort: Effort, threads: NonZeroUsize, done: &(dyn Fn(Done) + Sync)) -> Vec<Row> {
        let run = |cells: Vec<Cell>| cells::run(&cells, threads, done);
        match self {
            Paper::Database => database::reproduce(effort, &run),
            Paper::KeyValue => keyvalue::reproduce(effort, &run),
            Paper::Distance => distance::reproduce(effort, &run),
            Paper::Feedback => feedback::reproduce(effort, &run),
        }
    }
}

/// Runs cells: each gives, for each replication, what it measures.
type Runner<'a> = dyn Fn(Vec<Cell>) -> Vec<cells::Measured> + 'a;

impl fmt::Display for Paper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.number())
    }
}

/// Not the number of a paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("expected 000, 001, 003 or 004")]
pub struct UnknownPaper;

impl FromStr for Paper {
    type Err = UnknownPaper;

    fn from_str(text: &str) -> Result<Paper, UnknownPaper> {
        Paper::ALL.into_iter().find(|paper| paper.number() == text).ok_or(UnknownPaper)
    }
}
