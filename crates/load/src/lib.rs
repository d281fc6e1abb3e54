//! What a node measures of itself.
//!
//! [`measure`] holds what needs no I/O: parsers of what the kernel and servers say, and the arithmetic that makes a
//! load of it.

mod host;
pub mod measure;
mod sampler;
pub mod settings;

pub use host::{CpuReading, Readings};
pub use sampler::Failure;
pub use settings::Settings;
