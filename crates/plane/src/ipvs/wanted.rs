//! What the kernel's virtual services are to be.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;

use super::types::{Family, Forwarding, VirtualService};
use super::wire::NAME_BYTES_MAX;

/// The virtual services that are to be there; others are left alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted(Vec<WantedService>);

impl Wanted {
    /// These services.
    ///
    /// # Errors
    /// [`WantedError::ServiceTwice`].
    pub fn new(services: Vec<WantedService>) -> Result<Wanted, WantedError> {
        let mut keys = BTreeSet::new();
        match services.iter().find(|service| !keys.insert(service.service)) {
            Some(twice) => Err(WantedError::ServiceTwice(twice.service)),
            None => Ok(Wanted(services)),
        }
    }

    /// The services.
    pub fn services(&self) -> &[WantedService] {
        &self.0
    }
}

/// A virtual service with its nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedService {
    service: VirtualService,
    scheduler: String,
    destinations: Vec<WantedDestination>,
    /// How long a destination that leaves keeps its connections at the most.
    pub drain_timeout: Duration,
    /// How long destinations that were there before us are kept, though nothing is known of them: after a restart of the
    /// director their agents have yet to say that they are there.
    pub settle: Duration,
}

impl WantedService {
    /// What a destination gets to end its connections, if nothing is said.
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

    /// A virtual service, which the kernel's scheduler of this name balances over these destinations.
    ///
    /// # Errors
    /// [`WantedError`] for what cannot work, or what the kernel would refuse.
    pub fn new(
        service: VirtualService,
        scheduler: &str,
        destinations: Vec<WantedDestination>,
    ) -> Result<WantedService, WantedError> {
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let fits = (1..=NAME_BYTES_MAX).contains(&scheduler.len());
        if !fits || !scheduler.bytes().all(is_name) {
            return Err(WantedError::Scheduler(scheduler.to_owned()));
        }
        let mut addresses = BTreeSet::new();
        for destination in &destinations {
            destination.check(service)?;
            if !addresses.insert(destination.address) {
                return Err(WantedError::DestinationTwice(destination.address));
            }
        }
        let drain_timeout = WantedService::DRAIN_TIMEOUT;
        let scheduler = scheduler.to_owned();
        Ok(WantedService { service, scheduler, destinations, drain_timeout, settle: Duration::ZERO })
    }

    /// What clients connect to.
    pub fn service(&self) -> VirtualService {
        self.service
    }

    /// The name of the kernel's scheduler.
    pub fn scheduler(&self) -> &str {
        &self.scheduler
    }

    /// Its nodes, each once.
    pub fn destinations(&self) -> &[WantedDestination] {
        &self.destinations
    }
}

/// A node of a virtual service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WantedDestination {
    /// Where it is.
    pub address: SocketAddr,
    /// How packets get there.
    pub forwarding: Forwarding,
    /// Its share of new connections; 0: none, and those that it has go on.
    pub weight: u32,
}

impl WantedDestination {
    /// Whether it can be a node of this service.
    ///
    /// # Errors
    /// [`WantedError::Family`] and [`WantedError::Port`], for what the kernel refuses or what would have no effect.
    pub fn check(&self, service: VirtualService) -> Result<(), WantedError> {
        let is_tunnel = matches!(self.forwarding, Forwarding::Ipip | Forwarding::Gre);
        if Family::of(self.address) != service.family() && !is_tunnel {
            return Err(WantedError::Family(self.address, service));
        }
        if self.forwarding == Forwarding::Nat {
            return Ok(());
        }
        // Only NAT rewrites the port: elsewhere another one would have no effect, and would seem to have one.
        match service {
            VirtualService::Address { address, .. } if address.port() != self.address.port() => {
                Err(WantedError::Port(self.address, self.forwarding, address.port()))
            }
            _ => Ok(()),
        }
    }
}

/// What cannot be wanted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WantedError {
    /// No name of a scheduler.
    #[error("expected the name of a scheduler of the kernel's (rr, wrr, lc, wlc, sh, mh, …), found \"{0}\"")]
    Scheduler(String),
    /// A service is there twice.
    #[error("the virtual service {0} is there twice")]
    ServiceTwice(VirtualService),
    /// A destination is there twice.
    #[error("the destination {0} is there twice")]
    DestinationTwice(SocketAddr),
    /// IPv4 to IPv6, or the other way round.
    #[error("{0} is of another family than {1}: only a tunnel can lead there")]
    Family(SocketAddr, VirtualService),
    /// A port that nobody would rewrite.
    #[error(
        "{0} has another port than the virtual service, and the way {1} does not rewrite it: expected port {2}"
    )]
    Port(SocketAddr, Forwarding, u16),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipvs::Transport;

    fn service(address: &str) -> VirtualService {
        VirtualService::Address { transport: Transport::Tcp, address: address.parse().expect("an address") }
    }

    fn destination(address: &str, forwarding: Forwarding) -> WantedDestination {
        WantedDestination { address: address.parse().expect("an address"), forwarding, weight: 1 }
    }

    #[test]
    fn a_port_is_rewritten_by_nat_alone() {
        let other = |way| destination("10.0.1.1:8000", way).check(service("10.0.0.1:80"));
        assert_eq!(other(Forwarding::Nat), Ok(()));
        for way in [Forwarding::Direct, Forwarding::Ipip, Forwarding::Gre] {
            let error = other(way).expect_err("nobody would rewrite it");
            assert!(error.to_string().ends_with("expected port 80"), "{error}");
            assert_eq!(destination("10.0.1.1:80", way).check(service("10.0.0.1:80")), Ok(()));
        }
    }

    #[test]
    fn another_family_is_reached_by_tunnels_alone() {
        let other = |way| destination("[fd00::1]:80", way).check(service("10.0.0.1:80"));
        assert!(matches!(other(Forwarding::Nat), Err(WantedError::Family(..))));
        assert!(matches!(other(Forwarding::Direct), Err(WantedError::Family(..))));
        assert_eq!((other(Forwarding::Ipip), other(Forwarding::Gre)), (Ok(()), Ok(())));
    }

    #[test]
    fn nothing_is_wanted_twice() {
        let (vip, node) = (service("10.0.0.1:80"), destination("10.0.1.1:80", Forwarding::Nat));
        let twice = WantedService::new(vip, "rr", vec![node, node]);
        assert_eq!(twice, Err(WantedError::DestinationTwice(node.address)));
        let once = WantedService::new(vip, "rr", vec![node]).expect("it can be wanted");
        assert_eq!(Wanted::new(vec![once.clone(), once]), Err(WantedError::ServiceTwice(vip)));
    }

    #[test]
    fn names_of_schedulers_are_short_and_plain() {
        for name in ["", "a_name_of_sixteen", "Wlc", "w lc", "../x"] {
            let refused = WantedService::new(service("10.0.0.1:80"), name, Vec::new());
            assert_eq!(refused, Err(WantedError::Scheduler(name.to_owned())));
        }
    }
}
