//! The keys of `[feedback]`, and those of a pool that say what its nodes' reports do.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use evener_engine::snapshot::{Network, Orca};
use evener_feedback::controller::{Law, Settings as ControllerSettings};
use evener_feedback::necp::Protocol;
use evener_model::Weight;
use evener_plane::haproxy::{self, Endpoint};
use evener_plane::ipvs;
use evener_scheduler::Settings;

use super::parse::{bind_address, network};
use super::reader::{Problems, Table, Value};
use crate::feedback::Dialect;
use crate::output::virtual_service;

/// Nodes that join a pool at the most, unless it says otherwise.
const JOINED_MAX: u64 = 256;

/// `[feedback]`: where agents report to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Feedback {
    /// Where NECP is spoken.
    pub necp: Option<SocketAddr>,
    /// Where reports are taken by HTTP.
    pub http: Option<SocketAddr>,
    /// Where datagrams are received.
    pub datagrams: Option<Datagrams>,
    /// The file of keys that agents sign with.
    pub keys: Option<PathBuf>,
    /// Certificates for NECP and HTTP; `None`: plain.
    pub tls: Option<TlsFiles>,
    /// Whether agents elsewhere than on this machine are believed without a key.
    pub allow_unauthenticated: bool,
    /// Whether an agent may except flows for all nodes.
    pub allow_global_exceptions: bool,
}

/// Where datagrams are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// The socket.
    pub listen: SocketAddr,
    /// A multicast group to be a member of.
    pub group: Option<IpAddr>,
    /// How far a sender's clock may be off.
    pub window: Duration,
}

/// What TLS needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The own certificate and those it follows from, PEM.
    pub certificate: PathBuf,
    /// The key of the certificate, PEM.
    pub key: PathBuf,
    /// Whose certificates agents must show, PEM; `None`: they need none.
    pub client_ca: Option<PathBuf>,
}

/// What the reports of a pool's nodes do.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFeedback {
    /// Ways by which reports are heard.
    pub from: Vec<Dialect>,
    /// How weights follow.
    pub weights: ControllerSettings,
    /// Whether the time between reports is tuned while running.
    pub auto_phase: bool,
    /// The agent that each node runs for HAProxy, asked by us.
    pub agent_check: Option<AgentCheck>,
    /// A page on each node that tells how it is.
    pub pull: Option<Pull>,
    /// What is done with load metrics in responses.
    pub orca: Orca,
    /// A stream in which each node tells how it is.
    pub orca_stream: Option<OrcaStream>,
}

/// `feedback.agent_check`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheck {
    /// Where the agent listens, on the node's address.
    pub port: u16,
    /// What is sent first; empty: nothing.
    pub send: String,
    /// How often it is asked, ± 10 %; `None`: each phase of the pool.
    pub interval: Option<Duration>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// `feedback.pull`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// Path and query.
    pub path: String,
    /// Another port than that of the jobs.
    pub port: Option<u16>,
    /// How often it is asked, ± 10 %; `None`: each phase of the pool.
    pub interval: Option<Duration>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// `feedback.orca_stream`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrcaStream {
    /// Another port than that of the jobs.
    pub port: Option<u16>,
    /// How often nodes are asked to report; `None`: each phase of the pool.
    pub interval: Option<Duration>,
}

/// `join`: agents whose nodes become nodes of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// Where the agents must be.
    pub from: Vec<Network>,
    /// The service that they start.
    pub protocol: Protocol,
    /// Its port.
    pub port: u16,
    /// The weight that such nodes get.
    pub weight: Weight,
    /// How many there may be.
    pub nodes_max: usize,
    /// How long a node stays whose agent is gone without having stopped its service.
    pub linger: Duration,
}

/// `output`: another balancer that carries out what this pool comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// HAProxy, by its runtime API.
    Haproxy {
        /// Where it listens.
        endpoint: Endpoint,
        /// The proxy (HAProxy's `backend`) whose nodes are steered.
        proxy: String,
        /// What nodes get that HAProxy does not have yet, as in its lines `server`.
        node_options: String,
        /// How long a node that leaves keeps its sessions at the most.
        drain_timeout: Duration,
    },
    /// Linux Virtual Server, in the kernel.
    Ipvs {
        /// The virtual service.
        service: VirtualService,
        /// The scheduler that the kernel uses.
        scheduler: String,
        /// How packets get to nodes whose agent does not say it.
        forwarding: ipvs::Forwarding,
        /// How long a node that leaves keeps its connections at the most.
        drain_timeout: Duration,
    },
}

