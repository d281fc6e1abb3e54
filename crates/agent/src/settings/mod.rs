//! What the table `[agent]` of a configuration says: what is measured (as [`evener_load::Settings`] has it), and who is
//! told.

mod director;
mod few;
mod listen;
mod service;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evener_trust::rustls::ClientConfig;
use evener_trust::{TlsFiles, TrustError, anonymous_client_config, client_config};
use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, IntoDeserializer, MapAccess, Visitor};

pub use director::{Director, Speaks, Url};
use few::Few;
pub use listen::{AgentCheck, Listen};
pub use service::{Except, Service, Start};

/// What an agent measures, and whom it tells.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// What is measured.
    pub measure: evener_load::Settings,
    /// Whom it tells, and how.
    pub tell: Tell,
}

/// Whom an agent tells how its node is, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Tell {
    /// What the node is called; `None`: as its host is.
    pub node: Option<String>,
    /// Directors to report to.
    pub directors: Vec<Director>,
    /// What it offers to those that speak NECP.
    pub services: Vec<Service>,
    /// Flows that it wants to be spared.
    pub exceptions: Vec<Except>,
    /// A file with keys.
    pub keys: Option<PathBuf>,
    /// Certificates.
    pub tls: Option<Tls>,
    /// When it reports, where it is not asked.
    pub update: Update,
    /// The time from one report to the next.
    pub period: Duration,
    /// A sample that is older is told to nobody; `None`: three intervals and a second.
    pub age_max: Option<Duration>,
    /// Where reports are asked for over HTTP.
    pub listen: Option<Listen>,
    /// Where HAProxy asks.
    pub agent_checks: Vec<AgentCheck>,
    /// What is exchanged with other nodes.
    pub datagrams: Option<Datagrams>,
    /// Whom the process is to be once all is open.
    pub user: Option<String>,
    /// The time from one of our keep-alives to the next, on average.
    pub keepalive: Duration,
    /// How long to wait before connecting again.
    pub reconnect: Reconnect,
    /// How long the last words to a director may take.
    pub stop_timeout: Duration,
}

impl Default for Tell {
    fn default() -> Tell {
        Tell::of(Own::default())
    }
}

/// What is shown and believed in TLS: `{ certificate = "…", key = "…", ca = "…" }`, or `{ ca = "…" }`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "TlsTable")]
pub struct Tls {
    /// The certificate, followed by those that lead to the authority, and its private key; `None`: the agent shows none.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The authority of directors.
    pub ca: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TlsTable {
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
    ca: PathBuf,
}

impl TryFrom<TlsTable> for Tls {
    type Error = &'static str;

    fn try_from(table: TlsTable) -> Result<Tls, &'static str> {
        let identity = match (table.certificate, table.key) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            _ => return Err("expected both a certificate and its key, or neither"),
        };
        Ok(Tls { identity, ca: table.ca })
    }
}

impl Tls {
    /// For connections to directors.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, TrustError> {
        match self.identity.clone() {
            Some((certificate, key)) => client_config(&TlsFiles { certificate, key, ca: self.ca.clone() }),
            None => anonymous_client_config(&self.ca),
        }
    }
}

/// When a node reports, where it is not asked. NECP, agent-check and `GET` ask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Update {
    /// All nodes at the same times: multiples of the period, by the clock on the wall.
    Periodic,
    /// Each in its own time, with intervals that vary, so that no two nodes report in step.
    #[default]
    Continuous,
    /// Only when it is asked.
    OnAccess,
}

/// Datagrams between nodes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datagrams {
    /// Where reports are sent: multicast groups, broadcast addresses, nodes.
    #[serde(default)]
    pub to: Vec<SocketAddr>,
    /// Where those of other nodes are heard, and gathered.
    pub listen: Option<Listen>,
    /// The address of the interface on which groups of IPv4 are joined and sent to; `None`: as routes say.
    pub interface: Option<Ipv4Addr>,
    /// By how much other nodes' clocks may differ, and how long a datagram may be on its way.
    #[serde(default = "window", deserialize_with = "period")]
    pub window: Duration,
    /// How long what another node said is told on.
    #[serde(default = "window", deserialize_with = "period")]
    pub expiry: Duration,
}

fn window() -> Duration {
    Duration::from_secs(15)
}

impl Datagrams {
    /// Nothing sent and nothing heard yet.
    pub fn new() -> Datagrams {
        Datagrams { to: Vec::new(), listen: None, interface: None, window: window(), expiry: window() }
    }
}

impl Default for Datagrams {
    fn default() -> Datagrams {
        Datagrams::new()
    }
}

