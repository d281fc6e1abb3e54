//! What the kernel knows of virtual services and their destinations.

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroU32;

use evener_feedback::necp;

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: SocketAddr) -> Family {
        match address {
            SocketAddr::V4(_) => Family::Ipv4,
            SocketAddr::V6(_) => Family::Ipv6,
        }
    }

    /// How the kernel writes the network mask of a persistent service: that of a single client.
    pub(super) fn host_mask(self) -> u32 {
        match self {
            Family::Ipv4 => u32::MAX,
            Family::Ipv6 => 128,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::Ipv4 => "IPv4",
            Family::Ipv6 => "IPv6",
        })
    }
}

/// What runs on IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "they have no other names")]
pub enum Transport {
    Tcp,
    Udp,
    Sctp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Tcp => "tcp",
            Transport::Udp => "udp",
            Transport::Sctp => "sctp",
        })
    }
}

impl From<necp::Protocol> for Transport {
    fn from(protocol: necp::Protocol) -> Transport {
        match protocol {
            necp::Protocol::Tcp => Transport::Tcp,
            necp::Protocol::Udp => Transport::Udp,
        }
    }
}

/// What clients connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum VirtualService {
    /// What goes to an address.
    Address {
        /// What runs on IP.
        transport: Transport,
        /// Address and port.
        address: SocketAddr,
    },
    /// What the firewall marked.
    Mark {
        /// The mark.
        mark: NonZeroU32,
        /// Of which family.
        family: Family,
    },
}

impl VirtualService {
    /// IPv4 or IPv6.
    pub fn family(&self) -> Family {
        match *self {
            VirtualService::Address { address, .. } => Family::of(address),
            VirtualService::Mark { family, .. } => family,
        }
    }
}

impl fmt::Display for VirtualService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VirtualService::Address { transport, address } => write!(f, "{transport} {address}"),
            VirtualService::Mark { mark, family } => write!(f, "fwmark {mark} ({family})"),
        }
    }
}

/// How packets get to a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Forwarding {
    /// Address and port are rewritten, in the answers too, which come back this way (ipvsadm: Masq).
    Nat,
    /// Unchanged, on the same link; answers take their own way (ipvsadm: Route).
    Direct,
    /// In a tunnel of IP in IP; answers take their own way (ipvsadm: Tunnel).
    Ipip,
    /// In a tunnel of GRE (Linux 5.3); answers take their own way.
    Gre,
}

impl From<necp::Forwarding> for Forwarding {
    fn from(forwarding: necp::Forwarding) -> Forwarding {
        match forwarding {
            necp::Forwarding::Layer2 => Forwarding::Direct,
            necp::Forwarding::Gre => Forwarding::Gre,
            necp::Forwarding::Layer3 => Forwarding::Nat,
        }
    }
}

impl Forwarding {
    /// All of them.
    pub const ALL: [Forwarding; 4] = [Forwarding::Nat, Forwarding::Direct, Forwarding::Gre, Forwarding::Ipip];

    /// Its name in configurations: as agents name it, and one that they cannot name.
    pub const fn name(self) -> &'static str {
        match self {
            Forwarding::Nat => "nat",
            Forwarding::Direct => "direct",
            Forwarding::Gre => "tunnel",
            Forwarding::Ipip => "ipip",
        }
    }
}

impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Forwarding as the kernel has it, with what others may have set of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Way {
    pub(super) method: u32,
    pub(super) tunnel: u8,
    /// Big-endian on the wire.
    pub(super) tunnel_port: u16,
    pub(super) tunnel_flags: u16,
}

impl Way {
    pub(super) const MASQUERADING: u32 = 0;
    pub(super) const LOCAL: u32 = 1;
    pub(super) const TUNNEL: u32 = 2;
    pub(super) const DIRECT: u32 = 3;
    const IPIP: u8 = 0;
    const GRE: u8 = 2;

    /// Which of Evener's ways it is; `None` for those that Evener does not set.
    pub fn forwarding(self) -> Option<Forwarding> {
        match (self.method, self.tunnel) {
            (Way::MASQUERADING, _) => Some(Forwarding::Nat),
            (Way::DIRECT, _) => Some(Forwarding::Direct),
            (Way::TUNNEL, Way::IPIP) => Some(Forwarding::Ipip),
            (Way::TUNNEL, Way::GRE) => Some(Forwarding::Gre),
            _ => None,
        }
    }

    /// Whether it is what was wanted. Older kernels deliver to addresses of their own locally whatever was said.
    pub(super) fn is(self, forwarding: Forwarding) -> bool {
        self.method == Way::LOCAL || self.forwarding() == Some(forwarding)
    }
}

impl From<Forwarding> for Way {
    fn from(forwarding: Forwarding) -> Way {
        let (method, tunnel) = match forwarding {
            Forwarding::Nat => (Way::MASQUERADING, 0),
            Forwarding::Direct => (Way::DIRECT, 0),
            Forwarding::Ipip => (Way::TUNNEL, Way::IPIP),
            Forwarding::Gre => (Way::TUNNEL, Way::GRE),
        };
        Way { method, tunnel, ..Way::default() }
    }
}

/// What has gone through a service or to a destination since it was added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections.
    pub connections: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients; 0 where answers take their own way.
    pub packets_out: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients.
    pub bytes_out: u64,
}

/// A virtual service that the kernel has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// What clients connect to.
    pub key: VirtualService,
    /// Name of the kernel's scheduler.
    pub scheduler: String,
    /// Persistence and flags of the scheduler, as the kernel has them.
    pub flags: u32,
    /// How long a client stays with its destination, if the service is persistent.
    pub timeout_s: u32,
    /// Which clients are one, if the service is persistent: a mask for IPv4, bits for IPv6.
    pub netmask: u32,
    /// The persistence engine, if it has one.
    pub engine: Option<String>,
    /// What has gone through it.
    pub stats: Stats,
}

impl Service {
    /// A service without persistence.
    pub fn new(key: VirtualService, scheduler: &str) -> Service {
        Service {
            key,
            scheduler: scheduler.to_owned(),
            flags: 0,
            timeout_s: 0,
            netmask: key.family().host_mask(),
            engine: None,
            stats: Stats::default(),
        }
    }
}

/// A destination that the kernel has: a node of a virtual service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Where it is.
    pub address: SocketAddr,
    /// How packets get there.
    pub way: Way,
    /// Its share of new connections; 0: none.
    pub weight: u32,
    /// Connections at which it gets no more; 0: no limit.
    pub connections_max: u32,
    /// Connections below which it gets some again; 0: three quarters of the limit.
    pub connections_resume: u32,
    /// Connections that are established; those of UDP until they time out.
    pub active: u32,
    /// Connections that begin or have ended.
    pub inactive: u32,
    /// Clients that are bound to it.
    pub persistent: u32,
    /// What has gone to it.
    pub stats: Stats,
}

impl Destination {
    /// A destination without limits.
    pub fn new(address: SocketAddr, forwarding: Forwarding, weight: u32) -> Destination {
        Destination {
            address,
            way: forwarding.into(),
            weight,
            connections_max: 0,
            connections_resume: 0,
            active: 0,
            inactive: 0,
            persistent: 0,
            stats: Stats::default(),
        }
    }
}
