//! HAProxy, steered through its runtime API.
//!
//! [`Haproxy::apply`] makes one of HAProxy's proxies what is [`Wanted`], with as few commands as that takes: weights,
//! draining, and servers that come and go. [`answer`] reads what HAProxy answers and [`command`] writes what it is
//! told, pure functions over bytes; `plan` decides what to change, and does no I/O either.
//!
//! What is whose: weights and draining are ours, maintenance is the operator's, and other proxies and other servers of
//! the proxy are left alone. A server that we added carries [`ADDED_PREFIX`] in its name, so that another director, or
//! this one after a restart, knows it.
//!
//! Source: HAProxy's management guide, 9.3 "Unix Socket commands", and the answers of HAProxy 3.2.

pub mod answer;
pub mod command;
mod driver;
mod error;
mod plan;
mod socket;
mod wanted;

pub use driver::{Changes, Failure, Haproxy, Limits};
pub use error::HaproxyError;
pub use plan::{Cause, Change, Step};
pub use socket::{Endpoint, EndpointError};
pub use wanted::{ADDED_PREFIX, Wanted, WantedError, WantedNode};
