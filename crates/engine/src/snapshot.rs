//! What the control plane hands to the workers: one immutable picture of all
//! listeners and pools, valid by construction, swapped whole.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use evener_feedback::necp::Flows;
use evener_feedback::necp::session::Flow;
use evener_model::{JobCounts, NodeId, Weight};
use evener_scheduler::Settings;

use crate::stats::{ListenerStats, NodeStats, PerWorker, PoolStats};

/// Everything the workers serve. Applying a snapshot keeps open connections, and the
/// scheduler state of nodes whose [`NodeId`] is in the pool of the same [`PoolId`] as before.
#[derive(Debug)]
pub struct Snapshot {
    /// Grows with every snapshot of this process.
    pub version: u64,
    /// Sockets that accept work.
    pub listeners: Vec<Bound>,
    /// Nodes that do it.
    pub pools: Vec<Arc<PoolSpec>>,
}

/// A listener and its sockets. The sockets are apart from what else is known of the listener, because
/// they close when the last of those who hold them lets go.
#[derive(Clone, Debug)]
pub struct Bound {
    /// What is done with work.
    pub spec: Arc<ListenerSpec>,
    /// Non-blocking listening sockets. Worker `w` of `n` serves those at the indices `i` with `i % n == w`.
    /// A socket that is in the next snapshot again (the same `Arc`) keeps its queue.
    pub sockets: Vec<Arc<OwnedFd>>,
}

/// A listener: the same for as long as the process serves it under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenerId(pub u32);

/// A pool: the same for as long as the process serves it under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId(pub u32);

/// What is done with the work that sockets accept.
#[derive(Debug)]
pub struct ListenerSpec {
    /// Stable over snapshots.
    pub id: ListenerId,
    /// As configured; appears in logs and metrics.
    pub name: String,
    /// Whether each connection must begin with a PROXY protocol header, version 1 or 2.
    pub accept_proxy: bool,
    /// Client connections that one worker holds open at the most; more wait in the accept queue.
    pub clients_max: u32,
    /// What the listener speaks.
    pub service: Service,
    /// Counters, one set a worker.
    pub stats: Arc<PerWorker<ListenerStats>>,
}

/// What a listener speaks.
#[derive(Debug)]
pub enum Service {
    /// HTTP/1.1: a job is a request.
    Http(HttpSpec),
    /// Bytes: a job is a connection.
    Tcp(TcpSpec),
}

/// An HTTP listener.
#[derive(Debug)]
pub struct HttpSpec {
    /// Tried in order; the first match wins.
    pub routes: Vec<Route>,
    /// Where requests go that no route matches; `None` answers them with 404.
    pub pool: Option<PoolId>,
    /// Refusals by size.
    pub limits: HttpLimits,
    /// Refusals by time.
    pub timeouts: HttpTimeouts,
    /// What is added to forwarded messages.
    pub headers: HeaderSpec,
    /// Clients whose X-Forwarded-*, Forwarded and request id are believed and extended;
    /// those of all others are replaced.
    pub trusted: Vec<Network>,
    /// Where a line about each request goes.
    pub access_log: Option<LogFormat>,
}

/// An address block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// Any address in it.
    pub address: std::net::IpAddr,
    /// How many leading bits count.
    pub prefix: u8,
}

impl Network {
    /// Whether `address` lies in the block. IPv4 addresses mapped into IPv6 count as IPv4.
    pub fn contains(&self, address: std::net::IpAddr) -> bool {
        use std::net::IpAddr;
        match (self.address.to_canonical(), address.to_canonical()) {
            (IpAddr::V4(block), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.prefix.min(32));
                u64::from(block.to_bits()) >> shift == u64::from(address.to_bits()) >> shift
            }
            (IpAddr::V6(block), IpAddr::V6(address)) => match 128 - u32::from(self.prefix.min(128)) {
                128 => true,
                shift => block.to_bits() >> shift == address.to_bits() >> shift,
            },
            _ => false,
        }
    }
}