impl Output {
    /// What keeps a node at this address from being put out.
    pub(super) fn problem_of(&self, address: SocketAddr) -> Option<String> {
        match *self {
            Output::Haproxy { .. } => None,
            Output::Ipvs { service, forwarding, .. } => {
                let node = ipvs::WantedDestination { address, forwarding, weight: 0 };
                // A mark is of the family of its nodes.
                let wrong = node.check(virtual_service(service, address.is_ipv6()));
                wrong.err().map(|wrong| wrong.to_string())
            }
        }
    }

    /// Whether both would steer the same.
    pub(super) fn is_same_place(&self, other: &Output) -> bool {
        match (self, other) {
            (
                Output::Haproxy { endpoint, proxy, .. },
                Output::Haproxy { endpoint: other, proxy: other_proxy, .. },
            ) => (endpoint, proxy) == (other, other_proxy),
            (Output::Ipvs { service, .. }, Output::Ipvs { service: other, .. }) => service == other,
            _ => false,
        }
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Output::Haproxy { endpoint, proxy, .. } => write!(f, "HAProxy at {endpoint}, proxy {proxy}"),
            Output::Ipvs { service, .. } => write!(f, "IPVS {service}"),
        }
    }
}

impl fmt::Display for VirtualService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VirtualService::Address { protocol: Protocol::Tcp, address } => write!(f, "tcp {address}"),
            VirtualService::Address { protocol: Protocol::Udp, address } => write!(f, "udp {address}"),
            VirtualService::Mark(mark) => write!(f, "fwmark {mark}"),
        }
    }
}

/// What LVS balances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VirtualService {
    /// What goes to an address.
    Address {
        /// TCP or UDP.
        protocol: Protocol,
        /// The address.
        address: SocketAddr,
    },
    /// What the firewall marked so.
    Mark(NonZeroU32),
}

impl Feedback {
    /// Whether agents connect or send to this director.
    pub fn is_on(&self) -> bool {
        self.necp.is_some() || self.http.is_some() || self.datagrams.is_some()
    }
}

pub(super) fn feedback(p: &mut Problems, table: Option<Table<'_>>) -> Feedback {
    let Some(mut t) = table else { return Feedback::default() };
    let necp_value = t.take("necp");
    let necp = necp_value.as_ref().and_then(|value| address(p, value));
    let http_value = t.take("http");
    let http = http_value.as_ref().and_then(|value| address(p, value));
    let datagrams_value = t.take("datagrams");
    let datagrams = datagrams_value.as_ref().and_then(|value| datagrams(p, value));
    let keys = t.take("keys").and_then(|value| value.string(p)).map(PathBuf::from);
    let tls = t.take("tls").and_then(|value| tls(p, &value));
    let allow_unauthenticated = t.or(p, "allow_unauthenticated", false, Value::boolean);
    let allow_global_exceptions = t.or(p, "allow_global_exceptions", false, Value::boolean);
    if keys.is_none() && !allow_unauthenticated {
        let is_certified = tls.as_ref().is_some_and(|tls| tls.client_ca.is_some());
        for (value, address) in [(&necp_value, necp), (&http_value, http)] {
            if let (Some(value), Some(address)) = (value, address.filter(|at| !at.ip().is_loopback()))
                && !is_certified
            {
                unauthenticated(p, value, address);
            }
        }
    }
    if keys.is_none()
        && let Some(value) = &datagrams_value
    {
        p.add_with_help(
            value,
            "datagrams are signed: expected a key keys in [feedback]",
            Some("keys = \"/etc/evener/feedback.keys\", one `ID SECRET` a line".into()),
        );
    }
    t.finish(p);
    Feedback { necp, http, datagrams, keys, tls, allow_unauthenticated, allow_global_exceptions }
}

