//! What a scenario must be to be simulated, and what is allowed but probably not meant.

use std::time::Duration;

use evener_model::Weight;

use crate::scenario::{
    Arrivals, Failure, Fault, NodeGroup, Period, Scenario, Signals, Size, Steering, Trace, Transfers, When,
};

/// The longest time that may be said, over three years: sums of several of them fit 64 bits of nanoseconds.
const TIME_MAX: Duration = Duration::from_secs(100_000_000);
/// Nodes at the most.
const NODES_MAX: u64 = 10_000;
/// Dispatchers at the most.
const DISPATCHERS_MAX: u16 = 1_024;
/// Nodes times dispatchers at the most: each dispatcher keeps something for each node.
const VIEWS_MAX: u64 = 1_000_000;
/// Jobs in a run at the most: minutes of simulation.
const JOBS_MAX: f64 = 1e9;
/// Reports, looks at nodes and the like in a run at the most, over all nodes and dispatchers.
const SIGNALS_MAX: f64 = 5e9;
/// Jobs that may pile up; they take some gigabytes.
const BACKLOG_MAX: f64 = 2e7;
/// Jobs in a high and a low time together at the least.
const JOBS_A_CYCLE_MIN: f64 = 1e-6;
/// Clients of a closed system at the most.
const CLIENTS_MAX: u32 = 1_000_000;
/// How deep mixes may hold mixes.
const MIXES_MAX: u32 = 8;
/// Standard deviation over mean at the most: beyond it, no run is long enough to see the mean.
const CV_MAX: f64 = 100.0;

/// Something in a scenario that is wrong, or allowed but probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Whether the scenario can be simulated all the same.
    pub is_warning: bool,
    /// Path of the key, such as `node[0].speed`.
    pub key: String,
    /// What was expected, and what was found.
    pub message: String,
    /// What to do, if that is known.
    pub help: Option<String>,
}

impl Scenario {
    /// What is wrong with it: none of the findings but warnings means that it can be simulated, in bounded memory.
    pub fn check(&self) -> Vec<Finding> {
        let mut findings = Findings::default();
        self.check_time(&mut findings);
        self.check_nodes(&mut findings);
        check_arrivals(&self.arrivals, &mut findings);
        check_size(&self.size, "size", MIXES_MAX, &mut findings);
        self.check_dispatchers(&mut findings);
        check_signals(&self.signals, &mut findings);
        if let Some(steering) = self.steering {
            check_steering(steering, &mut findings);
            if matches!(self.signals.when, When::Never) {
                let help = "say `signals.when`, or leave it out";
                findings.warn("steering", "weights follow reports, and there are none", help);
            }
        }
        if let Some(transfer) = &self.transfer {
            check_transfer(transfer, &mut findings);
        }
        self.check_costs(&mut findings);
        // What follows divides by what has been checked.
        if findings.list.iter().all(|finding| finding.is_warning) {
            self.check_amount(&mut findings);
            self.check_backlog(&mut findings);
        }
        findings.list
    }

    /// Work that the nodes do in a second if none is idle, in seconds: the sum of speed times cores, of which a node
    /// with a lower `concurrency` uses fewer.
    pub fn speed(&self) -> f64 {
        self.nodes.iter().map(group_speed).sum()
    }

    /// Jobs a second that the nodes can do.
    pub fn capacity(&self) -> f64 {
        self.speed() * 1e9 / self.size.mean_nanos()
    }

    /// The share of the nodes' time that the jobs ask for; `None` if clients wait for answers.
    pub fn offered(&self) -> Option<f64> {
        if let Arrivals::Trace(trace) = &self.arrivals
            && !trace.work_nanos.is_empty()
        {
            let work: f64 = trace.work_nanos.iter().map(|nanos| *nanos as f64).sum();
            let last = *trace.at_nanos.last()?;
            return Some(work / last.max(1) as f64 / self.speed());
        }
        Some(self.arrivals.rate()? / self.capacity())
    }

