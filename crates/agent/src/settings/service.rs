//! `service`: what the node offers to directors, and `except`: whom it does not want to serve.

use std::net::Ipv4Addr;
use std::str::FromStr;
use std::time::Duration;

use evener_feedback::necp::{Exception, Flows, Forwarding, Port, Prefix, Protocol, Scope};
use serde::Deserialize;

use super::few::Written;

const EXPECTED: &str = "expected a service such as 80, tcp/3306 or udp/53,forwarding=direct,name=dns";

/// A service that directors may send jobs to: `80`, `"tcp/3306,forwarding=nat,name=sql"` or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Where it is.
    pub port: Port,
    /// How its packets are to come.
    pub forwarding: Forwarding,
    /// The `service` of the sources that are of it; `None`: it is as well as the node.
    pub name: Option<String>,
    /// When it is offered.
    pub start: Start,
}

/// When a service is offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Once a first sample has found nothing that forbids it.
    #[default]
    Healthy,
    /// At once.
    Always,
}

impl Service {
    /// The service of a port, as well as its node, reached by its address.
    pub fn new(port: Port) -> Service {
        Service { port, forwarding: Forwarding::Layer3, name: None, start: Start::default() }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Table {
    port: u16,
    #[serde(default)]
    protocol: ProtocolName,
    #[serde(default)]
    forwarding: ForwardingName,
    name: Option<String>,
    #[serde(default)]
    start: Start,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ProtocolName {
    #[default]
    Tcp,
    Udp,
}

/// As LVS calls them.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ForwardingName {
    #[default]
    Nat,
    Tunnel,
    Direct,
}

impl Written for Service {
    type Table = Table;
    const EXPECTED: &str = "a service such as 80 or \"tcp/3306\"";
}

impl TryFrom<Table> for Service {
    type Error = &'static str;

    fn try_from(table: Table) -> Result<Service, &'static str> {
        if table.port == 0 {
            return Err("expected a port from 1 to 65535");
        }
        let protocol = match table.protocol {
            ProtocolName::Tcp => Protocol::Tcp,
            ProtocolName::Udp => Protocol::Udp,
        };
        let forwarding = match table.forwarding {
            ForwardingName::Nat => Forwarding::Layer3,
            ForwardingName::Tunnel => Forwarding::Gre,
            ForwardingName::Direct => Forwarding::Layer2,
        };
        let port = Port { protocol, number: table.port };
        Ok(Service { port, forwarding, name: table.name, start: table.start })
    }
}

impl FromStr for Service {
    type Err = String;

    fn from_str(text: &str) -> Result<Service, String> {
        parse(text).ok_or_else(|| format!("{EXPECTED}, found \"{text}\""))
    }
}

fn parse(text: &str) -> Option<Service> {
    let mut parts = text.split(',');
    let place = parts.next()?;
    let place = if place.contains('/') { place.to_owned() } else { format!("tcp/{place}") };
    let mut service = Service::new(place.parse().ok()?);
    for part in parts {
        match part.split_once('=')? {
            ("forwarding", "nat") => service.forwarding = Forwarding::Layer3,
            ("forwarding", "tunnel") => service.forwarding = Forwarding::Gre,
            ("forwarding", "direct") => service.forwarding = Forwarding::Layer2,
            ("start", "healthy") => service.start = Start::Healthy,
            ("start", "always") => service.start = Start::Always,
            ("name", name) if !name.is_empty() => service.name = Some(name.into()),
            _ => return None,
        }
    }
    Some(service)
}

/// Flows that directors are asked to send elsewhere: `{ source = "10.1.0.0/16", port = 80 }`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ExceptTable")]
pub struct Except(pub Exception);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExceptTable {
    source: Option<Range>,
    destination: Option<Range>,
    protocol: Option<ProtocolName>,
    #[serde(default)]
    port: u16,
    #[serde(default)]
    scope: ScopeName,
    #[serde(default, with = "humantime_serde")]
    ttl: Option<Duration>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScopeName {
    Any,
    #[default]
    Local,
    Global,
}

impl TryFrom<ExceptTable> for Except {
    type Error = &'static str;

    fn try_from(table: ExceptTable) -> Result<Except, &'static str> {
        let prefix = |range: Option<Range>| range.map_or(Prefix::ALL, |range| range.0);
        let flows = Flows {
            source: prefix(table.source),
            destination: prefix(table.destination),
            protocol: match table.protocol {
                None => 0,
                Some(ProtocolName::Tcp) => Protocol::Tcp as u8,
                Some(ProtocolName::Udp) => Protocol::Udp as u8,
            },
            port: table.port,
        };
        if flows.source == Prefix::ALL && flows.destination == Prefix::ALL && flows.port == 0 {
            return Err(
                "expected a source, a destination or a port: to be spared everything, start no service",
            );
        }
        let scope = match table.scope {
            ScopeName::Any => Scope::Any,
            ScopeName::Local => Scope::Local,
            ScopeName::Global => Scope::Global,
        };
        let ttl_s = match table.ttl {
            None => 0,
            Some(ttl) => {
                u32::try_from(ttl.as_secs()).ok().filter(|ttl| *ttl > 0).ok_or("expected a ttl from 1s")?
            }
        };
        Ok(Except(Exception { scope, ttl_s, flows }))
    }
}

/// `10.1.0.0/16`, or one address.
#[derive(Clone, Copy, Deserialize)]
#[serde(try_from = "String")]
struct Range(Prefix);

impl TryFrom<String> for Range {
    type Error = String;

    fn try_from(text: String) -> Result<Range, String> {
        let (address, length) = text.split_once('/').unwrap_or((&text, "32"));
        let prefix = address.parse::<Ipv4Addr>().ok().zip(length.parse().ok());
        let prefix = prefix.and_then(|(address, length)| Prefix::new(address, length));
        prefix.map(Range).ok_or_else(|| {
            format!("expected IPv4 addresses such as 10.1.0.0/16 (NECP has no others), found \"{text}\"")
        })
    }
}
