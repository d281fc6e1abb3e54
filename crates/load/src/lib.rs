//! What a node measures of itself.
//!
//! [`measure`] holds what needs no I/O: parsers of what the kernel and servers say, and the arithmetic that makes a
//! load of it.

pub mod measure;
mod settings;

pub use settings::*;
