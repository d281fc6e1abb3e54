use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::Duration;

use clap::{Args, ValueEnum};
use evener_replay::{Arrivals, Latencies, Load, Report, Target, Tick};

use crate::output::{self, Status, ms};

/// Sends requests at a rate that does not depend on the answers, and measures.
///
/// Response times count from when a request was due (corrected), so that a slow answer cannot hide the
/// requests that it delayed. Percentiles are given only where there are enough samples.
///
/// Exit status 1 if a request failed, or if the rate could not be kept.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener load http://127.0.0.1:8080/ --rate 500
  evener load http://127.0.0.1:8080/item --rate 2000 --duration 60s --json")]
pub(crate) struct LoadCommand {
    /// Where to send GET requests; an n in braces becomes the number of the request
    #[arg(value_name = "URL")]
    target: Target,
    /// Requests a second
    #[arg(long, short, default_value_t = 100.0, value_parser = rate)]
    rate: f64,
    /// For how long
    #[arg(long, short, default_value = "10s", value_parser = duration)]
    duration: Duration,
    /// Gaps between requests: random as from many users, or all the same
    #[arg(long, value_enum, default_value_t = Gaps::Poisson)]
    arrivals: Gaps,
    /// Determines the gaps
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections at the most; a request that finds all busy waits, and its time counts
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// A request that takes longer has failed
    #[arg(long, default_value = "30s", value_parser = duration)]
    timeout: Duration,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Gaps {
    Poisson,
    Even,
}

impl LoadCommand {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        let load = Load {
            target: self.target,
            rate: self.rate,
            arrivals: match self.arrivals {
                Gaps::Poisson => Arrivals::Poisson,
                Gaps::Even => Arrivals::Even,
            },
            duration: self.duration,
            seed: self.seed,
            connections_max: self.connections as usize,
            timeout: self.timeout,
        };
        let interrupted = crate::demo::interrupts()?;
        let progress = !self.json && io::stderr().is_terminal();
        let report = load.run(Duration::from_secs(1), |tick| {
            if progress {
                eprint!("\r{} ", progress_line(tick));
            }
            if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        if progress {
            eprint!("\r{:60}\r", "");
        }
        if self.json {
            output::json(&report)?;
        } else {
            output::print(&render(&report))?;
        }
        let good = report.failed.total() == 0 && report.invalid.is_none();
        Ok(if good { Status::Done } else { Status::Failed })
    }
}

fn progress_line(tick: &Tick<'_>) -> String {
    format!(
        "{:3} s  due {}  answered {}  failed {}  open {}",
        tick.elapsed.as_secs(),
        tick.requests,
        tick.answered,
        tick.failed,
        tick.open
    )
}

fn render(report: &Report) -> String {
    let mut out = format!(
        "sent      {} requests in {:.1} s, {:.1}/s of {:.1}/s asked for\nanswered  {} ({:.1}/s)\n",
        report.requests,
        report.duration_s,
        report.rate_sent,
        report.rate_asked,
        report.answered,
        report.goodput
    );
    out.push_str(&format!("failed    {}", report.failed.total()));
    for (name, count) in report.failed.named() {
        if count > 0 {
            out.push_str(&format!("  {name} {count}"));
        }
    }
    out.push_str("\n\n");
    let mut table = output::table(&["", "p50", "p90", "p99", "p99.9", "mean", "max"], &[1, 2, 3, 4, 5, 6]);
    table.add_row(row("corrected", &report.corrected));
    table.add_row(row("uncorrected", &report.uncorrected));
    table.add_row(row("lag", &report.lag));
    out.push_str(&output::lines(&table));
    if let Some(reason) = &report.invalid {
        out.push_str(&format!("\nDo not believe these figures: {reason}.\n"));
    }
    out
}

fn row(name: &str, times: &Latencies) -> Vec<String> {
    let mut row = vec![name.to_string()];
    row.extend([times.p50_ms, times.p90_ms, times.p99_ms, times.p999_ms].map(ms));
    let some = |value| ms((times.samples > 0).then_some(value));
    row.extend([some(times.mean_ms), some(times.max_ms)]);
    row
}

/// A rate above 0.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1e6 => Ok(rate),
        _ => Err("expected requests a second, above 0 and at most 1000000".to_string()),
    }
}

/// A duration with its unit, above 0.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let duration = evener_control::config::duration(text).filter(|duration| !duration.is_zero());
    duration.ok_or_else(|| "expected a duration with its unit, such as 500ms, 10s or 2m".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["", "5", "0s", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
