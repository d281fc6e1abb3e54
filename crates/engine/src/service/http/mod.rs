//! HTTP/1.1: a job is a request.
//!
//! A *client* is a connection from a client, an *exchange* one request and its response, a
//! *link* a connection to a node. A client has at most one exchange at a time, an exchange at
//! most one link; links without an exchange wait in their pool's idle lists.
//!
//! - `body.rs`: how far a body has come; passing a request's on
//! - `client.rs`: reading requests, writing to clients, letting them go
//! - `exchange.rs`: placing a request, trying again elsewhere, ending it
//! - `link.rs`: connections to nodes, reading responses
//! - `orca.rs`: what nodes say of themselves in responses
//! - `route.rs`: which pool a request goes to, and what of it is hashed
//! - `reply.rs`: answers of the director's own
//! - `log.rs`: the access log's lines

mod body;
mod client;
mod exchange;
mod link;
pub(crate) mod log;
mod orca;
mod reply;
mod route;

use evener_protocol::http1::{Request, Response};
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
