//! Protocols as state machines over byte slices: no I/O, no clock, no lock.
//!
//! The same code runs behind a socket, in a unit test, in a fuzzer and in a
//! simulated network.

pub mod http1;
pub mod proxy_protocol;
