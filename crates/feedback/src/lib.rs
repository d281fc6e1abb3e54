//! What nodes say of themselves, and the weights that follow from it: no I/O, no clock, no lock.
//!
//! Reports come by [`necp`] and become weights in [`controller`].

pub mod agent_check;
pub mod controller;
pub mod necp;
pub mod orca;
mod rng;