    /// Jobs that are to be expected in a run, about.
    pub fn jobs_expected(&self) -> f64 {
        let seconds = self.duration.as_secs_f64();
        match &self.arrivals {
            Arrivals::Trace(trace) => {
                let end = self.duration.as_nanos();
                trace.at_nanos.partition_point(|at| u128::from(*at) < end) as f64
            }
            Arrivals::Closed { clients, think } => {
                let fastest = self.nodes.iter().map(|group| group.speed).fold(0.0, f64::max);
                let cycle = think.as_secs_f64() + self.size.mean_nanos() / 1e9 / fastest;
                seconds * (f64::from(*clients) / cycle).min(self.capacity())
            }
            _ => seconds * self.arrivals.rate().unwrap_or(0.0),
        }
    }

    fn check_time(&self, findings: &mut Findings) {
        findings.positive_time("duration", self.duration);
        findings.time("warm-up", self.warm_up);
        if !self.duration.is_zero() && self.warm_up >= self.duration {
            let message = "leaves nothing to measure: it is not shorter than `duration`";
            findings.error("warm-up", message, "make it a tenth of the duration");
        }
        findings.time("hop", self.hop);
        if let Some(timeout) = self.patience.timeout {
            findings.positive_time("patience.timeout", timeout);
        }
        if let Some(after) = self.patience.hedge_after {
            findings.positive_time("patience.hedge-after", after);
        }
    }

    fn check_nodes(&self, findings: &mut Findings) {
        let total: u64 = self.nodes.iter().map(|group| u64::from(group.count)).sum();
        if total == 0 {
            findings.error("node", "there is no node", "add a [[node]]");
        } else if total > NODES_MAX {
            findings.error("node", format!("expected {NODES_MAX} nodes at the most, found {total}"), None);
        } else if self.nodes.iter().all(|group| group.weight == 0 || group.count == 0) {
            findings.error("node", "every weight is 0: no job would be placed", "give one a weight above 0");
        }
        for (index, group) in self.nodes.iter().enumerate() {
            check_group(group, &format!("node[{index}]"), self.patience.timeout, findings);
        }
        let views = total * u64::from(self.dispatchers.count);
        if total <= NODES_MAX && views > VIEWS_MAX {
            let message = format!("expected nodes × dispatchers of {VIEWS_MAX} at the most, found {views}");
            findings.error("dispatchers.count", message, None);
        }
    }

    fn check_dispatchers(&self, findings: &mut Findings) {
        let dispatchers = &self.dispatchers;
        if dispatchers.count == 0 || dispatchers.count > DISPATCHERS_MAX {
            let message = format!("expected 1 to {DISPATCHERS_MAX}, found {}", dispatchers.count);
            findings.error("dispatchers.count", message, None);
        }
        findings.time("dispatchers.queue-timeout", dispatchers.queue_timeout);
        if let Some(every) = dispatchers.check_every {
            findings.positive_time("dispatchers.check-every", every);
        }
    }

    fn check_costs(&self, findings: &mut Findings) {
        findings.time("costs.pick", self.costs.pick);
        findings.time("costs.transfer", self.costs.transfer);
        findings.time("costs.report", self.costs.report);
    }