/// Requests that match go to a pool.
#[derive(Debug)]
pub struct Route {
    /// Host without port, lower case. `*.example.com` matches any name below; `None` any host.
    pub host: Option<String>,
    /// Which paths.
    pub path: PathMatch,
    /// Where they go.
    pub pool: PoolId,
}

/// Which paths a route takes. The query does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// All.
    Any,
    /// This one.
    Exact(String),
    /// Those that begin so; a prefix without a final slash matches whole segments
    /// (`/api` takes `/api` and `/api/x`, not `/apix`).
    Prefix(String),
}

/// Sizes above which an HTTP client is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Bytes of a request or response head.
    pub head_bytes_max: u32,
    /// Header fields of a head.
    pub headers_max: u16,
    /// Requests on one connection; 0: no limit.
    pub requests_max: u32,
    /// Bytes of a request body; 0: no limit.
    pub body_bytes_max: u64,
}

/// Times after which a client is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// From the first byte of a head (or the start of the connection) to its last.
    pub head: Duration,
    /// Between requests.
    pub idle: Duration,
    /// Without any progress of a request body, or of a response that the client does not read.
    pub body: Duration,
    /// Without a byte either way after an upgrade.
    pub tunnel: Duration,
}

/// What is added to forwarded messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderSpec {
    /// X-Forwarded-For: the client's address.
    pub x_forwarded_for: bool,
    /// X-Forwarded-Proto: http or https.
    pub x_forwarded_proto: bool,
    /// X-Forwarded-Host: the Host that the client sent.
    pub x_forwarded_host: bool,
    /// Forwarded (RFC 7239).
    pub forwarded: bool,
    /// Via on requests and responses: the pseudonym of this director.
    pub via: Option<String>,
    /// Name of the header that carries the request's id.
    pub request_id: Option<String>,
}

/// How a line of the access log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// Common log format.
    Common,
    /// Common, and referer and user agent.
    Combined,
    /// One JSON object a line, with pool, node, times and retries.
    Json,
}

/// A TCP listener.
#[derive(Debug)]
pub struct TcpSpec {
    /// Where connections go.
    pub pool: PoolId,
    /// Without a byte either way, a connection is closed after this.
    pub idle_timeout: Duration,
    /// Where a line about each connection goes.
    pub access_log: Option<LogFormat>,
}

/// The nodes behind listeners.
#[derive(Debug)]
pub struct PoolSpec {
    /// Stable over snapshots.
    pub id: PoolId,
    /// As configured.
    pub name: String,
    /// How a node is chosen.
    pub scheduler: Settings,
    /// What of a job the hashing policies hash.
    pub hash_key: HashKey,
    /// The nodes, by [`NodeId`]; ids need not be dense.
    pub nodes: Vec<Arc<NodeSpec>>,
    /// Jobs in flight, shared by all workers. The same `Arc` in all snapshots of this pool.
    pub counts: Arc<JobCounts>,
    /// Jobs that may wait when all nodes are at `jobs_max`, over all workers; 0: none.
    pub queue_max: u32,
    /// How long they may wait.
    pub queue_timeout: Duration,
    /// How often, and for how much of the traffic, a failed job is tried on another node.
    pub retry: Retry,
    /// Times after which a node has failed.
    pub timeouts: NodeTimeouts,
    /// Node-side connections kept for later jobs, a node and a worker.
    pub idle_connections_max: u32,
    /// Each connection to a node begins with this PROXY protocol header.
    pub send_proxy: Option<ProxyVersion>,
    /// Flows that nodes do not want; mostly none.
    pub exceptions: Vec<Exception>,
    /// What becomes of reports in the heads and trailers of responses.
    pub orca: Orca,
    /// Who waits for a node. The same `Arc` in all snapshots of this pool.
    pub waiting: Arc<Waiting>,
    /// Counters, one set a worker. The same `Arc` in all snapshots of this pool.
    pub stats: Arc<PerWorker<PoolStats>>,
}

