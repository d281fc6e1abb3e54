//! Loads that nodes report, corrected by what is known here.

use std::time::Duration;

use evener_model::{NodeId, Time};

use crate::company::Company;

/// What a job adds to a node's load is between these, whatever nodes say.
const PER_JOB: (f64, f64) = (1e-4, 16.0);
/// What it is taken for where no node has said anything.
const PER_JOB_UNKNOWN: Cost = Cost { come: 1.0 / 16.0, here: 1.0 / 16.0 };
/// Fewer jobs than this in the mean are none.
const JOBS_MIN: f64 = 0.01;
/// Reports over which means are taken.
const REPORTS: f64 = 64.0;
/// From here on jobs may wait, and what each of them makes is not seen.
const SATURATED: f64 = 0.98;
/// Reports that are further apart do not belong together: the node began to report anew.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// A node is believed to end so many times as many jobs as it would if others sent it as many as are sent from here, and
/// so many more from here.
const RATE_MAX: f64 = 4.0;
const RATE_SLACK: f64 = 2.0;
/// No load is not explained by more jobs than this.
const UNEXPLAINED_MAX: f64 = 1e6;

/// The loads of all nodes, and what jobs make of them.
#[derive(Debug)]
pub(crate) struct Loads {
    means: Means,
    cost: Cost,
    company: Company,
    nodes: Vec<Load>,
}

/// What a pick reads of a node's load: 32 bytes.
#[derive(Clone, Copy, Debug)]
struct Load {
    measured_at_nanos: u64,
    /// What of the load jobs do not explain, in jobs that come; below 0 if no load is known.
    unexplained: f32,
    /// Own picks, and own jobs that ended, since it was measured.
    picked: f32,
    ended: f32,
    /// Own picks between that report and the one before, and 1 / the time between in nanoseconds.
    picked_before: f32,
    per_interval: f32,
    /// The usual time between reports over that of this node.
    scale: f32,
}

impl Load {
    const UNKNOWN: Load = Load {
        measured_at_nanos: 0,
        unexplained: -1.0,
        picked: 0.0,
        ended: 0.0,
        picked_before: 0.0,
        per_interval: 0.0,
        scale: 1.0,
    };

    /// Own picks in as long a time as there usually is between reports, up to now: a node whose report is new, or
    /// overdue, or that reports more seldom than others, must not look better or worse for that.
    #[inline]
    fn picks(&self, now: Time) -> f32 {
        let passed = now.as_nanos().saturating_sub(self.measured_at_nanos) as f32 * self.per_interval;
        let picks = if passed < 1.0 {
            self.picked + self.picked_before * (1.0 - passed)
        } else {
            self.picked / passed
        };
        picks * self.scale
    }
}

/// What an own job stands for of the load of a node of weight 1, with those that other dispatchers place when this one
/// does: they see what is seen here.
#[derive(Clone, Copy, Debug)]
struct Cost {
    /// A job that comes, until the next report.
    come: f64,
    /// A job in flight. The same or more: several come, one after the other, while one place is taken.
    here: f64,
}

/// What a report says of a node's load, and what is known here.
pub(crate) struct Telling {
    pub(crate) weight: u32,
    /// When it was measured, and when the report before was.
    pub(crate) measured_at: Time,
    pub(crate) measured_before: Option<Time>,
    pub(crate) load: Option<f32>,
    pub(crate) jobs_per_s: Option<f32>,
    /// Jobs on it, whoever placed them.
    pub(crate) jobs: Option<u32>,
    /// Own jobs in flight.
    pub(crate) own: u32,
}

/// Means over nodes of loads, and of the jobs that made them, for a weight of 1.
///
/// Of nodes one by one it would not be safe: a node that seems to take jobs lightly gets more of them, until its
/// load cannot show any more what they cost.
#[derive(Clone, Copy, Debug, Default)]
struct Means {
    load: f64,
    /// Own jobs in flight at reports, and those that ended between them.
    in_flight: f64,
    ended: f64,
    /// Jobs of all dispatchers that nodes end in a second, and the load of the reports that said so.
    rate: f64,
    rate_load: f64,
    /// Reports taken, up to [`REPORTS`].
    reports: f64,
    /// The time between two reports of a node, in nanoseconds, and how many went into it.
    interval_nanos: f64,
    intervals: f64,
}

impl Means {
    fn feed(&mut self, load: f64, in_flight: f64, ended: f64, rate: Option<f64>) {
        self.reports = (self.reports + 1.0).min(REPORTS);
        self.load += (load - self.load) / self.reports;
        self.in_flight += (in_flight - self.in_flight) / self.reports;
        self.ended += (ended - self.ended) / self.reports;
        if let Some(rate) = rate {
            self.rate += (rate - self.rate) / self.reports;
            self.rate_load += (load - self.rate_load) / self.reports;
        }
    }

    fn feed_interval(&mut self, nanos: f64) {
        self.intervals = (self.intervals + 1.0).min(REPORTS);
        self.interval_nanos += (nanos - self.interval_nanos) / self.intervals;
    }

