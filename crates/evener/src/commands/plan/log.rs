//! The log as a load: when jobs came, how much work they were, and what parts of it look like.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use evener_replay::Random;
use evener_sim::{Arrivals, Size, Trace, TraceFile};

use crate::trace;

/// Parts of the same length that a log is cut into.
const PARTS: u64 = 20;

/// Jobs that came when few others were under way: a tenth of all at the least, and this many.
const QUIET_JOBS: usize = 1000;

/// Standard errors by which jobs must take longer among many others before it is no chance.
const SURE: f64 = 3.0;

/// Lines of a list that are looked at to see how fine its times are.
const LOOKED_AT: usize = 1000;

/// What is added where a log does not say how long jobs took.
const HOW_TO_LOG: &str = "a plan needs to know how long each job took. Log it at the end of each line (nginx: add \
    $request_time to the log_format; Apache: add %D to the LogFormat), or take what Evener writes: its access log in \
    JSON, or `evener run --record`";

/// What is added where a line is damaged.
const DAMAGED: &str = "mend that line, or take it out if no job is lost with it: nothing is left out unseen";

/// Where the work of jobs is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum ServiceTimes {
    /// `quiet` if jobs took longer when others were under way, else `logged`
    Auto,
    /// The time that each job took is its work, as if none had ever waited
    Logged,
    /// Drawn from the jobs that came when few others were under way
    Quiet,
}

/// A log, and what was found out about it.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) jobs: usize,
    pub(super) seconds: f64,
    /// Jobs a second.
    pub(super) rate: f64,
    /// The same in the busiest of the parts.
    pub(super) busiest_rate: f64,
    /// Whether its times are whole seconds.
    pub(super) is_coarse: bool,
    pub(super) service: Service,
    /// What is simulated of it.
    trace: Arc<Trace>,
    size: Size,
}

/// What is known of the work of jobs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Service {
    /// Whether the work is drawn from quiet moments.
    pub(super) is_quiet: bool,
    pub(super) logged_mean_ms: f64,
    /// Of what is taken as work.
    pub(super) mean_ms: f64,
    pub(super) quiet: Moments,
    /// None if there was never more under way than in quiet moments.
    pub(super) busy: Option<Moments>,
}

/// Jobs that came while so many others were under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moments {
    pub(super) jobs: usize,
    /// Others under way: of quiet moments the most, of busy ones the fewest.
    pub(super) others: usize,
    pub(super) mean_ms: f64,
    /// Of the mean, squared.
    error_squared: f64,
}

/// Reads a log. Of a longer one, `jobs_max` jobs are simulated, evenly from all of its parts.
pub(super) fn read(
    path: &Path,
    pool: Option<String>,
    times: ServiceTimes,
    jobs_max: usize,
) -> Result<Log, String> {
    let wanted = TraceFile { pool, work: true, ..TraceFile::default() };
    let mut trace = trace::read(path, &wanted).map_err(|wrong| {
        // Were it readable but for the times, it is they that are missing.
        let without = TraceFile { work: false, ..wanted.clone() };
        match trace::read(path, &without) {
            Ok(_) => format!("{wrong}\n{HOW_TO_LOG}"),
            Err(_) if has_line(&wrong, path) => format!("{wrong}\n{DAMAGED}"),
            Err(_) => wrong,
        }
    })?;
    let is_coarse = has_whole_seconds(path);
    if is_coarse {
        scatter(&mut trace);
    }
    let name = path.display();
    let last = *trace.at_nanos.last().ok_or_else(|| format!("{name}: no job"))?;
    if last == 0 {
        return Err(format!("{name}: all its jobs came at the same moment: there is no rate to plan for"));
    }
    let seconds = last as f64 / 1e9;
    let jobs = trace.at_nanos.len();
    let busiest = parts(&trace).map(|part| jobs_in(&trace, &part).len()).max().unwrap_or(0);
    let (service, quiet_ms) = service(&trace, times);
    if jobs > jobs_max {
        let share = jobs_max as f64 / jobs as f64;
        let begins = parts(&trace)
            .map(|part| part.start..part.start + ((part.end - part.start) as f64 * share) as u64);
        trace = joined(&trace, begins);
    }
    let size = if service.is_quiet {
        trace.work_nanos = Vec::new();
        Size::Empirical { ms: quiet_ms }
    } else {
        Size::Fixed { mean: std::time::Duration::from_nanos((service.mean_ms * 1e6).max(1.0) as u64) }
    };
    Ok(Log {
        jobs,
        seconds,
        rate: jobs as f64 / seconds,
        busiest_rate: busiest as f64 * PARTS as f64 / seconds,
        is_coarse,
        service,
        trace: Arc::new(trace),
        size,
    })
}

impl Log {
    /// Jobs that a run has.
    pub(super) fn simulated_jobs(&self) -> usize {
        self.trace.at_nanos.len()
    }

    /// Its jobs, at a rate.
    pub(super) fn at_rate(&self, rate: f64) -> Arrivals {
        Arrivals::Trace(Arc::clone(&self.trace)).at_rate(rate)
    }

