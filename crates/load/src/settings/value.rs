//! Values that are valid by construction.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// How much something counts: 1 unless said otherwise; 0 is told but does not count.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Factor(f64);

impl Factor {
    /// It does not count.
    pub const NONE: Factor = Factor(0.0);

    /// For defaults: `value` is finite and at least 0.
    pub(super) const fn of(value: f64) -> Factor {
        Factor(value)
    }

    /// The factor as a number, finite and at least 0.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl Default for Factor {
    fn default() -> Factor {
        Factor(1.0)
    }
}

impl TryFrom<f64> for Factor {
    type Error = &'static str;

    fn try_from(value: f64) -> Result<Factor, &'static str> {
        if value.is_finite() && value >= 0.0 { Ok(Factor(value)) } else { Err("expected a number from 0") }
    }
}

/// A share, 0–1.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Share(f64);

impl Share {
    /// For defaults: `value` is 0–1.
    pub(super) const fn of(value: f64) -> Share {
        Share(value)
    }

    /// The share as a number.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Share {
    type Error = &'static str;

    fn try_from(value: f64) -> Result<Share, &'static str> {
        if (0.0..=1.0).contains(&value) { Ok(Share(value)) } else { Err("expected a number from 0 to 1") }
    }
}

/// A number above 0.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(try_from = "f64")]
pub struct Positive(f64);

impl Positive {
    /// For defaults: `value` is above 0.
    pub(super) const fn of(value: f64) -> Positive {
        Positive(value)
    }

    /// The number, finite.
    pub const fn value(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Positive {
    type Error = &'static str;

    fn try_from(value: f64) -> Result<Positive, &'static str> {
        if value.is_finite() && value > 0.0 { Ok(Positive(value)) } else { Err("expected a number above 0") }
    }
}

/// Where a server listens: `127.0.0.1:6379`, `[::1]:6379`, `localhost:6379` or `/run/redis.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A host, by name or number, and a port.
    Tcp(String, u16),
    /// A UNIX socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if text.starts_with('/') {
            return Ok(Address::Unix(text.into()));
        }
        let parsed = text.rsplit_once(':').and_then(|(host, port)| {
            let plain = host.strip_prefix('[').map_or(Some(host), |host| host.strip_suffix(']'))?;
            let port = port.parse().ok().filter(|&port| port != 0)?;
            (!plain.is_empty() && (plain != host || !host.contains(':')))
                .then(|| Address::Tcp(plain.into(), port))
        });
        parsed.ok_or_else(|| {
            format!("expected an address such as 127.0.0.1:6379 or /run/redis.sock, found \"{text}\"")
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp(host, port) => write!(f, "{host}:{port}"),
            Address::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        from_str(deserializer)
    }
}

/// A page: `http://127.0.0.1:8080/status`. What is measured is near: there is no TLS on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Who is asked.
    pub address: Address,
    /// What for: a path, and a query if need be.
    pub path: String,
}

impl FromStr for Url {
    type Err = String;

    fn from_str(text: &str) -> Result<Url, String> {
        let wrong = || format!("expected a URL such as http://127.0.0.1:8080/status, found \"{text}\"");
        let rest = text.strip_prefix("http://").ok_or_else(wrong)?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let is_plain = path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#');
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let address = if has_port { host.parse() } else { format!("{host}:80").parse() };
        let (Ok(address @ Address::Tcp(..)), true) = (address, is_plain) else {
            return Err(wrong());
        };
        let path = if path.starts_with('/') { path.into() } else { format!("/{path}") };
        Ok(Url { address, path })
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

impl<'de> Deserialize<'de> for Url {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
        from_str(deserializer)
    }
}

/// A place in a JSON document (RFC 6901): empty, the document itself, or beginning with a slash.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Pointer(String);

impl Pointer {
    /// The pointer as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Pointer {
    type Error = String;

    fn try_from(text: String) -> Result<Pointer, String> {
        if text.is_empty() || text.starts_with('/') {
            Ok(Pointer(text))
        } else {
            Err(format!("expected a pointer such as /queue/length, found \"{text}\""))
        }
    }
}

/// A program and its arguments: at least the program.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Words(Vec<String>);

impl Words {
    /// The program.
    pub fn program(&self) -> &str {
        &self.0[0]
    }

    /// Its arguments.
    pub fn arguments(&self) -> &[String] {
        &self.0[1..]
    }
}

impl TryFrom<Vec<String>> for Words {
    type Error = &'static str;

    fn try_from(words: Vec<String>) -> Result<Words, &'static str> {
        match words.first() {
            Some(program) if !program.is_empty() => Ok(Words(words)),
            _ => Err("expected a program and its arguments, such as [\"/usr/local/bin/health\"]"),
        }
    }
}

pub(super) fn expected<E: de::Error>(what: &str, found: &str) -> E {
    E::custom(format_args!("expected {what}, found \"{found}\""))
}

pub(super) fn from_str<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<T, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
}

/// A time between two things that repeat, or for one to happen: from 1 ms to a day.
pub(super) fn period<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let period: Duration = humantime_serde::deserialize(deserializer)?;
    let allowed = Duration::from_millis(1)..=Duration::from_secs(86_400);
    if allowed.contains(&period) {
        Ok(period)
    } else {
        Err(de::Error::custom("expected a time from 1ms to 1day"))
    }
}

pub(super) fn period_if_any<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    period(deserializer).map(Some)
}
