//! What the demo shows while it runs: on a terminal a table that is redrawn in place, otherwise
//! a line a second.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use crossterm::style::{Color, Stylize};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{cursor, queue, terminal};
use evener_scheduler::Policy;

use super::{Act, NODES, PLACES, POLICIES, Plan};
use crate::output::{self, ms};

/// Columns if the terminal does not tell.
const WIDTH: usize = 80;

/// Jobs that a full bar shows at the least.
const BAR_JOBS_MIN: u32 = 40;

/// How the demo is going.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) elapsed: Duration,
    pub(crate) requests: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) open: u64,
    pub(crate) p50_ms: Option<f64>,
    pub(crate) p99_ms: Option<f64>,
    /// Jobs on each node.
    pub(crate) jobs: Vec<u32>,
}

/// Where frames go.
#[derive(Debug)]
pub(crate) enum View {
    /// Nothing is shown.
    Silent,
    /// A line a second.
    Lines(Lines),
    /// A table, redrawn in place.
    Screen(Screen),
}

#[derive(Debug, Default)]
pub(crate) struct Lines {
    scheduler: &'static str,
    /// The last second that was shown.
    second: u64,
}

#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    colour: bool,
    duration: Duration,
    heading: String,
    /// Lines to go up before the next frame.
    drawn: u16,
    /// Jobs that the longest bar of this act stood for.
    jobs_max: u32,
    done: Vec<String>,
}

impl View {
    /// What fits standard output.
    pub(crate) fn of_stdout(silent: bool) -> View {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match io::stdout() {
            _ if silent => View::Silent,
            out if out.is_terminal() && !dumb => View::Screen(Screen::new(out)),
            _ => View::Lines(Lines::default()),
        }
    }

    pub(crate) fn begin(&mut self, plan: &Plan) -> io::Result<()> {
        let speeds: Vec<_> = NODES.iter().map(|node| format!("{} x{}", node.name, node.speed)).collect();
        let text = format!(
            "Four nodes of unequal speed ({}), and a\n\
             director that is not told which is which. {} requests a second: {:.0} % of what\n\
             the nodes can do. Each scheduler gets the same requests for {:.0} s (seed {}).\n\n",
            speeds.join(", "),
            plan.rate,
            100.0 * plan.utilisation(),
            plan.duration.as_secs_f64(),
            plan.seed
        );
        match self {
            View::Silent => Ok(()),
            View::Lines(_) => output::print(&text),
            View::Screen(screen) => {
                screen.duration = plan.duration;
                screen.begin(&text)
            }
        }
    }

    pub(crate) fn act(&mut self, index: usize, policy: Policy) -> io::Result<()> {
        match self {
            View::Silent => {}
            View::Lines(lines) => *lines = Lines { scheduler: policy.name(), second: 0 },
            View::Screen(screen) => {
                screen.heading = format!("{} of {}: {}", index + 1, POLICIES.len(), policy.name());
                screen.jobs_max = BAR_JOBS_MIN;
            }
        }
        Ok(())
    }

    pub(crate) fn frame(&mut self, frame: &Frame) -> io::Result<()> {
        match self {
            View::Silent => Ok(()),
            View::Lines(lines) => lines.frame(frame),
            View::Screen(screen) => screen.frame(frame),
        }
    }

    pub(crate) fn done(&mut self, acts: &[Act]) -> io::Result<()> {
        if let View::Screen(screen) = self {
            screen.done = acts.iter().map(done_line).collect();
        }
        Ok(())
    }
}

impl Lines {
    fn frame(&mut self, frame: &Frame) -> io::Result<()> {
        let second = frame.elapsed.as_secs();
        if second <= self.second {
            return Ok(());
        }
        self.second = second;
        let jobs: Vec<_> =
            NODES.iter().zip(&frame.jobs).map(|(node, jobs)| format!("{} {jobs}", node.name)).collect();
        output::print(&format!(
            "{:11}  {second:3} s  requests {}  answered {}  failed {}  p50 {}  p99 {}  jobs: {}\n",
            self.scheduler,
            frame.requests,
            frame.answered,
            frame.failed,
            ms(frame.p50_ms),
            ms(frame.p99_ms),
            jobs.join(", ")
        ))
    }
}

impl Screen {
    fn new(out: Stdout) -> Screen {
        Screen {
            out,
            colour: output::colour(),
            duration: Duration::ZERO,
            heading: String::new(),
            drawn: 0,
            jobs_max: BAR_JOBS_MIN,
            done: Vec::new(),
        }
    }