    fn cost(&self) -> Cost {
        let (min, max) = PER_JOB;
        let of = |jobs: f64| (self.load / jobs.max(JOBS_MIN)).clamp(min, max);
        let all = self.in_flight + self.ended;
        if all > JOBS_MIN { Cost { come: of(all), here: of(self.in_flight) } } else { PER_JOB_UNKNOWN }
    }
}

impl Loads {
    pub(crate) fn new() -> Loads {
        Loads {
            means: Means::default(),
            cost: PER_JOB_UNKNOWN,
            company: Company::default(),
            nodes: Vec::new(),
        }
    }

    /// Takes room for a node, of which nothing is known.
    pub(crate) fn add(&mut self, node: NodeId) {
        if self.nodes.len() <= node.index() {
            self.nodes.resize(node.index() + 1, Load::UNKNOWN);
        }
        self.nodes[node.index()] = Load::UNKNOWN;
        self.company.add(node);
    }

    /// A job was placed on a node.
    #[inline]
    pub(crate) fn picked(&mut self, node: NodeId) {
        self.nodes[node.index()].picked += 1.0;
    }

    /// A job of a node ended.
    #[inline]
    pub(crate) fn ended(&mut self, node: NodeId) {
        if let Some(load) = self.nodes.get_mut(node.index()) {
            load.ended += 1.0;
        }
    }

    /// A node's load is believed no longer.
    pub(crate) fn forget(&mut self, node: NodeId) {
        self.nodes[node.index()].unexplained = -1.0;
    }

    /// Takes what a node says.
    ///
    /// Jobs explain as much of its load as nodes have in the mean that end so many jobs a second, by weight; or if it
    /// does not say how many, as own jobs make that were there or had ended since the report before.
    pub(crate) fn told(&mut self, now: Time, node: NodeId, telling: &Telling) {
        let known = &mut self.nodes[node.index()];
        known.measured_at_nanos = telling.measured_at.as_nanos();
        let interval = telling.measured_before.map(|before| telling.measured_at.since(before));
        let ended = match interval.filter(|interval| !interval.is_zero() && *interval <= INTERVAL_MAX) {
            Some(interval) => {
                // Of what happened since the last report, this one has not seen what happened since it was measured.
                let interval = interval.as_nanos() as f32;
                let after = now.since(telling.measured_at).as_nanos() as f32;
                let unseen = after / (interval + after);
                self.means.feed_interval(f64::from(interval));
                known.scale = self.means.interval_nanos as f32 / interval;
                known.per_interval = 1.0 / interval;
                known.picked_before = known.picked * (1.0 - unseen);
                let ended = known.ended * (1.0 - unseen);
                (known.picked, known.ended) = (known.picked * unseen, known.ended * unseen);
                Some(f64::from(ended * known.scale))
            }
            None => {
                *known = Load { measured_at_nanos: known.measured_at_nanos, ..Load::UNKNOWN };
                None
            }
        };
        self.told_jobs(node, telling);
        let own = f64::from(telling.own);
        let known = &mut self.nodes[node.index()];
        known.unexplained = -1.0;
        let Some(load) = telling.load.map(f64::from) else { return };

        let weight = f64::from(telling.weight.max(1));
        let rate = telling.jobs_per_s.map(f64::from).zip(ended).map(|(rate, ended)| {
            // Nobody ends many more jobs than come here and elsewhere together.
            let all = self.company.dispatchers() * (ended + RATE_SLACK);
            rate.min(RATE_MAX * all * 1e9 / self.means.interval_nanos.max(1.0))
        });
        if let Some(ended) = ended.filter(|_| load < SATURATED) {
            self.means.feed(load * weight, own, ended, rate);
            self.cost = self.means.cost();
        }
        let explained = match rate {
            Some(rate) if self.means.rate > 0.0 => self.means.rate_load / self.means.rate * rate,
            _ => self.cost.come * (own + ended.unwrap_or(0.0)),
        };
        // In whole jobs: differences that are smaller are chance, and dispatchers that all go by them go together.
        let jobs = ((load * weight - explained) / self.cost.come).clamp(0.0, UNEXPLAINED_MAX);
        known.unexplained = jobs as u32 as f32;
    }

    /// Takes how many jobs a node says that it has.
    pub(crate) fn told_jobs(&mut self, node: NodeId, telling: &Telling) {
        if let Some(jobs) = telling.jobs {
            self.company.told(node, jobs, telling.own);
        }
    }

    /// The load of a node with so many own jobs in flight: what jobs do not explain of its report; what those make of
    /// it that came in the time between two reports, up to now; and what those make that are in flight. Only
    /// the last if it reports no load.
    #[inline]
    pub(crate) fn expected(&self, node: NodeId, weight: u32, jobs: u32, now: Time) -> f64 {
        let load = &self.nodes[node.index()];
        let come = if load.unexplained < 0.0 { 0.0 } else { f64::from(load.unexplained + load.picks(now)) };
        (self.cost.come * come + self.cost.here * f64::from(jobs)) / f64::from(weight.max(1))
    }

