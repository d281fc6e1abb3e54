//! The nodes of a pool as policies see them.

use std::sync::Arc;
use std::time::Duration;

use evener_model::{Health, JobCounts, NodeId, NodeSpec, Report, Time};

use crate::claims::Claims;
use crate::explain::Said;
use crate::latency::Latency;
use crate::load::{Loads, Telling};
use crate::outlier::Conduct;

/// What stands for 1 in fractions of weights and scores.
pub(crate) const UNIT: u32 = 256;

/// How far ahead of the scheduler's time a report may have been measured: the threads of one machine, and
/// machines whose clocks are set, differ by less.
const REPORT_AHEAD_MAX: Duration = Duration::from_secs(1);
/// No load is above this: a node with so much is as bad as one with more.
const LOAD_MAX: f32 = 1e6;

/// What a pick reads of a node: 16 bytes, side by side for all nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    /// The node's weight; 0 if it may not be picked.
    pub(crate) weight: u32,
    /// What multiplies its score, in [`UNIT`]s, at least one: the penalty for failures, and slow start.
    pub(crate) handicap: u32,
    /// Its weight in [`UNIT`]s, as far as slow start lets it; 0 if it may not be picked.
    pub(crate) share: u32,
    /// Jobs at the most.
    pub(crate) jobs_max: u32,
}

impl Standing {
    /// Its weight as far as slow start and failures leave it, in [`UNIT`]s, at least one.
    pub(crate) fn worth(&self) -> u64 {
        u64::from((self.weight * UNIT * UNIT / self.handicap.max(1)).max(1))
    }
}

/// All that is known of a node.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) spec: NodeSpec,
    pub(crate) draining: bool,
    pub(crate) up: bool,
    /// Whether it was wanted when it was last counted.
    pub(crate) wanted_before: bool,
    /// Whether it may be picked without panic.
    pub(crate) eligible: bool,
    /// Since when it is new or back, while that matters.
    pub(crate) warming_since: Option<Time>,
    pub(crate) conduct: Conduct,
    pub(crate) latency: Latency,
    /// What it last said of itself, figure by figure, and whether any of that is still believed.
    pub(crate) report: Option<Report>,
    pub(crate) believed: bool,
    /// When each figure was measured.
    said_at: [Time; FIGURES],
    /// The jobs in flight here when it said how many there are.
    pub(crate) own_then: u32,
}

/// What a report may hold: jobs, load, health, credits, jobs and errors a second, latency.
const FIGURES: usize = 7;
const LOAD: usize = 1;

/// Which figures a report holds.
fn figures(report: &Report) -> [bool; FIGURES] {
    [
        report.jobs.is_some(),
        report.load.is_some(),
        report.health.is_some(),
        report.credits.is_some(),
        report.jobs_per_s.is_some(),
        report.errors_per_s.is_some(),
        report.latency.is_some(),
    ]
}

/// Which figures are the same in both.
fn same(one: &Report, other: &Report) -> [bool; FIGURES] {
    [
        one.jobs == other.jobs,
        one.load == other.load,
        one.health == other.health,
        one.credits == other.credits,
        one.jobs_per_s == other.jobs_per_s,
        one.errors_per_s == other.errors_per_s,
        one.latency == other.latency,
    ]
}

/// The figures of `from` for which `which` says so, and the others of `report`.
fn replace(report: &Report, which: [bool; FIGURES], from: &Report) -> Report {
    let [jobs, load, health, credits, jobs_per_s, errors_per_s, latency] = which;
    Report {
        measured_at: report.measured_at,
        jobs: if jobs { from.jobs } else { report.jobs },
        load: if load { from.load } else { report.load },
        health: if health { from.health } else { report.health },
        credits: if credits { from.credits } else { report.credits },
        jobs_per_s: if jobs_per_s { from.jobs_per_s } else { report.jobs_per_s },
        errors_per_s: if errors_per_s { from.errors_per_s } else { report.errors_per_s },
        latency: if latency { from.latency } else { report.latency },
    }
}

