//! The ways by which reports come: opened before a configuration counts, so that one that cannot be served is
//! refused whole.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use evener_trust::TrustError;
use socket2::{Domain, Protocol, Socket, Type};

use crate::config::Config;
use crate::director::Director;
use crate::feedback::asking::Asking;
use crate::feedback::credentials::Credentials;
use crate::feedback::datagram::Datagrams;
use crate::feedback::necp::Necp;
use crate::feedback::push::Push;

/// Connections that may wait to be accepted: all agents come at once when a director starts.
const BACKLOG: i32 = 4096;

/// Why a director cannot hear reports as its configuration has it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// A file of keys or certificates is of no use.
    #[error("feedback: {0}")]
    Trust(#[from] TrustError),
    /// An address cannot be had.
    #[error("feedback: cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// A group cannot be joined.
    #[error("feedback: cannot join the group {group}: {error}")]
    Group {
        /// The group.
        group: std::net::IpAddr,
        /// What the system says.
        error: io::Error,
    },
}

/// What a configuration needs, had from the system.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    credentials: Arc<Credentials>,
    /// By what they are, see [`name`].
    sockets: BTreeMap<String, OwnedFd>,
}

/// All ways by which reports come.
#[derive(Debug, Default)]
pub(crate) struct Transports {
    necp: Option<Necp>,
    push: Option<Push>,
    datagrams: Option<Datagrams>,
    asking: Asking,
}

impl Transports {
    /// Reads and opens what `config` needs and is not open yet; sockets that a predecessor left are taken from `inherited`.
    ///
    /// # Errors
    /// What cannot be had. All stays as it is then.
    pub(crate) fn open(
        &self,
        config: &Config,
        inherited: &mut BTreeMap<String, OwnedFd>,
    ) -> Result<Opened, TransportError> {
        let feedback = &config.feedback;
        let mut opened =
            Opened { credentials: Arc::new(Credentials::read(feedback)?), sockets: BTreeMap::new() };
        let held = self.sockets();
        let mut have = |name: String, open: &dyn Fn() -> Result<OwnedFd, TransportError>| {
            if !held.iter().any(|(known, _)| *known == name) {
                let socket = inherited.remove(&name).map_or_else(open, Ok)?;
                opened.sockets.insert(name, socket);
            }
            Ok::<(), TransportError>(())
        };
        for (kind, address) in [("necp", feedback.necp), ("http", feedback.http)] {
            if let Some(address) = address {
                let listen = || listen(address).map_err(|error| TransportError::Listen { address, error });
                have(name(kind, address), &listen)?;
            }
        }
        if let Some(datagrams) = &feedback.datagrams {
            have(Datagrams::name(datagrams), &|| Datagrams::open(datagrams))?;
        }
        Ok(opened)
    }

    /// Hears and asks as the director's configuration has it, with what was opened for it; `None`: nodes have come or
    /// gone, and no more.
    pub(crate) fn follow(&mut self, director: &Arc<Director>, opened: Option<Opened>) {
        let config = director.config();
        self.asking.follow(director, &config);
        let Some(mut opened) = opened else {
            if let Some(necp) = &self.necp {
                necp.review();
            }
            return;
        };
        let feedback = &config.feedback;
        let credentials = &opened.credentials;
        let global = feedback.allow_global_exceptions;
        let mut socket = |kind, address| opened.sockets.remove(&name(kind, address));
        let necp = feedback.necp.and_then(|address| match self.necp.take() {
            Some(known) if known.address() == address => Some(known),
            old => {
                self.necp = old;
                started(Necp::start(address, socket("necp", address)?, director, global))
            }
        });
        if let Some(old) = std::mem::replace(&mut self.necp, necp) {
            old.stop(false);
        }
        if let Some(necp) = &self.necp {
            necp.follow(Arc::clone(credentials), global);
        }
        let push = feedback.http.and_then(|address| match self.push.take() {
            Some(known) if known.address() == address => Some(known),
            old => {
                self.push = old;
                started(Push::start(address, socket("http", address)?, director))
            }
        });
        if let Some(old) = std::mem::replace(&mut self.push, push) {
            old.stop();
        }
        if let Some(push) = &self.push {
            push.follow(Arc::clone(credentials));
        }
        let datagrams = feedback.datagrams.as_ref().and_then(|wanted| {
            let name = Datagrams::name(wanted);
            match self.datagrams.take() {
                Some(known) if known.own_name() == name => Some(known),
                old => {
                    self.datagrams = old;
                    let socket = opened.sockets.remove(&name)?;
                    started(Datagrams::start(name, socket, director))
                }
            }
        });
        if let Some(old) = std::mem::replace(&mut self.datagrams, datagrams) {
            old.stop();
        }
        if let (Some(datagrams), Some(wanted)) = (&self.datagrams, &feedback.datagrams) {
            datagrams.follow(wanted.window, credentials);
        }
    }

    /// The sockets, by what they are: for the process that takes over.
    pub(crate) fn sockets(&self) -> Vec<(String, &OwnedFd)> {
        let necp = self.necp.as_ref().map(|necp| (name("necp", necp.address()), necp.socket()));
        let push = self.push.as_ref().map(|push| (name("http", push.address()), push.socket()));
        let datagrams = self.datagrams.as_ref().map(|known| (known.own_name().to_owned(), known.socket()));
        [necp, push, datagrams].into_iter().flatten().collect()
    }

    /// Hears and asks nothing any more. Agents that are connected are let go, to find who takes over.
    pub(crate) fn stop(&mut self) {
        if let Some(necp) = self.necp.take() {
            necp.stop(true);
        }
        if let Some(push) = self.push.take() {
            push.stop();
        }
        if let Some(datagrams) = self.datagrams.take() {
            datagrams.stop();
        }
        self.asking.stop();
    }
}

/// What tells sockets apart, for this process and the next.
fn name(kind: &str, address: SocketAddr) -> String {
    format!("{kind} {address}")
}

fn started<T>(result: io::Result<T>) -> Option<T> {
    if let Err(error) = &result {
        tracing::error!(%error, "feedback: a socket cannot be used");
    }
    result.ok()
}

fn listen(address: SocketAddr) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        // `:PORT` means IPv4 too.
        socket.set_only_v6(!address.ip().is_unspecified())?;
    }
    socket.set_reuse_address(true)?;
    // Connections inherit it: what is said is short, and waited for.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// A listener of tokio's on a copy of `socket`.
pub(super) fn listener(socket: &OwnedFd) -> io::Result<tokio::net::TcpListener> {
    let listener = std::net::TcpListener::from(socket.as_fd().try_clone_to_owned()?);
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}
