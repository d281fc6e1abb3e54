//! The nodes of a pool as policies see them.

use std::sync::Arc;

use evener_model::{JobCounts, NodeId, NodeSpec, Time};

use crate::latency::Latency;
use crate::outlier::Conduct;

/// What stands for 1 in fractions of weights and scores.
pub(crate) const UNIT: u32 = 256;

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
        }
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
        if let Err(place) = self.known.binary_search(&node) {
            self.known.insert(place, node);
        }
        // A node may come back within a pick, which must not allocate.
        self.members.reserve(self.known.len() - self.members.len());
    }

    pub(crate) fn remove(&mut self, node: NodeId) {
        self.records[node.index()] = None;
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