fn unauthenticated(p: &mut Problems, value: &Value<'_>, address: SocketAddr) {
    p.add_with_help(
        value,
        format!("expected keys for agents that report to {address}: whoever reaches it steers the pools"),
        Some(
            "set keys = \"/etc/evener/feedback.keys\", or tls with client_ca, or allow_unauthenticated = true"
                .into(),
        ),
    );
}

fn address(p: &mut Problems, value: &Value<'_>) -> Option<SocketAddr> {
    let text = value.string(p)?;
    let address = bind_address(text).map(|bind| bind.address);
    if address.is_none() {
        p.add(value, format!("expected ADDRESS:PORT or :PORT, found \"{text}\""));
    }
    address
}

fn datagrams(p: &mut Problems, value: &Value<'_>) -> Option<Datagrams> {
    let mut t = value.table(p)?;
    let listen = t.take("listen");
    if listen.is_none() {
        p.missing(&t, "expected a key listen, such as listen = \":3263\"");
    }
    let listen = listen.and_then(|value| address(p, &value));
    let group_value = t.take("group");
    let group = group_value.as_ref().and_then(|value| {
        let text = value.string(p)?;
        let group = text.parse::<IpAddr>().ok().filter(IpAddr::is_multicast);
        if group.is_none() {
            p.add(value, format!("expected a multicast address such as \"239.255.32.62\", found \"{text}\""));
        }
        group
    });
    let window = t.or(p, "window", Duration::from_secs(10), above_nothing);
    t.finish(p);
    let mut listen = listen?;
    // Groups are of one family: what was to be any address is any of that family.
    if let (Some(group), true) = (group, listen.ip().is_unspecified()) {
        let any: IpAddr =
            if group.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        listen.set_ip(any);
    }
    if let (Some(group), Some(value)) = (group, &group_value)
        && group.is_ipv4() != listen.is_ipv4()
    {
        p.add(value, format!("expected a group of the same family as {listen}"));
    }
    Some(Datagrams { listen, group, window })
}

fn tls(p: &mut Problems, value: &Value<'_>) -> Option<TlsFiles> {
    let mut t = value.table(p)?;
    let certificate = t.take("certificate").and_then(|value| value.string(p)).map(PathBuf::from);
    let key = t.take("key").and_then(|value| value.string(p)).map(PathBuf::from);
    let client_ca = t.take("client_ca").and_then(|value| value.string(p)).map(PathBuf::from);
    if certificate.is_none() || key.is_none() {
        p.missing(&t, "expected the keys certificate and key: paths of PEM files");
    }
    t.finish(p);
    Some(TlsFiles { certificate: certificate?, key: key?, client_ca })
}

/// What a pool says of its nodes' reports. `scheduler` is what it says of its scheduler.
pub(super) fn pool_feedback(
    p: &mut Problems,
    value: Option<Value<'_>>,
    scheduler: &Settings,
    auto_phase: bool,
) -> PoolFeedback {
    let mut feedback = PoolFeedback {
        from: Dialect::ALL.into(),
        weights: ControllerSettings {
            law: Law::Off,
            age_max: scheduler.report_expiry,
            panic_percent: scheduler.panic_percent,
            ..ControllerSettings::default()
        },
        auto_phase,
        agent_check: None,
        pull: None,
        orca: Orca::default(),
        orca_stream: None,
    };
    let Some(mut t) = value.and_then(|value| value.table(p)) else { return feedback };
    if let Some(value) = t.take("from") {
        let names = Dialect::ALL.map(|dialect| (dialect.name(), dialect));
        feedback.from = value.one_or_more(p).iter().filter_map(|item| item.choice(p, &names)).collect();
    }
    let default = feedback.weights;
    let alpha = t.or(p, "alpha", Law::ALPHA, |v, p| v.number(p, 0.0..=1.0));
    let gain_per_s = t.or(p, "gain", Law::GAIN_PER_S, |v, p| v.number(p, 0.0..=1.0));
    let law = t.or(p, "weights", Law::Off, |v, p| {
        let laws = [Law::Off, Law::Smoothing { alpha }, Law::Integral { gain_per_s }];
        v.choice(p, &laws.map(|law| (law.name(), law)))
    });
    feedback.weights = ControllerSettings {
        law,
        dead_band: t.or(p, "dead_band", law.dead_band(), |v, p| v.number(p, 0.0..=1.0)),
        step_per_s_max: t.or(p, "step", default.step_per_s_max, |v, p| v.number(p, 0.001..=1.0)),
        odds_max: t.or(p, "odds", default.odds_max, |v, p| v.number(p, 1.0..=256.0)),
        ..default
    };
    feedback.agent_check = t.take("agent_check").and_then(|value| agent_check(p, &value));
    feedback.pull = t.take("pull").and_then(|value| pull(p, &value));
    let words = [("use", Orca::Use), ("forward", Orca::Forward), ("off", Orca::Off)];
    feedback.orca = t.or(p, "orca", Orca::Use, |v, p| v.choice(p, &words));
    feedback.orca_stream = t.take("orca_stream").and_then(|value| orca_stream(p, &value));
    t.finish(p);
    feedback
}