    /// A log as it might have been: as many parts, drawn from its own, at `load` times their rate.
    pub(super) fn redrawn(&self, seed: u64, load: f64) -> Arrivals {
        let own: Vec<Range<u64>> = parts(&self.trace).collect();
        let mut random = Random::new(seed);
        let drawn = (0..own.len()).map(|_| {
            let index = (random.uniform() * own.len() as f64) as usize;
            own[index.min(own.len() - 1)].clone()
        });
        let trace = Arrivals::Trace(Arc::new(joined(&self.trace, drawn)));
        let rate = trace.rate().unwrap_or(1.0);
        trace.at_rate(rate * load)
    }

    /// How much work jobs are, where the trace does not say.
    pub(super) fn size(&self) -> &Size {
        &self.size
    }

    /// How long a job takes that never waits on cores of such a speed: this percentile, in milliseconds.
    pub(super) fn alone_ms(&self, percentile: f64, speed: f64) -> f64 {
        let mut work: Vec<f64> = match &self.size {
            Size::Empirical { ms } => ms.clone(),
            _ => self.trace.work_nanos.iter().map(|nanos| *nanos as f64 / 1e6).collect(),
        };
        work.sort_by(f64::total_cmp);
        let place = (percentile / 100.0 * work.len() as f64).ceil() as usize;
        work.get(place.clamp(1, work.len()) - 1).copied().unwrap_or(0.0) / speed
    }
}

/// Whether an error names a line of the file.
fn has_line(wrong: &str, path: &Path) -> bool {
    let rest = wrong.strip_prefix(&format!("{}:", path.display()));
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Whether the times of a file are whole seconds: those of the common and combined formats always are, those of a list
/// if none of its first lines has a fraction.
fn has_whole_seconds(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    for _ in 0..LOOKED_AT {
        line.clear();
        if !file.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            break;
        }
        if line.starts_with(&evener_record::MAGIC) || line.starts_with(b"{") {
            return false;
        }
        if line.contains(&b'[') {
            return true;
        }
        let seconds = line.split(|byte| b",;\t".contains(byte)).next().unwrap_or_default();
        if seconds.contains(&b'.') {
            return false;
        }
    }
    true
}

/// Moves each job at random, within a second. Reading spreads the jobs of a second evenly, which no users do, and a cluster
/// would look better than it is.
fn scatter(trace: &mut Trace) {
    let mut random = Random::new(1);
    let mut order: Vec<(u64, usize)> = trace.at_nanos.iter().copied().zip(0..).collect();
    for (at, _) in &mut order {
        *at += (random.uniform() * 1e9) as u64;
    }
    order.sort_unstable();
    let begin = order.first().map_or(0, |(at, _)| *at);
    let work = order.iter().filter_map(|(_, job)| trace.work_nanos.get(*job).copied()).collect();
    let keys = order.iter().filter_map(|(_, job)| trace.keys.get(*job).copied()).collect();
    *trace = Trace { at_nanos: order.iter().map(|(at, _)| at - begin).collect(), work_nanos: work, keys };
}

fn parts(trace: &Trace) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = trace.at_nanos.last().map_or(1, |last| last + 1);
    let cut = move |part: u64| (u128::from(end) * u128::from(part) / u128::from(PARTS)) as u64;
    (0..PARTS).map(move |part| cut(part)..cut(part + 1))
}

fn jobs_in(trace: &Trace, time: &Range<u64>) -> Range<usize> {
    let first = |at: u64| trace.at_nanos.partition_point(|other| *other < at);
    first(time.start)..first(time.end)
}

/// Stretches of a trace, one right after the other.
fn joined(trace: &Trace, stretches: impl Iterator<Item = Range<u64>>) -> Trace {
    let (mut all, mut begin) = (Trace::default(), 0);
    for stretch in stretches {
        let jobs = jobs_in(trace, &stretch);
        all.at_nanos.extend(trace.at_nanos[jobs.clone()].iter().map(|at| at - stretch.start + begin));
        all.work_nanos.extend(trace.work_nanos.get(jobs.clone()).unwrap_or_default());
        all.keys.extend(trace.keys.get(jobs).unwrap_or_default());
        begin += stretch.end - stretch.start;
    }
    all
}

/// What jobs took when few others were under way and when many were, and which of it is their work.
fn service(trace: &Trace, times: ServiceTimes) -> (Service, Vec<f64>) {
    let others = others_under_way(trace);
    let mut sorted = others.clone();
    sorted.sort_unstable();
    let count = sorted.len();
    let few = (count / 10).max(QUIET_JOBS.min(count));
    let (most, fewest) = (sorted[few - 1], sorted[count - (count / 10).max(1)]);
    let ms = |wanted: &dyn Fn(usize) -> bool| -> Vec<f64> {
        let all = others.iter().zip(&trace.work_nanos).filter(|(others, _)| wanted(**others));
        all.map(|(_, nanos)| *nanos as f64 / 1e6).collect()
    };
    let quiet_ms = ms(&|others| others <= most);
    let quiet = Moments::of(&quiet_ms, most);
    let busy = (fewest > most).then(|| Moments::of(&ms(&|others| others >= fewest), fewest));
    let grows = busy.is_some_and(|busy| {
        let error = (busy.error_squared + quiet.error_squared).sqrt();
        busy.mean_ms > 1.05 * quiet.mean_ms && busy.mean_ms - quiet.mean_ms > SURE * error
    });
    let is_quiet = match times {
        ServiceTimes::Auto => grows,
        ServiceTimes::Logged => false,
        ServiceTimes::Quiet => true,
    };
    let logged_mean_ms = Moments::of(&ms(&|_| true), 0).mean_ms;
    let mean_ms = if is_quiet { quiet.mean_ms } else { logged_mean_ms };
    (Service { is_quiet, logged_mean_ms, mean_ms, quiet, busy }, quiet_ms)
}

