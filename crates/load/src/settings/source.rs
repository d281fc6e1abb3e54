//! `[[agent.source]]`: whom to ask, and for what.

use std::fmt;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::value::{Address, Factor, Pointer, Url, Words, from_str, period, period_if_any};
use crate::measure::answer::Field;
use crate::measure::prometheus::Selector;

/// A server, program or metric that is asked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "RawSource")]
pub struct Source {
    /// What it is called in what is told.
    pub name: String,
    /// The service that it is of, on a node that has several; `None`: what it says is of all.
    pub service: Option<String>,
    /// Time from one question to the next; `None`: with every sample.
    pub interval: Option<Duration>,
    /// An answer that takes longer is none.
    pub timeout: Duration,
    /// How much the load that it says counts.
    pub factor: Factor,
    /// Whether the node can do nothing without it: without its answer, health is 0.
    pub required: bool,
    /// What is asked.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The kernel, for established connections of a local port.
    Connections(Connections),
    /// MySQL or MariaDB, for threads that run.
    Mysql(Mysql),
    /// Redis or Valkey, for clients.
    Redis(Redis),
    /// memcached, for connections.
    Memcached(Address),
    /// nginx, for requests under way.
    Nginx(Url),
    /// A place in a JSON document.
    Json(Json),
    /// A metric in Prometheus's text format.
    Prometheus(Prometheus),
    /// A program.
    Program(Program),
}

/// Established connections of a local port: `connections = { port = 3306 }`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Connections {
    /// The port.
    pub port: NonZeroU16,
    /// How many to leave out: such as keep a monitor or a replica connected.
    #[serde(default)]
    pub less: u32,
}

/// `Threads_running` without our own: `mysql = { address = "127.0.0.1:3306", user = "evener" }`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Mysql {
    /// Where it listens.
    pub address: Address,
    /// Who we are. It needs no privilege.
    pub user: String,
    /// A file that holds the password and that only we may read.
    pub password_file: Option<PathBuf>,
}

/// `connected_clients` without our own: `redis = { address = "127.0.0.1:6379" }`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Redis {
    /// Where it listens.
    pub address: Address,
    /// Who we are, where there are users.
    pub user: Option<String>,
    /// A file that holds the password and that only we may read.
    pub password_file: Option<PathBuf>,
}

/// A number in a JSON document: `json = { url = "http://127.0.0.1/status", pointer = "/queue/length" }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Json {
    /// Where the document is.
    pub url: Url,
    /// Where in it the number is (RFC 6901).
    pub pointer: Pointer,
    /// What it says.
    #[serde(default = "jobs")]
    pub says: Field,
    /// Whether it counts up, and says by how much it rises in a second.
    #[serde(default)]
    pub rate: bool,
    /// By what it is multiplied.
    #[serde(default)]
    pub scale: Factor,
}

/// A sum of samples: `prometheus = { url = "http://127.0.0.1:8000/metrics", metric = "requests_running" }`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Prometheus {
    /// Where the metrics are.
    pub url: Url,
    /// Its name, and labels if need be.
    #[serde(deserialize_with = "from_str")]
    pub metric: Selector,
    /// What it says.
    #[serde(default = "jobs")]
    pub says: Field,
    /// Whether it counts up, and says by how much it rises in a second.
    #[serde(default)]
    pub rate: bool,
    /// By what it is multiplied.
    #[serde(default)]
    pub scale: Factor,
}

/// A program whose output or exit status is the answer: `program = { run = ["/usr/local/bin/health"] }`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub struct Program {
    /// The program and its arguments; there is no shell between.
    pub run: Words,
    /// What of it is the answer.
    #[serde(default)]
    pub answer: ProgramAnswer,
}

/// What of a program is the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramAnswer {
    /// What it prints: its health, or lines of `key=value`. Its exit status must be 0.
    #[default]
    Stdout,
    /// Its exit status is its health, 0–100.
    ExitStatus,
}

/// A source as it is written: one of its last eight keys is there.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
struct RawSource {
    name: Option<String>,
    service: Option<String>,
    #[serde(default, deserialize_with = "period_if_any")]
    interval: Option<Duration>,
    #[serde(default = "second", deserialize_with = "period")]
    timeout: Duration,
    #[serde(default)]
    factor: Factor,
    #[serde(default)]
    required: bool,
    connections: Option<Connections>,
    mysql: Option<Mysql>,
    redis: Option<Redis>,
    memcached: Option<Address>,
    nginx: Option<Url>,
    json: Option<Json>,
    prometheus: Option<Prometheus>,
    program: Option<Program>,
}

impl TryFrom<RawSource> for Source {
    type Error = &'static str;

    fn try_from(raw: RawSource) -> Result<Source, &'static str> {
        let mut asked = [
            raw.connections.map(Ask::Connections),
            raw.mysql.map(Ask::Mysql),
            raw.redis.map(Ask::Redis),
            raw.memcached.map(Ask::Memcached),
            raw.nginx.map(Ask::Nginx),
            raw.json.map(Ask::Json),
            raw.prometheus.map(Ask::Prometheus),
            raw.program.map(Ask::Program),
        ]
        .into_iter()
        .flatten();
        let (Some(ask), None) = (asked.next(), asked.next()) else {
            return Err(
                "expected one of connections, mysql, redis, memcached, nginx, json, prometheus, program",
            );
        };
        Ok(Source {
            name: raw.name.unwrap_or_else(|| ask.to_string()),
            service: raw.service,
            interval: raw.interval,
            timeout: raw.timeout,
            factor: raw.factor,
            required: raw.required,
            ask,
        })
    }
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ask::Connections(Connections { port, .. }) => write!(f, "connections of port {port}"),
            Ask::Mysql(Mysql { address, .. }) => write!(f, "mysql {address}"),
            Ask::Redis(Redis { address, .. }) => write!(f, "redis {address}"),
            Ask::Memcached(address) => write!(f, "memcached {address}"),
            Ask::Nginx(url) => write!(f, "nginx {url}"),
            Ask::Json(Json { url, pointer, .. }) => write!(f, "json {url} {}", pointer.as_str()),
            Ask::Prometheus(Prometheus { url, .. }) => write!(f, "prometheus {url}"),
            Ask::Program(Program { run, .. }) => write!(f, "program {}", run.program()),
        }
    }
}

fn jobs() -> Field {
    Field::Jobs
}

fn second() -> Duration {
    Duration::from_secs(1)
}
