//! Reports in signed datagrams: to this director, to a multicast group that it is a member of, or to all by broadcast.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evener_feedback::datagram::{self as wire, DATAGRAM_BYTES_MAX, Dropped, Receiver};
use evener_feedback::json::Said;
use evener_trust::Key;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::config;
use crate::director::Director;
use crate::feedback::credentials::{Credentials, Speaker, nodes_meant};
use crate::feedback::push::unix;
use crate::feedback::refusal::Refusal;
use crate::feedback::transports::TransportError;
use crate::feedback::{Dialect, NodeRef};

/// Nodes that sign with one key at the most.
const NODES_MAX: usize = 4096;
/// Bytes that wait to be looked at: a thousand nodes that send at once.
const WAITING_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Datagrams that are looked at within each [`TURN`]. What is beyond that waits, and then is lost: a flood
/// must not take the time of those who answer others.
const TURN_DATAGRAMS_MAX: u32 = 2000;
const TURN: Duration = Duration::from_millis(100);

/// A receiver of datagrams.
#[derive(Debug)]
pub(super) struct Datagrams {
    name: String,
    socket: OwnedFd,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    director: Arc<Director>,
    heard: Mutex<Heard>,
}

#[derive(Debug, Default)]
struct Heard {
    window: Duration,
    /// One for each key: whoever has it tells for whom.
    receivers: Vec<(Key, Receiver)>,
}

impl Datagrams {
    /// What tells sockets apart, for this process and the next.
    pub(super) fn name(config: &config::Datagrams) -> String {
        let group = config.group.map_or_else(String::new, |group| format!(" of {group}"));
        format!("datagrams {}{group}", config.listen)
    }

    pub(super) fn own_name(&self) -> &str {
        &self.name
    }

    /// Opens a socket, and joins the group.
    ///
    /// # Errors
    /// If the address or the group cannot be had.
    pub(super) fn open(config: &config::Datagrams) -> Result<OwnedFd, TransportError> {
        let mut address = config.listen;
        if config.group.is_some() {
            // A socket at an address does not hear what is sent to a group; the address says on which network to be
            // a member.
            let family = config.listen.is_ipv4();
            address.set_ip(if family { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() });
        }
        let bound = || {
            let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
            if address.is_ipv6() {
                socket.set_only_v6(!address.ip().is_unspecified())?;
            }
            // Others on this machine may listen to the same group.
            socket.set_reuse_address(config.group.is_some())?;
            socket.set_recv_buffer_size(WAITING_BYTES_MAX)?;
            socket.set_nonblocking(true)?;
            socket.bind(&address.into())?;
            Ok(socket)
        };
        let socket = bound().map_err(|error| TransportError::Listen { address, error })?;
        let joined = match config.group {
            Some(IpAddr::V4(group)) => {
                let interface = match config.listen.ip() {
                    IpAddr::V4(own) => own,
                    IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
                };
                socket.join_multicast_v4(&group, &interface)
            }
            Some(IpAddr::V6(group)) => socket.join_multicast_v6(&group, 0),
            None => Ok(()),
        };
        match (joined, config.group) {
            (Err(error), Some(group)) => Err(TransportError::Group { group, error }),
            _ => Ok(socket.into()),
        }
    }

