use std::time::Duration;

use evener_model::{NodeId, Time};

use crate::Settings;
use crate::nodes::Nodes;

/// Reports bring a new look no more often than this in a phase.
const LOOKS_MAX: u32 = 16;

/// The jobs of all members as they were at the last look, the least loaded first, and how many jobs come.
///
/// It looks at the beginning of each phase, when reports have come (at most 16 times a phase), and when nodes
/// come or go. Jobs are those in flight here at that moment, and those of others as far as nodes report them.
///
/// Arrivals are reckoned from the own picks: as many from each of the dispatchers that share no counts with this
/// one. How many those are is a setting, or the share of the own jobs in those that nodes report.
#[derive(Debug)]
pub(crate) struct Board {
    entries: Vec<Entry>,
    /// Whether a node is among them.
    is_here: Vec<bool>,
    phase: Duration,
    /// As set; 0 to find out.
    dispatchers: u16,
    looked_at: Time,
    look_at: Time,
    /// A report has come since.
    is_old: bool,
    /// Nodes have come or gone since.
    is_wrong: bool,
    picks: u64,
    counted_at: Time,
    /// Own picks in a nanosecond.
    rate: f64,
    /// Usual time between two looks, in nanoseconds.
    interval_nanos: f64,
    /// Arrivals in a nanosecond, all dispatchers together.
    arrivals_rate: f64,
    /// Arrivals that reports have not seen, at the last look.
    unseen: f64,
}

/// A member at the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) node: NodeId,
    /// See [`Standing::worth`](crate::nodes::Standing::worth).
    pub(crate) weight: u64,
    pub(crate) jobs: u64,
}

impl Board {
    pub(crate) fn new(settings: &Settings) -> Board {
        Board {
            entries: Vec::new(),
            is_here: Vec::new(),
            phase: settings.phase,
            dispatchers: settings.dispatchers,
            looked_at: Time::ZERO,
            look_at: Time::ZERO,
            is_old: false,
            is_wrong: true,
            picks: 0,
            counted_at: Time::ZERO,
            rate: 0.0,
            interval_nanos: nanos(settings.phase),
            arrivals_rate: 0.0,
            unseen: 0.0,
        }
    }

    pub(crate) fn configure(&mut self, settings: &Settings) {
        (self.phase, self.dispatchers) = (settings.phase, settings.dispatchers);
        self.look_at = Time::ZERO;
    }

    /// The members of the last look, the least jobs for their weight first.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Takes room for a node, and notes whether it came or went.
    pub(crate) fn weighed(&mut self, nodes: &Nodes, node: NodeId) {
        self.entries.reserve(nodes.known().len().saturating_sub(self.entries.len()));
        if self.is_here.len() <= node.index() {
            self.is_here.resize(node.index() + 1, false);
        }
        self.is_wrong |= self.is_here[node.index()] != nodes.is_member(node);
    }

    /// A report has come, or is believed no longer.
    pub(crate) fn reported(&mut self) {
        self.is_old = true;
    }

    /// A job was placed.
    #[inline]
    pub(crate) fn placed(&mut self) {
        self.picks += 1;
    }

    /// Looks again if it is time; says whether it did. O(nodes · log nodes) then.
    #[inline]
    pub(crate) fn look(&mut self, nodes: &Nodes, now: Time) -> bool {
        let soon = self.is_old && now.since(self.looked_at) >= self.phase / LOOKS_MAX;
        if !(self.is_wrong || now >= self.look_at || soon) {
            return false;
        }
        self.count(now);
        self.read(nodes, now);
        true
    }

    /// Arrivals that the jobs of the last look do not hold, if the next look is as far off as usual.
    pub(crate) fn arrivals_expected(&self) -> f64 {
        (self.unseen + self.arrivals_rate * self.interval_nanos).max(1.0)
    }

    /// Arrivals that the jobs of the last look do not hold, until now.
    #[inline]
    pub(crate) fn arrivals(&self, now: Time) -> f64 {
        self.unseen + self.arrivals_rate * nanos(now.since(self.looked_at))
    }

    /// Finds out how often jobs come, and how often this looks.
    fn count(&mut self, now: Time) {
        let phase = nanos(self.phase);
        if self.looked_at > Time::ZERO {
            let interval = nanos(now.since(self.looked_at)).min(phase);
            self.interval_nanos += (interval - self.interval_nanos) / 2.0;
        }
        let elapsed = now.since(self.counted_at);
        if self.counted_at == Time::ZERO {
            (self.counted_at, self.picks) = (now, 0);
        } else if elapsed >= self.phase / LOOKS_MAX && !elapsed.is_zero() {
            let elapsed = nanos(elapsed);
            let rate = self.picks as f64 / elapsed;
            let part = if self.rate == 0.0 { 1.0 } else { elapsed / (elapsed + phase) };
            self.rate += (rate - self.rate) * part;
            (self.counted_at, self.picks) = (now, 0);
        }
    }

    fn read(&mut self, nodes: &Nodes, now: Time) {
        (self.looked_at, self.look_at) = (now, now + self.phase);
        (self.is_old, self.is_wrong) = (false, false);
        for entry in self.entries.drain(..) {
            self.is_here[entry.node.index()] = false;
        }
        let (mut reports, mut age) = (0.0, 0.0);
        for &node in nodes.members() {
            // The count is read once: other dispatchers change it meanwhile.
            let jobs = u64::from(nodes.jobs_of_all(node));
            self.is_here[node.index()] = true;
            self.entries.push(Entry { node, weight: nodes.standing(node).worth(), jobs });
            if let Some(report) = nodes.report(node) {
                reports += 1.0;
                age += nanos(now.since(report.measured_at));
            }
        }
        self.entries.sort_unstable_by(|a, b| {
            let (left, right) =
                (u128::from(a.jobs) * u128::from(b.weight), u128::from(b.jobs) * u128::from(a.weight));
            left.cmp(&right).then(a.node.cmp(&b.node))
        });
        let dispatchers = nodes.loads.dispatchers(self.dispatchers);
        self.arrivals_rate = self.rate * dispatchers;
        // The own ones of that time are counted.
        self.unseen = if reports > 0.0 { self.rate * (dispatchers - 1.0) * age / reports } else { 0.0 };
    }
}

fn nanos(duration: Duration) -> f64 {
    duration.as_nanos() as f64
}
