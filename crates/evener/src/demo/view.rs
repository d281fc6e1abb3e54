//! What the demo shows while it runs: on a terminal a table that is redrawn in place, otherwise
//! a line a second.

use std::io::{self, IsTerminal, Stdout, Write};
use std::time::Duration;

use crossterm::style::{Color, Stylize};
use crossterm::terminal::{Clear, ClearType};
use crossterm::{cursor, queue, terminal};

use super::cast::{Cast, Hog};
use super::{Act, NODES, PLACES, Plan};
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
    /// The weight of each node, where that is worth seeing.
    pub(crate) weights: Vec<u32>,
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
    act: &'static str,
    hog: Option<(Hog, Duration)>,
    /// The last second that was shown.
    second: u64,
}

#[derive(Debug)]
pub(crate) struct Screen {
    out: Stdout,
    colour: bool,
    duration: Duration,
    heading: String,
    hog: Option<Hog>,
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
        let text = format!("Four nodes of unequal speed: {}. Seed {}.\n", speeds.join(", "), plan.seed);
        match self {
            View::Silent => Ok(()),
            View::Lines(_) => output::print(&text),
            View::Screen(screen) => screen.begin(&text),
        }
    }

    /// What the acts that follow are about.
    pub(crate) fn part(&mut self, plan: &Plan, casts: &[Cast]) -> io::Result<()> {
        let Some(cast) = casts.first() else { return Ok(()) };
        let (rate, seconds) = (plan.rate * cast.rate, plan.duration.mul_f64(cast.duration).as_secs_f64());
        let text = match cast.hog {
            None => format!(
                "\n1. Which scheduler? The director is not told which node is which. {rate:.0} requests a\n\
                 second: {:.0} % of what the nodes can do. Each scheduler gets the same ones, for {seconds:.0} s.\n\n",
                100.0 * plan.utilisation(),
            ),
            Some(hog) => format!(
                "\n2. What if a node is not what it was? The director is told the speeds. {rate:.0} requests a\n\
                 second for {seconds:.0} s, placed by weight; for a while something else takes {:.0} % of {}'s CPU.\n\n",
                100.0 * (1.0 - hog.left),
                hog.victim(),
            ),
        };
        match self {
            View::Silent => Ok(()),
            View::Lines(_) => output::print(&text),
            View::Screen(screen) => screen.part(&text),
        }
    }

    pub(crate) fn act(&mut self, plan: &Plan, index: usize, acts: usize, cast: &Cast) {
        let duration = plan.duration.mul_f64(cast.duration);
        match self {
            View::Silent => {}
            View::Lines(lines) => {
                *lines = Lines { act: cast.name, hog: cast.hog.map(|hog| (hog, duration)), second: 0 };
            }
            View::Screen(screen) => {
                screen.heading = format!("{} of {acts}: {}", index + 1, cast.name);
                (screen.hog, screen.duration) = (cast.hog, duration);
                screen.jobs_max = BAR_JOBS_MIN;
            }
        }
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
        let of_nodes = |numbers: &[u32]| {
            let each = NODES.iter().zip(numbers).map(|(node, number)| format!("{} {number}", node.name));
            each.collect::<Vec<_>>().join(", ")
        };
        let weights = match frame.weights.is_empty() {
            true => String::new(),
            false => format!("  weights: {}", of_nodes(&frame.weights)),
        };
        let hog = self.hog.filter(|(hog, duration)| is_there(hog, *duration, frame.elapsed));
        let hog = hog.map_or(String::new(), |(hog, _)| format!("  (hog on {})", hog.victim()));
        output::print(&format!(
            "{:14}  {second:3} s  requests {}  answered {}  failed {}  p50 {}  p99 {}  jobs: {}{weights}{hog}\n",
            self.act,
            frame.requests,
            frame.answered,
            frame.failed,
            ms(frame.p50_ms),
            ms(frame.p99_ms),
            of_nodes(&frame.jobs)
        ))
    }
}

/// Whether the hog is there.
fn is_there(hog: &Hog, duration: Duration, elapsed: Duration) -> bool {
    let (from, to) = hog.times(duration);
    (from..to).contains(&elapsed)
}

impl Screen {
    fn new(out: Stdout) -> Screen {
        Screen {
            out,
            colour: output::colour(),
            duration: Duration::ZERO,
            heading: String::new(),
            hog: None,
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

    /// What was drawn stays, and the next frame is drawn below.
    fn part(&mut self, text: &str) -> io::Result<()> {
        self.drawn = 0;
        self.done.clear();
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
        let mut heading = self.style(&self.heading, Color::Cyan);
        if let Some(hog) = self.hog.filter(|hog| is_there(hog, self.duration, frame.elapsed)) {
            heading += &self.style(&format!("   hog on {}", hog.victim()), Color::Red);
        }
        let mut lines = vec![heading, String::new()];
        self.jobs_max = frame.jobs.iter().copied().fold(self.jobs_max, u32::max);
        for (index, (node, jobs)) in NODES.iter().zip(&frame.jobs).enumerate() {
            let weight =
                frame.weights.get(index).map_or(String::new(), |weight| format!("weight {weight:3}  "));
            let label = format!("  {:7} x{}  {weight}{jobs:5}  ", node.name, node.speed);
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
        "  {:14}   p50 {}   p99 {}   most jobs {}",
        act.name,
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
            weights: vec![4, 2, 1, 256],
        };
        for width in [40, 80, 120] {
            let lines = screen.lines(&frame, width);
            assert!(lines.iter().all(|line| line.chars().count() <= width), "{lines:#?}");
        }
        let lines = screen.lines(&frame, 80);
        assert!(lines[2].trim_end().ends_with("0"));
        assert!(lines[5].matches('▒').count() > 40, "the longest bar fills the width");
    }
}