    /// Hears what comes on `socket`.
    ///
    /// # Errors
    /// If the socket is of no use.
    pub(super) fn start(name: String, socket: OwnedFd, director: &Arc<Director>) -> io::Result<Datagrams> {
        let own = std::net::UdpSocket::from(socket.as_fd().try_clone_to_owned()?);
        own.set_nonblocking(true)?;
        let own = UdpSocket::from_std(own)?;
        let shared = Arc::new(Shared { director: Arc::clone(director), heard: Mutex::default() });
        let task = tokio::spawn(receive(own, Arc::clone(&shared)));
        Ok(Datagrams { name, socket, shared, task })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Believes these keys from now on, and clocks that are off by no more than `window`.
    pub(super) fn follow(&self, window: Duration, credentials: &Credentials) {
        let began = unix();
        let mut heard = self.shared.heard();
        let mut known = std::mem::take(&mut heard.receivers);
        if heard.window != window {
            known.clear();
        }
        heard.window = window;
        heard.receivers = credentials
            .keys
            .iter()
            .map(|key| match known.iter().position(|(known, _)| known == key) {
                // What it has heard must not count a second time.
                Some(place) => known.swap_remove(place),
                None => {
                    let keys = vec![wire::Key::new(key.secret())];
                    (key.clone(), Receiver::new(keys, window, NODES_MAX).not_before(began))
                }
            })
            .collect();
    }

    /// Hears nothing any more.
    pub(super) fn stop(self) {
        self.task.abort();
    }
}

async fn receive(socket: UdpSocket, shared: Arc<Shared>) {
    // One byte more than there may be: what is longer shows.
    let mut buffer = [0; DATAGRAM_BYTES_MAX + 1];
    let (mut turn, mut count) = (Instant::now(), 0);
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, from)) => shared.received(&buffer[..length], from.ip().to_canonical()),
            Err(error) => {
                tracing::debug!(%error, "datagrams");
                tokio::time::sleep(TURN).await;
            }
        }
        count += 1;
        if count >= TURN_DATAGRAMS_MAX {
            tokio::time::sleep_until(turn + TURN).await;
            (turn, count) = (Instant::now(), 0);
        } else if turn.elapsed() >= TURN {
            (turn, count) = (Instant::now(), 0);
        }
    }
}

impl Shared {
    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn received(&self, datagram: &[u8], from: IpAddr) {
        let now = self.director.now();
        match self.read(datagram) {
            Err(dropped) => self.director.refuse(Dialect::Datagram, refusal(dropped)),
            Ok((speaker, all)) => {
                for said in all {
                    match self.nodes(&speaker, &said, from) {
                        Ok(nodes) => {
                            for node in nodes {
                                self.director.reported(node, Dialect::Datagram, said.report(now));
                            }
                        }
                        Err(refusal) => self.director.refuse(Dialect::Datagram, refusal),
                    }
                }
            }
        }
    }

    /// What a datagram says, and of whom its sender may speak.
    fn read(&self, datagram: &[u8]) -> Result<(Speaker, Vec<Said>), Dropped> {
        for (key, receiver) in &mut self.heard().receivers {
            match receiver.received(unix(), datagram) {
                Err(Dropped::Signature) => {}
                result => return result.map(|said| (Speaker::with(key), said)),
            }
        }
        Err(Dropped::Signature)
    }

    /// The nodes that a report is about: of the name that is signed, and at the address that it came from. With a key that
    /// all share, each could speak in another's name; an address is harder to take. A node with a key of its own may
    /// be anywhere.
    fn nodes(&self, speaker: &Speaker, said: &Said, from: IpAddr) -> Result<Vec<NodeRef>, Refusal> {
        let port = said.service.map(|service| service.number);
        let mut nodes = nodes_meant(&self.director, Dialect::Datagram, said.node.as_deref(), port, from);
        if nodes.is_empty() {
            return Err(Refusal::Unknown);
        }
        nodes.retain(|node| match speaker {
            Speaker::Named(_) => speaker.may_speak_of(&self.director, *node),
            _ => Speaker::At(from).may_speak_of(&self.director, *node),
        });
        if nodes.is_empty() { Err(Refusal::Foreign) } else { Ok(nodes) }
    }
}

fn refusal(dropped: Dropped) -> Refusal {
    match dropped {
        Dropped::Signature => Refusal::Key,
        Dropped::Time => Refusal::Time,
        Dropped::Replay => Refusal::Replay,
        Dropped::Crowded => Refusal::Crowded,
        _ => Refusal::Form,
    }
}
