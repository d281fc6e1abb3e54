//! Flows that nodes do not want.

use std::collections::BTreeSet;
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
    changes: u64,
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
        Exceptions { entries: Vec::new(), global, changes: 0 }
    }

    /// Whether a node may speak for all others from now on. What was said for all is forgotten if not.
    pub fn allow_global(&mut self, global: bool) {
        self.global = global;
        self.keep(|entry| global || entry.exception.scope != Scope::Global);
    }

    /// Grows with each change: whoever knows what there was at the same number knows what there is.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What the node whose agent is `owner` asked for and what holds at `now`.
    pub fn of(&self, now: Time, owner: IpAddr) -> Vec<Exception> {
        let entries = self.entries.iter().filter(|entry| entry.owner == owner && entry.holds(now));
        entries.map(|entry| entry.exception).collect()
    }

    /// Forgets what has expired, and says whose it was.
    pub fn expire(&mut self, now: Time) -> BTreeSet<IpAddr> {
        let late = self.entries.iter().filter(|entry| !entry.holds(now));
        let owners = late.map(|entry| entry.owner).collect();
        self.keep(|entry| entry.holds(now));
        owners
    }

    /// Whether the node whose agent is `owner` is to be spared `flow`.
    ///
    /// O(exceptions), no allocation.
    pub fn spares(&self, now: Time, owner: IpAddr, flow: &Flow) -> bool {
        let mut binding = self.entries.iter().filter(|entry| {
            let concerned = entry.owner == owner || entry.exception.scope == Scope::Global;
            concerned && entry.holds(now)
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
        // Those of others are left to whoever tells that they are gone.
        self.keep(|entry| entry.owner != owner || entry.holds(now));
        let ttl = Duration::from_secs(exception.ttl_s.into());
        let expires = (exception.ttl_s > 0).then(|| now + ttl);
        let entry = Entry { owner, exception, expires };
        let same = |known: &&mut Entry| {
            known.owner == owner && known.exception.flows == exception.flows && known.exception.scope == scope
        };
        if let Some(known) = self.entries.iter_mut().find(same) {
            *known = entry;
            self.changes += 1;
            return true;
        }
        let owned = self.entries.iter().filter(|entry| entry.owner == owner).count();
        if owned < Exceptions::NODE_MAX {
            self.entries.push(entry);
            self.changes += 1;
        }
        owned < Exceptions::NODE_MAX
    }

    /// Removes an exception of the node's own, if it is there.
    pub(super) fn delete(&mut self, owner: IpAddr, exception: &Exception) {
        self.keep(|entry| {
            let scope = exception.scope == Scope::Any || exception.scope == entry.exception.scope;
            entry.owner != owner || !scope || entry.exception.flows != exception.flows
        });
    }

    /// Removes all of a node's.
    pub fn reset(&mut self, owner: IpAddr) {
        self.keep(|entry| entry.owner != owner);
    }

    fn keep(&mut self, keep: impl FnMut(&Entry) -> bool) {
        let before = self.entries.len();
        self.entries.retain(keep);
        self.changes += u64::from(self.entries.len() < before);
    }

    /// Those that are as `wanted` says, where it says something, and the addresses of those who installed them.
    pub(super) fn query(&self, now: Time, wanted: Exception) -> impl Iterator<Item = (Exception, Ipv4Addr)> {
        let entries = self.entries.iter().filter(move |entry| {
            let (entry_flows, flows) = (&entry.exception.flows, &wanted.flows);
            entry.holds(now)
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

impl Entry {
    fn holds(&self, now: Time) -> bool {
        self.expires.is_none_or(|at| now < at)
    }
}

impl Flows {
    /// Whether `flow` is one of them. IPv6 has no place in the protocol: only a wildcard covers it.
    pub fn contain(&self, flow: &Flow) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(scope: Scope, ttl_s: u32, port: u16) -> Exception {
        let flows = Flows { source: Prefix::ALL, destination: Prefix::ALL, protocol: 6, port };
        Exception { scope, ttl_s, flows }
    }

    #[test]
    fn each_change_shows_and_whose_time_is_over_is_told() {
        let (now, rat, mole) = (Time::ZERO, IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut exceptions = Exceptions::new(true);
        let mut last = exceptions.changes();
        let mut changes = |exceptions: &Exceptions| {
            let before = std::mem::replace(&mut last, exceptions.changes());
            exceptions.changes() > before
        };
        for (owner, ttl_s, port) in [(rat, 5, 80), (rat, 0, 81), (mole, 5, 80)] {
            assert!(exceptions.add(now, owner, exception(Scope::Local, ttl_s, port)));
            assert!(changes(&exceptions));
        }
        assert_eq!(exceptions.of(now, rat).len(), 2);
        let late = now + Duration::from_secs(5);
        assert_eq!(exceptions.of(late, rat), [exception(Scope::Local, 0, 81)]);
        // Another's are still told of, though nothing holds of them any more.
        exceptions.add(late, rat, exception(Scope::Local, 0, 82));
        assert!(changes(&exceptions));
        assert_eq!(exceptions.expire(late), BTreeSet::from([mole]));
        assert!(changes(&exceptions) && exceptions.expire(late).is_empty() && !changes(&exceptions));
        exceptions.reset(mole);
        assert!(!changes(&exceptions), "it has none");
    }

    #[test]
    fn what_was_said_for_all_is_forgotten_when_nobody_may_do_so_any_more() {
        let (now, rat) = (Time::ZERO, IpAddr::from([10, 0, 0, 1]));
        let mut exceptions = Exceptions::new(true);
        exceptions.add(now, rat, exception(Scope::Global, 0, 80));
        exceptions.add(now, rat, exception(Scope::Local, 0, 81));
        exceptions.allow_global(false);
        assert_eq!(exceptions.of(now, rat), [exception(Scope::Local, 0, 81)]);
        assert!(!exceptions.add(now, rat, exception(Scope::Global, 0, 80)));
    }
}
