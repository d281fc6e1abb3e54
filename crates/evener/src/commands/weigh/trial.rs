//! One trial: does a node carry this rate?

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evener_replay::{Arrivals, Histogram, Load, Report, Target, Tick};

use super::document::Trial;

/// What is asked of a node.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) target: Target,
    /// The time within which a percentile of the answers must be.
    pub(super) limit: Duration,
    /// Between 0 and 100.
    pub(super) percentile: f64,
    /// The least share of requests that must succeed, from 0 to 1.
    pub(super) success: f64,
    pub(super) arrivals: Arrivals,
    pub(super) connections_max: usize,
}

/// How a trial went.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) trial: Trial,
    /// Whether the generator was short of CPU or could not send in time: then nothing is known of the node.
    pub(super) is_generator_short: bool,
    pub(super) interrupted: bool,
}

/// How often it is looked whether a trial can still be passed.
const LOOK: Duration = Duration::from_millis(20);

/// A generator that used, or waited for, a CPU for so much of the time was late itself.
const GENERATOR_MAX: f64 = 0.85;

/// Shorter than a request may take by far, so that a trial ends soon after its time.
const TIMEOUT_LIMITS: u32 = 4;
const TIMEOUT_MIN: Duration = Duration::from_secs(1);

impl Question {
    /// Sends `rate` requests a second for some time. Ends as soon as the trial cannot be passed any more: a node that
    /// is overloaded is not burdened for longer than it takes to see it.
    ///
    /// # Errors
    /// If there are no descriptors, or no epoll.
    pub(super) fn ask(
        &self,
        rate: f64,
        duration: Duration,
        seed: u64,
        interrupted: &AtomicBool,
        mut watch: impl FnMut(&Tick<'_>),
    ) -> io::Result<Tried> {
        let load = self.load(rate, duration, seed);
        let mut budget = Budget::new(self, rate * duration.as_secs_f64());
        let mut ended_early = false;
        let mut late_open = 0;
        let effort = Effort::begin();
        let (report, corrected) = load.run_measured(LOOK, |tick| {
            watch(tick);
            if interrupted.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            late_open = budget.late_open(tick, self.limit);
            if budget.is_spent(tick, late_open) {
                ended_early = true;
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        let interrupted = interrupted.load(Ordering::Relaxed);
        let failed = failures(&report);
        let late = budget.late(&corrected) + if ended_early { late_open } else { 0 };
        let answered = corrected.len().max(1) as f64;
        let is_late = late as f64 > answered * (1.0 - self.percentile / 100.0);
        let is_failing = failed as f64 > report.requests as f64 * (1.0 - self.success);
        let generator = effort.share();
        let is_unsent = report.invalid.is_some() && !ended_early && !interrupted;
        let carried =
            !(ended_early || interrupted || is_late || is_failing || is_unsent) && report.requests > 0;
        let is_generator_short =
            !carried && (generator.is_some_and(|share| share > GENERATOR_MAX) || is_unsent);
        let enough = corrected.len() as f64 * (1.0 - self.percentile / 100.0) >= 1.0;
        let percentile_ms = (enough && !ended_early && !interrupted)
            .then(|| corrected.value_at_quantile(self.percentile / 100.0) as f64 / 1e3);
        let trial = Trial {
            phase: String::new(),
            rate,
            carried,
            requests: report.requests,
            failed,
            late,
            percentile_ms,
            ended_early,
            generator,
        };
        Ok(Tried { trial, is_generator_short, interrupted })
    }

    /// One request alone: how long it took, or what came instead of an answer.
    ///
    /// # Errors
    /// If there are no descriptors, or no epoll.
    pub(super) fn ask_once(&self, interrupted: &AtomicBool) -> io::Result<Result<Duration, String>> {
        // With even gaps the first request is due after one of them.
        let gap = Duration::from_millis(20);
        let load =
            Load { arrivals: Arrivals::Even, ..self.load(1.0 / gap.as_secs_f64(), gap.mul_f64(1.5), 1) };
        let report = load.run(LOOK, |_| match interrupted.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        })?;
        if failures(&report) > 0 || report.answered == 0 {
            let kind = report.failed.named().into_iter().find(|(_, count)| *count > 0).map(|(kind, _)| kind);
            let [.., refused, broken] = report.statuses;
            return Ok(Err(match kind {
                _ if refused > 0 => "a status of 4xx; name a path that it serves".to_owned(),
                _ if broken > 0 => "a status of 5xx".to_owned(),
                Some("refused") => "a connection that is refused".to_owned(),
                Some("reset") => "a connection that breaks".to_owned(),
                Some("protocol") => "what is not HTTP".to_owned(),
                _ => format!("no answer within {} s", self.timeout().as_secs_f64()),
            }));
        }
        Ok(Ok(Duration::from_secs_f64(report.uncorrected.max_ms / 1e3)))
    }

    fn load(&self, rate: f64, duration: Duration, seed: u64) -> Load {
        Load {
            target: self.target.clone(),
            rate,
            arrivals: self.arrivals,
            duration,
            seed,
            connections_max: self.connections_max,
            timeout: self.timeout(),
        }
    }

    fn timeout(&self) -> Duration {
        (self.limit * TIMEOUT_LIMITS).max(TIMEOUT_MIN)
    }
}

/// What is asked of a client of a node to be no success: it asked for nothing that should be refused.
fn failures(report: &Report) -> u64 {
    report.failed.total() + report.statuses[3]
}

/// How much may go wrong in a trial.
struct Budget {
    limit_us: u64,
    late: f64,
    failed: f64,
    /// Since when how many requests had become due, at the looks within the limit.
    due: VecDeque<(Duration, u64)>,
    /// Requests that were due longer ago than the limit.
    due_before: u64,
}

impl Budget {
    fn new(question: &Question, requests: f64) -> Budget {
        // As many as there may come to be, by chance.
        let requests = requests + 3.0 * requests.sqrt() + 1.0;
        Budget {
            limit_us: u64::try_from(question.limit.as_micros()).unwrap_or(u64::MAX),
            late: requests * (1.0 - question.percentile / 100.0),
            failed: requests * (1.0 - question.success),
            due: VecDeque::new(),
            due_before: 0,
        }
    }

    /// Requests that are open and were due longer ago than the limit, at the least.
    fn late_open(&mut self, tick: &Tick<'_>, limit: Duration) -> u64 {
        self.due.push_back((tick.elapsed, tick.requests));
        while let Some((at, requests)) = self.due.front().copied()
            && at + limit < tick.elapsed
        {
            self.due_before = requests;
            self.due.pop_front();
        }
        // Were all that became due since then open, the rest of those that are open would be older.
        tick.open.saturating_sub(tick.requests - self.due_before)
    }

    fn late(&self, corrected: &Histogram<u64>) -> u64 {
        corrected.len() - corrected.count_between(0, self.limit_us)
    }

    fn is_spent(&self, tick: &Tick<'_>, late_open: u64) -> bool {
        (self.late(tick.corrected) + late_open) as f64 > self.late + 1.0
            || tick.failed as f64 > self.failed + 1.0
    }
}

/// What this thread uses of a CPU.
struct Effort {
    begin: Instant,
    before: Option<Duration>,
}

impl Effort {
    fn begin() -> Effort {
        Effort { begin: Instant::now(), before: used() }
    }

    fn share(&self) -> Option<f64> {
        let used = used()?.checked_sub(self.before?)?;
        Some(used.as_secs_f64() / self.begin.elapsed().as_secs_f64().max(f64::MIN_POSITIVE))
    }
}

/// The time for which this thread ran, and that for which it waited for a CPU (`proc(5)`, `schedstat`).
fn used() -> Option<Duration> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let mut words = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    Some(Duration::from_nanos(words.next()?? + words.next()??))
}
