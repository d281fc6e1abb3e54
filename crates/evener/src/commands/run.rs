use std::path::PathBuf;

use clap::Args;
use evener_control::{Flags, Origin, RecordTo, RunError, RunOptions, config};

use crate::output::{self, Status};
use crate::{Wrong, logging};

/// Runs a director: listens, and places jobs on nodes.
///
/// It reads a configuration file, or takes the most important settings as options. Its own log goes to
/// standard error.
///
/// SIGHUP reads the configuration and opens the access log again; SIGUSR2 hands over to the program that now
/// lies where this one came from; SIGTERM and SIGINT finish open jobs and end, a second one at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  evener run -c /etc/evener/evener.toml
  evener run --listen http://:8080 --to 10.0.0.1:80,weight=5 --to 10.0.0.2:80
  evener run --listen http://127.0.0.1:8080 --to 127.0.0.1:9001 --to 127.0.0.1:9002 \\
      --scheduler round-robin --workers 1 --admin 127.0.0.1:9900
  evener run -c evener.toml --record run.rec --record-max 200MiB
  evener run --listen tcp://:5432 --to 10.0.0.1:5432,max_jobs=100 --scheduler least-jobs

Names of schedulers: docs/schedulers.md, or give a wrong one.")]
pub(crate) struct Run {
    /// Configuration file
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["listen", "to", "scheduler", "workers", "admin", "access_log"])]
    config: Option<PathBuf>,
    /// Where to listen, and what is spoken there: http://ADDR or tcp://ADDR; may be repeated
    #[arg(long, value_name = "URL")]
    listen: Vec<String>,
    #[arg(
        long,
        value_name = "NODE",
        help = "A node: ADDR[,weight=N][,max_jobs=N][,name=X]; may be repeated"
    )]
    to: Vec<String>,
    /// How a node is chosen [default: informed]
    #[arg(long, value_name = "NAME")]
    scheduler: Option<String>,
    /// Threads that carry jobs [default: the cores available]
    #[arg(long, value_name = "N")]
    workers: Option<usize>,
    /// Where evener ctl and metrics are answered: ADDR or unix:PATH [default: nowhere]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// Where a line about each job goes: a file, stdout or off [default: off]
    #[arg(long, value_name = "PATH")]
    access_log: Option<String>,
    /// Record what schedulers are told and choose, for evener sim replay
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The recording ends at this size; traffic goes on
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = record_max, requires = "record")]
    record_max: u64,
    /// Write the program's own log as JSON
    #[arg(long)]
    json: bool,
}

impl Run {
    pub(crate) fn run(self) -> anyhow::Result<Status> {
        if self.config.is_none() && self.listen.is_empty() && self.to.is_empty() {
            let expected = "expected -c FILE, or --listen URL and --to NODE; see evener run --help";
            return Err(Wrong(expected.to_string()).into());
        }
        let json = self.json;
        let bytes_max = self.record_max;
        let record = self.record.clone().map(|path| RecordTo { path, bytes_max });
        let origin = self.origin();
        let config = match origin.config() {
            Ok(config) => config,
            Err(errors) => {
                eprint!("{}", errors.render(output::colour_on_stderr()));
                return Ok(Status::Wrong);
            }
        };
        logging::start(&config.process.log_level, json || config.process.log_json)?;
        evener_control::run(&RunOptions { origin, record }, config).map_err(|error| match error {
            RunError::Config(errors) => Wrong(errors.to_string()).into(),
            error => anyhow::Error::from(error),
        })?;
        Ok(Status::Done)
    }

    fn origin(self) -> Origin {
        match self.config {
            Some(path) => Origin::File(path),
            None => Origin::Flags(Flags {
                listen: self.listen,
                to: self.to,
                scheduler: self.scheduler,
                workers: self.workers,
                admin: self.admin,
                access_log: self.access_log,
            }),
        }
    }
}

/// A size, in which a recording has a beginning and an end.
fn record_max(text: &str) -> Result<u64, String> {
    let size = config::size(text).filter(|size| *size >= RecordTo::BYTES_MAX_LEAST);
    size.ok_or_else(|| "expected a size of at least 4KiB, such as 200MiB or 1GiB".into())
}