/// How many jobs wait for a node of the pool, by worker: a worker that frees a slot wakes another
/// that waits for one.
#[derive(Debug)]
pub struct Waiting(PerWorker<AtomicU32>);

impl Waiting {
    /// Nobody waits yet.
    pub fn new(workers: usize) -> Waiting {
        Waiting(PerWorker::new(workers))
    }

    /// Jobs waiting on all workers.
    pub fn total(&self) -> u32 {
        self.0.iter().map(|jobs| jobs.load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn set(&self, worker: usize, jobs: u32) {
        self.0.of(worker).store(jobs, Ordering::Relaxed);
    }

    /// Workers other than `me` on which jobs wait.
    pub(crate) fn others(&self, me: usize) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().filter_map(move |(worker, jobs)| {
            (worker != me && jobs.load(Ordering::Relaxed) > 0).then_some(worker)
        })
    }
}

/// What of a job the hashing policies hash. `source-hash` always hashes the client's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address, without port.
    Source,
    /// The Host.
    Host,
    /// The path, without query.
    Path,
    /// Path and query.
    Uri,
    /// A request header; the client's address where it is missing.
    Header(String),
    /// A cookie; the client's address where it is missing.
    Cookie(String),
}

/// Retrying on another node: only where nothing of the job was sent, or where the method is
/// idempotent, the request replayable, and nothing of a response was forwarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Further tries of one job; 0: none.
    pub attempts_max: u8,
    /// Retries over jobs of the last 10 s, at the most (percent), beside 10 a second that are always allowed.
    pub budget_percent: u32,
    /// Whether a response of 502, 503 or 504 is a failure to be retried too.
    pub on_unavailable: bool,
}

/// Times after which a node has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeTimeouts {
    /// To accept a connection.
    pub connect: Duration,
    /// From the last byte of the request to the end of the response's head.
    pub response: Duration,
    /// Without a byte within a response's body.
    pub body: Duration,
    /// A connection without a job is closed after this.
    pub idle: Duration,
}

/// Flows that a node does not want: new jobs of theirs do not go to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Which node.
    pub node: NodeId,
    /// Where it listens. A flow is meant by where it goes to as its client sees it, and as the node does.
    pub address: SocketAddr,
    /// The flows.
    pub flows: Flows,
}

impl Exception {
    /// Whether the node does not want what comes from `client`, which has connected to `reached`.
    pub(crate) fn concerns(&self, client: IpAddr, reached: Option<SocketAddr>) -> bool {
        reached.into_iter().chain([self.address]).any(|to| {
            let flow = Flow { source: client, destination: to.ip(), protocol: TCP, port: to.port() };
            self.flows.contain(&flow)
        })
    }
}

/// The number of TCP among the protocols of IP.
const TCP: u8 = 6;

/// What becomes of the fields in which a node says in its responses how it is: `endpoint-load-metrics` and
/// `endpoint-load-metrics-bin` (ORCA).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Orca {
    /// The scheduler hears of them; clients do not see them.
    #[default]
    Use,
    /// The scheduler hears of them, and clients see them: for a director before this one.
    Forward,
    /// They are fields like others.
    Off,
}

/// Versions of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// A server that executes jobs.
#[derive(Debug)]
pub struct NodeSpec {
    /// Unique in the pool while anything refers to the node.
    pub id: NodeId,
    /// As configured; unique in the pool.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Current weight: the configured one, or what an operator set since.
    pub weight: Weight,
    /// Jobs in flight at the most, over all workers.
    pub jobs_max: Option<u32>,
    /// Whether an operator drains it.
    pub draining: bool,
    /// The verdict of the active health check when the snapshot was made; `true` if there is none.
    pub up: bool,
    /// Counters, one set a worker. The same `Arc` in all snapshots that hold this node.
    pub stats: Arc<PerWorker<NodeStats>>,
}
