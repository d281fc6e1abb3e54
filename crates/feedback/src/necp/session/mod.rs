//! The two sides of a connection.
//!
//! A driver owns the socket and the clock. It gives a session what it received, writes what the session puts out, wakes
//! it at its deadline, and takes its events until there are none. Random numbers come from
//! the driver too: a seed for jitter, and for authenticated connections a nonce that nobody can guess.
//!
//! Stricter than the draft in what keeps recordings from being of use:
//! - A sequence number must be above the last one by no more than 65,536. Numbers start at a random place,
//!   so that what was recorded on another connection does not fit this one.
//! - An authenticated INIT may be a recording itself. It takes effect with the first message that has the sequence number
//!   which its answer asked for.
//! - An agent that has a key does not speak to a director that does not.

mod agent;
mod backoff;
mod director;
mod exceptions;
mod link;
mod pulse;

use evener_model::{Health, Report, Time};
use thiserror::Error;

pub use agent::{Agent, AgentEvent, AgentSettings};
pub use backoff::Backoff;
pub use director::{Accepts, Director, DirectorEvent, DirectorSettings};
pub use exceptions::{Exceptions, Flow};
pub use pulse::Rhythm;

use super::frame::Fault;
use super::unit::{Query, QueryType};

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The connection could not be opened.
    #[error("connecting failed")]
    Unreachable,
    /// The peer closed the connection, or it broke.
    #[error("the connection was closed")]
    Closed,
    /// Nobody said how to begin, in time.
    #[error("no INIT or INIT_ACK in time")]
    NotOpened,
    /// The peer did not answer keep-alives.
    #[error("keep-alives were not answered")]
    Silent,
    /// The peer's bytes are no messages.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The peer sent too many messages that could not be acted upon.
    #[error("too many bad messages")]
    BadMessages,
    /// The peer sends requests and does not read the answers.
    #[error("answers are not read")]
    Unread,
    /// The peer speaks this version at most.
    #[error("the peer speaks version {0}")]
    Version(u8),
    /// The peer's credentials are missing or wrong, or it says that ours are.
    #[error("not authenticated")]
    Unauthenticated,
    /// The director refused the agent without saying why.
    #[error("refused by the director")]
    Refused,
    /// Ended on our side.
    #[error("ended")]
    Ended,
}

/// What a node answered about a service. What it did not say is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// How well it is.
    pub health: Option<Health>,
    /// Jobs in service.
    pub jobs: Option<u32>,
    /// Jobs that wait.
    pub queue: Option<u32>,
    /// CPU load in thousandths.
    pub cpu_load_milli: Option<u32>,
    /// Network load in thousandths.
    pub network_load_milli: Option<u32>,
}

impl Values {
    /// As a report that was measured at that time. Its load is the sum of the loads.
    pub fn report(&self, measured_at: Time) -> Report {
        let sum = |a: Option<u32>, b: Option<u32>| match (a, b) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0).saturating_add(b.unwrap_or(0))),
        };
        let load = sum(self.cpu_load_milli, self.network_load_milli);
        Report {
            measured_at,
            jobs: sum(self.jobs, self.queue),
            load: load.map(|milli| milli as f32 / 1000.0),
            health: self.health,
            ..Report::default()
        }
    }

    fn set(&mut self, kind: QueryType, value: u32) {
        match kind {
            QueryType::HEALTH => {
                self.health = Some(Health::saturating(u8::try_from(value).unwrap_or(u8::MAX)));
            }
            QueryType::JOBS => self.jobs = Some(value),
            QueryType::QUEUE => self.queue = Some(value),
            QueryType::CPU_LOAD => self.cpu_load_milli = Some(value),
            QueryType::NETWORK_LOAD => self.network_load_milli = Some(value),
            _ => {}
        }
    }

    /// What answers `query`: for an agent that measures first and is asked later.
    pub fn answer(&self, query: Query) -> Option<u32> {
        match query.kind {
            QueryType::HEALTH => self.health.map(|health| health.value().into()),
            QueryType::JOBS => self.jobs,
            QueryType::QUEUE => self.queue,
            QueryType::CPU_LOAD => self.cpu_load_milli,
            QueryType::NETWORK_LOAD => self.network_load_milli,
            _ => None,
        }
    }
}