    /// Whether a run comes to an end in a time that somebody waits for.
    fn check_amount(&self, findings: &mut Findings) {
        let jobs = self.jobs_expected();
        if jobs > JOBS_MAX {
            let message = format!("a run would have {} jobs; {JOBS_MAX:e} is the limit", roughly(jobs));
            findings.error("duration", message, "lower the rate or the duration");
        }
        let attempts = jobs * (2.0 + f64::from(self.patience.retries));
        if attempts * self.costs.pick.as_secs_f64() > 10.0 * TIME_MAX.as_secs_f64() {
            let message =
                format!("picks would take {:?} each, and there are {}", self.costs.pick, roughly(attempts));
            findings.error("costs.pick", message, "a pick takes microseconds");
        }
        // A run goes on for a while after the last job came, see `World::run`.
        let seconds = 3.0 * self.duration.as_secs_f64() + 60.0;
        let nodes: f64 = self.nodes.iter().map(|group| f64::from(group.count)).sum();
        let dispatchers = f64::from(self.dispatchers.count);
        let every = |period: Duration| nodes * seconds / period.as_secs_f64();
        let mut amounts = vec![("signals.probes", jobs * f64::from(self.signals.probes))];
        match self.signals.when {
            When::Periodic { phase } | When::Continuous { phase } => {
                let shortest = phase.fixed().unwrap_or(evener_feedback::phase::Settings::default().shortest);
                amounts.push(("signals.when.phase", every(shortest) * dispatchers));
            }
            // Each job changes a node when it comes and when it goes.
            When::Exact => amounts.push(("signals.when", 2.0 * jobs * dispatchers)),
            When::Never | When::OnAccess => {}
        }
        if let Some(period) = self.dispatchers.check_every {
            amounts.push(("dispatchers.check-every", every(period)));
        }
        if let Some(transfer) = &self.transfer {
            amounts.push(("transfer.information", every(transfer.information) * nodes));
            amounts.push(("transfer.activation", every(transfer.activation)));
        }
        if let Arrivals::OnOff { on, off, .. } = self.arrivals {
            let turns = self.duration.as_secs_f64() / (on + off).as_secs_f64();
            amounts.push(("arrivals.on", 2.0 * turns));
        }
        if let Arrivals::Closed { clients, think } = self.arrivals {
            // Who is refused at once asks again after a millisecond at the earliest.
            let refused = self.nodes.iter().any(|group| {
                group.queue_max.is_some() || group.jobs_max.is_some() || !group.faults.is_empty()
            });
            let wait = if refused { think.as_secs_f64().max(0.001) } else { f64::INFINITY };
            amounts.push(("arrivals.clients", f64::from(clients) * self.duration.as_secs_f64() / wait));
        }
        for (key, amount) in amounts {
            if amount > SIGNALS_MAX {
                let message = format!(
                    "a run would have {} of them, over all nodes and dispatchers; {SIGNALS_MAX:e} is the limit",
                    roughly(amount)
                );
                findings.error(key, message, "do it less often, or shorten the duration");
            }
        }
    }

    /// Whether jobs pile up, for good or while nodes are out of order.
    fn check_backlog(&self, findings: &mut Findings) {
        let Some(offered) = self.offered() else { return };
        if self.is_limited() {
            return;
        }
        let rate = self.arrivals.rate().unwrap_or(0.0);
        let backlog = self.backlog_max(rate);
        if backlog > BACKLOG_MAX {
            let message = format!("up to {} jobs would wait, and nothing limits them", roughly(backlog));
            findings.error("arrivals", message, LIMIT_HELP);
        } else if offered >= 1.0 {
            let message = format!(
                "{rate} jobs a second ask for {:.0} % of what the nodes can do ({} jobs a second): the longer the \
                 run, the longer jobs wait",
                offered * 100.0,
                short(self.capacity())
            );
            findings.warn("arrivals", message, LIMIT_HELP);
        }
    }

    /// Whether something keeps jobs from waiting for ever.
    fn is_limited(&self) -> bool {
        self.patience.timeout.is_some()
            || self.nodes.iter().all(|group| group.queue_max.is_some() || group.jobs_max.is_some())
    }

