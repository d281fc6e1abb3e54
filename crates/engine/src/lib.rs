//! The data plane of Evener: workers, connections, node pools, timers.
//!
//! One thread per core, each an epoll loop with its own listeners, connections and
//! schedulers. The control plane hands a [`Snapshot`] to every worker and steers it by
//! [`Command`]s; it never touches a job's bytes.

mod access_log;
mod bell;
mod clock;
mod command;
mod core;
mod io;
mod listener;
mod placer;
mod pool;
mod record;
mod service;
pub mod snapshot;
mod splice;
pub mod stats;
mod timer;
mod token;
mod worker;

pub use access_log::{LogDrain, LogSink, log_channel};
pub use command::{Command, Explanation, PoolView, WorkerHandle};
pub use record::{Drained, RecordDrain, RecordSink, record_channel};
pub use snapshot::Snapshot;
pub use worker::start;
