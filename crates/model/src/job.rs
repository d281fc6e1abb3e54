use std::time::Duration;

use crate::{NodeId, NodeSpec, Report, Weight};

/// What is placed: a request, a transaction, a connection or a datagram.
#[derive(Clone, Copy, Debug, Default)]
pub struct Job<'a> {
    /// Hash of what the pool keeps together (client address, path, key …); used by hashing policies.
    pub key: u64,
    /// Nodes that this job has already been tried on. They are not picked again while another can be.
    pub avoid: &'a [NodeId],
    /// Nodes that this job must not go to, whatever happens to it.
    pub excluded: &'a [NodeId],
    /// The node that the client is on already, if that is worth something (a warm connection, a cache).
    pub current: Option<NodeId>,
}

/// How a job ended, as far as the node is to be judged by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The node answered, and not with an error of its own.
    Success,
    /// The node answered that it failed (an HTTP 5xx).
    Error,
    /// The node did not accept the connection.
    Refused,
    /// The node broke the connection or the protocol before the job was done.
    Reset,
    /// The node did not answer in time.
    Timeout,
    /// The job ended for a reason that says nothing about the node (the client went away).
    Cancelled,
}

impl Outcome {
    /// All outcomes, in the order of [`Outcome::index`].
    pub const ALL: [Outcome; 6] = [
        Outcome::Success,
        Outcome::Error,
        Outcome::Refused,
        Outcome::Reset,
        Outcome::Timeout,
        Outcome::Cancelled,
    ];

    /// The place of this outcome in tables that count outcomes.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the node is to blame.
    pub const fn is_failure(self) -> bool {
        matches!(self, Outcome::Error | Outcome::Refused | Outcome::Reset | Outcome::Timeout)
    }

    /// The name in metrics and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Outcome::Success => "success",
            Outcome::Error => "error",
            Outcome::Refused => "refused",
            Outcome::Reset => "reset",
            Outcome::Timeout => "timeout",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// What a scheduler is told.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A node is there, up and not draining. For a node that is already known: its spec changed.
    Join {
        /// The node.
        node: NodeId,
        /// What is configured of it.
        spec: NodeSpec,
    },
    /// A node is no longer there. Jobs still on it may finish later; their
    /// [`Event::Finish`] releases the count and is otherwise ignored.
    Leave {
        /// The node.
        node: NodeId,
    },
    /// A node's weight changed while running.
    Weight {
        /// The node.
        node: NodeId,
        /// The new weight.
        weight: Weight,
    },
    /// An operator drains a node (`true`) or takes it back (`false`).
    Drain {
        /// The node.
        node: NodeId,
        /// Whether it drains.
        draining: bool,
    },
    /// An active health check changed its verdict.
    Check {
        /// The node.
        node: NodeId,
        /// Whether the node may get jobs.
        up: bool,
    },
    /// A node said how it is.
    Report {
        /// The node.
        node: NodeId,
        /// What it said.
        report: Report,
    },
    /// A picked job ended: releases the reservation that `pick` made, exactly once.
    Finish {
        /// The node that was picked.
        node: NodeId,
        /// How it ended.
        outcome: Outcome,
        /// From the pick to the first byte of the node's answer; `None` if there was no answer
        /// or the protocol has none.
        latency: Option<Duration>,
    },
}