    /// The most jobs that wait, if all that comes is spread over all nodes evenly by their speed.
    fn backlog_max(&self, rate: f64) -> f64 {
        let mut times: Vec<f64> = self
            .nodes
            .iter()
            .flat_map(|group| &group.faults)
            .flat_map(|fault| std::iter::once(fault.from).chain(fault.to))
            .chain([Duration::ZERO, self.duration])
            .filter(|at| *at <= self.duration)
            .map(|at| at.as_secs_f64())
            .collect();
        times.sort_by(f64::total_cmp);
        let (mut backlog, mut most) = (0.0_f64, 0.0_f64);
        for pair in times.windows(2) {
            let speed: f64 = self.nodes.iter().map(|group| group_speed(group) * factor(group, pair[0])).sum();
            let capacity = speed * 1e9 / self.size.mean_nanos();
            backlog = (backlog + (rate - capacity) * (pair[1] - pair[0])).max(0.0);
            most = most.max(backlog);
        }
        most
    }
}

const LIMIT_HELP: &str = "lower the rate, add nodes, or limit what waits: `queue-max` or `jobs-max` of each node, or `patience.timeout`";

fn group_speed(group: &NodeGroup) -> f64 {
    let cores = match group.concurrency {
        Some(most) if most > 0 => most.min(group.cores),
        _ => group.cores,
    };
    f64::from(group.count) * f64::from(cores) * group.speed
}

/// What faults leave of a node's speed.
fn factor(group: &NodeGroup, at_seconds: f64) -> f64 {
    let on = |fault: &&Fault| {
        fault.from.as_secs_f64() <= at_seconds && fault.to.is_none_or(|to| at_seconds < to.as_secs_f64())
    };
    let left = |fault: &Fault| match fault.what {
        Failure::Dead | Failure::Stalled => 0.0,
        Failure::Slow(factor) => factor,
        Failure::Failing(_) | Failure::Silent | Failure::Says(_) | Failure::Ahead(_) => 1.0,
    };
    group.faults.iter().filter(on).map(left).product()
}

fn check_group(group: &NodeGroup, path: &str, timeout: Option<Duration>, findings: &mut Findings) {
    let key = |name: &str| format!("{path}.{name}");
    findings.at_least_one(&key("count"), group.count);
    findings.at_least_one(&key("cores"), group.cores);
    findings.number(&key("speed"), group.speed, Above(0.0), 1e6);
    if Weight::new(u64::from(group.weight)).is_err() {
        findings.error(key("weight"), format!("expected 0 to 256, found {}", group.weight), None);
    }
    if let Some(most) = group.jobs_max {
        findings.at_least_one(&key("jobs-max"), most);
    }
    for (index, fault) in group.faults.iter().enumerate() {
        check_fault(fault, &format!("{path}.fault[{index}]"), timeout, findings);
    }
}

fn check_fault(fault: &Fault, path: &str, timeout: Option<Duration>, findings: &mut Findings) {
    findings.time(&format!("{path}.from"), fault.from);
    if let Some(to) = fault.to {
        findings.time(&format!("{path}.to"), to);
        if to <= fault.from {
            let message = format!("expected a time after `from` ({:?}), found {to:?}", fault.from);
            findings.error(format!("{path}.to"), message, "leave it out for good");
        }
    }
    match fault.what {
        Failure::Slow(factor) => findings.number(&format!("{path}.what.slow"), factor, Above(0.0), 1e6),
        Failure::Failing(share) => findings.number(&format!("{path}.what.failing"), share, From(0.0), 1.0),
        Failure::Stalled if fault.to.is_none() && timeout.is_none() => findings.warn(
            format!("{path}.what"),
            "a node that is stalled for good never answers the jobs that it has",
            "set `patience.timeout`",
        ),
        Failure::Ahead(seconds) => {
            let path = format!("{path}.what.ahead");
            findings.number(&path, seconds, From(-TIME_MAX.as_secs_f64()), TIME_MAX.as_secs_f64());
        }
        Failure::Stalled | Failure::Dead | Failure::Silent | Failure::Says(_) => {}
    }
}

