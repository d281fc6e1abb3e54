use std::sync::Arc;

use evener_model::{Event, Job, JobCounts, NodeId, NodeSpec, Time};

use crate::{NodeState, NodeView, PickError, Placement, Policy, Settings};

/// Chooses nodes for jobs.
#[derive(Debug)]
pub struct Scheduler {
    settings: Settings,
    counts: Arc<JobCounts>,
    nodes: Vec<(NodeId, NodeSpec, bool, bool)>,
    last: u32,
    placements: Vec<Placement>,
}

impl Scheduler {
    /// A scheduler without nodes.
    pub fn new(settings: Settings, counts: Arc<JobCounts>, _seed: u64) -> Scheduler {
        Scheduler { settings, counts, nodes: Vec::new(), last: 0, placements: Vec::new() }
    }

    /// Takes new settings.
    pub fn reconfigure(&mut self, _now: Time, settings: Settings) {
        self.settings = settings;
    }

    /// Takes an event.
    pub fn handle(&mut self, _now: Time, event: Event) {
        match event {
            Event::Join { node, spec } => match self.nodes.iter_mut().find(|n| n.0 == node) {
                Some(known) => known.1 = spec,
                None => {
                    self.nodes.push((node, spec, true, false));
                    self.nodes.sort_by_key(|n| n.0);
                }
            },
            Event::Leave { node } => self.nodes.retain(|n| n.0 != node),
            Event::Weight { node, weight } => {
                if let Some(known) = self.nodes.iter_mut().find(|n| n.0 == node) {
                    known.1.weight = weight;
                }
            }
            Event::Drain { node, draining } => {
                if let Some(known) = self.nodes.iter_mut().find(|n| n.0 == node) {
                    known.3 = draining;
                }
            }
            Event::Check { node, up } => {
                if let Some(known) = self.nodes.iter_mut().find(|n| n.0 == node) {
                    known.2 = up;
                }
            }
            Event::Finish { node, .. } => self.counts.release(node),
        }
    }

    /// Picks a node and reserves a job on it.
    pub fn pick(&mut self, _now: Time, job: &Job<'_>) -> Result<NodeId, PickError> {
        let eligible = |n: &&(NodeId, NodeSpec, bool, bool)| n.1.weight.value() > 0 && n.2 && !n.3;
        if !self.nodes.iter().any(|n| eligible(&n)) {
            return Err(PickError::NoNode);
        }
        let others = self.nodes.iter().filter(eligible).any(|n| !job.avoid.contains(&n.0));
        let open = self
            .nodes
            .iter()
            .filter(eligible)
            .filter(|n| !others || !job.avoid.contains(&n.0))
            .filter(|n| n.1.jobs_max.is_none_or(|max| self.counts.jobs(n.0) < max));
        let last = self.last;
        let turn = |n: &(NodeId, NodeSpec, bool, bool)| n.0.0.wrapping_sub(last + 1);
        let found = if self.settings.policy == Policy::RoundRobin {
            open.min_by_key(|n| turn(n))
        } else {
            open.min_by_key(|n| (self.counts.jobs(n.0), turn(n)))
        };
        match found {
            Some(n) if self.counts.reserve(n.0, n.1.jobs_max) => {
                self.last = n.0.0;
                Ok(n.0)
            }
            _ => Err(PickError::Full),
        }
    }

    /// The nodes as the scheduler sees them, by id.
    pub fn nodes(&self, _now: Time) -> impl Iterator<Item = NodeView> + '_ {
        self.nodes.iter().map(|n| NodeView {
            node: n.0,
            state: match n {
                (_, spec, ..) if spec.weight.value() == 0 => NodeState::Draining,
                (_, _, _, true) => NodeState::Draining,
                (_, _, false, _) => NodeState::Down,
                _ => NodeState::Up,
            },
            weight: n.1.weight,
            effective_weight: n.1.weight.value() as f32,
            jobs: self.counts.jobs(n.0),
            latency: None,
            failure_share: 0.0,
            ejections: 0,
        })
    }

    /// The last placements, newest first.
    pub fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.placements.iter()
    }
}
