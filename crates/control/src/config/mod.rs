//! Configuration: read once from TOML or from flags into a form that is valid by construction.

mod address;
mod document;
mod error;
mod flags;
mod keys;
mod listener;
mod merge;
mod pool;
mod reader;
mod reference;
mod units;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use evener_engine::snapshot::{
    HashKey, HeaderSpec, HttpLimits, HttpTimeouts, LogFormat, Network, NodeTimeouts, ProxyVersion, Retry,
};
use evener_model::Weight;
use evener_scheduler::Settings;
use serde::Serialize;

pub use address::Bind;
pub use error::{ConfigError, Errors, Warning};
pub use flags::Flags;
pub use reference::reference;

use document::Document;
use reader::Reader;

/// What a director serves, and how. Every name in it that refers to a pool refers to one that is there.
#[derive(Clone, Debug)]
pub struct Config {
    /// The process as a whole.
    pub process: Process,
    /// The admin API; `None`: off.
    pub admin: Option<Admin>,
    /// Where the access log goes.
    pub access_log: AccessLog,
    /// Sockets that accept work, in the order of the files.
    pub listeners: Vec<Listener>,
    /// Nodes that do it, in the order of the files.
    pub pools: Vec<Pool>,
    /// What is allowed, but probably not meant.
    pub warnings: Vec<Warning>,
}

/// The process as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Threads that carry jobs, at least 1.
    pub workers: usize,
    /// How long open jobs may take once the process is to end.
    pub drain_timeout: Duration,
    /// The program's own log: `error`, `warn`, `info`, `debug` or `trace`.
    pub log_level: String,
    /// Whether the program's own log is JSON.
    pub log_json: bool,
}

/// The admin API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens.
    pub listen: AdminAddress,
    /// Names that clients may give as Host, beside addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// Where the admin API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminAddress {
    /// A TCP socket.
    Tcp(SocketAddr),
    /// A UNIX socket that only the process's user may use.
    Unix(PathBuf),
}

impl std::fmt::Display for AdminAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AdminAddress::Tcp(address) => address.fmt(f),
            AdminAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// Where the access log goes, and how its lines look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where.
    pub target: LogTarget,
    /// How.
    pub format: LogFormat,
}

/// Where the access log goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// The end of this file.
    File(PathBuf),
}

/// Sockets that accept work, and what is done with it.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// Its addresses, at least one.
    pub binds: Vec<Bind>,
    /// Client connections at the most, over all workers.
    pub clients_max: u32,
    /// Whether each connection begins with a PROXY protocol header.
    pub accept_proxy: bool,
    /// What it speaks.
    pub protocol: Protocol,
}

/// What a listener speaks.
#[derive(Clone, Debug)]
pub enum Protocol {
    /// HTTP/1.1.
    Http(Http),
    /// Bytes.
    Tcp {
        /// Where connections go.
        pool: String,
        /// Without a byte either way, a connection is closed after this.
        idle_timeout: Duration,
    },
}

/// What an HTTP listener does.
#[derive(Clone, Debug)]
pub struct Http {
    /// Tried in order; the first match wins.
    pub routes: Vec<Route>,
    /// Where requests go that no route matches.
    pub pool: Option<String>,
    /// Refusals by size.
    pub limits: HttpLimits,
    /// Refusals by time.
    pub timeouts: HttpTimeouts,
    /// What is added to forwarded messages.
    pub headers: HeaderSpec,
    /// Clients whose forwarding headers are believed.
    pub trusted: Vec<Network>,
}

/// Requests that match go to a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Host without port, lower case; `*.` before it takes all names below. `None`: any.
    pub host: Option<String>,
    /// Which paths.
    pub path: RoutePath,
    /// Where they go.
    pub pool: String,
}

/// Which paths a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutePath {
    /// All.
    Any,
    /// This one.
    Exact(String),
    /// Those below.
    Prefix(String),
}

