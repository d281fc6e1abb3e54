//! A pool under random events, and what must hold of it, worked out in the simplest way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use evener_model::{Event, Health, Job, JobCounts, NodeId, NodeSpec, Outcome, Report, Time, Weight};
use evener_scheduler::{Order, Outlier, PickError, Policy, Scheduler, Settings, Variant, hash_bytes};
use proptest::prelude::*;

/// Ids in these tests: few, so that events meet, with gaps between them.
pub(crate) const IDS: u32 = 12;

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Join {
        node: u32,
        weight: u64,
        jobs_max: Option<u32>,
    },
    Leave(u32),
    Weight {
        node: u32,
        weight: u64,
    },
    Drain {
        node: u32,
        draining: bool,
    },
    Check {
        node: u32,
        up: bool,
    },
    Pick {
        key: u64,
        avoid: Vec<u32>,
        excluded: Vec<u32>,
    },
    /// Ends the picked job at this place, counted round.
    Finish {
        place: usize,
        outcome: Outcome,
    },
    /// A node says how it is, in anything that reports have, measured so long before.
    Report {
        node: u32,
        health: Option<u8>,
        numbers: [u32; 4],
        age_ms: u64,
    },
    Wait(u64),
}

/// Any step, picks and ends more often than the others.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let node = 0..IDS;
    let weight = prop_oneof![Just(0_u64), 1..6_u64, Just(256)];
    let some =
        |weight, most| prop_oneof![weight => Just(Vec::new()), 1 => prop::collection::vec(0..IDS, 1..most)];
    prop_oneof![
        2 => (node.clone(), weight.clone(), prop::option::of(0..4_u32))
            .prop_map(|(node, weight, jobs_max)| Step::Join { node, weight, jobs_max }),
        1 => node.clone().prop_map(Step::Leave),
        1 => (node.clone(), weight).prop_map(|(node, weight)| Step::Weight { node, weight }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, draining)| Step::Drain { node, draining }),
        1 => (node, any::<bool>()).prop_map(|(node, up)| Step::Check { node, up }),
        10 => (any::<u64>(), some(3, 3), some(4, 6))
            .prop_map(|(key, avoid, excluded)| Step::Pick { key, avoid, excluded }),
        8 => (any::<usize>(), outcome()).prop_map(|(place, outcome)| Step::Finish { place, outcome }),
        3 => (0..IDS, prop::option::of(0..3_u8), any::<[u32; 4]>(), prop_oneof![Just(0), 0..15_000_u64])
            .prop_map(|(node, health, numbers, age_ms)| Step::Report { node, health, numbers, age_ms }),
        2 => (0..4_000_u64).prop_map(Step::Wait),
    ]
}

/// A report with absurd numbers among the sound ones, as from a node that is broken or evil.
fn report(measured_at: Time, health: Option<u8>, numbers: [u32; 4]) -> Report {
    let number = |n: u32| match n % 8 {
        0 => None,
        1 => Some(f32::from_bits(n)),
        2 => Some(f32::NAN),
        3 => Some(f32::MAX),
        4 => Some(-1.0),
        _ => Some((n % 1000) as f32 / 100.0),
    };
    let count = |n: u32| if n.is_multiple_of(8) { None } else { Some(n >> (n % 32)) };
    Report {
        measured_at,
        jobs: count(numbers[0]),
        load: number(numbers[1]),
        health: health.map(Health::saturating),
        credits: count(numbers[2]),
        jobs_per_s: number(numbers[3]),
        errors_per_s: number(numbers[0] ^ numbers[3]),
        latency: count(numbers[1]).map(|n| Duration::from_nanos(u64::from(n) << (n % 32))),
    }
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop::sample::select(Outcome::ALL.to_vec())
}

/// Any policy, with and without the rules that take nodes out and ease them in.
pub(crate) fn settings() -> impl Strategy<Value = Settings> {
    let policy = prop::sample::select(Policy::ALL.to_vec());
    let order = prop::sample::select(vec![Order::Smooth, Order::Tokens]);
    let variant = prop::sample::select(vec![Variant::Least, Variant::Among, Variant::Artificial]);
    let outlier = Outlier { consecutive: 2, ..Outlier::default() };
    (
        policy,
        (order, variant),
        1..4_u8,
        any::<bool>(),
        prop::option::of(Just(outlier)),
        prop::sample::select(vec![0, 50, 100]),
    )
        .prop_map(|(policy, (order, variant), choices, slow, outlier, panic_percent)| Settings {
            policy,
            order,
            variant,
            dispatchers: u16::from(choices) - 1,
            current_bonus_percent: 30,
            // Seldom: large rings are slow to build without optimisation.
            affinity: if slow && choices == 2 { 2 } else { 0 },
            choices,
            slow_start: Duration::from_secs(if slow { 3 } else { 0 }),
            outlier,
            panic_percent,
            ..Settings::default()
        })
}

