//! The socket to the kernel: one question, one answer.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, recv, send, socket_with,
};

use super::IpvsError;
use super::message::{self, Request, WireError};
use super::types::{Destination, Service, VirtualService};

/// The kernel fills a datagram up to 32 KiB.
const DATAGRAM_BYTES_MAX: usize = 32 * 1024;
/// The kernel answers at once; but it may have to load a scheduler's module.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a list is asked for that changes while it is read.
const LIST_TRIES_MAX: u32 = 8;

#[derive(Debug)]
pub(super) struct Socket {
    socket: OwnedFd,
    /// The number that the kernel gave to the family `IPVS`.
    family: u16,
    /// Of the last request.
    sequence: u32,
    buffer: Vec<u8>,
}

impl Socket {
    pub(super) fn open() -> Result<Socket, IpvsError> {
        let socket =
            socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(GENERIC))?;
        // Connected to the kernel: nobody else can send to it.
        connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_TIMEOUT))?;
        let mut socket = Socket { socket, family: 0, sequence: 0, buffer: vec![0; DATAGRAM_BYTES_MAX] };
        let mut number = None;
        let asked = socket
            .ask(message::family, |datagram, sequence| message::read_family(datagram, sequence, &mut number));
        match asked {
            Err(IpvsError::Refused(error)) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => {
                return Err(IpvsError::Missing);
            }
            asked => asked?,
        }
        socket.family = number.ok_or(IpvsError::Missing)?;
        Ok(socket)
    }

    pub(super) fn services(&mut self) -> Result<Vec<Service>, IpvsError> {
        let family = self.family;
        self.list(|sequence| message::services(family, sequence), message::read_services)
    }

    pub(super) fn destinations(&mut self, service: VirtualService) -> Result<Vec<Destination>, IpvsError> {
        let family = self.family;
        self.list(
            |sequence| message::destinations(family, sequence, service),
            |datagram, sequence, found| {
                message::read_destinations(datagram, sequence, service.family(), found)
            },
        )
    }

    pub(super) fn request(&mut self, request: Request<'_>) -> Result<(), IpvsError> {
        let family = self.family;
        self.ask(|sequence| message::request(family, sequence, request), message::read_done)
    }

    fn list<T>(
        &mut self,
        question: impl Fn(u32) -> Vec<u8>,
        read: impl Fn(&[u8], u32, &mut Vec<T>) -> Result<bool, WireError>,
    ) -> Result<Vec<T>, IpvsError> {
        for _ in 0..LIST_TRIES_MAX {
            let mut found = Vec::new();
            match self.ask(&question, |datagram, sequence| read(datagram, sequence, &mut found)) {
                Err(IpvsError::Restless) => {}
                asked => return asked.map(|()| found),
            }
        }
        Err(IpvsError::Restless)
    }

    fn ask(
        &mut self,
        question: impl FnOnce(u32) -> Vec<u8>,
        mut read: impl FnMut(&[u8], u32) -> Result<bool, WireError>,
    ) -> Result<(), IpvsError> {
        self.sequence = self.sequence.wrapping_add(1);
        let question = question(self.sequence);
        send(&self.socket, &question, SendFlags::empty())?;
        loop {
            // What is left of an answer that was given up bears another number, and is passed over.
            let length = match recv(&self.socket, &mut self.buffer, RecvFlags::TRUNC) {
                Ok((_, length)) => length,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(IpvsError::Silent(ANSWER_TIMEOUT)),
                Err(error) => return Err(error.into()),
            };
            let datagram = self.buffer.get(..length).ok_or(IpvsError::Wire(WireError::Malformed))?;
            if read(datagram, self.sequence)? {
                return Ok(());
            }
        }
    }
}
