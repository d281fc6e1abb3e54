//! One connection of the generator: a request at a time, its response followed to the end.

use std::io::{self, Read, Write};
use std::time::Instant;

use evener_protocol::http1::{Chunks, Framing, Limits, Method, Response};
use mio::net::TcpStream;

/// Bounds of a response head that the generator accepts.
const LIMITS: Limits = Limits { head_bytes_max: 64 * 1024, headers_max: 256 };

/// A request that is due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Its number in the run.
    pub(crate) number: u64,
    /// When it should have been sent.
    pub(crate) due: Instant,
    /// Whether a connection was lost under it already.
    pub(crate) resent: bool,
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    pub(crate) pending: Pending,
    /// When sending began.
    pub(crate) sent: Instant,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    pub(crate) job: Option<Job>,
    /// Whether an earlier request was answered on this connection.
    pub(crate) used: bool,
    established: bool,
    request: Vec<u8>,
    written: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// A head, or what has come of it.
    Head(Vec<u8>),
    Body(Answer, Body),
}

#[derive(Debug)]
enum Body {
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

/// A complete response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) keep_alive: bool,
}

/// How a connection ended under its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It was never open.
    Refused,
    /// The peer closed it. `begun`: within the response.
    Reset { begun: bool },
    /// What came was not HTTP.
    Protocol,
}

/// What reading works with, shared by all connections.
#[derive(Debug)]
pub(crate) struct Scratch {
    bytes: Vec<u8>,
    response: Response,
    /// Bytes read since the start.
    pub(crate) bytes_read: u64,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch { bytes: vec![0; 64 * 1024], response: Response::new(), bytes_read: 0 }
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Connection {
        Connection {
            stream,
            job: None,
            used: false,
            established: false,
            request: Vec::new(),
            written: 0,
            state: State::Head(Vec::new()),
        }
    }

    /// Begins a request; what does not fit now follows when the socket is writable.
    pub(crate) fn send(&mut self, job: Job, write: impl FnOnce(&mut Vec<u8>)) -> Result<(), Broken> {
        debug_assert!(self.job.is_none());
        self.job = Some(job);
        self.request.clear();
        self.written = 0;
        write(&mut self.request);
        self.flush()
    }

    /// Writes what is left of the request.
    pub(crate) fn flush(&mut self) -> Result<(), Broken> {
        while self.written < self.request.len() {
            match self.stream.write(&self.request[self.written..]) {
                Ok(bytes) => {
                    self.established = true;
                    self.written += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Not writable yet, or not established yet: either way the socket tells when it is.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(_) => return Err(self.broken()),
            }
        }
        Ok(())
    }

    /// Reads what there is; the answer, if it is complete.
    pub(crate) fn receive(&mut self, scratch: &mut Scratch) -> Result<Option<Answer>, Broken> {
        loop {
            match self.stream.read(&mut scratch.bytes) {
                Ok(0) => {
                    return match self.state {
                        State::Body(answer, Body::UntilClose) => Ok(Some(answer)),
                        _ => Err(self.broken()),
                    };
                }
                Ok(count) => {
                    self.established = true;
                    scratch.bytes_read += count as u64;
                    if self.job.is_none() {
                        // Nothing was asked.
                        return Err(Broken::Protocol);
                    }
                    let answer = self.feed(&scratch.bytes[..count], &mut scratch.response)?;
                    // A short read has drained the socket.
                    if answer.is_some() || count < scratch.bytes.len() {
                        return Ok(answer);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(_) => return Err(self.broken()),
            }
        }
    }

    /// Makes ready for the next request.
    pub(crate) fn reset(&mut self) {
        self.job = None;
        self.used = true;
        self.state = State::Head(Vec::new());
    }

    fn broken(&self) -> Broken {
        if !self.established {
            return Broken::Refused;
        }
        Broken::Reset { begun: !matches!(&self.state, State::Head(head) if head.is_empty()) }
    }

    fn feed(&mut self, bytes: &[u8], response: &mut Response) -> Result<Option<Answer>, Broken> {
        match &mut self.state {
            State::Head(head) if head.is_empty() => self.head(bytes, response),
            State::Head(head) => {
                let mut head = std::mem::take(head);
                head.extend_from_slice(bytes);
                self.head(&head, response)
            }
            State::Body(answer, body) => {
                let answer = *answer;
                Ok(body.feed(bytes)?.then_some(answer))
            }
        }
    }

    fn head(&mut self, mut bytes: &[u8], response: &mut Response) -> Result<Option<Answer>, Broken> {
        loop {
            if !response.parse(bytes, &LIMITS, Method::Get).map_err(|_| Broken::Protocol)? {
                self.state = State::Head(bytes.to_vec());
                return Ok(None);
            }
            bytes = &bytes[response.head_len as usize..];
            if response.status >= 200 {
                break;
            }
        }
        let answer = Answer { status: response.status, keep_alive: response.keep_alive };
        let mut body = match response.framing {
            Framing::None => Body::Length(0),
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunks::new()),
            Framing::UntilClose => Body::UntilClose,
        };
        let done = body.feed(bytes)?;
        self.state = State::Body(answer, body);
        Ok(done.then_some(answer))
    }
}

impl Body {
    /// Takes what came of the body; whether that was all.
    fn feed(&mut self, bytes: &[u8]) -> Result<bool, Broken> {
        let consumed = match self {
            Body::UntilClose => return Ok(false),
            Body::Length(left) => {
                let consumed = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= consumed as u64;
                consumed
            }
            Body::Chunked(chunks) => {
                let scan = chunks.scan(bytes).map_err(|_| Broken::Protocol)?;
                if !scan.done {
                    return Ok(false);
                }
                scan.consumed
            }
        };
        // More than the response: nothing else was asked for.
        if consumed < bytes.len() {
            return Err(Broken::Protocol);
        }
        Ok(!matches!(self, Body::Length(1..)))
    }
}