/// A node as the reference sees it.
#[derive(Clone, Debug)]
struct Node {
    spec: NodeSpec,
    draining: bool,
    up: bool,
    failures_in_a_row: u32,
    ejected_until: Option<Time>,
    doublings: u32,
    back_at: Time,
    /// When its health was last measured, and whether it said that it wants no jobs.
    report: Option<(Time, bool)>,
}

/// The scheduler and the reference, side by side.
pub(crate) struct World {
    pub(crate) scheduler: Scheduler,
    pub(crate) counts: Arc<JobCounts>,
    pub(crate) now: Time,
    settings: Settings,
    nodes: BTreeMap<NodeId, Node>,
    pub(crate) in_flight: Vec<NodeId>,
}

impl World {
    /// With so many nodes of which nothing is known but that they are there, above the ids of steps: a
    /// large pool is kept in other structures than a small one.
    pub(crate) fn new(settings: Settings, seed: u64, silent: u32) -> World {
        let counts = Arc::new(JobCounts::new(IDS as usize * 50 + silent as usize));
        let mut world = World {
            scheduler: Scheduler::new(settings.clone(), counts.clone(), seed),
            counts,
            now: Time::ZERO + Duration::from_secs(100),
            settings,
            nodes: BTreeMap::new(),
            in_flight: Vec::new(),
        };
        for node in 0..silent {
            world.join(NodeId(IDS * 50 + node), 1, Some(1));
        }
        world
    }

    pub(crate) fn play(&mut self, step: Step) {
        match step {
            Step::Join { node, weight, jobs_max } => self.join(id(node), weight, jobs_max),
            Step::Leave(node) => {
                // An id is not given again while jobs of it are in flight.
                if !self.in_flight.contains(&id(node)) {
                    self.nodes.remove(&id(node));
                    self.scheduler.handle(self.now, Event::Leave { node: id(node) });
                }
            }
            Step::Weight { node, weight } => {
                let weight = Weight::new(weight).unwrap();
                if let Some(known) = self.nodes.get_mut(&id(node)) {
                    known.spec.weight = weight;
                }
                self.scheduler.handle(self.now, Event::Weight { node: id(node), weight });
            }
            Step::Drain { node, draining } => {
                if let Some(known) = self.nodes.get_mut(&id(node)) {
                    known.draining = draining;
                }
                self.scheduler.handle(self.now, Event::Drain { node: id(node), draining });
            }
            Step::Check { node, up } => {
                if let Some(known) = self.nodes.get_mut(&id(node)) {
                    known.up = up;
                }
                self.scheduler.handle(self.now, Event::Check { node: id(node), up });
            }
            Step::Pick { key, avoid, excluded } => {
                let ids = |nodes: Vec<u32>| nodes.into_iter().map(id).collect::<Vec<_>>();
                self.pick(key, &ids(avoid), &ids(excluded));
            }
            Step::Finish { place, outcome } => {
                if !self.in_flight.is_empty() {
                    let node = self.in_flight.swap_remove(place % self.in_flight.len());
                    self.finish(node, outcome);
                }
            }
            Step::Report { node, health, numbers, age_ms } => {
                let measured_at = self.now - Duration::from_millis(age_ms);
                if let Some(known) = self.nodes.get_mut(&id(node)) {
                    let news = known.report.is_none_or(|(before, _)| measured_at >= before);
                    // What is not said does not change what was.
                    let news = news && health.is_some();
                    if news && self.now.since(measured_at) < self.settings.report_expiry {
                        known.report = Some((measured_at, health == Some(0)));
                    }
                }
                let report = report(measured_at, health, numbers);
                self.scheduler.handle(self.now, Event::Report { node: id(node), report });
            }
            Step::Wait(ms) => self.now += Duration::from_millis(ms),
        }
    }

    pub(crate) fn join(&mut self, node: NodeId, weight: u64, jobs_max: Option<u32>) {
        let name_hash = hash_bytes(format!("node {node}").as_bytes());
        let spec = NodeSpec { weight: Weight::new(weight).unwrap(), jobs_max, name_hash };
        let new = Node {
            spec,
            draining: false,
            up: true,
            failures_in_a_row: 0,
            ejected_until: None,
            doublings: 0,
            back_at: Time::ZERO,
            report: None,
        };
        self.nodes.entry(node).or_insert(new).spec = spec;
        self.scheduler.handle(self.now, Event::Join { node, spec });
    }

