//! Parsers and arithmetic, without I/O and without a clock: the same in a test and in a fuzzer.
//!
//! A file for each source. A parser takes any bytes; what it does not know is [`Malformed`], never a panic.

pub mod cgroup;
pub mod cpu;
pub mod disk;
pub mod memory;
pub mod network;
pub mod pressure;
mod text;

pub use text::Malformed;