/// How long to wait before connecting again: between these, longer after each failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ReconnectTable")]
pub struct Reconnect {
    /// The shortest wait.
    pub min: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Reconnect {
    fn default() -> Reconnect {
        Reconnect { min: Duration::from_secs(1), max: Duration::from_secs(256) }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReconnectTable {
    min: Option<Period>,
    max: Option<Period>,
}

impl TryFrom<ReconnectTable> for Reconnect {
    type Error = &'static str;

    fn try_from(table: ReconnectTable) -> Result<Reconnect, &'static str> {
        let or = |period: Option<Period>, default| period.map_or(default, |period| period.0);
        let default = Reconnect::default();
        let reconnect = Reconnect { min: or(table.min, default.min), max: or(table.max, default.max) };
        if reconnect.min <= reconnect.max {
            Ok(reconnect)
        } else {
            Err("expected a min that is not above max")
        }
    }
}

/// The agent's own keys, as they are written.
#[derive(Default)]
struct Own {
    node: Option<String>,
    directors: Few<Director>,
    services: Few<Service>,
    exceptions: Vec<Except>,
    keys: Option<PathBuf>,
    tls: Option<Tls>,
    update: Update,
    period: Option<Duration>,
    age_max: Option<Duration>,
    listen: Option<Listen>,
    agent_checks: Few<AgentCheck>,
    datagrams: Option<Datagrams>,
    user: Option<String>,
    keepalive: Option<Duration>,
    reconnect: Reconnect,
    stop_timeout: Option<Duration>,
}

/// The names of the keys of [`Tell`]. In the same table are those of what is measured.
pub const OWN_KEYS: [&str; 16] = [
    "node",
    "director",
    "service",
    "except",
    "keys",
    "tls",
    "update",
    "period",
    "age_max",
    "listen",
    "agent_check",
    "datagrams",
    "user",
    "keepalive",
    "reconnect",
    "stop_timeout",
];

impl Own {
    /// Takes the value of the key that has just been read.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "node" => self.node = Some(map.next_value::<Name>()?.0),
            "director" => self.directors = map.next_value()?,
            "service" => self.services = map.next_value()?,
            "except" => self.exceptions = map.next_value()?,
            "keys" => self.keys = Some(map.next_value()?),
            "tls" => self.tls = Some(map.next_value()?),
            "update" => self.update = map.next_value()?,
            "period" => self.period = Some(map.next_value::<Period>()?.0),
            "age_max" => self.age_max = Some(map.next_value::<Period>()?.0),
            "listen" => self.listen = Some(map.next_value()?),
            "agent_check" => self.agent_checks = map.next_value()?,
            "datagrams" => self.datagrams = Some(map.next_value()?),
            "user" => self.user = Some(map.next_value()?),
            "keepalive" => self.keepalive = Some(map.next_value::<Period>()?.0),
            "reconnect" => self.reconnect = map.next_value()?,
            "stop_timeout" => self.stop_timeout = Some(map.next_value::<Period>()?.0),
            _ => unreachable!("a key of the list"),
        }
        Ok(())
    }
}

impl Tell {
    fn of(own: Own) -> Tell {
        let five = Duration::from_secs(5);
        Tell {
            node: own.node,
            directors: own.directors.0,
            services: own.services.0,
            exceptions: own.exceptions,
            keys: own.keys,
            tls: own.tls,
            update: own.update,
            period: own.period.unwrap_or(five),
            age_max: own.age_max,
            listen: own.listen,
            agent_checks: own.agent_checks.0,
            datagrams: own.datagrams,
            user: own.user,
            keepalive: own.keepalive.unwrap_or(five),
            reconnect: own.reconnect,
            stop_timeout: own.stop_timeout.unwrap_or(five),
        }
    }

    /// Whether there is anybody who could hear of the node.
    pub fn is_told(&self) -> bool {
        let asked = self.listen.is_some() || !self.agent_checks.is_empty() || self.datagrams.is_some();
        asked || !self.directors.is_empty()
    }
}

/// A name that can stand in reports and signatures.
#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Name(String);

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Name, String> {
        if is_name(&name) {
            Ok(Name(name))
        } else {
            Err(format!("expected a name of at most 253 visible ASCII characters, found \"{name}\""))
        }
    }
}

pub(crate) fn is_name(name: &str) -> bool {
    let length = 1..=evener_feedback::json::NAME_BYTES_MAX;
    length.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A time between things that repeat, or for one to happen.
#[derive(Deserialize)]
#[serde(transparent)]
struct Period(#[serde(deserialize_with = "period")] Duration);

fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let period: Duration = humantime_serde::deserialize(deserializer)?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(86_400);
    let expected = || de::Error::custom("expected a time from 1ms to 1day");
    allowed.contains(&period).then_some(period).ok_or_else(expected)
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Settings, D::Error> {
        deserializer.deserialize_map(SettingsVisitor)
    }
}

struct SettingsVisitor;

impl<'de> Visitor<'de> for SettingsVisitor {
    type Value = Settings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table of an agent's settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Settings, A::Error> {
        let mut own = Own::default();
        let rest = Rest { map, own: &mut own };
        let measure = evener_load::Settings::deserialize(MapAccessDeserializer::new(rest))?;
        Ok(Settings { measure, tell: Tell::of(own) })
    }
}

/// The table without the agent's own keys, which are taken as they come. So errors still say where they are, which they
/// would not if the table was taken apart first.
struct Rest<'a, A> {
    map: A,
    own: &'a mut Own,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Rest<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: de::DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(key) = self.map.next_key::<String>()? {
            if OWN_KEYS.contains(&key.as_str()) {
                self.own.take(&key, &mut self.map)?;
                continue;
            }
            if !evener_load::Settings::KEYS.contains(&key.as_str()) {
                return Err(unknown(&key));
            }
            return seed.deserialize(key.into_deserializer()).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: de::DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

fn unknown<E: de::Error>(key: &str) -> E {
    let known = OWN_KEYS.iter().chain(evener_load::Settings::KEYS);
    let nearest = known.max_by(|a, b| strsim::jaro(a, key).total_cmp(&strsim::jaro(b, key)));
    match nearest.filter(|near| strsim::jaro(near, key) > 0.7) {
        Some(near) => E::custom(format_args!("unknown key \"{key}\"; did you mean \"{near}\"?")),
        None => E::custom(format_args!("unknown key \"{key}\"")),
    }
}

#[cfg(test)]
mod tests;
