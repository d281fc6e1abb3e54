//! What nodes say of themselves, when, and how dispatchers hear it.

use std::time::Duration;

use evener_feedback::phase::{self, Phase};
use evener_model::{Event as Told, Health, NodeId, Report, Time};

use crate::node::Mode;
use crate::queue::Event;
use crate::scenario::{Lie, Period, Scenario, When};
use crate::world::{World, nanos};

/// Of a node's time its reports may take one part in so many, where the period is chosen while it runs.
const BURDEN: u32 = 40;

/// A report on its way.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) to: Option<u32>,
    pub(crate) node: u32,
    pub(crate) report: Report,
}

/// When nodes report next.
#[derive(Debug)]
pub(crate) struct Rounds {
    /// What the first dispatcher makes of reports, where it chooses how often they come.
    phase: Option<Phase>,
    /// The period as nodes know it.
    period_nanos: u64,
    /// When each node is to report, or all of them; events at other times are over.
    due: Vec<u64>,
    all_due: u64,
    /// What nodes with a [`Lie::Frozen`] say.
    last: Vec<Option<Report>>,
}

impl Rounds {
    pub(crate) fn new(scenario: &Scenario, nodes: usize) -> Rounds {
        let (When::Periodic { phase: period } | When::Continuous { phase: period }) = scenario.signals.when
        else {
            let period = Duration::ZERO.into();
            return Rounds::every(period, &phase::Settings::default(), nodes);
        };
        let settings = phase::Settings::default();
        let shortest = settings.shortest.max(scenario.costs.report * BURDEN);
        Rounds::every(period, &phase::Settings { shortest, ..settings }, nodes)
    }

    fn every(period: Period, settings: &phase::Settings, nodes: usize) -> Rounds {
        let (phase, period_nanos) = match period {
            Period::Every(period) => (None, nanos(period)),
            Period::Auto => {
                let phase = Phase::new(*settings);
                let period = phase.period(Time::ZERO);
                (Some(phase), nanos(period))
            }
        };
        Rounds { phase, period_nanos, due: vec![0; nodes], all_due: 0, last: vec![None; nodes] }
    }
}

