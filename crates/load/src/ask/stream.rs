use std::fmt;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::settings::Address;

/// A connection's bytes, whichever way they go.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// Connects.
pub(super) async fn connect(address: &Address) -> Result<Box<dyn Bytes>, String> {
    let connected: io::Result<Box<dyn Bytes>> = match address {
        Address::Tcp(host, port) => match TcpStream::connect((host.as_str(), *port)).await {
            Ok(stream) => stream.set_nodelay(true).map(|()| Box::new(stream) as Box<dyn Bytes>),
            Err(error) => Err(error),
        },
        Address::Unix(path) => {
            UnixStream::connect(path).await.map(|stream| Box::new(stream) as Box<dyn Bytes>)
        }
    };
    connected.map_err(|error| format!("connect: {error}"))
}

/// A connection for questions and answers, and what came of the next answer already.
pub(super) struct Line {
    stream: Box<dyn Bytes>,
    received: Vec<u8>,
}

impl Line {
    pub(super) async fn connect(address: &Address) -> Result<Line, String> {
        Ok(Line { stream: connect(address).await?, received: Vec::new() })
    }

    pub(super) async fn send(&mut self, question: &[u8]) -> Result<(), String> {
        self.stream.write_all(question).await.map_err(|error| error.to_string())
    }

    /// Receives until `parse` finds a whole answer, of the length that it says.
    pub(super) async fn receive<T>(
        &mut self,
        mut parse: impl FnMut(&[u8]) -> Result<Option<(T, usize)>, String>,
    ) -> Result<T, String> {
        loop {
            if let Some((answer, length)) = parse(&self.received)? {
                self.received.drain(..length);
                return Ok(answer);
            }
            let read = self.stream.read_buf(&mut self.received).await.map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("it closed the connection".into());
            }
        }
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").field("received_bytes", &self.received.len()).finish_non_exhaustive()
    }
}
