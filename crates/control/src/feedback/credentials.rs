//! Whom a director believes, and of whom it lets them speak.

use std::net::IpAddr;
use std::sync::Arc;

use evener_trust::rustls::ServerConfig;
use evener_trust::{Key, Keys, TlsFiles, TrustError, anonymous_server_config, server_config};

use crate::config;
use crate::director::Director;
use crate::feedback::{Dialect, NodeRef};

/// What the id of a key begins with that one node has for itself.
const BOUND: &str = "node:";

/// What the files say that the configuration names.
#[derive(Debug, Default)]
pub(crate) struct Credentials {
    /// Keys of which a sender must have one; none: senders need no key.
    pub(crate) keys: Vec<Key>,
    /// How connections are encrypted; `None`: they are not.
    pub(crate) tls: Option<Arc<ServerConfig>>,
}

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// Which file is of no use, and why.
    pub(crate) fn read(config: &config::Feedback) -> Result<Credentials, TrustError> {
        let keys = match &config.keys {
            Some(path) => Keys::read(path)?.iter().cloned().collect(),
            None => Vec::new(),
        };
        let tls = match &config.tls {
            Some(config::TlsFiles { certificate, key, client_ca: Some(ca) }) => {
                Some(server_config(&TlsFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    ca: ca.clone(),
                })?)
            }
            Some(files) => Some(anonymous_server_config(&files.certificate, &files.key)?),
            None => None,
        };
        Ok(Credentials { keys, tls })
    }
}

/// Of which nodes a sender may speak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Speaker {
    /// Of all: it has a key that all nodes share, or is on this machine and needs none.
    Any,
    /// Of the nodes of that name: it has their own key.
    Named(String),
    /// Of the nodes at its own address: it has no key, and needs none.
    At(IpAddr),
}

impl Speaker {
    /// Who has that key: the key `node:rat` is for the nodes called "rat", as is `node:rat#2`, for when keys are changed.
    pub(crate) fn with(key: &Key) -> Speaker {
        match key.id().strip_prefix(BOUND) {
            Some(name) => Speaker::Named(name.split('#').next().unwrap_or_default().to_owned()),
            None => Speaker::Any,
        }
    }

    /// Who is at that address and has no key.
    pub(crate) fn at(address: IpAddr) -> Speaker {
        // Whoever is on this machine can ask the admin API for as much.
        if address.is_loopback() { Speaker::Any } else { Speaker::At(address) }
    }

    pub(crate) fn may_speak_of(&self, director: &Director, node: NodeRef) -> bool {
        match self {
            Speaker::Any => true,
            Speaker::Named(name) => director.name_of(node).as_ref() == Some(name),
            Speaker::At(address) => {
                director.address_of(node).is_some_and(|at| at.ip().to_canonical() == *address)
            }
        }
    }
}

/// Several nodes may be there, each with its own agent, so that the address does not tell which one speaks.
pub(crate) fn is_shared(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address == std::net::Ipv4Addr::LOCALHOST,
        IpAddr::V6(address) => address == std::net::Ipv6Addr::LOCALHOST,
    }
}

/// The nodes that a report is about: those of the name, else those at the sender's address; of the service, if it says which.
///
/// Names are the director's. An agent that calls itself otherwise is known by its address.
pub(crate) fn nodes_meant(
    director: &Director,
    dialect: Dialect,
    name: Option<&str>,
    port: Option<u16>,
    sender: IpAddr,
) -> Vec<NodeRef> {
    let mut nodes = name.map(|name| director.nodes_named(dialect, None, name)).unwrap_or_default();
    if nodes.is_empty() {
        let is_clear = port.is_some() || !is_shared(sender);
        return if is_clear { director.nodes_at(dialect, sender, port) } else { Vec::new() };
    }
    if let Some(port) = port {
        nodes.retain(|node| director.address_of(*node).is_some_and(|at| at.port() == port));
    }
    nodes
}
