//! Drives nodes, each alone, to what they carry.

use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use evener_replay::{Arrivals, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::document::{Drive, Node, Range, Trial, Trusted, Verdict};
use super::search::{Next, Phase, Plan, Search};
use super::trial::{Question, Tried};
use crate::output;

/// What is to be found out.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) limit: Duration,
    pub(super) percentile: f64,
    pub(super) success: f64,
    pub(super) arrivals: Arrivals,
    /// The rate to begin with, if it is given.
    pub(super) start: Option<f64>,
    pub(super) rate_max: f64,
    /// The least time of a trial, if it is given.
    pub(super) trial: Option<Duration>,
    pub(super) quick: bool,
}

/// Requests a second below which a node is not driven.
pub(super) const RATE_MIN: f64 = 1.0;

const TRIAL: Duration = Duration::from_secs(5);
const QUICK_TRIAL: Duration = Duration::from_secs(2);
const TRIAL_MAX: Duration = Duration::from_secs(60);
/// A node that is asked for 5 % too much is late by as much after this many limits of time.
const TRIAL_LIMITS: u32 = 25;
/// Requests above the percentile in a trial, from which it says something.
const ABOVE_MIN: f64 = 10.0;
/// How much shorter trials are that only look for the order of magnitude.
const GROWTH_SHARE: f64 = 1.0 / 3.0;

/// Requests that are asked one by one before anything else: they show how fast the node is, and that it answers.
const FIRST_REQUESTS: usize = 10;
/// What a node does that answers one request after the other is carried for certain; half of it, if others use it too.
const START_SHARE: f64 = 0.5;

/// Answers in a row within the limit, after which a node has got over what it was asked.
const SETTLED: usize = 3;
const SETTLE_TIME_MAX: Duration = Duration::from_secs(30);

const INTERRUPTED: &str = "it was interrupted";

/// Trials anew where the generator was short, before it is given up.
const SHORT_MAX: usize = 2;

/// Whether a node may be driven without a further word: it is this machine, or one of a network of one's own.
pub(super) fn is_near(target: &Target) -> bool {
    match target.address.ip().to_canonical() {
        IpAddr::V4(ip) => ip.is_loopback() || ip.is_private() || ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
    }
}

/// Drives one node. Says as a node how far it came, whatever happens.
///
/// # Errors
/// If there are no descriptors, or no epoll.
pub(super) fn run(wish: &Wish, name: &str, target: &Target, interrupted: &AtomicBool) -> io::Result<Node> {
    let question = Question {
        target: target.clone(),
        limit: wish.limit,
        percentile: wish.percentile,
        success: wish.success,
        arrivals: wish.arrivals,
        connections_max: connections_max()?,
    };
    let mut driver = Driver { wish, question, name, interrupted, trials: Vec::new(), short: 0 };
    let (verdict, rate, reason) = driver.drive()?;
    let drive = Drive {
        url: format!("http://{}{}", target.host, target.path),
        percentile: wish.percentile,
        limit_ms: wish.limit.as_secs_f64() * 1e3,
        success: wish.success,
        verdict,
        reason,
        rate,
        trials: driver.trials,
    };
    Ok(Node {
        name: name.to_owned(),
        address: Some(target.address.to_string()),
        weight: None,
        trusted: Trusted::Drive,
        why: "it was measured with the node's own jobs; what probes find says nothing of those".to_owned(),
        probes: None,
        warnings: warnings(&drive, target),
        drive: Some(drive),
    })
}

struct Driver<'a> {
    wish: &'a Wish,
    question: Question,
    name: &'a str,
    interrupted: &'a AtomicBool,
    trials: Vec<Trial>,
    /// Trials for which the generator was too short, one after the other.
    short: usize,
}

type Outcome = (Verdict, Option<Range>, Option<String>);