fn check_arrivals(arrivals: &Arrivals, findings: &mut Findings) {
    match arrivals {
        Arrivals::Poisson { rate } | Arrivals::Even { rate } => findings.rate(*rate),
        Arrivals::Bursts { rate, burst } => {
            findings.rate(*rate);
            findings.at_least_one("arrivals.burst", *burst);
        }
        Arrivals::OnOff { rate, peak, on, off } => {
            findings.rate(*rate);
            findings.positive_time("arrivals.on", *on);
            findings.positive_time("arrivals.off", *off);
            let most = (on.as_secs_f64() + off.as_secs_f64()) / on.as_secs_f64();
            if most.is_finite() && !(*peak > 1.0 && *peak <= most) {
                let message = format!(
                    "expected a number above 1 and at most {} (on + off over on), found {peak}",
                    short(most)
                );
                findings.error("arrivals.peak", message, None);
            }
            // The next job is sought from state to state.
            let jobs_a_cycle = rate * (on.as_secs_f64() + off.as_secs_f64());
            if *rate > 0.0 && jobs_a_cycle < JOBS_A_CYCLE_MIN {
                let message = format!(
                    "expected a job in a million turns of `on` and `off` at least, found {}",
                    roughly(jobs_a_cycle)
                );
                findings.error("arrivals.rate", message, "make `on` and `off` longer");
            }
        }
        Arrivals::Closed { clients, think } => {
            if *clients == 0 || *clients > CLIENTS_MAX {
                let message = format!("expected 1 to {CLIENTS_MAX}, found {clients}");
                findings.error("arrivals.clients", message, None);
            }
            findings.time("arrivals.think", *think);
        }
        Arrivals::Trace(trace) => check_trace(trace, findings),
    }
}

fn check_trace(trace: &Trace, findings: &mut Findings) {
    let jobs = trace.at_nanos.len();
    if jobs == 0 {
        findings.error("arrivals", "the trace has no job", None);
    }
    if !trace.at_nanos.is_sorted() {
        findings.error("arrivals", "the jobs of the trace are not in the order of their time", "sort them");
    }
    for (what, len) in [("work", trace.work_nanos.len()), ("keys", trace.keys.len())] {
        if len != 0 && len != jobs {
            findings.error("arrivals", format!("the trace has {jobs} jobs, but {what} of {len}"), None);
        }
    }
}

fn check_size(size: &Size, path: &str, mixes_max: u32, findings: &mut Findings) {
    let key = |name: &str| format!("{path}.{name}");
    match size {
        Size::Fixed { mean } | Size::Exponential { mean } => findings.positive_time(&key("mean"), *mean),
        Size::Lognormal { mean, cv } => {
            findings.positive_time(&key("mean"), *mean);
            findings.number(&key("cv"), *cv, From(0.0), CV_MAX);
        }
        Size::Pareto { min, max, shape } => {
            findings.positive_time(&key("min"), *min);
            findings.positive_time(&key("max"), *max);
            if max <= min {
                findings.error(
                    key("max"),
                    format!("expected a time above `min` ({min:?}), found {max:?}"),
                    None,
                );
            }
            findings.number(&key("shape"), *shape, Above(0.0), 100.0);
        }
        Size::Mix { of } if of.is_empty() => {
            findings.error(key("of"), "expected one kind of job at least, found none", None);
        }
        Size::Mix { .. } if mixes_max == 0 => {
            findings.error(path, format!("expected mixes in mixes not deeper than {MIXES_MAX}"), None);
        }
        Size::Mix { of } => {
            for (index, part) in of.iter().enumerate() {
                findings.number(&key(&format!("of[{index}].share")), part.share, Above(0.0), 1e9);
                check_size(&part.size, &key(&format!("of[{index}].size")), mixes_max - 1, findings);
            }
        }
        Size::Empirical { ms } if ms.is_empty() => {
            findings.error(key("ms"), "expected one time at least, found none", None);
        }
        Size::Empirical { ms } => {
            for (index, ms) in ms.iter().enumerate() {
                findings.number(&key(&format!("ms[{index}]")), *ms, From(0.0), TIME_MAX.as_secs_f64() * 1e3);
            }
            if ms.iter().all(|ms| *ms == 0.0) {
                findings.error(key("ms"), "expected one time above 0 at least, found none", None);
            }
        }
    }
}

