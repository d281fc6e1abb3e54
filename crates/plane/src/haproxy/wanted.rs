//! What a proxy of HAProxy is to be.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use evener_model::Weight;
use thiserror::Error;

use super::answer::is_name;

/// What the names of servers begin with that were added by a director.
pub const ADDED_PREFIX: &str = "evener-";
/// HAProxy reads a command into a buffer of 16 KiB.
const OPTIONS_BYTES_MAX: usize = 1024;

/// A proxy (HAProxy's section `backend` or `listen`) and the nodes that are to be its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    proxy: String,
    nodes: Vec<WantedNode>,
    options: String,
    /// How long a server that leaves keeps its sessions at the most before it gets into maintenance.
    pub drain_timeout: Duration,
    /// How long servers that a director added before us are kept, though nothing is known of them: after a restart
    /// of the director their agents have yet to say that they are there.
    pub settle: Duration,
}

/// A node of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedNode {
    /// Its name. The server of this name is it; if there is none, a server at its address is.
    pub name: String,
    /// Where it is.
    pub address: SocketAddr,
    /// Its weight among the nodes; 0: it finishes its sessions and gets no new ones.
    pub weight: Weight,
}

/// What cannot be wanted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WantedError {
    /// No name of a proxy.
    #[error("expected the name of a proxy of HAProxy's (letters, digits and . : _ -), found \"{0}\"")]
    Proxy(String),
    /// A node is there twice.
    #[error("the node \"{0}\" is there twice")]
    Twice(String),
    /// What would be another command, or more than HAProxy reads.
    #[error(
        "expected options of a server, as in HAProxy's line `server`, of at most 1024 printable characters without ; # < \\ and quotes, found \"{0}\""
    )]
    Options(String),
}

impl Wanted {
    /// What a server gets to end its sessions, if nothing is said.
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);

    /// These nodes as the servers of a proxy.
    ///
    /// # Errors
    /// [`WantedError`].
    pub fn new(proxy: &str, nodes: Vec<WantedNode>) -> Result<Wanted, WantedError> {
        if !is_name(proxy) {
            return Err(WantedError::Proxy(proxy.to_owned()));
        }
        let mut names = BTreeSet::new();
        if let Some(twice) = nodes.iter().find(|node| !names.insert(node.name.as_str())) {
            return Err(WantedError::Twice(twice.name.clone()));
        }
        Ok(Wanted {
            proxy: proxy.to_owned(),
            nodes,
            options: String::new(),
            drain_timeout: Wanted::DRAIN_TIMEOUT,
            settle: Duration::ZERO,
        })
    }

    /// Servers that are added get these options, such as `check inter 2s`: HAProxy gives them none of its
    /// `default-server`.
    ///
    /// # Errors
    /// [`WantedError::Options`].
    pub fn with_options(self, options: &str) -> Result<Wanted, WantedError> {
        let is_right = |byte: u8| matches!(byte, b' '..=b'~') && !b";#<\\\"'".contains(&byte);
        if options.len() > OPTIONS_BYTES_MAX || !options.bytes().all(is_right) {
            return Err(WantedError::Options(options.to_owned()));
        }
        Ok(Wanted { options: options.trim().to_owned(), ..self })
    }

    /// The name of the proxy.
    pub fn proxy(&self) -> &str {
        &self.proxy
    }

    /// Its nodes.
    pub fn nodes(&self) -> &[WantedNode] {
        &self.nodes
    }

    /// Options of servers that are added.
    pub fn options(&self) -> &str {
        &self.options
    }
}