/// The nodes behind listeners.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its name.
    pub name: String,
    /// How a node is chosen.
    pub scheduler: Settings,
    /// What of a job the hashing policies hash.
    pub hash_key: HashKey,
    /// Jobs that may wait for a node, over all workers; 0: none.
    pub queue_max: u32,
    /// How long they may wait.
    pub queue_timeout: Duration,
    /// Further tries on other nodes.
    pub retry: Retry,
    /// Times after which a node has failed.
    pub timeouts: NodeTimeouts,
    /// Node-side connections kept for later jobs, a node and a worker.
    pub idle_connections_max: u32,
    /// Each connection to a node begins with this PROXY protocol header.
    pub send_proxy: Option<ProxyVersion>,
    /// The active health check; `None`: nodes are up unless traffic says otherwise.
    pub check: Option<Check>,
    /// The nodes, at least one; names are unique.
    pub nodes: Vec<Node>,
}

/// A node as configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Unique in the pool.
    pub name: String,
    /// Where it listens; names were resolved when the configuration was read.
    pub address: SocketAddr,
    /// Its capacity beside the others'.
    pub weight: Weight,
    /// Jobs in flight at the most; `None`: no limit.
    pub jobs_max: Option<u32>,
}

/// How a node is asked whether it is well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What is done.
    pub probe: Probe,
    /// From the start of one check to the next, give or take 10 %.
    pub interval: Duration,
    /// A check that takes longer has failed.
    pub timeout: Duration,
    /// Good results in a row that bring a node up, at least 1.
    pub rise: u32,
    /// Bad results in a row that bring it down, at least 1.
    pub fall: u32,
    /// The port that is asked; `None`: that of the node.
    pub port: Option<u16>,
}

/// What a health check does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A connection that is accepted is good.
    Tcp,
    /// A request that is answered as expected is good.
    Http {
        /// GET, HEAD, OPTIONS or POST.
        method: String,
        /// Path and query.
        target: String,
        /// The Host; `None`: the node's address.
        host: Option<String>,
        /// Statuses that are good, as inclusive ranges.
        expect: Vec<(u16, u16)>,
        /// Text that the body must contain.
        body: Option<String>,
    },
    /// A command that exits with 0 is good. It gets EVENER_NODE and EVENER_ADDRESS in its environment.
    Exec {
        /// The program and its arguments, at least the program.
        command: Vec<String>,
    },
}

/// What [`check`](crate::check) tells of a valid configuration.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Files that were read, in order.
    pub files: Vec<PathBuf>,
    /// How many listeners there are.
    pub listeners: usize,
    /// How many pools.
    pub pools: usize,
    /// How many nodes, over all pools.
    pub nodes: usize,
    /// What is probably not meant, one line each: `file:line:column: key path: …`.
    pub warnings: Vec<String>,
}

/// Reads `path` and the `*.toml` in the folder `conf.d` beside it, in the order of their names.
///
/// Names of nodes are resolved, which may take as long as the resolver takes.
///
/// # Errors
/// All that is wrong with the files, not only the first thing.
pub fn load(path: &Path) -> Result<Config, Errors> {
    read(&Document::open(path)?)
}

/// The same as [`load`], and a summary of what was found.
///
/// # Errors
/// As for [`load`].
pub fn check(path: &Path) -> Result<Report, Errors> {
    let document = Document::open(path)?;
    let config = read(&document)?;
    Ok(Report {
        files: document.paths().map(PathBuf::from).collect(),
        listeners: config.listeners.len(),
        pools: config.pools.len(),
        nodes: config.pools.iter().map(|pool| pool.nodes.len()).sum(),
        warnings: config.warnings.iter().map(ToString::to_string).collect(),
    })
}

/// Reads a configuration from text; `name` stands for the file in errors.
///
/// # Errors
/// As for [`load`].
pub fn parse(name: &str, text: &str) -> Result<Config, Errors> {
    read(&Document::from_texts(vec![(name.to_string(), text.to_string())])?)
}

/// The configuration that command-line flags describe, validated as a file is; errors name the flag.
///
/// # Errors
/// As for [`load`].
pub fn from_flags(flags: &Flags) -> Result<Config, Errors> {
    read(&flags.document()?)
}

fn read(document: &Document) -> Result<Config, Errors> {
    let mut reader = Reader::new(document);
    let config = listener::read_config(&mut reader);
    reader.finish(config)
}
