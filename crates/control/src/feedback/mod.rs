//! What nodes say of themselves, however it comes here, and what follows from it.
//!
//! - `index.rs`: which nodes an address or a name means
//! - `told.rs`: what a node said last, by each way
//! - `hub.rs`: takes reports: schedulers are told, weights follow, views show them
//! - `members.rs`: nodes that join a pool by starting a service
//!
//! The ways by which reports come end in [`Director::reported`].

mod hub;
mod index;
mod members;
mod told;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evener_engine::snapshot::PoolId;
use evener_model::NodeId;
use tokio::task::JoinHandle;

use crate::director::Director;

pub(crate) use index::Index;
pub(crate) use members::Members;
pub(crate) use told::Told;

/// How often weights, phases and ages are looked at, beside when reports come.
const TICK: Duration = Duration::from_millis(250);

/// Which way a report came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// The Network Element Control Protocol: an agent is connected.
    Necp,
    /// HAProxy's agent-check: an agent was asked.
    AgentCheck,
    /// Load metrics in responses, or streamed beside them.
    Orca,
    /// Posted to the director as JSON.
    Push,
    /// A page of the node, as JSON.
    Pull,
    /// A signed datagram.
    Datagram,
}

impl Dialect {
    /// All, in the order of [`Dialect::index`].
    pub const ALL: [Dialect; 6] =
        [Dialect::Necp, Dialect::AgentCheck, Dialect::Orca, Dialect::Push, Dialect::Pull, Dialect::Datagram];

    /// The place of this dialect in tables of dialects.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// The name in configuration, views and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Necp => "necp",
            Dialect::AgentCheck => "agent_check",
            Dialect::Orca => "orca",
            Dialect::Push => "push",
            Dialect::Pull => "pull",
            Dialect::Datagram => "datagram",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A node of a pool, while the configuration holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct NodeRef {
    pub(crate) pool: PoolId,
    pub(crate) node: NodeId,
}

/// Counts of reports, for metrics.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    taken: [AtomicU64; Dialect::ALL.len()],
    refused: [AtomicU64; Dialect::ALL.len()],
}

impl Counters {
    pub(crate) fn count_taken(&self, dialect: Dialect) {
        self.taken[dialect.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what came and was not believed: malformed, unsigned, replayed, too old, of an unknown node.
    pub(crate) fn count_refused(&self, dialect: Dialect) {
        self.refused[dialect.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Reports taken and refused, by dialect.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Dialect, u64, u64)> {
        Dialect::ALL.into_iter().map(|dialect| {
            let of = |counters: &[AtomicU64; 6]| counters[dialect.index()].load(Ordering::Relaxed);
            (dialect, of(&self.taken), of(&self.refused))
        })
    }
}

/// What listens for reports, asks for them, and acts on them.
#[derive(Debug)]
pub(crate) struct Feedback {
    hub: JoinHandle<()>,
}

impl Feedback {
    pub(crate) fn start(director: &Arc<Director>) -> Feedback {
        Feedback { hub: tokio::spawn(hub::run(Arc::clone(director))) }
    }

    /// Listens and asks as the director's configuration has it.
    pub(crate) fn follow(&mut self, _director: &Arc<Director>) {}

    /// Hears nothing any more.
    pub(crate) fn stop(&mut self) {
        self.hub.abort();
    }
}

#[cfg(test)]
mod tests;
