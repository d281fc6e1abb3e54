use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use slab::Slab;

use crate::alarm::Alarm;
use crate::connection::{Broken, Connection, Job, Pending, Scratch};
use crate::random::Random;
use crate::report::{Failures, Latencies, Report};
use crate::target::Target;

const ALARM: Token = Token(usize::MAX);

/// Times that the histograms can tell apart, at three significant digits: 1 µs to an hour.
const TIME_US_MAX: u64 = 3_600_000_000;

/// A plan: GET requests at a rate that does not depend on the answers.
#[derive(Clone, Debug)]
pub struct Load {
    /// Where they go.
    pub target: Target,
    /// Requests a second, above 0.
    pub rate: f64,
    /// The gaps between them.
    pub arrivals: Arrivals,
    /// For how long they become due. The run ends when the last one is answered or has failed.
    pub duration: Duration,
    /// Determines the gaps.
    pub seed: u64,
    /// Connections open at the most. A request that finds all of them busy waits for one, and
    /// its corrected response time with it.
    pub connections_max: usize,
    /// From the first byte sent; a request that takes longer has failed.
    pub timeout: Duration,
}

/// The gaps between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Exponential: as from many users who do not know of each other.
    Poisson,
    /// All the same.
    Even,
}

/// How a run is going.
#[derive(Debug)]
pub struct Tick<'a> {
    /// Since the start.
    pub elapsed: Duration,
    /// Requests that became due.
    pub requests: u64,
    /// Complete responses below 500.
    pub answered: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Requests that are due and not yet done.
    pub open: u64,
    /// Corrected response times since the start, in microseconds.
    pub corrected: &'a Histogram<u64>,
}

impl Load {
    /// Runs the plan in this thread, and tells `watch` every `interval` how it goes. `watch` must not
    /// block; on [`ControlFlow::Break`] the run ends at once, and its report with it.
    ///
    /// # Errors
    /// If the process lacks descriptors for even one connection, or epoll fails.
    pub fn run(
        &self,
        interval: Duration,
        watch: impl FnMut(&Tick<'_>) -> ControlFlow<()>,
    ) -> io::Result<Report> {
        self.run_measured(interval, watch).map(|(report, _)| report)
    }

    /// The same, with all corrected response times, in microseconds.
    ///
    /// # Errors
    /// As [`Load::run`].
    pub fn run_measured(
        &self,
        interval: Duration,
        watch: impl FnMut(&Tick<'_>) -> ControlFlow<()>,
    ) -> io::Result<(Report, Histogram<u64>)> {
        assert!(self.rate > 0.0 && self.connections_max > 0, "a load needs a rate and a connection");
        Run::new(self)?.run(interval, watch)
    }
}

struct Run<'a> {
    plan: &'a Load,
    poll: Poll,
    alarm: Alarm,
    connections: Slab<Connection>,
    connections_max: usize,
    /// Open and without a request, the one used last at the end.
    idle: Vec<usize>,
    /// Due, and waiting for a connection.
    backlog: VecDeque<Pending>,
    /// When requests under way have failed, the earliest first: number, connection, time.
    deadlines: VecDeque<(u64, usize, Instant)>,
    schedule: Schedule,
    scratch: Scratch,
    last_completion: Instant,
    totals: Totals,
}

/// When requests are due: on absolute points in time, so that lateness does not add up.
struct Schedule {
    start: Instant,
    random: Random,
    arrivals: Arrivals,
    rate: f64,
    duration_s: f64,
    next_s: f64,
    count: u64,
}

struct Totals {
    answered: u64,
    failed: Failures,
    statuses: [u64; 5],
    connections: u64,
    resent: u64,
    sent_in_time: u64,
    corrected: Histogram<u64>,
    uncorrected: Histogram<u64>,
    lag: Histogram<u64>,
}

impl Schedule {
    fn new(plan: &Load, start: Instant) -> Schedule {
        let mut schedule = Schedule {
            start,
            random: Random::new(plan.seed),
            arrivals: plan.arrivals,
            rate: plan.rate,
            duration_s: plan.duration.as_secs_f64(),
            next_s: 0.0,
            count: 0,
        };
        schedule.next_s = schedule.gap_s();
        schedule
    }

    /// When the next request is due; `None` after the last.
    fn due(&self) -> Option<Instant> {
        (self.next_s < self.duration_s).then(|| self.start + Duration::from_secs_f64(self.next_s))
    }

    fn take(&mut self, due: Instant) -> Pending {
        let number = self.count;
        self.count += 1;
        self.next_s = match self.arrivals {
            Arrivals::Poisson => self.next_s + self.gap_s(),
            // Not a sum of rounded gaps.
            Arrivals::Even => (self.count + 1) as f64 / self.rate,
        };
        Pending { number, due, resent: false }
    }