fn agent_check(p: &mut Problems, value: &Value<'_>) -> Option<AgentCheck> {
    let mut t = value.table(p)?;
    let port = t.take("port");
    if port.is_none() {
        p.missing(&t, "expected a key port: where the agents listen");
    }
    let port = port.and_then(|value| value.integer(p, 1..=65_535)).map(|port| port as u16);
    let send = t.or(p, "send", "", Value::string).to_owned();
    let (interval, timeout) = rhythm(p, &mut t);
    t.finish(p);
    Some(AgentCheck { port: port?, send, interval, timeout })
}

fn pull(p: &mut Problems, value: &Value<'_>) -> Option<Pull> {
    let mut t = value.table(p)?;
    let http = t.take("http");
    if http.is_none() {
        p.missing(&t, "expected a key http, such as http = \"GET /load\"");
    }
    let path = http.and_then(|value| {
        let text = value.string(p)?;
        let path = text
            .strip_prefix("GET ")
            .filter(|path| path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()));
        if path.is_none() {
            p.add(&value, format!("expected GET and a path, such as \"GET /load\", found \"{text}\""));
        }
        path.map(str::to_owned)
    });
    let port = t.take("port").and_then(|value| value.integer(p, 1..=65_535)).map(|port| port as u16);
    let (interval, timeout) = rhythm(p, &mut t);
    t.finish(p);
    Some(Pull { path: path?, port, interval, timeout })
}

fn orca_stream(p: &mut Problems, value: &Value<'_>) -> Option<OrcaStream> {
    let mut t = value.table(p)?;
    let port = t.take("port").and_then(|value| value.integer(p, 1..=65_535)).map(|port| port as u16);
    let interval = interval(p, &mut t);
    t.finish(p);
    Some(OrcaStream { port, interval })
}

fn interval(p: &mut Problems, t: &mut Table<'_>) -> Option<Duration> {
    t.take("interval").and_then(|value| {
        let interval = value.duration(p)?;
        if interval < Duration::from_millis(10) {
            p.add(&value, "expected an interval of at least 10ms");
        }
        Some(interval)
    })
}

fn rhythm(p: &mut Problems, t: &mut Table<'_>) -> (Option<Duration>, Duration) {
    let interval = interval(p, t);
    (interval, t.or(p, "timeout", Duration::from_secs(1), above_nothing))
}

fn above_nothing(value: &Value<'_>, p: &mut Problems) -> Option<Duration> {
    let duration = value.duration(p)?;
    if duration.is_zero() {
        p.add(value, "expected a duration above 0");
    }
    Some(duration)
}

