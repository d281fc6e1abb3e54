//! Flows that nodes do not want.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use evener_model::Time;

use crate::necp::unit::{Exception, Flows, Prefix, Scope};

/// A flow that is to be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes to.
    pub destination: IpAddr,
    /// The number of its protocol, 6 for TCP.
    pub protocol: u8,
    /// The port it goes to.
    pub port: u16,
}

/// What all nodes have asked to be spared. They concern new flows only: whoever places one asks here.
#[derive(Clone, Debug)]
pub struct Exceptions {
    entries: Vec<Entry>,
    global: bool,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// The address of the agent that installed it.
    owner: IpAddr,
    exception: Exception,
    expires: Option<Time>,
}

impl Exceptions {
    /// Exceptions of a node at the most.
    pub const NODE_MAX: usize = 256;

    /// None. `global` says whether a node may speak for all others; if not, such an exception is refused.
    pub fn new(global: bool) -> Exceptions {
        Exceptions { entries: Vec::new(), global }
    }

    /// Whether the node whose agent is `owner` is to be spared `flow`.
    ///
    /// O(exceptions), no allocation.
    pub fn spares(&self, now: Time, owner: IpAddr, flow: &Flow) -> bool {
        let mut binding = self.entries.iter().filter(|entry| {
            let concerned = entry.owner == owner || entry.exception.scope == Scope::Global;
            concerned && entry.expires.is_none_or(|at| now < at)
        });
        binding.any(|entry| entry.exception.flows.contain(flow))
    }

    /// Whether there is none at all.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What is installed, and by whom.
    pub fn iter(&self) -> impl Iterator<Item = (IpAddr, &Exception)> {
        self.entries.iter().map(|entry| (entry.owner, &entry.exception))
    }

    /// Installs an exception; one that is there already gets the new time to live. Says whether it may be.
    pub(super) fn add(&mut self, now: Time, owner: IpAddr, exception: Exception) -> bool {
        let scope = match exception.scope {
            Scope::Any => Scope::Local,
            Scope::Global if !self.global => return false,
            scope => scope,
        };
        let exception = Exception { scope, ..exception };
        self.entries.retain(|entry| entry.expires.is_none_or(|at| now < at));
        let ttl = Duration::from_secs(exception.ttl_s.into());
        let expires = (exception.ttl_s > 0).then(|| now + ttl);
        let entry = Entry { owner, exception, expires };
        let same = |known: &&mut Entry| {
            known.owner == owner && known.exception.flows == exception.flows && known.exception.scope == scope
        };
        if let Some(known) = self.entries.iter_mut().find(same) {
            *known = entry;
            return true;
        }
        let owned = self.entries.iter().filter(|entry| entry.owner == owner).count();
        if owned < Exceptions::NODE_MAX {
            self.entries.push(entry);
        }
        owned < Exceptions::NODE_MAX
    }

    /// Removes an exception of the node's own, if it is there.
    pub(super) fn delete(&mut self, owner: IpAddr, exception: &Exception) {
        self.entries.retain(|entry| {
            let scope = exception.scope == Scope::Any || exception.scope == entry.exception.scope;
            entry.owner != owner || !scope || entry.exception.flows != exception.flows
        });
    }

    /// Removes all of a node's.
    pub fn reset(&mut self, owner: IpAddr) {
        self.entries.retain(|entry| entry.owner != owner);
    }

    /// Those that are as `wanted` says, where it says something, and the addresses of those who installed them.
    pub(super) fn query(&self, now: Time, wanted: Exception) -> impl Iterator<Item = (Exception, Ipv4Addr)> {
        let entries = self.entries.iter().filter(move |entry| {
            let (entry_flows, flows) = (&entry.exception.flows, &wanted.flows);
            entry.expires.is_none_or(|at| now < at)
                && (wanted.scope == Scope::Any || wanted.scope == entry.exception.scope)
                && (flows.source == Prefix::ALL || flows.source == entry_flows.source)
                && (flows.destination == Prefix::ALL || flows.destination == entry_flows.destination)
                && (flows.protocol == 0 || flows.protocol == entry_flows.protocol)
                && (flows.port == 0 || flows.port == entry_flows.port)
        });
        entries.map(|entry| {
            let owner = match entry.owner.to_canonical() {
                IpAddr::V4(owner) => owner,
                // There is no room for it.
                IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
            };
            (entry.exception, owner)
        })
    }
}

impl Flows {
    /// Whether `flow` is one of them. IPv6 has no place in the protocol: only a wildcard covers it.
    fn contain(&self, flow: &Flow) -> bool {
        let within = |prefix: Prefix, address: IpAddr| match address.to_canonical() {
            IpAddr::V4(address) => prefix.contains(address),
            IpAddr::V6(_) => prefix == Prefix::ALL,
        };
        within(self.source, flow.source)
            && within(self.destination, flow.destination)
            && (self.protocol == 0 || self.protocol == flow.protocol)
            && (self.port == 0 || self.port == flow.port)
    }
}
