//! A node's agent: measures the node with [`evener_load`], and tells directors and other nodes how it is, in the dialects
//! of [`evener_feedback`].
//!
//! [`Agent::prepare`] reads all files and opens all sockets that may need rights, which the process gives up
//! then ([`become_user`]); [`Agent::run`] does the rest. What is told is always the newest sample, and none that is too
//! old.

mod agent;
mod check;
mod datagrams;
mod error;
mod failures;
mod http;
mod latest;
mod necp;
mod net;
mod push;
mod user;

pub mod settings;

pub use agent::Agent;
pub use error::AgentError;
pub use settings::Settings;
pub use user::{become_user, is_root};
