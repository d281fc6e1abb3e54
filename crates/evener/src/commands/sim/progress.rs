//! How far an experiment is, on a line of standard error that is written anew.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use evener_sim::Progress;

use crate::output;

/// How often the line is written between runs.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);

/// A line that says how far it is, and how long it takes; on a terminal only.
#[derive(Debug)]
pub(super) struct ProgressLine {
    name: String,
    begun: Instant,
    shown: Option<Instant>,
    silent: bool,
}

impl ProgressLine {
    pub(super) fn new(name: &str) -> ProgressLine {
        let silent = !io::stderr().is_terminal();
        ProgressLine { name: name.to_owned(), begun: Instant::now(), shown: None, silent }
    }

    pub(super) fn show(&mut self, progress: Progress) -> ControlFlow<()> {
        let now = Instant::now();
        if !self.silent && self.shown.is_none_or(|shown| now - shown >= INTERVAL / 2) {
            self.shown = Some(now);
            output::rewrite_line(&line(&self.name, progress, now - self.begun));
        }
        ControlFlow::Continue(())
    }

    pub(super) fn clear(&self) {
        if self.shown.is_some() {
            output::rewrite_line("");
        }
    }
}

fn line(name: &str, progress: Progress, elapsed: Duration) -> String {
    let mut line =
        format!("{name}: {} of {} runs, {:.0} %", progress.done, progress.total, progress.share * 100.0);
    // The first run says little about how long the others take.
    if progress.done >= 2 && progress.share < 1.0 {
        let left = elapsed.mul_f64((1.0 - progress.share) / progress.share);
        line += &format!(", {} left", rough(left));
    }
    line
}

/// A time as one says it.
fn rough(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..100 => format!("{} s", seconds + 1),
        seconds @ 100..6000 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_what_the_rest_takes_at_this_pace() {
        let progress = Progress { done: 5, total: 20, share: 0.25 };
        let shown = line("two-choices", progress, Duration::from_secs(10));
        assert_eq!(shown, "two-choices: 5 of 20 runs, 25 %, 31 s left");
    }
}
