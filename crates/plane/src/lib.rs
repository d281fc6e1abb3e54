//! Balancers that are not Evener's own, and carry out what its director comes to.
//!
//! - [`haproxy`]: HAProxy, by its runtime API.
//! - [`ipvs`]: Linux Virtual Server, in the kernel.

pub mod haproxy;
pub mod ipvs;