    /// Picks, and compares with what may and what must be picked.
    pub(crate) fn pick(&mut self, key: u64, avoid: &[NodeId], excluded: &[NodeId]) {
        let members = self.members();
        let allowed: Vec<NodeId> = members.iter().copied().filter(|node| !excluded.contains(node)).collect();
        let others = allowed.iter().any(|node| !avoid.contains(node));
        let open: Vec<NodeId> = allowed
            .iter()
            .copied()
            .filter(|node| !others || !avoid.contains(node))
            .filter(|node| self.nodes[node].spec.jobs_max.is_none_or(|max| self.counts.jobs(*node) < max))
            .collect();
        let before = self.total();
        // Some clients are on a node already, which may not be there.
        let current = key.is_multiple_of(3).then(|| id((key >> 8) as u32 % IDS));
        let pick = self.scheduler.pick(self.now, &Job { key, avoid, excluded, current });
        match pick {
            Ok(node) => {
                assert!(open.contains(&node), "picked {node}, open are {open:?} of {members:?}");
                assert_eq!(self.total(), before + 1, "a pick reserves one place");
                self.in_flight.push(node);
            }
            Err(error) => {
                assert_eq!(self.total(), before, "no pick reserves nothing");
                let expected = match (members.is_empty(), allowed.is_empty()) {
                    (true, _) => PickError::NoNode,
                    (false, true) => PickError::Excluded,
                    (false, false) => PickError::Full,
                };
                assert!(open.is_empty() && error == expected, "{error}, open are {open:?} of {members:?}");
            }
        }
    }

    pub(crate) fn finish(&mut self, node: NodeId, outcome: Outcome) {
        let latency = (outcome == Outcome::Success).then_some(Duration::from_millis(3));
        self.scheduler.handle(self.now, Event::Finish { node, outcome, latency });
        let Some(rules) = self.settings.outlier else { return };
        let now = self.now;
        self.expire();
        let Some(known) = self.nodes.get_mut(&node).filter(|known| known.ejected_until.is_none()) else {
            return;
        };
        match outcome {
            Outcome::Cancelled => {}
            Outcome::Success => known.failures_in_a_row = 0,
            _ => known.failures_in_a_row += 1,
        }
        if known.failures_in_a_row >= rules.consecutive {
            let forgiven = now.since(known.back_at).as_nanos() / rules.interval.as_nanos();
            known.doublings = known.doublings.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
            known.ejected_until =
                Some(now + (rules.ejection * 2_u32.pow(known.doublings)).min(rules.ejection_max));
            known.doublings += 1;
            known.failures_in_a_row = 0;
        }
    }

    pub(crate) fn finish_all(&mut self) {
        while let Some(node) = self.in_flight.pop() {
            self.scheduler.handle(self.now, Event::Finish { node, outcome: Outcome::Success, latency: None });
        }
    }

    pub(crate) fn total(&self) -> u32 {
        (0..self.counts.len() as u32).map(|node| self.counts.jobs(NodeId(node))).sum()
    }

    fn expire(&mut self) {
        for node in self.nodes.values_mut() {
            if let Some(until) = node.ejected_until.filter(|until| *until <= self.now) {
                node.ejected_until = None;
                node.back_at = until;
            }
        }
    }

    fn members(&mut self) -> Vec<NodeId> {
        self.expire();
        let wanted = self.nodes.iter().filter(|(_, node)| node.spec.weight.value() > 0 && !node.draining);
        let wants_none = |node: &Node| {
            let fresh = |at| self.now.since(at) < self.settings.report_expiry;
            node.report.is_some_and(|(at, none)| none && fresh(at))
        };
        let eligible = |node: &Node| node.up && node.ejected_until.is_none() && !wants_none(node);
        let wanted: Vec<_> = wanted.map(|(id, node)| (*id, eligible(node))).collect();
        let eligible = wanted.iter().filter(|(_, eligible)| *eligible).count();
        let panic = eligible * 100 < wanted.len() * usize::from(self.settings.panic_percent);
        wanted.into_iter().filter(|(_, eligible)| *eligible || panic).map(|(id, _)| id).collect()
    }
}

/// Ids with gaps, beyond a single word of the tables.
pub(crate) fn id(node: u32) -> NodeId {
    NodeId(node * 49)
}
