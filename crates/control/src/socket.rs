//! Listening sockets.

use std::io;
use std::os::fd::OwnedFd;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::config::Bind;

/// Connections that may wait to be accepted; the kernel cuts it to net.core.somaxconn.
const BACKLOG: i32 = 4096;

/// A listening socket that shares its address with others of this process (and the next).
pub(crate) fn listen(bind: &Bind) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::for_address(bind.address), Type::STREAM, Some(Protocol::TCP))?;
    if bind.address.is_ipv6() {
        socket.set_only_v6(!bind.dual_stack)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    // Accepted connections inherit it: one system call less for each.
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&bind.address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// The port that a socket is bound to.
pub(crate) fn port(socket: &OwnedFd) -> io::Result<u16> {
    let address = SockRef::from(socket).local_addr()?;
    Ok(address.as_socket().map_or(0, |address| address.port()))
}

/// Whether somebody else listens at the address already. Sharing an address is meant for the workers
/// of one director: two directors that split the clients by accident would be hard to notice.
pub(crate) fn is_taken(bind: &Bind) -> io::Result<bool> {
    if bind.address.port() == 0 {
        return Ok(false);
    }
    let socket = Socket::new(Domain::for_address(bind.address), Type::STREAM, Some(Protocol::TCP))?;
    if bind.address.is_ipv6() {
        socket.set_only_v6(!bind.dual_stack)?;
    }
    socket.set_reuse_address(true)?;
    match socket.bind(&bind.address.into()) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(true),
        Err(error) => Err(error),
    }
}
