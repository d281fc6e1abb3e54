//! The kernel's TCP, over the loopback. Both ends are in one thread: it is TCP that is measured, not which CPU a thread
//! happened to be put on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::repeat;

/// Connections over which requests go by turns: what a server holds does not all lie in the first cache.
const CONNECTIONS: usize = 64;
const REQUEST_BYTES: usize = 128;
const ANSWER_BYTES: usize = 1024;
const STREAM_BYTES: usize = 64 * 1024;
/// On a loopback that is shut off, nothing ever comes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections to ourselves.
pub(super) struct Connections {
    pairs: Vec<(TcpStream, TcpStream)>,
}

impl Connections {
    pub(super) fn new() -> io::Result<Connections> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let pair = |_| {
            let near = TcpStream::connect_timeout(&address, PATIENCE)?;
            let (far, _) = listener.accept()?;
            for stream in [&near, &far] {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
            }
            Ok((near, far))
        };
        Ok(Connections { pairs: (0..CONNECTIONS).map(pair).collect::<io::Result<_>>()? })
    }

    /// Requests answered in a second: 128 bytes one way, 1 KiB the other.
    pub(super) fn requests(&mut self, slot: Duration) -> io::Result<f64> {
        let (request, answer) = ([1; REQUEST_BYTES], [2; ANSWER_BYTES]);
        let mut buffer = [0; ANSWER_BYTES];
        repeat(slot, || {
            for (near, far) in &mut self.pairs {
                near.write_all(&request)?;
                far.read_exact(&mut buffer[..REQUEST_BYTES])?;
                far.write_all(&answer)?;
                near.read_exact(&mut buffer)?;
            }
            Ok(CONNECTIONS as u64)
        })
    }
}

/// Bytes in a second through one connection.
pub(super) fn stream(slot: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut near = TcpStream::connect_timeout(&listener.local_addr()?, PATIENCE)?;
    let (mut far, _) = listener.accept()?;
    near.set_nonblocking(true)?;
    far.set_nonblocking(true)?;
    let sent = vec![3; STREAM_BYTES];
    let mut received = vec![0; STREAM_BYTES];
    repeat(slot, || {
        let written = moved(near.write(&sent))?;
        let read = moved(far.read(&mut received))?;
        if written == 0 && read == 0 {
            // The kernel delivers in a thread of its own when there is much to do.
            thread::yield_now();
        }
        Ok(read as u64)
    })
}

/// How many bytes went; none if the socket is full, or empty.
fn moved(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(0),
        result => result,
    }
}
