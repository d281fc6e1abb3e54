//! Parsers and arithmetic, without I/O and without a clock: the same in a test and in a fuzzer.
//!
//! A file for each source. A parser takes any bytes; what it does not know is an error, never a panic.

pub mod answer;
pub mod cgroup;
pub mod combine;
pub mod cpu;
pub mod disk;
pub mod memory;
pub mod network;
pub mod pressure;
pub mod prometheus;
pub mod servers;
pub mod sock_diag;
mod text;

pub use answer::Answer;
pub use text::Malformed;