impl Driver<'_> {
    fn drive(&mut self) -> io::Result<Outcome> {
        let alone = match self.first_answers()? {
            Ok(time) => time,
            Err(reason) => return Ok((Verdict::Stopped, None, Some(reason))),
        };
        if alone > self.wish.limit {
            let took = output::ms(Some(alone.as_secs_f64() * 1e3));
            return Ok((Verdict::Below, None, Some(format!("it takes {took} for a request that is alone"))));
        }
        let start = self.wish.start.unwrap_or(START_SHARE / alone.as_secs_f64().max(1e-6));
        let mut search = Search::new(Plan {
            rate_start: start,
            rate_min: RATE_MIN,
            rate_max: self.wish.rate_max,
            step: if self.wish.quick { 1.1 } else { 1.05 },
            confirmations: if self.wish.quick { 3 } else { 5 },
        });
        let mut next = search.first();
        // Caches fill and pools of threads grow before anything counts.
        if let Next::Try(_, rate) = next {
            let tried = self.trial("warm-up", rate, self.time(Phase::Growth, rate))?;
            if !tried.trial.carried && !self.settles()? {
                return Ok(self.stopped(&search));
            }
        }
        loop {
            let (phase, rate) = match next {
                Next::Done(verdict, range) => return Ok((verdict, range, None)),
                Next::Try(phase, rate) => (phase, rate),
            };
            let tried = self.trial(phase.name(), rate, self.time(phase, rate))?;
            if tried.interrupted {
                return Ok(self.stopped(&search));
            }
            if tried.is_generator_short {
                self.short += 1;
                if self.short > SHORT_MAX {
                    let reason =
                        Some("the generator of the load is at its own limit, not the node".to_owned());
                    let carried = search.carried().map(|rate| Range::of(&[rate]));
                    let verdict = if carried.is_some() { Verdict::AtLeast } else { Verdict::Stopped };
                    return Ok((verdict, carried, reason));
                }
            } else {
                self.short = 0;
                next = search.tried(tried.trial.carried);
            }
            if !tried.trial.carried && matches!(next, Next::Try(..)) && !self.settles()? {
                return Ok(self.stopped(&search));
            }
        }
    }

    /// Given up, by the user or since the node does not answer any more.
    fn stopped(&self, search: &Search) -> Outcome {
        let mut reason = match self.interrupted.load(Ordering::Relaxed) {
            true => INTERRUPTED.to_owned(),
            false => format!(
                "the node did not get over a rate that was too high within {} s",
                SETTLE_TIME_MAX.as_secs()
            ),
        };
        if let Some(rate) = search.carried() {
            reason += &format!("; up to then it had carried {rate:.1}/s");
        }
        (Verdict::Stopped, None, Some(reason))
    }

    /// The median of some requests one by one.
    fn first_answers(&mut self) -> io::Result<Result<Duration, String>> {
        let mut times = Vec::new();
        while times.len() < FIRST_REQUESTS {
            self.show("first answers", None);
            match self.question.ask_once(self.interrupted)? {
                _ if self.interrupted.load(Ordering::Relaxed) => {
                    return Ok(Err(INTERRUPTED.to_owned()));
                }
                Ok(time) => times.push(time),
                Err(instead) => return Ok(Err(format!("instead of an answer there was {instead}"))),
            }
        }
        times.sort();
        Ok(Ok(times[FIRST_REQUESTS / 2]))
    }

    fn trial(&mut self, phase: &str, rate: f64, time: Duration) -> io::Result<Tried> {
        let seed = self.trials.len() as u64 + 1;
        let shown = io::stderr().is_terminal();
        let name = self.name;
        let mut tried = self.question.ask(rate, time, seed, self.interrupted, |tick| {
            if shown && tick.elapsed.subsec_millis() % 100 < 20 {
                output::rewrite_line(&format!(
                    "{name}: {phase}, {rate:.0}/s for {:.1} s of {:.1} s, {} open, {} failed",
                    tick.elapsed.as_secs_f64(),
                    time.as_secs_f64(),
                    tick.open,
                    tick.failed
                ));
            }
        })?;
        phase.clone_into(&mut tried.trial.phase);
        self.trials.push(tried.trial.clone());
        Ok(tried)
    }

    /// Long enough for the percentile, and for a rate that is a little too high to show.
    fn time(&self, phase: Phase, rate: f64) -> Duration {
        let least = self.wish.trial.unwrap_or(if self.wish.quick { QUICK_TRIAL } else { TRIAL });
        let samples = ABOVE_MIN / (1.0 - self.wish.percentile / 100.0);
        let time = least.max(self.wish.limit * TRIAL_LIMITS).max(Duration::from_secs_f64(samples / rate));
        let share = if phase == Phase::Growth { GROWTH_SHARE } else { 1.0 };
        time.mul_f64(share).min(TRIAL_MAX.max(least))
    }

    /// Waits until the node answers as before.
    fn settles(&self) -> io::Result<bool> {
        let begin = Instant::now();
        let mut in_a_row = 0;
        while begin.elapsed() < SETTLE_TIME_MAX && !self.interrupted.load(Ordering::Relaxed) {
            self.show("waiting until it has got over that", Some(begin));
            let answer = self.question.ask_once(self.interrupted)?;
            in_a_row = if answer.is_ok_and(|time| time <= self.question.limit) { in_a_row + 1 } else { 0 };
            if in_a_row == SETTLED {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn show(&self, what: &str, since: Option<Instant>) {
        if io::stderr().is_terminal() {
            let since =
                since.map_or(String::new(), |since| format!(", {:.0} s", since.elapsed().as_secs_f64()));
            output::rewrite_line(&format!("{}: {what}{since}", self.name));
        }
    }
}

/// Spread from which a rate is not to be relied on.
const SPREAD_MAX: f64 = 0.2;

fn warnings(drive: &Drive, target: &Target) -> Vec<String> {
    let mut warnings = Vec::new();
    if target.address.ip().to_canonical().is_loopback() {
        warnings.push(
            "the generator of the load ran on the node itself and used CPU time of it: drive it from another machine"
                .to_owned(),
        );
    }
    if drive.verdict == Verdict::AtLeast {
        warnings
            .push("it carries that much at the least: what it carries at the most was not found".to_owned());
    }
    if drive.rate.is_some_and(|rate| rate.spread() > SPREAD_MAX) {
        warnings.push(
            "what it carries was not the same each time: drive it again when less is going on".to_owned(),
        );
    }
    warnings
}

/// Connections at a time: as many as there are descriptors for.
fn connections_max() -> io::Result<usize> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?;
    let files = limit.maximum.unwrap_or(u64::MAX).saturating_sub(100);
    Ok(usize::try_from(files.clamp(16, 20_000)).expect("it fits"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_driven_without_a_word() {
        let near = |url: &str| is_near(&url.parse().unwrap());
        for url in [
            "http://127.0.0.1:80/",
            "http://[::1]/",
            "http://10.1.2.3/",
            "http://192.168.0.9:8080/x",
            "http://[fd00::1]/",
        ] {
            assert!(near(url), "{url}");
        }
        for url in ["http://192.0.2.1/", "http://8.8.8.8/", "http://172.32.0.1/", "http://[2001:db8::1]/"] {
            assert!(!near(url), "{url}");
        }
        assert!(near("http://[::ffff:10.0.0.1]/") && !near("http://[::ffff:8.8.8.8]/"));
    }
}
