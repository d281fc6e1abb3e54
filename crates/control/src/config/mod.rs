//! Configuration: read once from text into what is valid by construction.
//!
//! - `parse.rs`: every key, its default and its limits, in one place each; `scheduler.rs`: those of schedulers;
//!   `feedback.rs`: those of reports
//! - `reader.rs`: tables, values, and what can be wrong with them
//! - `units.rs`: durations and sizes
//! - `error.rs`: errors with file, line, column and remedy

mod error;
mod feedback;
mod flags;
mod parse;
mod reader;
mod scheduler;
mod units;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evener_engine::snapshot::{
    HashKey, HeaderSpec, HttpLimits, HttpTimeouts, LogFormat, Network, NodeTimeouts, PathMatch, ProxyVersion,
    Retry,
};
use evener_model::Weight;
use evener_scheduler::Settings;

pub use error::{ConfigError, Errors, Source};
pub use feedback::{
    AgentCheck, Datagrams, Feedback, Join, OrcaStream, Output, PoolFeedback, Pull, TlsFiles, VirtualService,
};
pub use flags::Flags;
pub use units::{duration, size};

/// A whole, valid configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `[process]`
    pub process: Process,
    /// `[admin]`; `None`: no admin API.
    pub admin: Option<AdminAddress>,
    /// `[access_log]`
    pub access_log: AccessLog,
    /// `[feedback]`
    pub feedback: Feedback,
    /// `[listener.*]`
    pub listeners: Vec<Listener>,
    /// `[pool.*]`
    pub pools: Vec<Pool>,
    /// What is allowed, but probably not meant.
    pub warnings: Vec<String>,
}

/// `[process]`
#[derive(Clone, Debug, PartialEq)]
pub struct Process {
    /// Worker threads; cannot change while the process runs.
    pub workers: usize,
    /// How long open jobs may take after the director was asked to end.
    pub drain_timeout: Duration,
    /// What of the program's own log is written: error, warn, info, debug or trace.
    pub log_level: String,
    /// Whether the program's own log is JSON.
    pub log_json: bool,
}

/// Where the admin API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A TCP address, loopback unless the configuration insists.
    Tcp(SocketAddr),
    /// A UNIX socket, for its owner alone.
    Unix(PathBuf),
}

/// Where lines about jobs go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// `None`: nowhere.
    pub output: Option<LogOutput>,
    /// How a line looks.
    pub format: LogFormat,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogOutput {
    /// Standard output.
    Stdout,
    /// A file, opened again on SIGHUP.
    File(PathBuf),
}

/// `[listener.NAME]`
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub binds: Vec<Bind>,
    /// What it speaks, and where jobs go.
    pub protocol: Protocol,
    /// Client connections at the most, over all workers.
    pub clients_max: u32,
    /// Whether a PROXY header must come first.
    pub accept_proxy: bool,
}

/// An address to listen on, as it was written and as it was understood.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bind {
    /// As written.
    pub text: String,
    /// As understood.
    pub address: SocketAddr,
    /// Whether IPv4 clients are taken on an IPv6 address.
    pub dual_stack: bool,
}

/// What a listener speaks.
#[derive(Clone, Debug, PartialEq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http(Http),
    /// Bytes.
    Tcp {
        /// Name of the pool.
        pool: String,
        /// Without a byte either way, a connection is closed after this.
        idle_timeout: Duration,
    },
}

/// The HTTP side of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// Tried in order.
    pub routes: Vec<Route>,
    /// Name of the pool for what no route takes.
    pub pool: Option<String>,
    /// Sizes.
    pub limits: HttpLimits,
    /// Times.
    pub timeouts: HttpTimeouts,
    /// Headers that are added.
    pub headers: HeaderSpec,
    /// Clients whose forwarding headers are believed.
    pub trusted: Vec<Network>,
}

/// One entry of `route`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Lower case, without port; `*.` stands for any name below.
    pub host: Option<String>,
    /// Which paths.
    pub path: PathMatch,
    /// Name of the pool.
    pub pool: String,
}

/// `[pool.NAME]`
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How nodes are chosen.
    pub scheduler: Settings,
    /// What hashing policies hash.
    pub hash: HashKey,
    /// Jobs that may wait.
    pub queue_max: u32,
    /// For how long.
    pub queue_timeout: Duration,
    /// Trying again elsewhere.
    pub retry: Retry,
    /// When a node has failed.
    pub timeouts: NodeTimeouts,
    /// Connections kept, a node and a worker.
    pub idle_connections: u32,
    /// PROXY header towards nodes.
    pub send_proxy: Option<ProxyVersion>,
    /// The active health check.
    pub check: Option<Check>,
    /// What reports of its nodes do.
    pub feedback: PoolFeedback,
    /// Agents whose nodes become nodes of the pool.
    pub join: Option<Join>,
    /// Another balancer that carries out what the pool comes to.
    pub output: Option<Output>,
    /// Jobs at the most on a node that joins.
    pub jobs_max: Option<u32>,
    /// The nodes.
    pub nodes: Vec<Node>,
}

/// One entry of `node`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique in the pool.
    pub name: String,
    /// As written.
    pub text: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Capacity.
    pub weight: Weight,
    /// Jobs at the most.
    pub jobs_max: Option<u32>,
}

/// An active health check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is tried.
    pub probe: Probe,
    /// How often, ± 10 %.
    pub interval: Duration,
    /// How long one try may take.
    pub timeout: Duration,
    /// Successes in a row that bring a node up.
    pub rise: u32,
    /// Failures in a row that take a node down.
    pub fall: u32,
    /// Another port than that of the jobs.
    pub port: Option<u16>,
}

/// What a health check tries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A request, and what its answer must be.
    Http {
        /// GET, HEAD or OPTIONS.
        method: String,
        /// With query.
        path: String,
        /// The Host header; the node's address if `None`.
        host: Option<String>,
        /// Statuses that are good, as ranges.
        expect: Vec<(u16, u16)>,
        /// What the body must contain.
        body: Option<String>,
    },
    /// A connection.
    Tcp,
    /// A program that ends with status 0.
    Exec(Vec<String>),
}

impl Config {
    /// Reads a file, and what lies in `conf.d/*.toml` beside it, in the order of their names.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub fn load(path: &Path) -> Result<Config, Errors> {
        let mut sources = vec![read(path)?];
        let folder = path.parent().unwrap_or(Path::new("")).join("conf.d");
        let paths = std::fs::read_dir(&folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>, _>>());
        match paths {
            Ok(mut paths) => {
                paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
                paths.sort();
                for path in paths {
                    sources.push(read(&path)?);
                }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            // What cannot be read may hold half of the pools: going on without it would be worse.
            Err(error) => {
                let source = Source { name: folder.display().to_string(), text: String::new() };
                return Err(Errors::one(source, 0..0, "", format!("cannot be read: {error}")));
            }
        }
        parse::parse(sources)
    }

    /// Reads a configuration from text, as if from a file called `name`.
    ///
    /// # Errors
    /// All that is wrong, at once.
    pub fn from_text(name: &str, text: &str) -> Result<Config, Errors> {
        parse::parse(vec![Source { name: name.into(), text: text.into() }])
    }
}

fn read(path: &Path) -> Result<Source, Errors> {
    let name = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Source { name, text }),
        Err(error) => Err(Errors::one(
            Source { name, text: String::new() },
            0..0,
            "",
            format!("cannot be read: {error}"),
        )),
    }
}

#[cfg(test)]
mod tests;
