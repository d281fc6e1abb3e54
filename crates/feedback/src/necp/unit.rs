//! What the eight numbers of a unit mean.

use std::net::Ipv4Addr;

use super::frame::Unit;

/// Port and protocol of a service on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// What runs on IP.
    pub protocol: Protocol,
    /// The port.
    pub number: u16,
}

/// What runs on IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
#[allow(missing_docs, reason = "they have no other names")]
pub enum Protocol {
    Tcp = 6,
    Udp = 17,
}

/// How packets of a service are to reach the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Forwarding {
    /// On the same link, to the node's hardware address (IPVS: direct routing).
    Layer2 = 1,
    /// In a GRE tunnel (IPVS: tunnel).
    Gre = 2,
    /// To the node's IP address (IPVS: NAT; and what a proxy does).
    Layer3 = 3,
}

/// A service that a node offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Service {
    /// How its packets are to come.
    pub forwarding: Forwarding,
    /// Where.
    pub port: Port,
}

/// What a keep-alive asks of a service: an open list of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryType(pub u32);

impl QueryType {
    /// The health index, 0–100.
    pub const HEALTH: QueryType = QueryType(1);
    /// Evener's: jobs in flight.
    pub const JOBS: QueryType = QueryType(0x8000_0000);
    /// Evener's: jobs that wait.
    pub const QUEUE: QueryType = QueryType(0x8000_0001);
    /// Evener's: CPU load in thousandths of the capacity.
    pub const CPU_LOAD: QueryType = QueryType(0x8000_0002);
    /// Evener's: network load in thousandths.
    pub const NETWORK_LOAD: QueryType = QueryType(0x8000_0003);
}

/// A question of a keep-alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Query {
    /// What is asked.
    pub kind: QueryType,
    /// Of which service.
    pub port: Port,
}

/// Which flows a node does not want: a wildcard where there is 0 or `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Flows {
    /// Where they come from.
    pub source: Prefix,
    /// Where they go to.
    pub destination: Prefix,
    /// Their protocol; 0: any.
    pub protocol: u8,
    /// The port they go to; 0: any.
    pub port: u16,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    /// The address, its bits beyond the length 0.
    address: u32,
    length: u8,
}

impl Prefix {
    /// All addresses.
    pub const ALL: Prefix = Prefix { address: 0, length: 0 };

    /// The addresses that begin with the first `length` bits of `address`, all if these are 0; `None` above 32.
    pub fn new(address: Ipv4Addr, length: u8) -> Option<Prefix> {
        let address = address.to_bits() & mask(length);
        match length {
            _ if address == 0 => Some(Prefix::ALL),
            1..=32 => Some(Prefix { address, length }),
            _ => None,
        }
    }

    /// Whether `address` is one of them.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask(self.length) == self.address
    }

    /// As on the wire. An address without a length could be one host or all.
    fn from_wire(address: u32, length: u32) -> Option<Prefix> {
        match (address, length) {
            (0, 0..=32) => Some(Prefix::ALL),
            (_, 0) => None,
            (_, length) => Prefix::new(Ipv4Addr::from_bits(address), u8::try_from(length).ok()?),
        }
    }
}

fn mask(length: u8) -> u32 {
    u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0)
}

/// Whom an exception binds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Scope {
    /// Whatever the director prefers.
    Any = 0,
    /// The node that asks.
    Local = 1,
    /// All nodes.
    Global = 2,
}

/// What a node asks to be spared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Exception {
    /// Whom it binds.
    pub scope: Scope,
    /// For how many seconds; 0: until it is deleted.
    pub ttl_s: u32,
    /// Which flows.
    pub flows: Flows,
}

impl Port {
    fn from_wire(protocol: u32, number: u32) -> Option<Port> {
        let protocol = match protocol {
            6 => Protocol::Tcp,
            17 => Protocol::Udp,
            _ => return None,
        };
        Some(Port { protocol, number: u16::try_from(number).ok()? })
    }
}

impl Service {
    /// The service that a unit of START or STOP means; `None`: none that there can be.
    pub fn from_unit(Unit([forwarding, protocol, port, ..]): Unit) -> Option<Service> {
        let forwarding = match forwarding {
            1 => Forwarding::Layer2,
            2 => Forwarding::Gre,
            3 => Forwarding::Layer3,
            _ => return None,
        };
        Some(Service { forwarding, port: Port::from_wire(protocol, port).filter(|port| port.number > 0)? })
    }

    /// As a unit.
    pub fn unit(self) -> Unit {
        let Service { forwarding, port } = self;
        Unit([forwarding as u32, port.protocol as u32, port.number.into(), 0, 0, 0, 0, 0])
    }
}

impl Query {
    /// The question of a unit; `None`: of no service that there can be.
    pub fn from_unit(Unit([kind, protocol, port, ..]): Unit) -> Option<Query> {
        Some(Query { kind: QueryType(kind), port: Port::from_wire(protocol, port)? })
    }

    /// As a unit.
    pub fn unit(self) -> Unit {
        self.answer_unit(0)
    }

    /// Its answer as a unit.
    pub fn answer_unit(self, value: u32) -> Unit {
        Unit([self.kind.0, self.port.protocol as u32, self.port.number.into(), value, 0, 0, 0, 0])
    }
}

impl Exception {
    /// The exception of a unit; `None`: of no flows that there can be.
    pub fn from_unit(Unit(data): Unit) -> Option<Exception> {
        let [scope, ttl_s, source, source_length, destination, destination_length, protocol, port] = data;
        let scope = match scope {
            0 => Scope::Any,
            1 => Scope::Local,
            2 => Scope::Global,
            _ => return None,
        };
        let flows = Flows {
            source: Prefix::from_wire(source, source_length)?,
            destination: Prefix::from_wire(destination, destination_length)?,
            protocol: u8::try_from(protocol).ok()?,
            port: u16::try_from(port).ok()?,
        };
        Some(Exception { scope, ttl_s, flows })
    }

    /// As a unit.
    pub fn unit(self) -> Unit {
        self.unit_with(self.ttl_s)
    }

    /// As a unit of an answer to a query, which says who installed it.
    pub fn installed_unit(self, by: Ipv4Addr) -> Unit {
        self.unit_with(by.to_bits())
    }

    fn unit_with(self, data1: u32) -> Unit {
        let Flows { source, destination, protocol, port } = self.flows;
        Unit([
            self.scope as u32,
            data1,
            source.address,
            source.length.into(),
            destination.address,
            destination.length.into(),
            protocol.into(),
            port.into(),
        ])
    }
}
