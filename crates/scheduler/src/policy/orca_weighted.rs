use std::time::Duration;

use evener_model::{NodeId, Report, Time};

use super::weighted_round_robin::Smooth;
use super::{Algorithm, Pick};
use crate::Settings;
use crate::nodes::{Nodes, UNIT};

/// A node must have told its weight for so long before it is used: one that has just started is not yet warm.
const BLACKOUT: Duration = Duration::from_secs(10);
/// A weight that was not told again for so long is forgotten.
const EXPIRY: Duration = Duration::from_secs(180);
/// Reports are averaged over this: what a node ends in a second is mostly chance.
const MEAN_OVER: Duration = BLACKOUT;
/// The time between two reckonings of all shares.
const UPDATE: Duration = Duration::from_secs(1);
/// A node is believed so many times what the others can do on average, for their configured weights.
const WORTH_MAX: f64 = 5.0;
/// A node on which so many times as many own jobs are in flight for its share as on the others does not end what it says.
const CROWD: f64 = 4.0;
/// Fewer jobs than this are no crowd.
const CROWD_MIN: u32 = 8;
/// For how long its weight is then not used, the first time; each further time it is twice as long.
const REST: Duration = Duration::from_secs(10);
const REST_DOUBLINGS_MAX: u32 = 6;
/// The share of the node that has the largest.
const SHARE_MAX: f64 = 65_536.0;
/// A share that changes by less than one part in so many stays as it is.
const STEADY: u32 = 64;

/// Each node as often as it can be by its own reports, its picks spread evenly over the round.
///
/// Weight: `jobs_per_s / (load + penalty · errors_per_s / jobs_per_s)`, how many jobs a second the node would end
/// with all its capacity in use; both parts are means over some 10 s. It is used once the node has reported it for 10 s, until it has not for
/// 180 s, and reckoned anew once a second. Where it is not used, a node has what the others have for its
/// configured weight; if it is used nowhere, this is `weighted-round-robin`. Slow start takes its part of it.
///
/// No node has more than five times what the others have for theirs on average. One on which own jobs pile up, four
/// times as many for its share as on the others, cannot do what it says: for 10 s, the next time for 20 s and so
/// on, it has no more than what the others have for its configured weight.
///
/// O(log nodes); O(nodes · log nodes) once a second.
///
/// Source: client-side weighted round robin with ORCA reports, as in gRPC (A58).
#[derive(Debug)]
pub(crate) struct OrcaWeighted {
    smooth: Smooth,
    told: Vec<Told>,
    penalty: f64,
    update_at: Time,
    /// Nodes have come, or slow start has gone on.
    is_wrong: bool,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// What it reported, since when, and when last.
    means: Option<Means>,
    since: Time,
    last: Time,
    /// The share that its configured weight and slow start give it.
    configured: u32,
    share: u32,
    /// Until when it is not believed more than the others, and how often that has been so of late.
    refuted_until: Time,
    refuted: u32,
}

/// Jobs a second, and the part of its capacity that they took, errors included.
#[derive(Clone, Copy, Debug)]
struct Means {
    rate: f64,
    used: f64,
}

impl Told {
    fn weight(&self, now: Time) -> Option<f64> {
        let means = self.means?;
        let is_used = now.since(self.last) < EXPIRY && now.since(self.since) >= BLACKOUT;
        is_used.then_some(means.rate / means.used)
    }

    fn is_refuted(&self, now: Time) -> bool {
        now < self.refuted_until
    }

    fn rest(&self) -> Duration {
        REST * (1 << self.refuted.min(REST_DOUBLINGS_MAX))
    }

    /// Own jobs are found to pile up on it, or not to.
    fn found(&mut self, now: Time, crowded: bool) {
        if crowded && !self.is_refuted(now) {
            self.refuted_until = now + self.rest();
            self.refuted += 1;
        } else if self.refuted > 0 && now >= self.refuted_until + self.rest() {
            self.refuted = 0;
        }
    }
}

impl OrcaWeighted {
    pub(crate) fn new(settings: &Settings) -> OrcaWeighted {
        let mut new = OrcaWeighted {
            smooth: Smooth::default(),
            told: Vec::new(),
            penalty: 1.0,
            update_at: Time::ZERO,
            is_wrong: true,
        };
        new.configure(settings);
        new
    }