    fn begin(&mut self, text: &str) -> io::Result<()> {
        // A release build ends at a panic without dropping anything: the cursor comes back all the same.
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            // Nothing better can be done for a terminal that cannot be written to.
            let _ = crossterm::execute!(io::stdout(), cursor::Show);
            before(panic);
        }));
        queue!(self.out, cursor::Hide)?;
        self.out.write_all(text.as_bytes())?;
        self.out.flush()
    }

    fn frame(&mut self, frame: &Frame) -> io::Result<()> {
        let width = terminal::size().map_or(WIDTH, |(columns, _)| usize::from(columns).clamp(40, 120));
        let lines = self.lines(frame, width);
        if self.drawn > 0 {
            queue!(self.out, cursor::MoveToColumn(0), cursor::MoveUp(self.drawn))?;
        }
        for line in &lines {
            queue!(self.out, Clear(ClearType::UntilNewLine))?;
            writeln!(self.out, "{line}")?;
        }
        self.drawn = u16::try_from(lines.len()).expect("a frame is a few lines");
        self.out.flush()
    }

    fn lines(&mut self, frame: &Frame, width: usize) -> Vec<String> {
        let mut lines = vec![self.style(&self.heading, Color::Cyan), String::new()];
        self.jobs_max = frame.jobs.iter().copied().fold(self.jobs_max, u32::max);
        for (node, jobs) in NODES.iter().zip(&frame.jobs) {
            let label = format!("  {:7} x{}  {jobs:5}  ", node.name, node.speed);
            let bar = self.bar(*jobs, width.saturating_sub(label.len() + 1));
            lines.push(format!("{label}{bar}"));
        }
        lines.push(String::new());
        let now = format!(
            "  {:4.1} of {:.0} s   requests {}   open {}   p50 {}   p99 {}",
            frame.elapsed.min(self.duration).as_secs_f64(),
            self.duration.as_secs_f64(),
            frame.requests,
            frame.open,
            ms(frame.p50_ms),
            ms(frame.p99_ms)
        );
        let failed = if frame.failed > 0 { format!("   failed {}", frame.failed) } else { String::new() };
        lines.push(cut(&format!("{now}{failed}"), width));
        let finishing = frame.elapsed > self.duration && frame.open > 0;
        let note = if finishing { "  no more arrivals: waiting for the last answers" } else { "" };
        lines.push(cut(note, width));
        lines.extend(self.done.iter().map(|line| cut(line, width)));
        lines
    }

    /// Jobs in service, then those that wait.
    fn bar(&self, jobs: u32, width: usize) -> String {
        let cells = |jobs: u32| (jobs as usize * width).div_ceil(self.jobs_max.max(1) as usize);
        let all = cells(jobs);
        let served = cells(jobs.min(PLACES as u32)).min(all);
        let served_bar = self.style(&"█".repeat(served), Color::Green);
        format!("{served_bar}{}", self.style(&"▒".repeat(all - served), Color::Yellow))
    }

    fn style(&self, text: &str, colour: Color) -> String {
        if self.colour { text.with(colour).to_string() } else { text.to_string() }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing better can be done for a terminal that cannot be written to.
        let _ = crossterm::execute!(self.out, cursor::Show);
    }
}

fn done_line(act: &Act) -> String {
    let times = &act.report.corrected;
    let jobs = act.nodes.iter().map(|node| node.usage.jobs_max.to_string()).collect::<Vec<_>>();
    format!(
        "  {:11}   p50 {}   p99 {}   most jobs {}",
        act.scheduler,
        ms(times.p50_ms),
        ms(times.p99_ms),
        jobs.join(", ")
    )
}

/// At most `width` characters: a line that wraps would spoil the redrawing.
fn cut(line: &str, width: usize) -> String {
    line.chars().take(width).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let mut screen = Screen::new(io::stdout());
        screen.colour = false;
        screen.done = vec!["x".repeat(300)];
        let frame = Frame {
            elapsed: Duration::from_secs(3),
            requests: 2_400,
            answered: 2_000,
            failed: 12,
            open: 400,
            p50_ms: Some(40.0),
            p99_ms: Some(12_345.0),
            jobs: vec![0, 3, 40, 1000],
        };
        for width in [40, 80, 120] {
            let lines = screen.lines(&frame, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
        }
        let lines = screen.lines(&frame, 80);
        assert!(lines[2].trim_end().ends_with("0"));
        assert!(lines[5].matches('▒').count() > 50, "the longest bar fills the width");
    }
}