impl Moments {
    fn of(ms: &[f64], others: usize) -> Moments {
        let count = ms.len() as f64;
        let mean_ms = ms.iter().sum::<f64>() / count;
        let squares: f64 = ms.iter().map(|ms| (ms - mean_ms) * (ms - mean_ms)).sum();
        Moments { jobs: ms.len(), others, mean_ms, error_squared: squares / (count - 1.0).max(1.0) / count }
    }
}

/// For each job, the jobs that were under way when it came. That does not depend on how long it takes itself, so that
/// choosing by it does not prefer short jobs.
fn others_under_way(trace: &Trace) -> Vec<usize> {
    let mut ends = BinaryHeap::new();
    let jobs = trace.at_nanos.iter().zip(&trace.work_nanos);
    jobs.map(|(at, work)| {
        while ends.peek().is_some_and(|Reverse(end)| end <= at) {
            ends.pop();
        }
        let others = ends.len();
        ends.push(Reverse(at.saturating_add(*work)));
        others
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Jobs at these seconds that take so many milliseconds.
    fn trace(jobs: &[(u64, u64)]) -> Trace {
        Trace {
            at_nanos: jobs.iter().map(|(at, _)| at * 1_000_000_000).collect(),
            work_nanos: jobs.iter().map(|(_, ms)| ms * 1_000_000).collect(),
            keys: Vec::new(),
        }
    }

    #[test]
    fn a_job_counts_for_others_until_it_ends() {
        let trace = trace(&[(0, 2500), (1, 500), (2, 100), (3, 100)]);
        assert_eq!(others_under_way(&trace), [0, 1, 1, 0]);
    }

    #[test]
    fn whole_seconds_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        for (text, expected) in [
            ("1.2.3.4 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 1 0.5\n", true),
            ("{\"time\":\"2026-10-10T13:55:36Z\"}\n", false),
            ("seconds,ms\n1,2.5\n2,2.5\n", true),
            ("seconds,ms\n1,2\n2.25,2\n", false),
        ] {
            let path = folder.path().join("log");
            std::fs::write(&path, text).unwrap();
            assert_eq!(has_whole_seconds(&path), expected, "{text}");
        }
    }

    #[test]
    fn stretches_stand_one_after_the_other() {
        let trace = trace(&[(0, 1), (1, 2), (2, 3), (3, 4)]);
        let s = 1_000_000_000;
        let joined = joined(&trace, [2 * s..4 * s, s..2 * s, 0..s].into_iter());
        assert_eq!(joined.at_nanos, [0, s, 2 * s, 3 * s]);
        assert_eq!(joined.work_nanos, [3, 4, 2, 1].map(|ms| ms * 1_000_000));
    }

    #[test]
    fn parts_cover_a_log_once() {
        let trace = trace(&(0..97).map(|at| (at, 1)).collect::<Vec<_>>());
        let jobs: usize = parts(&trace).map(|part| jobs_in(&trace, &part).len()).sum();
        assert_eq!(jobs, 97);
        assert_eq!(joined(&trace, parts(&trace)).at_nanos, trace.at_nanos);
    }

    #[test]
    fn waiting_is_told_from_work_by_who_else_was_there() {
        let mut random = Random::new(7);
        let (mut at, mut free, mut logged) = (0.0_f64, 0.0_f64, Trace::default());
        let mut unqueued = Trace::default();
        // One core, 60 % in use, jobs of 10 ms on average, in order.
        for _ in 0..50_000 {
            at += random.exponential() / 60.0;
            let work = random.exponential() * 0.010;
            free = free.max(at) + work;
            for (trace, took) in [(&mut logged, free - at), (&mut unqueued, work)] {
                trace.at_nanos.push((at * 1e9) as u64);
                trace.work_nanos.push((took * 1e9) as u64);
            }
        }
        let (found, _) = service(&logged, ServiceTimes::Auto);
        assert!(found.is_quiet && (found.mean_ms - 10.0).abs() < 0.5, "{found:?}");
        assert!(found.logged_mean_ms > 20.0, "{found:?}");
        let (found, _) = service(&unqueued, ServiceTimes::Auto);
        assert!(!found.is_quiet && (found.mean_ms - 10.0).abs() < 0.5, "{found:?}");
    }
}
