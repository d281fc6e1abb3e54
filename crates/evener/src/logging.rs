//! The program's own log: to standard error, so that standard output stays the command's.

use std::io;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::{Wrong, output};

/// Starts the log at `level`, unless the environment variable EVENER_LOG says otherwise
/// (`debug`, or by module as in `evener_control=debug,info`).
pub(crate) fn start(level: &str, json: bool) -> anyhow::Result<()> {
    let directives = std::env::var("EVENER_LOG").unwrap_or_else(|_| level.to_string());
    let filter = EnvFilter::try_new(&directives).map_err(|error| {
        Wrong(format!("log level \"{directives}\": expected error, warn, info, debug or trace ({error})"))
    })?;
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_timer(SystemTime);
    if json {
        log.json().flatten_event(true).init();
    } else {
        log.with_ansi(output::colour_on_stderr()).init();
    }
    Ok(())
}