    /// Dispatchers that place jobs on these nodes and share no counts, this one included: as many as `known`, or if
    /// that is 0, by how much more jobs nodes have reported than were in flight here.
    #[inline]
    pub(crate) fn dispatchers(&self, known: u16) -> f64 {
        if known > 0 { f64::from(known) } else { self.company.dispatchers() }
    }

    /// What a job in flight makes of the load of a node of that weight.
    #[inline]
    pub(crate) fn of_a_job(&self, weight: u32) -> f64 {
        self.cost.here / f64::from(weight.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: u32 = 4;

    fn at(tenths: u64) -> Time {
        Time::ZERO + Duration::from_millis(100 * tenths)
    }

    /// Ten picks a second of each node, each ended at once; nodes report every second, `load` of them that load.
    fn loads(seconds: u64, load: impl Fn(u32) -> f32) -> Loads {
        let mut loads = Loads::new();
        (0..NODES).for_each(|node| loads.add(NodeId(node)));
        for tenth in 1..=10 * seconds {
            for node in (0..NODES).map(NodeId) {
                loads.picked(node);
                loads.ended(node);
                if tenth % 10 == 0 {
                    let measured_before = (tenth > 10).then(|| at(tenth - 10));
                    let load = Some(load(node.0));
                    let measured_at = at(tenth);
                    let telling = Telling {
                        weight: 1,
                        measured_at,
                        measured_before,
                        load,
                        jobs_per_s: None,
                        jobs: None,
                        own: 0,
                    };
                    loads.told(at(tenth), node, &telling);
                }
            }
        }
        loads
    }

    #[test]
    fn a_load_that_jobs_explain_is_that_of_the_jobs() {
        let loads = loads(30, |_| 0.5);
        // Ten jobs a second make a half, whenever one looks.
        for later in 0..5 {
            let load = loads.expected(NodeId(0), 1, 0, at(300 + later));
            let expected = 0.5 - 0.05 * later as f64;
            assert!((load - expected).abs() < 0.01, "{load}");
        }
    }

    #[test]
    fn other_work_shows() {
        let loads = loads(30, |node| if node == 3 { 0.9 } else { 0.3 });
        let [one, other] = [0, 3].map(|node| loads.expected(NodeId(node), 1, 0, at(300)));
        assert!(other > one + 0.3, "{one} {other}");
    }

    #[test]
    fn full_nodes_do_not_teach_what_jobs_cost() {
        let [some, more] = [0.5, 1.0].map(|load| loads(30, move |node| if node == 0 { load } else { 0.5 }));
        assert!((some.of_a_job(1) - more.of_a_job(1)).abs() < 1e-9);
    }

    #[test]
    fn a_report_that_is_late_is_corrected_for_less() {
        let mut loads = loads(30, |_| 0.5);
        // Ten picks since, of which the report, half a second old, has seen five.
        (0..10).for_each(|_| loads.picked(NodeId(0)));
        let telling = Telling {
            weight: 1,
            measured_at: at(305),
            measured_before: Some(at(300)),
            load: Some(0.5),
            jobs_per_s: None,
            jobs: None,
            own: 0,
        };
        loads.told(at(310), NodeId(0), &telling);
        assert_eq!(loads.nodes[0].picked, 5.0);
        loads.forget(NodeId(0));
        assert_eq!(loads.expected(NodeId(0), 1, 0, at(310)), 0.0);
    }

    #[test]
    fn nodes_that_report_more_seldom_are_compared_alike() {
        let mut loads = Loads::new();
        (0..2).for_each(|node| loads.add(NodeId(node)));
        let every = [10, 40];
        for tenth in 1..=400 {
            for (node, every) in (0..2).map(NodeId).zip(every) {
                loads.picked(node);
                loads.ended(node);
                if tenth % every == 0 {
                    let measured_before = (tenth > every).then(|| at(tenth - every));
                    let measured_at = at(tenth);
                    let load = Some(0.5);
                    let telling = Telling {
                        weight: 1,
                        measured_at,
                        measured_before,
                        load,
                        jobs_per_s: Some(10.0),
                        jobs: None,
                        own: 0,
                    };
                    loads.told(at(tenth), node, &telling);
                }
            }
        }
        let [often, seldom] = [0, 1].map(|node| loads.expected(NodeId(node), 1, 0, at(400)));
        assert!((often - seldom).abs() < often / 10.0, "{often} {seldom}");
    }

    #[test]
    fn a_node_that_begins_to_report_is_not_charged_for_all_it_had_before() {
        let mut loads = loads(30, |_| 0.5);
        let newcomer = NodeId(NODES);
        loads.add(newcomer);
        (0..100_000).for_each(|_| loads.picked(newcomer));
        for (measured_at, measured_before) in [(at(300), None), (at(310), Some(at(300)))] {
            let load = Some(0.5);
            let telling = Telling {
                weight: 1,
                measured_at,
                measured_before,
                load,
                jobs_per_s: None,
                jobs: None,
                own: 0,
            };
            loads.told(measured_at, newcomer, &telling);
        }
        // Nothing explains its half.
        assert!((loads.expected(newcomer, 1, 0, at(310)) - 0.5).abs() < 0.05);
    }
}