    fn read(&self, report: &Report) -> Option<Means> {
        let (rate, load) = (f64::from(report.jobs_per_s?), f64::from(report.load?));
        let used = load + self.penalty * f64::from(report.errors_per_s.unwrap_or(0.0)) / rate;
        (rate > 0.0 && load > 0.0 && used.is_finite()).then_some(Means { rate, used })
    }

    fn update(&mut self, nodes: &Nodes, now: Time) {
        if now >= self.update_at {
            self.look_at_crowds(nodes, now);
        }
        (self.is_wrong, self.update_at) = (false, now + UPDATE);
        let (mut weights, mut configured) = (0.0, 0.0);
        for &member in nodes.members() {
            let told = &self.told[member.index()];
            if let Some(weight) = told.weight(now).filter(|_| !told.is_refuted(now)) {
                weights += weight;
                configured += f64::from(nodes.standing(member).weight);
            }
        }
        let unknown = if configured > 0.0 { weights / configured } else { 0.0 };
        let worth = |told: &Told, member: NodeId| {
            let standing = nodes.standing(member);
            let own = f64::from(standing.weight);
            let weight = match told.weight(now) {
                None => unknown * own,
                Some(weight) if told.is_refuted(now) => weight.min(unknown * own),
                Some(weight) if configured > own => {
                    weight.min(WORTH_MAX * (weights - weight) / (configured - own) * own)
                }
                Some(weight) => weight,
            };
            weight * f64::from(standing.share) / f64::from(standing.weight * UNIT)
        };
        let worths = nodes.members().iter().map(|&member| worth(&self.told[member.index()], member));
        let most = worths.fold(0.0, f64::max);
        for &member in nodes.members() {
            let told = self.told[member.index()];
            let share = if most > 0.0 {
                ((worth(&told, member) / most * SHARE_MAX) as u32).max(1)
            } else {
                told.configured
            };
            if share.abs_diff(told.share) > told.share / STEADY {
                self.told[member.index()].share = share;
                self.smooth.set(member, share);
            }
        }
    }

    /// Finds nodes that have got more than they can do.
    fn look_at_crowds(&mut self, nodes: &Nodes, now: Time) {
        let (mut jobs, mut shares) = (0.0, 0.0);
        for &member in nodes.members() {
            jobs += f64::from(nodes.jobs(member));
            shares += f64::from(self.told[member.index()].share);
        }
        for &member in nodes.members() {
            let told = &mut self.told[member.index()];
            let (own, share) = (nodes.jobs(member), f64::from(told.share));
            let others = (jobs - f64::from(own) + 1.0) / (shares - share).max(1.0);
            let crowded = own >= CROWD_MIN && f64::from(own) > CROWD * others * share;
            told.found(now, crowded && told.means.is_some());
        }
    }
}

impl Algorithm for OrcaWeighted {
    fn configure(&mut self, settings: &Settings) {
        self.penalty = f64::from(settings.error_penalty_percent) / 100.0;
    }

    fn weighed(&mut self, nodes: &Nodes, node: NodeId, _now: Time) {
        if self.told.len() <= node.index() {
            self.told.resize(node.index() + 1, Told::default());
        }
        let told = &mut self.told[node.index()];
        let configured = nodes.standing(node).share;
        if configured == std::mem::replace(&mut told.configured, configured) {
            return;
        }
        if configured == 0 || told.share == 0 {
            told.share = configured;
            self.smooth.set(node, configured);
        }
        self.is_wrong = true;
    }

    fn left(&mut self, node: NodeId) {
        self.told[node.index()] = Told::default();
        self.smooth.left(node);
    }

    fn pick(&mut self, pick: &mut Pick<'_>) -> Option<NodeId> {
        if self.is_wrong || pick.now >= self.update_at {
            self.update(pick.nodes, pick.now);
        }
        self.smooth.pick(pick)
    }

    fn reported(&mut self, nodes: &Nodes, node: NodeId, now: Time) {
        let Some(report) = nodes.report(node) else { return };
        let Some(read) = self.read(report) else { return };
        let Some(told) = self.told.get_mut(node.index()) else { return };
        let at = report.measured_at;
        match &mut told.means {
            Some(means) if now.since(told.last) < EXPIRY => {
                let elapsed = at.since(told.last).as_nanos() as f64;
                let part = elapsed / (elapsed + MEAN_OVER.as_nanos() as f64);
                means.rate += (read.rate - means.rate) * part;
                means.used += (read.used - means.used) * part;
            }
            _ => (told.means, told.since) = (Some(read), at),
        }
        told.last = at;
    }
}