impl Record {
    pub(crate) fn new(spec: NodeSpec) -> Record {
        Record {
            spec,
            draining: false,
            up: true,
            wanted_before: false,
            eligible: false,
            warming_since: None,
            conduct: Conduct::default(),
            latency: Latency::default(),
            report: None,
            believed: false,
            said_at: [Time::ZERO; FIGURES],
            own_then: 0,
        }
    }

    /// Keeps what the node says, `own` jobs being in flight here, and returns what of that is news; `None` if nothing
    /// is: it is older than what it said before or than `expiry`, or was measured in the future. Numbers that are
    /// none are not there.
    ///
    /// A node may speak in several ways, each of which tells something else. So each figure stands until there is a newer
    /// one, or until it has expired, whatever else is said meanwhile.
    fn take(&mut self, now: Time, report: Report, own: u32, expiry: Duration) -> Option<Report> {
        let expired = now.since(report.measured_at) >= expiry;
        if expired || report.measured_at > now + REPORT_AHEAD_MAX {
            return None;
        }
        let sound = |number: Option<f32>| number.filter(|n| n.is_finite() && *n >= 0.0);
        // One that is a little ahead must not keep out the next.
        let at = report.measured_at.min(now);
        let said = Report {
            measured_at: at,
            load: sound(report.load).map(|load| load.min(LOAD_MAX)),
            jobs_per_s: sound(report.jobs_per_s),
            errors_per_s: sound(report.errors_per_s),
            ..report
        };
        let known = self.report.filter(|_| self.believed).unwrap_or_default();
        let mut is_news = figures(&said);
        for ((is_news, said_at), same) in is_news.iter_mut().zip(&mut self.said_at).zip(same(&said, &known)) {
            // The same may come twice, from the node itself and from who collects what nodes say.
            *is_news &= at > *said_at || at == *said_at && !same;
            if *is_news {
                *said_at = at;
            }
        }
        if !is_news.contains(&true) {
            return None;
        }
        let news = replace(&Report { measured_at: at, ..Report::default() }, is_news, &said);
        let counts = |report: &Report| report.jobs.is_some() || report.credits.is_some();
        if counts(&news) || !counts(&known) {
            self.own_then = own;
        }
        let measured_at = known.measured_at.max(at);
        self.report = Some(Report { measured_at, ..replace(&known, is_news, &said) });
        self.believed = true;
        Some(news)
    }

    /// Drops figures that have expired; says whether there were any. If none is left, nothing is believed, and what
    /// was said last is kept only to be shown.
    pub(crate) fn expire(&mut self, now: Time, expiry: Duration) -> bool {
        let Some(report) = self.report.filter(|_| self.believed) else { return false };
        let mut expired = figures(&report);
        for (expired, said_at) in expired.iter_mut().zip(self.said_at) {
            *expired &= now.since(said_at) >= expiry;
        }
        if !expired.contains(&true) {
            return false;
        }
        if expired == figures(&report) {
            self.believed = false;
        } else {
            self.report = Some(replace(&report, expired, &Report::default()));
        }
        true
    }

    /// When the first figure of the report is believed no longer, while any is.
    pub(crate) fn report_until(&self, expiry: Duration) -> Option<Time> {
        let report = self.report.filter(|_| self.believed)?;
        let there = figures(&report).into_iter().zip(self.said_at).filter(|(is_there, _)| *is_there);
        there.map(|(_, said_at)| said_at + expiry).min()
    }

    /// Whether the node itself, the health check and its conduct let it have jobs.
    pub(crate) fn able(&self) -> bool {
        self.up && !self.declines() && self.conduct.ejected_until().is_none()
    }

    /// Whether the node says that it wants no jobs.
    pub(crate) fn declines(&self) -> bool {
        self.believed && self.report.is_some_and(|report| report.health == Some(Health::NONE))
    }

    /// Whether the operator wants it to get jobs.
    pub(crate) fn wanted(&self) -> bool {
        self.spec.weight.value() > 0 && !self.draining
    }
}