    fn gap_s(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::Poisson => self.random.exponential() / self.rate,
            Arrivals::Even => 1.0 / self.rate,
        }
    }
}

impl<'a> Run<'a> {
    fn new(plan: &'a Load) -> io::Result<Run<'a>> {
        let poll = Poll::new()?;
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        let start = Instant::now();
        Ok(Run {
            plan,
            poll,
            alarm,
            connections: Slab::new(),
            connections_max: plan.connections_max,
            idle: Vec::new(),
            backlog: VecDeque::new(),
            deadlines: VecDeque::new(),
            schedule: Schedule::new(plan, start),
            scratch: Scratch::new(),
            last_completion: start,
            totals: Totals::new(),
        })
    }

    fn run(
        mut self,
        interval: Duration,
        mut watch: impl FnMut(&Tick<'_>) -> ControlFlow<()>,
    ) -> io::Result<(Report, Histogram<u64>)> {
        let mut events = Events::with_capacity(1024);
        let mut tick = self.schedule.start + interval;
        loop {
            let now = Instant::now();
            while let Some(due) = self.schedule.due().filter(|due| *due <= now) {
                let pending = self.schedule.take(due);
                self.backlog.push_back(pending);
            }
            self.expire(now);
            self.dispatch(now)?;
            let open = self.open();
            if now >= tick {
                tick = now + interval;
                if watch(&self.tick(now, open)).is_break() {
                    return Ok(self.report(Some("it was stopped before its end".to_string())));
                }
            }
            if open == 0 && self.schedule.due().is_none() {
                return Ok(self.report(None));
            }
            let deadline = self.deadlines.front().map(|(_, _, at)| *at);
            let wake = [self.schedule.due(), deadline].into_iter().flatten().fold(tick, Instant::min);
            self.alarm.set(wake, Instant::now())?;
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                if event.token() != ALARM {
                    self.ready(event.token().0, event.is_writable());
                }
            }
        }
    }

    /// Requests that are due and not done.
    fn open(&self) -> u64 {
        (self.backlog.len() + self.connections.len() - self.idle.len()) as u64
    }

    fn tick(&self, now: Instant, open: u64) -> Tick<'_> {
        Tick {
            elapsed: now.duration_since(self.schedule.start),
            requests: self.schedule.count,
            answered: self.totals.answered,
            failed: self.totals.failed.total(),
            open,
            corrected: &self.totals.corrected,
        }
    }

    /// Sends what is due, as far as there are connections.
    fn dispatch(&mut self, now: Instant) -> io::Result<()> {
        while let Some(pending) = self.backlog.front().copied() {
            let key = match self.idle.pop() {
                Some(key) => key,
                None if self.connections.len() < self.connections_max => match self.connect() {
                    Ok(key) => key,
                    // Out of descriptors or ports: work with the connections there are.
                    Err(error) if self.connections.is_empty() => return Err(error),
                    Err(_) => {
                        self.connections_max = self.connections.len();
                        continue;
                    }
                },
                None => return Ok(()),
            };
            self.backlog.pop_front();
            if !pending.resent {
                let in_time = now.duration_since(self.schedule.start) <= self.plan.duration + LATE_TOLERATED;
                self.totals.sent_in_time += u64::from(in_time);
                record(&mut self.totals.lag, now.duration_since(pending.due));
            }
            self.deadlines.push_back((pending.number, key, now + self.plan.timeout));
            let target = &self.plan.target;
            let job = Job { pending, sent: now };
            if let Err(broken) = self.connections[key].send(job, |out| target.write(pending.number, out)) {
                self.fail(key, broken);
            }
        }
        Ok(())
    }

    fn connect(&mut self) -> io::Result<usize> {
        let mut stream = TcpStream::connect(self.plan.target.address)?;
        stream.set_nodelay(true)?;
        let entry = self.connections.vacant_entry();
        let key = entry.key();
        self.poll.registry().register(&mut stream, Token(key), Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Connection::new(stream));
        self.totals.connections += 1;
        Ok(key)
    }

