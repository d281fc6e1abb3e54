//! A connection's bytes in and out, and what is kept of them when the other side is slow.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};

use mio::net::TcpStream;
use mio::{Interest, Registry};
use socket2::SockRef;

use crate::token::Token;

/// One end of a connection. Encryption goes in here: services see plain bytes.
#[derive(Debug)]
pub(crate) struct Io {
    /// `None` when closed.
    stream: Option<TcpStream>,
}

/// What a read gave.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Data(usize),
    /// The peer will send nothing more.
    Eof,
    /// Nothing there; an event will say when there is.
    Blocked,
}

impl Io {
    /// Takes an accepted connection and asks for its events, once for its whole life.
    pub(crate) fn accepted(mut stream: TcpStream, registry: &Registry, token: Token) -> io::Result<Io> {
        registry.register(&mut stream, token.into(), Interest::READABLE | Interest::WRITABLE)?;
        Ok(Io { stream: Some(stream) })
    }

    /// Begins to connect; the first event that says writable or failed tells how it went.
    pub(crate) fn connect(address: SocketAddr, registry: &Registry, token: Token) -> io::Result<Io> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Io::accepted(stream, registry, token)
    }

    /// Lets events come under another token.
    pub(crate) fn rename(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        registry.reregister(self.open_mut()?, token.into(), Interest::READABLE | Interest::WRITABLE)
    }

    #[inline]
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<Received> {
        loop {
            return match self.open()?.read(buffer) {
                Ok(0) => Ok(Received::Eof),
                Ok(n) => Ok(Received::Data(n)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::Blocked),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Sends what the socket takes, and says how much that was.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            return match self.open()?.write(bytes) {
                Ok(n) => Ok(n),
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => Err(error),
            };
        }
    }

    /// Whether an idle connection is still good: nothing to read, not even an end.
    pub(crate) fn is_quiet(&self) -> bool {
        let mut byte = [0u8];
        let peeked = self.open().and_then(|stream| stream.peek(&mut byte));
        matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    pub(crate) fn shutdown_write(&self) {
        // If the connection is gone already, that is what was wanted.
        let _ = self.open().and_then(|stream| stream.shutdown(Shutdown::Write));
    }

    /// Makes closing send a reset, so that the peer cannot take a cut-off answer for a whole one.
    pub(crate) fn reset_on_close(&self) {
        if let Some(stream) = &self.stream {
            // If it cannot be set, the connection is broken already.
            let _ = SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
        }
    }

    /// What went wrong with the connection, as the kernel keeps it.
    pub(crate) fn take_error(&self) -> Option<io::Error> {
        self.stream.as_ref()?.take_error().ok().flatten()
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.stream.as_ref()?.local_addr().ok()
    }

    /// Moves the connection out, and leaves a closed one.
    pub(crate) fn take(&mut self) -> Io {
        Io { stream: self.stream.take() }
    }

    /// Closes the connection now, though its owner lives on until no event can name it.
    pub(crate) fn close(&mut self) {
        self.stream = None;
    }

    /// The descriptor, or -1 (which every system call refuses) when closed.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.stream.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    #[inline]
    fn open(&self) -> io::Result<&TcpStream> {
        self.stream.as_ref().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    fn open_mut(&mut self) -> io::Result<&mut TcpStream> {
        self.stream.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }
}

/// Bytes that the other side has not taken yet. Empty, it holds no memory.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    bytes: Vec<u8>,
    sent: usize,
}

impl Pending {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends `bytes` after what is pending, and keeps what the socket does not take.
    /// Says whether all is sent.
    #[inline]
    pub(crate) fn send(&mut self, io: &Io, bytes: &[u8], buffers: &mut Buffers) -> io::Result<bool> {
        let mut rest = bytes;
        if self.is_empty() {
            let sent = io.send(bytes)?;
            if sent == bytes.len() {
                return Ok(true);
            }
            rest = &bytes[sent..];
            self.bytes = buffers.take();
        }
        self.bytes.extend_from_slice(rest);
        Ok(false)
    }

    /// What is pending.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// Keeps `bytes` for later.
    pub(crate) fn keep(&mut self, bytes: &[u8], buffers: &mut Buffers) {
        if bytes.is_empty() {
            return;
        }
        if self.is_empty() {
            self.bytes = buffers.take();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Sends what is pending; says whether nothing is left.
    pub(crate) fn flush(&mut self, io: &Io, buffers: &mut Buffers) -> io::Result<bool> {
        while !self.is_empty() {
            let sent = io.send(&self.bytes[self.sent..])?;
            self.sent += sent;
            if self.sent == self.bytes.len() {
                self.discard(buffers);
            } else if sent == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(crate) fn discard(&mut self, buffers: &mut Buffers) {
        buffers.put(std::mem::take(&mut self.bytes));
        self.sent = 0;
    }
}

/// Buffers of this worker that are not in use; the last one used is the next one given, still in cache.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    free: Vec<Vec<u8>>,
}

impl Buffers {
    const FREE_MAX: usize = 1024;
    /// A larger one goes back to the allocator.
    const CAPACITY_MAX: usize = 16 * 1024;

    #[inline]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.free.pop().unwrap_or_default()
    }

    #[inline]
    pub(crate) fn put(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() == 0 {
            return;
        }
        if buffer.capacity() <= Buffers::CAPACITY_MAX && self.free.len() < Buffers::FREE_MAX {
            buffer.clear();
            self.free.push(buffer);
        }
    }
}

/// Whether a connection could not be opened because this machine lacks something: a node is not to blame, and
/// another one would not help.
pub(crate) fn is_want(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS))
}

/// Whether all ports towards a node are taken: it is not to blame, and another one would help.
pub(crate) fn is_out_of_ports(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(libc::EADDRNOTAVAIL)
}
