//! Nodes that join a pool by starting a service, and leave it by stopping that.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use evener_feedback::necp::{Port, Service};

use crate::config::{self, Config, Join};

/// Nodes that joined, by pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Members(BTreeMap<String, Vec<Joined>>);

/// A node that joined a pool.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    address: SocketAddr,
    /// Since when no agent speaks for it.
    silent_since: Option<Instant>,
}

impl Members {
    /// Takes the service at `address` as a node of each pool that lets it join, unless it is a node there already.
    /// Says whether a pool has it now that had not.
    pub(crate) fn join(&mut self, base: &Config, address: IpAddr, service: Service) -> bool {
        let address = SocketAddr::new(address.to_canonical(), service.port.number);
        let mut joined = false;
        for pool in &base.pools {
            let Some(join) = pool.join.as_ref().filter(|join| lets(join, address, service.port)) else {
                continue;
            };
            let members = self.0.entry(pool.name.clone()).or_default();
            if let Some(member) = members.iter_mut().find(|member| member.address == address) {
                member.silent_since = None;
                continue;
            }
            if pool.nodes.iter().any(|node| node.address == address) {
                continue;
            }
            if members.len() >= join.nodes_max {
                tracing::warn!(pool = pool.name, %address, limit = join.nodes_max, "no more nodes may join");
                continue;
            }
            tracing::info!(pool = pool.name, %address, "a node joins");
            members.push(Joined { address, silent_since: None });
            joined = true;
        }
        joined
    }

    /// Lets the service at `address` go; says whether it was a member.
    pub(crate) fn leave(&mut self, address: IpAddr, port: Port) -> bool {
        let address = SocketAddr::new(address.to_canonical(), port.number);
        self.retain(|pool, member| {
            let leaves = member.address == address;
            if leaves {
                tracing::info!(pool, %address, "a node leaves");
            }
            !leaves
        })
    }

    /// No agent speaks for the nodes at `address` any more.
    pub(crate) fn fall_silent(&mut self, address: IpAddr) {
        let address = address.to_canonical();
        for member in self.0.values_mut().flatten().filter(|member| member.address.ip() == address) {
            member.silent_since.get_or_insert_with(Instant::now);
        }
    }

    /// Lets those go whose agents have been gone for too long, and those that `base` does not let join any
    /// more; says whether there were such.
    pub(crate) fn follow(&mut self, base: &Config) -> bool {
        self.retain(|pool, member| {
            let pool = base.pools.iter().find(|known| known.name == pool);
            let Some((pool, join)) = pool.and_then(|pool| Some((pool, pool.join.as_ref()?))) else { return false };
            let port = Port { protocol: join.protocol, number: member.address.port() };
            let is_late = member.silent_since.is_some_and(|since| since.elapsed() >= join.linger);
            if is_late {
                tracing::info!(pool = pool.name, address = %member.address, "a node leaves: its agent is gone");
            }
            let is_configured = pool.nodes.iter().any(|node| node.address == member.address);
            !is_late && !is_configured && lets(join, member.address, port)
        })
    }

    /// `base`, and the nodes that joined.
    pub(crate) fn added_to(&self, base: &Config) -> Config {
        let mut config = base.clone();
        for pool in &mut config.pools {
            let (Some(members), Some(join)) = (self.0.get(&pool.name), &pool.join) else { continue };
            pool.nodes.extend(members.iter().map(|member| config::Node {
                name: member.address.to_string(),
                text: member.address.to_string(),
                address: member.address,
                weight: join.weight,
                jobs_max: pool.jobs_max,
            }));
        }
        config
    }

    fn retain(&mut self, mut keep: impl FnMut(&str, &Joined) -> bool) -> bool {
        let mut left = false;
        for (pool, members) in &mut self.0 {
            let before = members.len();
            members.retain(|member| keep(pool, member));
            left |= members.len() < before;
        }
        left
    }
}

fn lets(join: &Join, address: SocketAddr, port: Port) -> bool {
    let is_meant = join.port == port.number && join.protocol == port.protocol;
    is_meant && join.from.iter().any(|network| network.contains(address.ip()))
}

#[cfg(test)]
mod tests {
    use evener_feedback::necp::{Forwarding, Protocol};

    use super::*;

    fn service(number: u16) -> Service {
        Service { forwarding: Forwarding::Layer3, port: Port { protocol: Protocol::Tcp, number } }
    }

    fn config(join: &str) -> Config {
        let text = format!(
            "[listener.web]\nbind = \"127.0.0.1:8080\"\npool = \"app\"\n[pool.app]\n{join}\n\
             node = [ {{ address = \"10.0.0.9:80\" }} ]\n"
        );
        Config::from_text("evener.toml", &text).expect("a configuration")
    }

    fn addresses(members: &Members, base: &Config) -> Vec<String> {
        members.added_to(base).pools[0].nodes.iter().map(|node| node.address.to_string()).collect()
    }

    #[test]
    fn only_agents_of_the_right_place_and_port_join_and_no_more_than_may() {
        let base = config("join = { from = [\"10.0.0.0/24\"], port = 80, limit = 2 }");
        let mut members = Members::default();
        let mut join = |address: &str, port| members.join(&base, address.parse().unwrap(), service(port));
        assert!(join("10.0.0.1", 80));
        assert!(!join("10.0.0.1", 80), "it is there");
        assert!(!join("10.0.1.1", 80), "elsewhere");
        assert!(!join("10.0.0.2", 81), "another service");
        assert!(!join("10.0.0.9", 80), "configured already");
        assert!(join("::ffff:10.0.0.2", 80), "the same network");
        assert!(!join("10.0.0.3", 80), "one too many");
        assert_eq!(addresses(&members, &base), ["10.0.0.9:80", "10.0.0.1:80", "10.0.0.2:80"]);
        assert!(members.leave("10.0.0.1".parse().unwrap(), service(80).port));
        assert_eq!(addresses(&members, &base), ["10.0.0.9:80", "10.0.0.2:80"]);
    }

    #[test]
    fn nodes_leave_when_their_agent_is_gone_or_the_pool_does_not_let_them_join_any_more() {
        let base = config("join = { from = [\"10.0.0.0/24\"], port = 80, linger = \"0s\" }");
        let mut members = Members::default();
        for address in ["10.0.0.1", "10.0.0.2"] {
            members.join(&base, address.parse().unwrap(), service(80));
        }
        assert!(!members.follow(&base));
        members.fall_silent("10.0.0.1".parse().unwrap());
        assert!(members.follow(&base));
        assert_eq!(addresses(&members, &base), ["10.0.0.9:80", "10.0.0.2:80"]);
        let without = config("");
        assert!(members.follow(&without));
        assert_eq!(addresses(&members, &without), ["10.0.0.9:80"]);
    }
}
