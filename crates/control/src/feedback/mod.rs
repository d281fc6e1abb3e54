//! What nodes say of themselves, however it comes here, and what follows from it.
//!
//! - `index.rs`: which nodes an address or a name means
//! - `told.rs`: what a node said last, by each way
//! - `hub.rs`: takes reports: schedulers are told, weights follow, views show them
//! - `members.rs`: nodes that join a pool by starting a service
//! - `transports.rs`: what listens and asks, opened and closed as the configuration has it
//! - `necp/`, `push.rs`, `datagram.rs`: agents that connect, post and send
//! - `asking.rs`, `agent_check.rs`, `pull.rs`: nodes that are asked
//! - `hearing.rs`: all of it for a director within another program
//! - `credentials.rs`: whom to believe, and of which nodes; `refusal.rs`: why not
//!
//! The ways by which reports come end in [`Director::reported`].

mod agent_check;
mod asking;
mod credentials;
mod datagram;
mod hearing;
mod hub;
mod index;
mod members;
mod necp;
mod orca_stream;
mod pull;
mod push;
mod refusal;
mod told;
mod transports;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use evener_engine::snapshot::PoolId;
use evener_model::NodeId;
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::director::Director;

pub(crate) use agent_check::Allowance;
pub use hearing::Hearing;
pub(crate) use index::Index;
pub(crate) use members::Members;
pub(crate) use refusal::Refusal;
pub(crate) use told::Told;
pub(crate) use transports::Opened;
pub use transports::TransportError;
use transports::Transports;

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
    refused: [[AtomicU64; Refusal::ALL.len()]; Dialect::ALL.len()],
    agents: AtomicU64,
}

impl Counters {
    pub(crate) fn count_taken(&self, dialect: Dialect) {
        self.taken[dialect.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts what came and was not believed, or did not come.
    pub(crate) fn count_refused(&self, dialect: Dialect, why: Refusal) {
        self.refused[dialect.index()][why.index()].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an agent that is connected now, or not any more.
    pub(crate) fn count_agent(&self, is_here: bool) {
        match is_here {
            true => self.agents.fetch_add(1, Ordering::Relaxed),
            false => self.agents.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Agents that are connected.
    pub(crate) fn agents(&self) -> u64 {
        self.agents.load(Ordering::Relaxed)
    }

    /// Reports that were taken.
    pub(crate) fn taken(&self, dialect: Dialect) -> u64 {
        self.taken[dialect.index()].load(Ordering::Relaxed)
    }

    /// What was refused, by reason.
    pub(crate) fn refused(&self, dialect: Dialect) -> impl Iterator<Item = (Refusal, u64)> {
        let counts = &self.refused[dialect.index()];
        Refusal::ALL.into_iter().map(|why| (why, counts[why.index()].load(Ordering::Relaxed)))
    }
}

/// What listens for reports, asks for them, and acts on them.
#[derive(Debug)]
pub(crate) struct Feedback {
    hub: JoinHandle<()>,
    transports: Transports,
}

impl Feedback {
    pub(crate) fn start(director: &Arc<Director>) -> Feedback {
        Feedback { hub: tokio::spawn(hub::run(Arc::clone(director))), transports: Transports::default() }
    }

    /// Reads and opens what `config` needs; sockets of a predecessor are taken from `inherited`.
    ///
    /// # Errors
    /// What cannot be had. All stays as it is then.
    pub(crate) fn open(
        &self,
        config: &Config,
        inherited: &mut BTreeMap<String, OwnedFd>,
    ) -> Result<Opened, TransportError> {
        self.transports.open(config, inherited)
    }

    /// Listens and asks as the director's configuration has it, with what was opened for it; `None`: no more has
    /// changed than nodes that have joined or left.
    pub(crate) fn follow(&mut self, director: &Arc<Director>, opened: Option<Opened>) {
        self.transports.follow(director, opened);
    }

    /// The listening sockets, by what they are.
    pub(crate) fn sockets(&self) -> Vec<(String, &OwnedFd)> {
        self.transports.sockets()
    }

    /// Hears nothing any more. Agents are let go, to find who takes over.
    pub(crate) fn stop(&mut self) {
        self.transports.stop();
        self.hub.abort();
    }
}

#[cfg(test)]
mod tests;