impl World<'_> {
    /// The time between two reports of a node, in nanoseconds.
    pub(crate) fn period(&self) -> u64 {
        self.rounds.period_nanos
    }

    pub(crate) fn report_at(&mut self, node: u32, at: u64) {
        self.rounds.due[node as usize] = at;
        self.queue.push(at, Event::Report { node });
    }

    pub(crate) fn report_all_at(&mut self, at: u64) {
        self.rounds.all_due = at;
        self.queue.push(at, Event::ReportAll);
    }

    /// A node's time to report has come, unless it is another by now.
    pub(crate) fn report_in_time(&mut self, node: u32) {
        if self.rounds.due[node as usize] != self.now {
            return;
        }
        self.report(node, None);
        // Nodes that report at the same distances could fall into step.
        let next = self.period() as f64 * (0.75 + 0.5 * self.signals.unit());
        self.report_at(node, self.now + next as u64);
    }

    pub(crate) fn report_all_in_time(&mut self) {
        if self.rounds.all_due != self.now {
            return;
        }
        (0..self.nodes.len() as u32).for_each(|node| self.report(node, None));
        self.report_all_at(self.now + self.period());
    }

    /// The first dispatcher learns from a report how often it wants them.
    fn learn(&mut self, node: u32, report: &Report) {
        let now = Time::from_nanos(self.now);
        let Some(phase) = &mut self.rounds.phase else { return };
        phase.reported(now, NodeId(node), report);
        let period = nanos(phase.period(now));
        let before = std::mem::replace(&mut self.rounds.period_nanos, period);
        if period >= before {
            return;
        }
        // All are asked sooner than they would report by themselves.
        if let When::Periodic { .. } = self.scenario.signals.when {
            if self.rounds.all_due > self.now + period {
                self.report_all_at(self.now + period);
            }
            return;
        }
        for node in 0..self.nodes.len() as u32 {
            let next = self.now + (period as f64 * self.signals.unit()) as u64;
            if self.rounds.due[node as usize] > self.now + period {
                self.report_at(node, next);
            }
        }
    }

    /// What a node says of itself now.
    pub(crate) fn look(&mut self, id: u32) -> Report {
        let node = &mut self.nodes[id as usize];
        node.advance(self.now);
        let cores = node.cores();
        let measured = node.window.look(self.now, cores);
        let idle = 100.0 * (1.0 - measured.load);
        let report = Report {
            measured_at: Time::from_nanos(self.now),
            jobs: Some(node.jobs()),
            load: Some(measured.load),
            // A node that works does not say that it must get nothing.
            health: Some(Health::saturating(idle.clamp(1.0, 100.0) as u8)),
            credits: Some(node.credits()),
            jobs_per_s: Some(measured.jobs_per_s),
            errors_per_s: Some(measured.errors_per_s),
            latency: (measured.sojourn_nanos > 0).then(|| Duration::from_nanos(measured.sojourn_nanos)),
        };
        let voice = node.voice;
        let mut said = match voice.lie {
            None => report,
            Some(lie) => self.lie(id, lie, report),
        };
        if voice.lie != Some(Lie::Frozen) {
            self.rounds.last[id as usize] = Some(said);
        }
        let skewed = self.now as f64 + voice.ahead_s * 1e9;
        if voice.ahead_s != 0.0 {
            said.measured_at = Time::from_nanos(skewed.max(0.0) as u64);
        }
        said
    }

    fn lie(&mut self, id: u32, lie: Lie, report: Report) -> Report {
        let Report { measured_at, .. } = report;
        let said = |jobs: u32, load: f32, credits: u32, jobs_per_s: f32, latency: Duration| Report {
            measured_at,
            jobs: Some(jobs),
            load: Some(load),
            health: Some(Health::saturating((100.0 * (1.0 - load)).clamp(1.0, 100.0) as u8)),
            credits: Some(credits),
            jobs_per_s: Some(jobs_per_s),
            errors_per_s: Some(0.0),
            latency: Some(latency),
        };
        match lie {
            Lie::Idle => said(0, 0.0, 1_000_000, 1e6, Duration::from_nanos(1)),
            Lie::Busy => said(1_000_000, 1.0, 0, 0.0, Duration::from_secs(3600)),
            Lie::Full => {
                let busy = said(1_000_000, 1.0, 0, 0.0, Duration::from_secs(3600));
                Report { health: Some(Health::NONE), ..busy }
            }
            Lie::Random => {
                let mut below = |end| self.lies.below(end);
                let latency = Duration::from_micros(below(1_000_000).into());
                said(below(1_000), below(200) as f32 / 100.0, below(1_000), below(10_000) as f32, latency)
            }
            Lie::Frozen => Report { measured_at, ..*self.rounds.last[id as usize].get_or_insert(report) },
        }
    }

    #[inline]
    pub(crate) fn changed(&mut self, node: u32) {
        if matches!(self.scenario.signals.when, When::Exact) {
            self.report(node, None);
        }
    }

    pub(crate) fn report(&mut self, node: u32, to: Option<u32>) {
        let Some(reporting) = self.nodes.get(node as usize) else { return };
        if reporting.mode == Mode::Dead || reporting.voice.silent {
            return;
        }
        let report = self.look(node);
        self.charge(node, self.scenario.costs.report);
        self.post(Letter { to, node, report });
        if self.scenario.signals.repeats > 0.0 && self.signals.chance(self.scenario.signals.repeats) {
            self.post(Letter { to, node, report });
        }
    }

    /// A report sets out.
    fn post(&mut self, letter: Letter) {
        let mut delay = self.hop + nanos(self.scenario.signals.delay);
        let spread = nanos(self.scenario.signals.spread);
        if spread > 0 {
            delay += (spread as f64 * self.signals.unit()) as u64;
        }
        if delay == 0 {
            return self.reported(letter.to, letter.node, letter.report);
        }
        let place = match self.letters_free.pop() {
            Some(place) => {
                self.letters[place as usize] = letter;
                place
            }
            None => {
                self.letters.push(letter);
                (self.letters.len() - 1) as u32
            }
        };
        self.queue.push(self.now + delay, Event::Reported { letter: place });
    }

    pub(crate) fn reported(&mut self, to: Option<u32>, node: u32, report: Report) {
        let loss = self.scenario.signals.loss;
        let all = 0..self.dispatchers.len();
        let to = to.map_or(all, |one| one as usize..one as usize + 1);
        let mut heard = false;
        for id in to {
            if self.signals.chance(loss) {
                continue;
            }
            let dispatcher = &mut self.dispatchers[id];
            heard |= id == 0;
            if let Some(scheduler) = &mut dispatcher.scheduler {
                self.record.run.reports += 1;
                let now = Time::from_nanos(self.now);
                scheduler.handle(now, Told::Report { node: NodeId(node), report });
                if let Some(helm) = &mut dispatcher.helm {
                    helm.reported(now, NodeId(node), &report, &dispatcher.counts, scheduler);
                }
            }
        }
        if heard {
            self.learn(node, &report);
        }
    }

    pub(crate) fn charge(&mut self, node: u32, cost: Duration) {
        if !cost.is_zero() {
            let charged = &mut self.nodes[node as usize];
            charged.advance(self.now);
            charged.charge(cost.as_nanos() as f64);
            self.reschedule(node);
        }
    }
}
