//! What nodes say of themselves, and the weights that follow from it: no I/O, no clock, no lock.
//!
//! Reports come by [`necp`], as [`agent_check`], in [`orca`] headers, as [`json`] or in [`datagram`]s, are
//! [`gathered`] where one node speaks for many, and become weights in [`controller`]. Whatever comes from outside is parsed
//! within fixed limits or refused, and says how old it is. [`pace`] says when to report, and [`phase`] how often.

pub mod agent_check;
pub mod controller;
pub mod datagram;
pub mod gathered;
pub mod json;
pub mod necp;
pub mod orca;
pub mod pace;
pub mod phase;
mod rng;
pub mod signature;
mod stamps;