    fn ready(&mut self, key: usize, writable: bool) {
        // Events of a connection that was closed in this turn.
        let Some(connection) = self.connections.get_mut(key) else { return };
        if writable && let Err(broken) = connection.flush() {
            return self.fail(key, broken);
        }
        match connection.receive(&mut self.scratch) {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let job = connection.job.expect("only a request is answered");
                connection.reset();
                if answer.keep_alive {
                    self.idle.push(key)
                } else {
                    self.close(key)
                }
                self.complete(job, answer.status);
            }
            Err(broken) => self.fail(key, broken),
        }
    }

    fn complete(&mut self, job: Job, status: u16) {
        let now = Instant::now();
        self.last_completion = now;
        let class = usize::from(status / 100).clamp(1, 5) - 1;
        self.totals.statuses[class] += 1;
        if status >= 500 {
            self.totals.failed.error += 1;
        } else {
            self.totals.answered += 1;
        }
        record(&mut self.totals.corrected, now.duration_since(job.pending.due));
        record(&mut self.totals.uncorrected, now.duration_since(job.sent));
    }

    fn fail(&mut self, key: usize, broken: Broken) {
        let connection = &self.connections[key];
        let used = connection.used;
        match connection.job {
            None => self.idle.retain(|idle| *idle != key),
            // The peer may close a kept connection at any time: that it met a request is nobody's failure.
            Some(Job { pending, .. })
                if used && !pending.resent && broken == Broken::Reset { begun: false } =>
            {
                self.totals.resent += 1;
                self.backlog.push_front(Pending { resent: true, ..pending });
            }
            Some(_) => {
                self.last_completion = Instant::now();
                let failed = &mut self.totals.failed;
                match broken {
                    Broken::Refused => failed.refused += 1,
                    Broken::Reset { .. } => failed.reset += 1,
                    Broken::Protocol => failed.protocol += 1,
                }
            }
        }
        self.close(key);
    }

    /// Ends requests whose time is over.
    fn expire(&mut self, now: Instant) {
        while let Some((number, key, at)) = self.deadlines.front().copied() {
            let job = self.connections.get(key).and_then(|connection| connection.job);
            // Done meanwhile, and the connection perhaps used again. A resent request has a later deadline.
            let current =
                job.filter(|job| job.pending.number == number && job.sent + self.plan.timeout == at);
            match current {
                Some(_) if at > now => return,
                Some(job) => {
                    self.last_completion = now;
                    self.totals.failed.timeout += 1;
                    record(&mut self.totals.corrected, now.duration_since(job.pending.due));
                    record(&mut self.totals.uncorrected, self.plan.timeout);
                    self.close(key);
                }
                None => {}
            }
            self.deadlines.pop_front();
        }
    }

    fn close(&mut self, key: usize) {
        // Closing the descriptor takes it out of epoll.
        drop(self.connections.remove(key));
    }

    fn report(self, stopped: Option<String>) -> (Report, Histogram<u64>) {
        let plan = self.plan;
        let totals = self.totals;
        let duration_s = self.last_completion.duration_since(self.schedule.start).as_secs_f64();
        let rate_sent = totals.sent_in_time as f64 / plan.duration.as_secs_f64();
        let lag = Latencies::of(&totals.lag);
        let uncorrected = Latencies::of(&totals.uncorrected);
        let late = lag.p50_ms.zip(uncorrected.p50_ms).is_some_and(|(lag, response)| lag > response);
        let due = self.schedule.count;
        let invalid = match stopped {
            Some(reason) => Some(reason),
            None if (totals.sent_in_time as f64) < due as f64 * 0.99 => {
                Some("fewer than 99 % of the requests could be sent in time".to_string())
            }
            None if late => {
                Some("requests waited for the generator longer than for their answers".to_string())
            }
            None => None,
        };
        let report = Report {
            requests: due,
            answered: totals.answered,
            failed: totals.failed,
            statuses: totals.statuses,
            duration_s,
            rate_asked: plan.rate,
            rate_sent,
            goodput: if duration_s > 0.0 { totals.answered as f64 / duration_s } else { 0.0 },
            bytes: self.scratch.bytes_read,
            connections: totals.connections,
            resent: totals.resent,
            corrected: Latencies::of(&totals.corrected),
            uncorrected,
            lag,
            invalid,
        };
        (report, totals.corrected)
    }
}

/// How much after the end of the plan the last requests may go out and still count as sent in time.
const LATE_TOLERATED: Duration = Duration::from_millis(50);

impl Totals {
    fn new() -> Totals {
        let histogram = || Histogram::new_with_bounds(1, TIME_US_MAX, 3).expect("the bounds are valid");
        Totals {
            answered: 0,
            failed: Failures::default(),
            statuses: [0; 5],
            connections: 0,
            resent: 0,
            sent_in_time: 0,
            corrected: histogram(),
            uncorrected: histogram(),
            lag: histogram(),
        }
    }
}

fn record(histogram: &mut Histogram<u64>, time: Duration) {
    histogram.saturating_record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX).max(1));
}