/// The nodes, by id. Members are those that may be picked now.
#[derive(Debug)]
pub(crate) struct Nodes {
    counts: Arc<JobCounts>,
    standings: Vec<Standing>,
    records: Vec<Option<Record>>,
    known: Vec<NodeId>,
    members: Vec<NodeId>,
    /// Latency over all nodes: what is assumed of a node that has shown none.
    pub(crate) typical: Latency,
    /// What nodes report as their loads, for policies that go by them.
    pub(crate) loads: Loads,
    /// What nodes report as their credits.
    claims: Claims,
    /// Whether any node ever said how it is.
    any_report: bool,
}

impl Nodes {
    pub(crate) fn new(counts: Arc<JobCounts>) -> Nodes {
        Nodes {
            counts,
            standings: Vec::new(),
            records: Vec::new(),
            known: Vec::new(),
            members: Vec::new(),
            typical: Latency::default(),
            loads: Loads::new(),
            claims: Claims::default(),
            any_report: false,
        }
    }

    /// The nodes that may be picked, by id.
    #[inline]
    pub(crate) fn members(&self) -> &[NodeId] {
        &self.members
    }

    /// All nodes of the pool, by id.
    pub(crate) fn known(&self) -> &[NodeId] {
        &self.known
    }

    #[inline]
    pub(crate) fn standing(&self, node: NodeId) -> &Standing {
        &self.standings[node.index()]
    }

    #[inline]
    pub(crate) fn jobs(&self, node: NodeId) -> u32 {
        self.counts.jobs(node)
    }

    /// Whether the node may be picked.
    #[inline]
    pub(crate) fn is_member(&self, node: NodeId) -> bool {
        self.standings.get(node.index()).is_some_and(|s| s.weight > 0)
    }

    /// Whether the node has as many jobs as it may.
    #[inline]
    pub(crate) fn is_full(&self, node: NodeId) -> bool {
        self.jobs(node) >= self.standing(node).jobs_max
    }

    pub(crate) fn reserve(&self, node: NodeId) -> bool {
        self.counts.reserve(node, Some(self.standing(node).jobs_max))
    }

    pub(crate) fn release(&self, node: NodeId) {
        self.counts.release(node);
    }

    pub(crate) fn record(&self, node: NodeId) -> Option<&Record> {
        self.records.get(node.index())?.as_ref()
    }

    pub(crate) fn record_mut(&mut self, node: NodeId) -> Option<&mut Record> {
        self.records.get_mut(node.index())?.as_mut()
    }

    /// The node's latency and its failures are in its record, which is there for every member.
    #[inline]
    pub(crate) fn latency(&self, node: NodeId) -> Option<&Latency> {
        self.record(node).map(|record| &record.latency)
    }

    /// What the node said of itself, as long as that is believed.
    #[inline]
    pub(crate) fn report(&self, node: NodeId) -> Option<&Report> {
        self.record(node).filter(|record| record.believed)?.report.as_ref()
    }

    /// Whether any node ever said how it is.
    #[inline]
    pub(crate) fn have_reported(&self) -> bool {
        self.any_report
    }

    /// What the node says, as a placement remembers it.
    pub(crate) fn said(&self, node: NodeId) -> Option<Said> {
        let &Report { measured_at, jobs, load, health, .. } = self.report(node)?;
        Some(Said { measured_at, jobs, load, health })
    }

    /// The same, and the jobs that were in flight here when it said so.
    pub(crate) fn report_with_own(&self, node: NodeId) -> Option<(&Report, u32)> {
        let record = self.record(node).filter(|record| record.believed)?;
        Some((record.report.as_ref()?, record.own_then))
    }

