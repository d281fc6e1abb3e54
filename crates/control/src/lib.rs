//! The control plane of Evener: configuration, health checks, admin API, life cycle.
//!
//! It runs in threads of its own and never touches a job's bytes. It turns a [`Config`] into
//! snapshots for the workers of `evener-engine`, keeps what outlives a snapshot (ids, counters,
//! what an operator set), and answers those who ask.

mod access_log;
mod admin;
pub mod config;
mod director;
mod feedback;
mod health;
mod inherit;
mod life;
mod metrics;
mod output;
mod recording;
mod socket;
mod view;

pub use config::{Config, Errors, Flags};
pub use director::{Director, DirectorError};
pub use feedback::{Dialect, Hearing, TransportError};
pub use life::{Origin, RunError, RunOptions, run};
pub use recording::RecordTo;
pub use view::{ExplanationView, NodeView, OutputView, PoolView, PoolsView};
