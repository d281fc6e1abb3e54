//! Balancers that are not Evener's own, and carry out what its director comes to.
//!
//! - [`ipvs`]: Linux Virtual Server, in the kernel.

pub mod ipvs;
