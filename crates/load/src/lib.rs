//! What a node measures of itself.
//!
//! [`measure`] holds what needs no I/O: parsers of what the kernel and servers say, and the arithmetic that makes a
//! load of it. [`Sampler`] reads the host and asks servers, programs and metrics, and makes of it an
//! [`evener_model::Report`].

#[cfg(feature = "sampler")]
mod ask;
#[cfg(feature = "sampler")]
mod host;
pub mod measure;
#[cfg(feature = "sampler")]
mod sampler;
pub mod settings;

#[cfg(feature = "sampler")]
pub use host::{CpuReading, Readings};
#[cfg(feature = "sampler")]
pub use sampler::{Failure, Sample, Sampler};
pub use settings::Settings;
