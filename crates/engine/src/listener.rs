//! A listener as one worker holds it.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use mio::net::TcpStream;
use mio::unix::SourceFd;
use mio::{Interest, Registry};
use socket2::SockAddrStorage;

use crate::snapshot::{Bound, ListenerSpec, PoolId, Service};
use crate::stats::ListenerStats;
use crate::token::Token;

/// A listener, its sockets of this worker, and where its jobs go.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) spec: Arc<ListenerSpec>,
    sockets: Vec<Arc<OwnedFd>>,
    /// Places of the pools of `spec`'s routes, in their order.
    pub(crate) routes: Vec<usize>,
    /// Place of the pool for what no route matches (HTTP), or for everything (TCP).
    pub(crate) pool: Option<usize>,
    /// Client connections open on this worker.
    pub(crate) open: u32,
    /// Connections wait in the accept queue, because the limit is reached.
    pub(crate) is_full: bool,
    /// No longer in the snapshot: open connections finish.
    pub(crate) is_removed: bool,
}

impl Listener {
    pub(crate) fn new(
        bound: &Bound,
        registry: &Registry,
        token: Token,
        (worker, workers): (usize, usize),
        place: impl Fn(PoolId) -> usize,
    ) -> io::Result<Listener> {
        let mut listener = Listener {
            spec: Arc::clone(&bound.spec),
            sockets: Vec::new(),
            routes: Vec::new(),
            pool: None,
            open: 0,
            is_full: false,
            is_removed: false,
        };
        listener.apply(bound, registry, token, (worker, workers), place)?;
        Ok(listener)
    }

    /// Follows a new snapshot: sockets that are in it again keep their queues.
    pub(crate) fn apply(
        &mut self,
        bound: &Bound,
        registry: &Registry,
        token: Token,
        (worker, workers): (usize, usize),
        place: impl Fn(PoolId) -> usize,
    ) -> io::Result<()> {
        let mine: Vec<_> = bound.sockets.iter().skip(worker).step_by(workers).cloned().collect();
        for old in &self.sockets {
            if !mine.iter().any(|new| Arc::ptr_eq(old, new)) {
                registry.deregister(&mut SourceFd(&old.as_raw_fd()))?;
            }
        }
        for new in &mine {
            if !self.sockets.iter().any(|old| Arc::ptr_eq(old, new)) {
                registry.register(&mut SourceFd(&new.as_raw_fd()), token.into(), Interest::READABLE)?;
            }
        }
        self.sockets = mine;
        match &bound.spec.service {
            Service::Http(http) => {
                self.routes = http.routes.iter().map(|route| place(route.pool)).collect();
                self.pool = http.pool.map(place);
            }
            Service::Tcp(tcp) => {
                self.routes.clear();
                self.pool = Some(place(tcp.pool));
            }
        }
        self.spec = Arc::clone(&bound.spec);
        Ok(())
    }

    /// Stops accepting. The sockets close when nobody else, such as the next process, holds them.
    pub(crate) fn close(&mut self, registry: &Registry) {
        for socket in self.sockets.drain(..) {
            // Not registered any more is what is wanted.
            let _ = registry.deregister(&mut SourceFd(&socket.as_raw_fd()));
        }
    }

    /// The next connection, or `None` if there is none now.
    pub(crate) fn accept(&self) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        use io::ErrorKind::{ConnectionAborted, Interrupted, WouldBlock};
        for socket in &self.sockets {
            loop {
                match accept(socket.as_raw_fd()) {
                    Ok(accepted) => return Ok(Some(accepted)),
                    Err(error) if error.kind() == WouldBlock => break,
                    // The client has gone between its connection and now: on to the next one.
                    Err(error) if matches!(error.kind(), ConnectionAborted | Interrupted) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(None)
    }

    pub(crate) fn stats(&self, worker: usize) -> &ListenerStats {
        self.spec.stats.of(worker)
    }
}

fn accept(socket: RawFd) -> io::Result<(TcpStream, SocketAddr)> {
    let mut storage = SockAddrStorage::zeroed();
    let mut length = mem::size_of::<SockAddrStorage>() as libc::socklen_t;
    // SAFETY: `storage` is large enough for any address, and `length` says how large it is.
    let fd = unsafe {
        libc::accept4(
            socket,
            (&raw mut storage).cast(),
            &mut length,
            libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: accept4 returned a fresh descriptor that nobody else owns.
    let stream = unsafe { TcpStream::from_raw_fd(fd) };
    // SAFETY: accept4 has written an address of `length` bytes.
    let address = unsafe { socket2::SockAddr::new(storage, length) };
    let address = address.as_socket().ok_or_else(|| io::Error::other("the client has no IP address"))?;
    Ok((stream, address))
}