    /// Takes what a node says, as [`Record::take`] does; says whether any of it was news.
    pub(crate) fn take(&mut self, now: Time, node: NodeId, report: Report, expiry: Duration) -> bool {
        let Some(record) = self.records.get_mut(node.index()).and_then(Option::as_mut) else { return false };
        let before = record.report.map(|report| (report.measured_at, record.said_at[LOAD]));
        let own = self.counts.jobs(node);
        let Some(news) = record.take(now, report, own, expiry) else { return false };
        self.any_report = true;
        // A load that was told in another way stands.
        let keeps_load = news.load.is_none() && record.report.is_some_and(|report| report.load.is_some());
        let measured_before = before.map(|(report, load)| if load > Time::ZERO { load } else { report });
        let telling = Telling {
            weight: record.spec.weight.value(),
            measured_at: news.measured_at,
            measured_before,
            load: news.load,
            jobs_per_s: news.jobs_per_s,
            jobs: news.jobs,
            own,
        };
        if keeps_load {
            self.loads.told_jobs(node, &telling);
        } else {
            self.loads.told(now, node, &telling);
        }
        self.reckon_claim(node);
        true
    }

    /// Drops what is believed no longer of what a node said; says whether there was any.
    pub(crate) fn expire(&mut self, now: Time, node: NodeId, expiry: Duration) -> bool {
        let Some(record) = self.records.get_mut(node.index()).and_then(Option::as_mut) else { return false };
        if !record.expire(now, expiry) {
            return false;
        }
        if !record.believed || record.report.is_some_and(|report| report.load.is_none()) {
            self.loads.forget(node);
        }
        self.reckon_claim(node);
        true
    }

    fn reckon_claim(&mut self, node: NodeId) {
        let Some(record) = self.records.get(node.index()).and_then(Option::as_ref) else { return };
        let report = record.report.as_ref().filter(|_| record.believed);
        let said = report.map(|report| (report, record.own_then));
        self.claims.told(node, record.spec.weight.value(), said);
    }

    /// The credits that are left of those that a node reported, with so many own jobs there now, as far as they are
    /// believed: see [`Claims::left`].
    #[inline]
    pub(crate) fn credits(&self, node: NodeId, jobs: u32) -> Option<i64> {
        let (report, own_then) = self.report_with_own(node)?;
        self.claims.left(node, self.standing(node).weight, report, own_then, jobs)
    }

    /// Jobs that dispatchers which do not share counts had on the node when it last reported.
    #[inline]
    pub(crate) fn others(&self, node: NodeId) -> u32 {
        let told = self.report_with_own(node).and_then(|(report, own)| Some((report.jobs?, own)));
        told.map_or(0, |(jobs, own)| jobs.saturating_sub(own))
    }

    /// The node's jobs, those of dispatchers that do not share counts included as far as it reports them: as
    /// many as there were beyond the own ones then, and the own ones now.
    #[inline]
    pub(crate) fn jobs_of_all(&self, node: NodeId) -> u32 {
        self.jobs(node).saturating_add(self.others(node))
    }

    /// Adds a node; the slices of all later calls have room for it.
    ///
    /// # Panics
    /// If the shared counts have no place for it: the driver made them too small.
    pub(crate) fn add(&mut self, node: NodeId, record: Record) {
        assert!(
            node.index() < self.counts.len(),
            "node {node} has no place among {} counts",
            self.counts.len()
        );
        if self.records.len() <= node.index() {
            self.records.resize(node.index() + 1, None);
            self.standings.resize(node.index() + 1, Standing::default());
        }
        self.records[node.index()] = Some(record);
        self.loads.add(node);
        self.claims.add(node);
        if let Err(place) = self.known.binary_search(&node) {
            self.known.insert(place, node);
        }
        // A node may come back within a pick, which must not allocate.
        self.members.reserve(self.known.len() - self.members.len());
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.records[node.index()] = None;
        // Nothing of what it said stays behind.
        self.loads.add(node);
        self.claims.add(node);
        self.known.retain(|known| *known != node);
    }

    /// Changes a node's standing.
    pub(crate) fn set_standing(&mut self, node: NodeId, standing: Standing) {
        self.standings[node.index()] = standing;
        match (self.members.binary_search(&node), standing.weight > 0) {
            (Err(place), true) => self.members.insert(place, node),
            (Ok(place), false) => {
                self.members.remove(place);
            }
            _ => {}
        }
    }
}
