use std::time::Duration;

use clap::Args;

use super::load::rate;
use crate::demo::{Plan, View, play};
use crate::output::{self, Status};

/// Shows on embedded nodes what the choice of a scheduler does, and what nodes' reports do.
///
/// Four nodes of unequal speed, a director and a load run in this process. Round-robin, least-jobs and
/// two-choices meet the same arrivals and the same job sizes, one after the other. Then something else takes
/// the CPU of one node for a while, once without agents and once with agents whose reports the weights follow. Nothing is
/// installed and nothing but loopback is used.
///
/// Exit status 1 if a request failed, or if the demo was interrupted.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener demo
  evener demo --seconds 5 --rate 900 --seed 7
  evener demo --json | jq '.acts[] | {scheduler, p99: .corrected.p99_ms}'")]
pub(crate) struct Demo {
    /// Seconds of arrivals for each scheduler; each act with a busy node takes 2.2 times as long
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Requests a second; the nodes can do 1000
    #[arg(long, default_value_t = 800.0, value_parser = rate)]
    rate: f64,
    /// Determines arrivals and job sizes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print only the summary, as JSON
    #[arg(long)]
    json: bool,
}

impl Demo {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        let plan =
            Plan { rate: self.rate, duration: Duration::from_secs(self.seconds.into()), seed: self.seed };
        let mut view = View::of_stdout(self.json);
        let Some(summary) = play(&plan, &mut view)? else {
            drop(view);
            eprintln!("interrupted");
            return Ok(Status::Failed);
        };
        drop(view);
        if self.json {
            output::json(&summary)?;
        } else {
            output::print(&summary.render())?;
        }
        Ok(if summary.failed() { Status::Failed } else { Status::Done })
    }
}
