//! NECP, the Network Element Control Protocol, version 1: how agents and a director speak over TCP.
//!
//! [`frame`] is the wire, with what its numbers mean in [`Service`], [`Query`] and [`Exception`]; [`session`] holds the two
//! sides of a connection. The director listens on port 3262; agents connect.
//!
//! Source: draft-cerpa-necp-02 (expired), with these readings where it is silent or contradicts itself:
//! - A header without units does not have the flag for a basic payload; units without the flag are refused.
//! - Numbers that a unit does not use are ignored.
//! - The address 0 is all addresses, whatever the prefix length; another address with prefix length 0 could
//!   be one host or all, and is refused.

pub mod frame;
mod key;
pub mod session;
mod unit;

pub use frame::{Fault, Flags, Frame, Header, Malformed, Opcode, Unit, Units};
pub use key::Key;
pub use unit::{Exception, Flows, Forwarding, Port, Prefix, Protocol, Query, QueryType, Scope, Service};

/// The port on which a director listens.
pub const PORT: u16 = 3262;
