//! What a node measures of itself.
//!
//! [`measure`] holds what needs no I/O: parsers of what the kernel and servers say, and the arithmetic that makes a
//! load of it. [`Sampler`] reads the host and asks servers, programs and metrics, and makes of it an
//! [`evener_model::Report`].

mod ask;
mod host;
pub mod measure;
mod sampler;
pub mod settings;

pub use host::{CpuReading, Readings};
pub use sampler::{Failure, Sample, Sampler};
pub use settings::Settings;