fn check_signals(signals: &Signals, findings: &mut Findings) {
    findings.time("signals.delay", signals.delay);
    findings.time("signals.spread", signals.spread);
    findings.number("signals.loss", signals.loss, From(0.0), 1.0);
    findings.number("signals.repeats", signals.repeats, From(0.0), 1.0);
    if let When::Periodic { phase: Period::Every(phase) } | When::Continuous { phase: Period::Every(phase) } =
        signals.when
    {
        findings.positive_time("signals.when.phase", phase);
    }
}

fn check_steering(steering: Steering, findings: &mut Findings) {
    match steering {
        Steering::Smoothing { alpha, dead_band } => {
            findings.number("steering.alpha", alpha, From(0.0), 1.0);
            findings.number("steering.dead-band", dead_band, From(0.0), 1.0);
        }
        Steering::Integral { gain_per_s, dead_band } => {
            findings.number("steering.gain-per-s", gain_per_s, From(0.0), 1.0);
            findings.number("steering.dead-band", dead_band.unwrap_or(0.0), From(0.0), 1.0);
        }
    }
}

fn check_transfer(transfer: &Transfers, findings: &mut Findings) {
    findings.positive_time("transfer.information", transfer.information);
    findings.positive_time("transfer.activation", transfer.activation);
    findings.time("transfer.delay", transfer.delay);
}

#[derive(Default)]
struct Findings {
    list: Vec<Finding>,
}

/// The lower end of what is allowed.
#[derive(Clone, Copy)]
enum Low {
    Above(f64),
    From(f64),
}
use Low::{Above, From};

impl Findings {
    fn error<'h>(
        &mut self,
        key: impl Into<String>,
        message: impl Into<String>,
        help: impl Into<Option<&'h str>>,
    ) {
        self.add(false, key.into(), message.into(), help.into());
    }

    fn warn(&mut self, key: impl Into<String>, message: impl Into<String>, help: &str) {
        self.add(true, key.into(), message.into(), Some(help));
    }

    fn add(&mut self, is_warning: bool, key: String, message: String, help: Option<&str>) {
        self.list.push(Finding { is_warning, key, message, help: help.map(Into::into) });
    }

    fn number(&mut self, key: &str, value: f64, low: Low, high: f64) {
        let (good, expected) = match low {
            Above(low) => (value > low, format!("a number above {low} and at most {high}")),
            From(low) => (value >= low, format!("a number from {low} to {high}")),
        };
        if !good || value > high {
            self.error(key, format!("expected {expected}, found {value}"), None);
        }
    }

    fn rate(&mut self, rate: f64) {
        if !(rate > 0.0 && rate <= 1e9) {
            let message = format!("expected jobs a second, above 0 and at most 1000000000, found {rate}");
            self.error("arrivals.rate", message, None);
        }
    }

    fn at_least_one(&mut self, key: &str, count: u32) {
        if count == 0 {
            self.error(key, "expected an integer of 1 or more, found 0", None);
        }
    }

    fn positive_time(&mut self, key: &str, time: Duration) {
        if time.is_zero() {
            self.error(key, "expected a duration above 0", None);
        }
        self.time(key, time);
    }

    fn time(&mut self, key: &str, time: Duration) {
        if time > TIME_MAX {
            let days = TIME_MAX.as_secs() / 86_400;
            self.error(key, format!("expected {days} days at the most, found {time:?}"), None);
        }
    }
}

/// A large number with two digits.
fn roughly(number: f64) -> String {
    format!("{number:.1e}")
}

/// A number with as many decimals as matter.
fn short(number: f64) -> String {
    let decimals = if number >= 100.0 { 0 } else { 2 };
    let text = format!("{number:.decimals$}");
    if decimals > 0 { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}
