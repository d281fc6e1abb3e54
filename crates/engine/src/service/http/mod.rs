//! HTTP/1.1: a job is a request.
//!
//! A *client* is a connection from a client, an *exchange* one request and its response, a
//! *link* a connection to a node. A client has at most one exchange at a time, an exchange at
//! most one link; links without an exchange wait in their pool's idle lists.
//!
//! - `client.rs`: reading requests, writing to clients, letting them go
//! - `exchange.rs`: placing a request, trying again elsewhere, ending it
//! - `link.rs`: connections to nodes, reading responses
//! - `route.rs`: which pool a request goes to, and what of it is hashed
//! - `reply.rs`: answers of the director's own
//! - `log.rs`: the access log's lines

mod client;
mod exchange;
mod link;
pub(crate) mod log;
mod reply;
mod route;

use evener_protocol::http1::{Chunks, Framing, Request, Response};
use slab::Slab;

use crate::core::Core;
use crate::service::tcp::Tunnel;
use crate::token::{Kind, Token};

use client::Client;
pub(crate) use client::Peer;
pub(crate) use exchange::{Exchange, connect_outcome, finish};
use link::Link;
pub(crate) use route::source_key;

/// No exchange, no link.
const NONE: u32 = u32::MAX;

/// All HTTP connections of a worker.
pub(crate) struct Http {
    clients: Slab<Client>,
    exchanges: Slab<Exchange>,
    links: Slab<Link>,
    /// Closed during this turn: their places are free when its events are done, so that a late
    /// event cannot reach a newcomer in the same place.
    closed_clients: Vec<u32>,
    closed_links: Vec<u32>,
    /// Exchanges that became tunnels during this turn.
    pub(crate) tunnels: Vec<Tunnel>,
    /// Parsers, kept for the room they have grown.
    request: Request,
    response: Response,
    /// A head being rewritten.
    head: Vec<u8>,
}

/// What an event says of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Readiness {
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer will send nothing more.
    pub(crate) read_closed: bool,
    /// The connection is broken, or closed both ways.
    pub(crate) failed: bool,
}

impl Http {
    pub(crate) fn new() -> Http {
        Http {
            clients: Slab::new(),
            exchanges: Slab::new(),
            links: Slab::new(),
            closed_clients: Vec::new(),
            closed_links: Vec::new(),
            tunnels: Vec::new(),
            request: Request::new(),
            response: Response::new(),
            head: Vec::new(),
        }
    }

    /// Connections of clients that are open.
    pub(crate) fn open(&self) -> usize {
        self.clients.len() - self.closed_clients.len()
    }

    /// Frees the places of connections closed since the last call.
    pub(crate) fn reap(&mut self) {
        for index in self.closed_clients.drain(..) {
            self.clients.remove(index as usize);
        }
        for index in self.closed_links.drain(..) {
            self.links.remove(index as usize);
        }
    }

    /// Lets idle connections go and ends the others after their present exchange.
    pub(crate) fn drain(&mut self, core: &mut Core, idle_grace: std::time::Duration) {
        for (index, client) in &mut self.clients {
            if client.exchange == NONE && !client.is_closed() {
                core.set_timer(Token::new(Kind::HttpClient, index), idle_grace);
            }
        }
    }

    /// Closes everything that is still open.
    pub(crate) fn abort(&mut self, core: &mut Core) {
        let open: Vec<usize> =
            self.clients.iter().filter(|(_, client)| !client.is_closed()).map(|(index, _)| index).collect();
        for index in open {
            self.abort_client(core, index);
        }
    }

    /// Closes links that their pool no longer holds.
    pub(crate) fn close_links(&mut self, core: &mut Core, links: Vec<u32>) {
        for link in links {
            self.close_link(core, link as usize);
        }
    }
}

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug)]
enum Body {
    Done,
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

/// The next part of a body.
#[derive(Debug)]
struct BodyPart {
    /// Bytes that belong to the body.
    length: usize,
    /// Whether the body is complete with them.
    is_last: bool,
}

impl Body {
    fn new(framing: Framing) -> Body {
        match framing {
            Framing::None | Framing::Length(0) => Body::Done,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunks::new()),
            Framing::UntilClose => Body::UntilClose,
        }
    }

    fn is_done(&self) -> bool {
        matches!(self, Body::Done)
    }

    /// Takes what of `bytes` belongs to the body.
    ///
    /// # Errors
    /// If a chunked body is malformed.
    fn take(&mut self, bytes: &[u8]) -> Result<BodyPart, evener_protocol::http1::Fault> {
        let part = match self {
            Body::Done => BodyPart { length: 0, is_last: true },
            Body::Length(left) => {
                let length = usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()));
                *left -= length as u64;
                BodyPart { length, is_last: *left == 0 }
            }
            Body::Chunked(chunks) => {
                let scan = chunks.scan(bytes)?;
                BodyPart { length: scan.consumed, is_last: scan.done }
            }
            Body::UntilClose => BodyPart { length: bytes.len(), is_last: false },
        };
        if part.is_last {
            *self = Body::Done;
        }
        Ok(part)
    }
}
