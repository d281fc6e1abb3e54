//! Datagrams between nodes: each sends its reports to all, and gathers those of the others.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evener_feedback::datagram::{self, DATAGRAM_BYTES_MAX, Key, Receiver, Sender};
use evener_feedback::gathered::Gathered;
use evener_feedback::json::Said;
use tokio::net::UdpSocket;
use tracing::{info, warn};

use crate::error::AgentError;
use crate::latest::{Latest, unix};
use crate::net;
use crate::push::Due;
use crate::settings::Datagrams;

/// Nodes that are remembered at the most, and reports.
const NODES_MAX: usize = 1024;
const REPORTS_MAX: usize = 4096;
/// What was dropped is told no more often.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Sockets of datagrams, open.
pub(crate) struct Sockets {
    /// Where to, each with a socket of its kind.
    out: Vec<(std::net::UdpSocket, SocketAddr)>,
    heard_at: Option<std::net::UdpSocket>,
}

/// A socket, and where it sends to.
pub(crate) type Outlet = (UdpSocket, SocketAddr);

impl Sockets {
    pub(crate) fn open(settings: &Datagrams) -> Result<Sockets, AgentError> {
        let failed = |address: &dyn ToString| {
            let address = address.to_string();
            move |error| AgentError::Listen { what: "datagrams", address, error }
        };
        let out = settings.to.iter().map(|to| {
            let socket = sender(*to, settings.interface).map_err(failed(to))?;
            Ok((socket, *to))
        });
        let out = out.collect::<Result<_, AgentError>>()?;
        let heard_at =
            settings.listen.map(|listen| receiver(settings).map_err(failed(&listen))).transpose()?;
        Ok(Sockets { out, heard_at })
    }

    /// Where datagrams are heard.
    pub(crate) fn heard_at(&self) -> Option<SocketAddr> {
        self.heard_at.as_ref().and_then(|socket| socket.local_addr().ok())
    }

    /// For use by tokio: those to send with, and the one to hear with.
    pub(crate) fn registered(self) -> io::Result<(Vec<Outlet>, Option<UdpSocket>)> {
        let out = self.out.into_iter().map(|(socket, to)| Ok((UdpSocket::from_std(socket)?, to)));
        Ok((out.collect::<io::Result<_>>()?, self.heard_at.map(UdpSocket::from_std).transpose()?))
    }
}

fn sender(to: SocketAddr, interface: Option<Ipv4Addr>) -> io::Result<std::net::UdpSocket> {
    let any = if to.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = net::datagrams((any, 0).into(), false)?;
    if to.is_ipv4() {
        socket.set_broadcast(true)?;
        if let Some(interface) = interface {
            socket.set_multicast_if_v4(&interface)?;
        }
    }
    Ok(socket.into())
}

fn receiver(settings: &Datagrams) -> io::Result<std::net::UdpSocket> {
    let listen = settings.listen.expect("asked for");
    // Groups of IPv4 are joined by a socket of IPv4.
    let is_v6 = settings.to.iter().any(SocketAddr::is_ipv6);
    let address = match listen.is_dual && !is_v6 {
        true => (Ipv4Addr::UNSPECIFIED, listen.address.port()).into(),
        false => listen.address,
    };
    let socket = net::datagrams(address, listen.is_dual)?;
    for to in settings.to.iter().filter(|to| to.ip().is_multicast()) {
        match to.ip() {
            IpAddr::V4(group) => {
                socket.join_multicast_v4(&group, &settings.interface.unwrap_or(Ipv4Addr::UNSPECIFIED))?;
            }
            IpAddr::V6(group) => socket.join_multicast_v6(&group, scope(to))?,
        }
    }
    Ok(socket.into())
}

/// The interface that an address of IPv6 names, as in `ff02::1%2`.
fn scope(address: &SocketAddr) -> u32 {
    match address {
        SocketAddr::V4(_) => 0,
        SocketAddr::V6(address) => address.scope_id(),
    }
}

/// Sends reports for ever.
pub(crate) async fn send(
    out: Vec<(UdpSocket, SocketAddr)>,
    mut sender: Sender,
    latest: Latest,
    mut due: Due,
) {
    let mut failing = vec![None; out.len()];
    loop {
        due.wait().await;
        let datagrams = write(&mut sender, &latest.said());
        for ((socket, to), known) in out.iter().zip(&mut failing) {
            let mut failed = None;
            for datagram in &datagrams {
                failed = socket.send_to(datagram, to).await.err().or(failed);
            }
            let failed = failed.map(|error| error.kind());
            if *known != failed {
                match failed {
                    Some(reason) => warn!(%to, %reason, "datagrams cannot be sent"),
                    None => info!(%to, "datagrams are sent again"),
                }
                *known = failed;
            }
        }
    }
}

/// As many as it takes.
fn write(sender: &mut Sender, said: &[Said]) -> Vec<Vec<u8>> {
    if said.is_empty() {
        return Vec::new();
    }
    let mut datagram = Vec::new();
    match sender.write(unix(), said, &mut datagram) {
        Ok(()) => vec![datagram],
        // One report always fits: its names and numbers have a largest size.
        Err(datagram::TooLong) if said.len() < 2 => Vec::new(),
        Err(datagram::TooLong) => {
            let (first, second) = said.split_at(said.len() / 2);
            let mut all = write(sender, first);
            all.extend(write(sender, second));
            all
        }
    }
}

/// What other nodes said.
#[derive(Clone)]
pub(crate) struct Heard(Arc<Mutex<State>>);

struct State {
    receiver: Receiver,
    gathered: Gathered,
}

impl Heard {
    pub(crate) fn new(settings: &Datagrams, keys: Vec<Key>) -> Heard {
        let receiver = Receiver::new(keys, settings.window, NODES_MAX).not_before(unix());
        let gathered = Gathered::new(settings.expiry, REPORTS_MAX);
        Heard(Arc::new(Mutex::new(State { receiver, gathered })))
    }

    /// What all nodes said last, this one included.
    pub(crate) fn all(&self, latest: &Latest) -> Vec<Said> {
        let mut state = self.lock();
        let now = latest.now();
        for said in latest.said() {
            state.gathered.insert(now, said);
        }
        state.gathered.all(now)
    }

    /// How many datagrams have been dropped, by reason, as JSON.
    pub(crate) fn dropped(&self) -> Vec<u8> {
        let state = self.lock();
        let counts = state.receiver.dropped().map(|(reason, count)| format!("\"{}\":{count}", reason.name()));
        format!("{{{}}}", counts.collect::<Vec<_>>().join(",")).into_bytes()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears other nodes for ever.
pub(crate) async fn hear(socket: UdpSocket, heard: Heard, latest: Latest) {
    let mut datagram = vec![0; DATAGRAM_BYTES_MAX + 1];
    let mut told_at = None;
    loop {
        let (length, from) = match socket.recv_from(&mut datagram).await {
            Ok(received) => received,
            Err(error) => {
                warn!(%error, "no datagram received");
                tokio::time::sleep(net::REST).await;
                continue;
            }
        };
        let now = latest.now();
        let mut state = heard.lock();
        match state.receiver.received(unix(), &datagram[..length]) {
            Ok(all) => {
                for said in all {
                    state.gathered.insert(now, said);
                }
            }
            Err(reason) if told_at.is_none_or(|at| now.since(at) >= TOLD_EVERY) => {
                told_at = Some(now);
                let dropped: u64 = state.receiver.dropped().map(|(_, count)| count).sum();
                warn!(%from, %reason, dropped, "datagrams are dropped");
            }
            Err(_) => {}
        }
    }
}
