//! Where to listen, and for what.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Deserializer};

use super::few::Written;

/// An address to listen at: `9998` is a port of this machine alone, `":9998"` a port of all its addresses,
/// `"10.0.0.1:9998"` one of one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: SocketAddr,
    /// Whether the IPv6 address of all stands for those of IPv4 too.
    pub is_dual: bool,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> Result<Listen, String> {
        let at = |address: IpAddr, port: &str| Some(SocketAddr::new(address, port.parse().ok()?));
        let parsed = match text.strip_prefix(':') {
            Some(port) => at(Ipv6Addr::UNSPECIFIED.into(), port).map(|address| (address, true)),
            None => at(Ipv4Addr::LOCALHOST.into(), text)
                .or_else(|| text.parse().ok())
                .map(|address| (address, false)),
        };
        let (address, is_dual) = parsed.ok_or_else(|| {
            format!("expected a port such as 9998 (of this machine alone), :9998 or 10.0.0.1:9998, found \"{text}\"")
        })?;
        Ok(Listen { address, is_dual })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_dual {
            true => write!(f, ":{}", self.address.port()),
            false => self.address.fmt(f),
        }
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Listen, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a port such as 9998, or an address such as \":9998\"")]
        enum Form {
            Port(u16),
            Text(String),
        }
        let text = match Form::deserialize(deserializer)? {
            Form::Port(port) => port.to_string(),
            Form::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A port where HAProxy asks how a service is: `":9999"`, or `{ listen = ":9999", service = "web" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentCheck {
    /// Where.
    pub listen: Listen,
    /// The `service` of the sources that are of it; `None`: the node.
    pub service: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    listen: Listen,
    service: Option<String>,
}

impl Written for AgentCheck {
    type Table = Table;
    const EXPECTED: &str = "an address such as \":9999\"";
}

impl From<Table> for AgentCheck {
    fn from(table: Table) -> AgentCheck {
        AgentCheck { listen: table.listen, service: table.service }
    }
}

impl FromStr for AgentCheck {
    type Err = String;

    fn from_str(text: &str) -> Result<AgentCheck, String> {
        let (listen, service) = match text.split_once(",service=") {
            Some((listen, service)) if !service.is_empty() => (listen, Some(service.to_owned())),
            _ => (text, None),
        };
        Ok(AgentCheck { listen: listen.parse()?, service })
    }
}
