use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SOCK_DIAG;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::unix::AsyncFd;

use super::watched::watched;
use crate::measure::Answer;
use crate::measure::sock_diag::{DiagError, Family, count, request};
use crate::settings;

/// The kernel fills a datagram up to 32 KiB.
const DATAGRAM_BYTES_MAX: usize = 32 * 1024;

/// The time between two answers is so many times that of the kernel's work: 0.25 % of a CPU. All that an agent
/// does is to stay below 0.5 %.
const REST_PER_WORK: u32 = 400;
/// Beyond this a count would be of no use.
const REST_MAX: Duration = Duration::from_secs(10);

/// Counts established connections of a local port.
#[derive(Debug)]
pub(crate) struct Connections {
    settings: settings::Connections,
    socket: Option<AsyncFd<OwnedFd>>,
    /// Of the last request.
    sequence: u32,
    buffer: Vec<u8>,
    /// How long the kernel worked on the last answer.
    worked: Duration,
}

impl Connections {
    pub(super) fn new(settings: &settings::Connections) -> Connections {
        Connections {
            settings: settings.clone(),
            socket: None,
            sequence: 0,
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            worked: Duration::ZERO,
        }
    }

    /// Connections that are established, waiting ones included.
    pub(super) async fn ask(&mut self) -> Result<Answer, String> {
        // A socket with an answer that was not awaited to its end is not used again.
        let socket = match self.socket.take() {
            Some(socket) => socket,
            None => open().map_err(|error| format!("socket monitoring: {error}"))?,
        };
        self.worked = Duration::ZERO;
        let of_ipv4 = self.count(&socket, Family::Ipv4).await?;
        let of_ipv6 = self.count(&socket, Family::Ipv6).await?;
        self.socket = Some(socket);
        let jobs = of_ipv4.saturating_add(of_ipv6).saturating_sub(self.settings.less);
        Ok(Answer { jobs: Some(jobs), ..Answer::default() })
    }

    /// The kernel needs about 1 µs for each connection. With many of them it is asked less often than every time, so
    /// that it takes no more than a small share of one CPU.
    pub(super) fn rest(&self) -> Duration {
        (self.worked * REST_PER_WORK).min(REST_MAX)
    }

    async fn count(&mut self, socket: &AsyncFd<OwnedFd>, family: Family) -> Result<u32, String> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = request(family, self.settings.port, self.sequence);
        let started = cpu_time();
        let sent = send(socket, &question, SendFlags::empty());
        self.worked += cpu_time().saturating_sub(started);
        sent.map_err(|error| format!("socket monitoring: {error}"))?;
        let mut connections = 0u32;
        loop {
            // The kernel makes a part of its answer with each call: between them others have their turn.
            let mut ready = socket.readable().await.map_err(|error| error.to_string())?;
            let started = cpu_time();
            let received = recv(socket, &mut self.buffer, RecvFlags::empty());
            self.worked += cpu_time().saturating_sub(started);
            let length = match received {
                Ok((length, _)) => length,
                Err(Errno::AGAIN) => {
                    ready.clear_ready();
                    continue;
                }
                Err(error) => return Err(format!("socket monitoring: {error}")),
            };
            let counted = match count(&self.buffer[..length], self.sequence) {
                Ok(counted) => counted,
                // A kernel without IPv6 has no connections of it.
                Err(DiagError::Refused(_) | DiagError::Unknown) if family == Family::Ipv6 => return Ok(0),
                Err(error) => return Err(error.to_string()),
            };
            connections = connections.saturating_add(counted.connections);
            if counted.is_done {
                return Ok(connections);
            }
        }
    }
}

/// The CPU time of this thread: a clock would count the work of others, too, most of all on a node that is busy.
fn cpu_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn open() -> std::io::Result<AsyncFd<OwnedFd>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    watched(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, Some(SOCK_DIAG))?)
}
