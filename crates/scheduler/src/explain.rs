//! What the scheduler shows of itself: each node as it sees it, and why it chose what it chose.

use std::time::Duration;

use evener_model::{Health, NodeId, Report, Time, Weight};
use thiserror::Error;

use crate::Policy;
use crate::nodes::Nodes;

/// Why no node was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum PickError {
    /// No node may get jobs, not even in panic.
    #[error("no node may get jobs")]
    NoNode,
    /// Nodes could be picked, but the job must go to none of them.
    #[error("no node may get this job")]
    Excluded,
    /// Some node could be picked, but all of them are at their most jobs: the job may wait.
    #[error("all nodes are full")]
    Full,
}

/// Whether a node may get jobs, and why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NodeState {
    /// It may.
    Up,
    /// It may, but fewer than its weight says: it is new or back.
    Warming {
        /// When it gets its full share.
        until: Time,
    },
    /// An operator drains it, or its weight is 0.
    Draining,
    /// The health check says no, or the node itself does: it reports a health of 0.
    Down,
    /// It failed too often.
    Ejected {
        /// When it comes back.
        until: Time,
    },
}

impl NodeState {
    /// The name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            NodeState::Up => "up",
            NodeState::Warming { .. } => "warming",
            NodeState::Draining => "draining",
            NodeState::Down => "down",
            NodeState::Ejected { .. } => "ejected",
        }
    }
}

/// A node as the scheduler sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView {
    /// Which node.
    pub node: NodeId,
    /// Whether it may get jobs.
    pub state: NodeState,
    /// Its weight as configured or set.
    pub weight: Weight,
    /// Its weight as slow start leaves it now; 0 if it gets no jobs.
    pub effective_weight: f32,
    /// Jobs in flight, those of other schedulers that share counts included.
    pub jobs: u32,
    /// Mean latency, and when it was last fed; `None` before the first job that had one.
    pub latency: Option<(Duration, Time)>,
    /// Recent share of failures, 0–1: the latest weigh the most, and time forgives.
    pub failure_share: f32,
    /// Times it was ejected.
    pub ejections: u32,
    /// What it last said of itself, and how old that is. What is older than
    /// [`Settings::report_expiry`](crate::Settings::report_expiry) is shown, but not believed.
    pub report: Option<(Report, Duration)>,
}

/// A node that was compared for a placement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which node.
    pub node: NodeId,
    /// Its jobs before the placement.
    pub jobs: u32,
    /// Its weight.
    pub weight: u32,
    /// What the policy compared, lower is better; NaN for policies that do not compare.
    pub score: f32,
    /// Mean latency and when it was last fed, for policies that look at it.
    pub latency: Option<(Duration, Time)>,
}

/// What a placement remembers of a node's report.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Said {
    /// When it was measured.
    pub measured_at: Time,
    /// Jobs on the node, whoever sent them.
    pub jobs: Option<u32>,
    /// How much of its capacity was in use, 1 all of it.
    pub load: Option<f32>,
    /// How well it said it was.
    pub health: Option<Health>,
}

/// A job placed, or not: what was compared and what was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// When.
    pub time: Time,
    /// By which policy.
    pub policy: Policy,
    /// What came of it.
    pub choice: Result<NodeId, PickError>,
    /// Nodes that could have been picked.
    pub candidates_total: u32,
    /// Whether the panic threshold had put nodes back that were down or ejected.
    pub panic: bool,
    candidates: [Candidate; Placement::CANDIDATES_MAX],
    len: u8,
    /// How many of the next are of this placement. They lie apart, so that where no node says anything a pick does not
    /// touch them.
    said_len: u8,
    said: [Option<Said>; Placement::CANDIDATES_MAX],
}

impl Placement {
    /// Candidates that a placement remembers.
    pub const CANDIDATES_MAX: usize = 8;

    /// The nodes that the policy compared, in the order in which it did; of more than eight, eight,
    /// the chosen one always among them. Policies that do not compare show what they took.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates[..usize::from(self.len)]
    }

    /// What the candidate at that place had said of itself, if that was still believed.
    pub fn said(&self, place: usize) -> Option<Said> {
        self.said[..usize::from(self.said_len)].get(place).copied().flatten()
    }

    const NONE: Placement = Placement {
        time: Time::ZERO,
        policy: Policy::RoundRobin,
        choice: Err(PickError::NoNode),
        candidates_total: 0,
        panic: false,
        candidates: [Candidate { node: NodeId(0), jobs: 0, weight: 0, score: f32::NAN, latency: None };
            Placement::CANDIDATES_MAX],
        len: 0,
        said_len: 0,
        said: [None; Placement::CANDIDATES_MAX],
    };

    /// Remembers that a node was compared. The ninth and later ones are let go.
    #[inline]
    pub(crate) fn compare(&mut self, nodes: &Nodes, candidate: Candidate) {
        let place = usize::from(self.len);
        if let Some(free) = self.candidates.get_mut(place) {
            *free = candidate;
            self.len += 1;
            if nodes.have_reported() {
                self.remember(place, nodes.said(candidate.node));
            }
        }
    }

    #[inline(never)]
    fn remember(&mut self, place: usize, said: Option<Said>) {
        self.said[place] = said;
        self.said_len = place as u8 + 1;
    }

    /// Forgets what was compared: the choice came to nothing and there is another.
    pub(crate) fn forget(&mut self) {
        (self.len, self.said_len) = (0, 0);
    }

    /// Sees to it that the chosen node is there.
    #[inline]
    pub(crate) fn include(&mut self, nodes: &Nodes, chosen: Candidate) {
        if self.candidates().iter().any(|candidate| candidate.node == chosen.node) {
            return;
        }
        self.len = self.len.min(Placement::CANDIDATES_MAX as u8 - 1);
        self.compare(nodes, chosen);
    }
}

/// The last placements. A new one takes the place of the oldest.
#[derive(Debug)]
pub(crate) struct Placements {
    ring: Box<[Placement]>,
    made: usize,
}

impl Placements {
    /// How many are remembered.
    const LEN: usize = 64;

    pub(crate) fn new() -> Placements {
        Placements { ring: vec![Placement::NONE; Placements::LEN].into(), made: 0 }
    }

    /// Begins a placement, of which the choice is still to come.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        time: Time,
        policy: Policy,
        members: usize,
        panic: bool,
    ) -> &mut Placement {
        let placement = &mut self.ring[self.made % Placements::LEN];
        self.made += 1;
        placement.time = time;
        placement.policy = policy;
        placement.candidates_total = members as u32;
        placement.panic = panic;
        placement.forget();
        placement
    }

    /// Newest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Placement> {
        let len = self.made.min(Placements::LEN);
        (1..=len).map(|back| &self.ring[(self.made - back) % Placements::LEN])
    }
}
