//! Linux Virtual Server, steered through the kernel's generic netlink family `IPVS`.
//!
//! [`Ipvs::apply`] makes the kernel's virtual services what is [`Wanted`], with as few changes as that takes: a weight is
//! an edit, so connections stay where they are. [`message`] is the wire, pure functions over bytes; `plan` decides what
//! to change, and does no I/O either.
//!
//! Source: the kernel's `linux/netlink.h`, `linux/genetlink.h` and `linux/ip_vs.h`.

mod driver;
mod error;
pub mod message;
mod plan;
mod socket;
mod types;
mod wanted;
mod wire;

pub use driver::{Changes, Failure, Ipvs};
pub use error::IpvsError;
pub use message::WireError;
pub use plan::{Cause, Change, Step};
pub use types::{Destination, Family, Forwarding, Service, Stats, Transport, VirtualService, Way};
pub use wanted::{Wanted, WantedDestination, WantedError, WantedService};
