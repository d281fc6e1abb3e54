//! A connection to HAProxy's runtime API.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};

use socket2::{Domain, SockAddr, Socket, Type};
use thiserror::Error;

use super::answer::{ANSWER_BYTES_MAX, PROMPT};
use super::command::Command;
use super::driver::Limits;
use super::error::HaproxyError;

/// Bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// Where HAProxy's runtime API listens (`stats socket` in its configuration).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A UNIX socket.
    Unix(PathBuf),
    /// An address. Whoever reaches it steers HAProxy.
    Tcp(SocketAddr),
}

/// No address of a runtime API.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "expected the path of HAProxy's socket, such as \"/run/haproxy.sock\", or ADDRESS:PORT, found \"{0}\""
)]
pub struct EndpointError(String);

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Endpoint, EndpointError> {
        let path = text.strip_prefix("unix@").unwrap_or(text);
        if path.contains('/') && SockAddr::unix(path).is_ok() {
            return Ok(Endpoint::Unix(path.into()));
        }
        text.parse().map(Endpoint::Tcp).map_err(|_| EndpointError(text.to_owned()))
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Tcp(address) => address.fmt(f),
        }
    }
}

/// A connection, on which each answer ends with a prompt.
#[derive(Debug)]
pub(super) struct Connection<'a> {
    endpoint: &'a Endpoint,
    limits: Limits,
    socket: Socket,
    /// When all must be done.
    deadline: Instant,
    answer: Vec<u8>,
}

impl<'a> Connection<'a> {
    /// Connects. A new connection for each application: one that is kept would stay with a process that has
    /// handed over to another.
    pub(super) fn open(endpoint: &'a Endpoint, limits: Limits) -> Result<Connection<'a>, HaproxyError> {
        let deadline = Instant::now() + limits.apply_timeout;
        let socket = connect(endpoint, limits.answer_timeout)
            .map_err(|error| HaproxyError::Connect(endpoint.clone(), error))?;
        let mut connection = Connection { endpoint, limits, socket, deadline, answer: Vec::new() };
        connection.send(Command::Prompt)?;
        match connection.receive()? {
            [] => Ok(connection),
            _ => Err(HaproxyError::Stranger(endpoint.clone())),
        }
    }

    /// Gives a command, and returns the answer, without the prompt.
    pub(super) fn ask(&mut self, command: Command<'_>) -> Result<&[u8], HaproxyError> {
        self.send(command)?;
        self.receive()
    }

    fn send(&mut self, command: Command<'_>) -> Result<(), HaproxyError> {
        let line = format!("{command}\n");
        let remaining = self.remaining()?;
        let sent = self
            .socket
            .set_write_timeout(Some(remaining))
            .and_then(|()| self.socket.write_all(line.as_bytes()));
        sent.map_err(|error| self.lost(error))
    }

    fn receive(&mut self) -> Result<&[u8], HaproxyError> {
        self.answer.clear();
        let asked = Instant::now();
        while !self.answer.ends_with(PROMPT) {
            let before = self.answer.len();
            if before >= ANSWER_BYTES_MAX {
                return Err(HaproxyError::Long(self.endpoint.clone()));
            }
            let patience = self.limits.answer_timeout.saturating_sub(asked.elapsed());
            let remaining = self.remaining()?.min(patience);
            if remaining.is_zero() {
                return Err(self.late());
            }
            self.answer.resize(before + READ_BYTES, 0);
            let read = self
                .socket
                .set_read_timeout(Some(remaining))
                .and_then(|()| self.socket.read(&mut self.answer[before..]));
            self.answer.truncate(before + *read.as_ref().unwrap_or(&0));
            match read {
                Ok(0) => return Err(HaproxyError::Closed(self.endpoint.clone())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.lost(error)),
            }
        }
        Ok(&self.answer[..self.answer.len() - PROMPT.len()])
    }

    fn remaining(&self) -> Result<Duration, HaproxyError> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() { Err(self.late()) } else { Ok(remaining) }
    }

    fn late(&self) -> HaproxyError {
        let is_over = Instant::now() >= self.deadline;
        let limit = if is_over { self.limits.apply_timeout } else { self.limits.answer_timeout };
        HaproxyError::Late(self.endpoint.clone(), limit)
    }

    fn lost(&self, error: io::Error) -> HaproxyError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.late(),
            _ => HaproxyError::Lost(self.endpoint.clone(), error),
        }
    }
}

fn connect(endpoint: &Endpoint, timeout: Duration) -> io::Result<Socket> {
    let (domain, address) = match endpoint {
        Endpoint::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
        Endpoint::Tcp(address) => (Domain::for_address(*address), SockAddr::from(*address)),
    };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    // Linux holds connect() to this time, too: a UNIX socket that nobody accepts from would block for ever.
    socket.set_write_timeout(Some(timeout))?;
    match socket.connect(&address) {
        Ok(()) => Ok(socket),
        Err(error) => match error.raw_os_error() {
            Some(code) if code == rustix::io::Errno::INPROGRESS.raw_os_error() => {
                Err(io::ErrorKind::TimedOut.into())
            }
            Some(code) if code == rustix::io::Errno::AGAIN.raw_os_error() => {
                Err(io::ErrorKind::TimedOut.into())
            }
            _ => Err(error),
        },
    }
}
