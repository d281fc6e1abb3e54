use std::io;

use evener_trust::TrustError;
use thiserror::Error;

/// Why an agent cannot begin.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentError {
    /// A file of keys or certificates is of no use.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The settings contradict each other, or the machine.
    #[error("{0}")]
    Settings(String),
    /// An address to listen at is not to be had.
    #[error("{what} at {address}: {error}")]
    Listen {
        /// For what.
        what: &'static str,
        /// Where.
        address: String,
        /// Why not.
        error: io::Error,
    },
    /// The process cannot become another user.
    #[error("cannot become user \"{user}\": {reason}")]
    User {
        /// Whom.
        user: String,
        /// Why not.
        reason: String,
    },
}
