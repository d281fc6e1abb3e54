//! Sockets: listening ones, and connections that may be within TLS.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use evener_trust::rustls::ClientConfig;
use evener_trust::rustls::pki_types::ServerName;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::error::AgentError;
use crate::settings::Listen;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;
/// How long nothing is accepted or received after that failed, as with too many open files.
pub(crate) const REST: Duration = Duration::from_millis(100);

/// A connection, within TLS or not.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Whom to connect to.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Target {
    /// Connects; the caller limits the time.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Connection>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        stream.set_nodelay(true)?;
        // A director that vanished without a word is noticed even where nothing is sent for long.
        let keepalive =
            TcpKeepalive::new().with_time(Duration::from_secs(30)).with_interval(Duration::from_secs(10));
        SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::try_from(self.host.clone()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(config.clone()).connect(name, stream).await?;
        Ok(Box::new(stream))
    }
}

/// A socket that listens.
pub(crate) fn listen(listen: &Listen, what: &'static str) -> Result<TcpListener, AgentError> {
    let opened = open(listen.address, Type::STREAM, Some(Protocol::TCP), listen.is_dual).and_then(|socket| {
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    });
    opened.map_err(|error| AgentError::Listen { what, address: listen.to_string(), error })
}

/// A socket for datagrams, which several processes of this machine may share.
pub(crate) fn datagrams(address: SocketAddr, is_dual: bool) -> io::Result<Socket> {
    open(address, Type::DGRAM, Some(Protocol::UDP), is_dual)
}

fn open(address: SocketAddr, kind: Type, protocol: Option<Protocol>, is_dual: bool) -> io::Result<Socket> {
    let open_at = |address: SocketAddr| -> io::Result<Socket> {
        let socket = Socket::new(Domain::for_address(address), kind, protocol)?;
        if address.is_ipv6() {
            socket.set_only_v6(!is_dual)?;
        }
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        Ok(socket)
    };
    match open_at(address) {
        // A machine without IPv6.
        Err(error) if is_dual && error.raw_os_error() == Some(nix::errno::Errno::EAFNOSUPPORT as i32) => {
            open_at((Ipv4Addr::UNSPECIFIED, address.port()).into())
        }
        result => result,
    }
}

/// The next connection. What prevents one for now, such as too many open files, is waited for.
pub(crate) async fn accept(listener: &tokio::net::TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "no connection accepted");
                tokio::time::sleep(REST).await;
            }
        }
    }
}
