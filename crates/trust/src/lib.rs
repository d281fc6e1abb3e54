//! Whom a director and its agents believe: shared keys, and certificates.
//!
//! [`Keys`] are read from a file that nobody else may read. [`server_config`] and [`client_config`] make TLS of three
//! files, the same on both sides: each shows a certificate, and takes the other's only from one authority. Where keys say
//! who connects, [`anonymous_server_config`] and [`anonymous_client_config`] do with less.

mod error;
mod file;
mod keys;
mod tls;

pub use error::TrustError;
pub use keys::{Key, Keys, SECRET_BYTES_MIN};
pub use rustls;
pub use tls::{TlsFiles, anonymous_client_config, anonymous_server_config, client_config, server_config};