pub(super) fn join(p: &mut Problems, value: &Value<'_>) -> Option<Join> {
    let mut t = value.table(p)?;
    let from_value = t.take("from");
    if from_value.is_none() {
        p.missing(&t, "expected a key from: address blocks of the agents, such as [\"10.0.0.0/24\"]");
    }
    let mut from = Vec::new();
    for item in from_value.map(|value| value.one_or_more(p)).unwrap_or_default() {
        from.extend(network(p, &item));
    }
    let port = t.take("port");
    if port.is_none() {
        p.missing(&t, "expected a key port: that of the service which agents start");
    }
    let port = port.and_then(|value| value.integer(p, 1..=65_535)).map(|port| port as u16);
    let protocol = t.or(p, "protocol", Protocol::Tcp, transport);
    let weight = t.or(p, "weight", Weight::DEFAULT, |v, p| {
        v.integer(p, 1..=u64::from(Weight::MAX.value())).and_then(|weight| Weight::new(weight).ok())
    });
    let nodes_max = t.or(p, "limit", JOINED_MAX, |v, p| v.integer(p, 1..=1000)) as usize;
    let linger = t.or(p, "linger", Duration::from_secs(60), Value::duration);
    t.finish(p);
    Some(Join { from, protocol, port: port?, weight, nodes_max, linger })
}

fn transport(value: &Value<'_>, p: &mut Problems) -> Option<Protocol> {
    value.choice(p, &[("tcp", Protocol::Tcp), ("udp", Protocol::Udp)])
}

pub(super) fn output(p: &mut Problems, value: &Value<'_>) -> Option<Output> {
    let mut t = value.table(p)?;
    let drain_timeout = t.or(p, "drain_timeout", haproxy::Wanted::DRAIN_TIMEOUT, Value::duration);
    let output = match (t.take("haproxy"), t.take("ipvs")) {
        (Some(haproxy), None) => {
            let proxy = t.take("proxy");
            if proxy.is_none() {
                p.missing(&t, "expected a key proxy: the name of HAProxy's section whose nodes are steered");
            }
            let endpoint = haproxy.string(p).and_then(|text| {
                text.parse().map_err(|wrong: haproxy::EndpointError| p.add(&haproxy, wrong.to_string())).ok()
            });
            let name = proxy.and_then(|value| {
                let name = value.string(p)?;
                haproxy::Wanted::new(name, Vec::new()).map_err(|wrong| p.add(&value, wrong.to_string())).ok()
            });
            let options = t.take("node_options");
            let wanted = match (name, options) {
                (Some(wanted), Some(value)) => value.string(p).and_then(|options| {
                    wanted.with_options(options).map_err(|wrong| p.add(&value, wrong.to_string())).ok()
                }),
                (wanted, _) => wanted,
            };
            endpoint.zip(wanted).map(|(endpoint, wanted)| Output::Haproxy {
                endpoint,
                proxy: wanted.proxy().to_owned(),
                node_options: wanted.options().to_owned(),
                drain_timeout,
            })
        }
        (None, Some(ipvs)) => {
            let protocol = t.or(p, "protocol", Protocol::Tcp, transport);
            let scheduler_value = t.take("scheduler");
            let scheduler =
                scheduler_value.as_ref().map_or(Some("wlc"), |value| value.string(p)).unwrap_or_default();
            let ways = ipvs::Forwarding::ALL.map(|way| (way.name(), way));
            let forwarding = t.or(p, "forwarding", ipvs::Forwarding::Nat, |v, p| v.choice(p, &ways));
            let service = ipvs.string(p).and_then(|text| {
                let mark = text.strip_prefix("fwmark:").map(|mark| mark.parse().map(VirtualService::Mark));
                let service = match mark {
                    Some(mark) => mark.ok(),
                    None => text.parse().ok().map(|address| VirtualService::Address { protocol, address }),
                };
                if service.is_none() {
                    p.add(&ipvs, format!("expected ADDRESS:PORT or \"fwmark:NUMBER\", found \"{text}\""));
                }
                service
            });
            let kept = service?;
            let kernels = virtual_service(kept, false);
            if let (Some(value), Err(wrong)) =
                (&scheduler_value, ipvs::WantedService::new(kernels, scheduler, Vec::new()))
            {
                p.add(value, wrong.to_string());
            }
            Some(Output::Ipvs { service: kept, scheduler: scheduler.to_owned(), forwarding, drain_timeout })
        }
        _ => {
            p.add(value, "expected exactly one of haproxy and ipvs");
            None
        }
    };
    t.finish(p);
    output
}
