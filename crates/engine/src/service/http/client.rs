//! The client side: reading requests, writing responses, letting clients go.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use evener_model::NodeId;
use evener_protocol::http1::{self, Limits, Version};
use evener_protocol::proxy_protocol;
use mio::net::TcpStream;

use super::log::Entry;
use super::reply::Reply;
use super::{Http, NONE, Readiness};
use crate::core::{Core, HEADROOM, READ_MAX, READS_PER_TURN};
use crate::io::{Io, Pending, Received};
use crate::snapshot::{HttpSpec, Service};
use crate::token::{Kind, Token};

/// After its last answer, a client whose input was not read whole may read for so long.
const LINGER: Duration = Duration::from_secs(2);

/// Thrown away at once at the most.
const DISCARD_BYTES: usize = 16 * 1024;

/// A connection from a client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) io: Io,
    /// What the client has not taken yet.
    pub(super) output: Pending,
    /// A head that is not complete, or requests that came before their turn.
    pub(super) input: Vec<u8>,
    /// How much of `input` is known not to end a head; 0: it has not been looked at.
    scanned: u32,
    pub(super) listener: u32,
    pub(super) exchange: u32,
    pub(super) requests: u32,
    /// The pool and the node that its last request was placed on: there it may be known.
    pub(super) placed_on: Option<(u32, NodeId)>,
    state: State,
    /// There may be something to read, and no event will say so.
    pub(super) readable: bool,
    pub(super) read_closed: bool,
    /// A PROXY protocol header must come first.
    expects_proxy: bool,
    /// No further request once the output is flushed.
    pub(super) must_close: bool,
    /// More of a request may come that will not be read.
    pub(super) has_unread: bool,
    pub(super) peer: Peer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// Answered for the last time: what still comes in is thrown away, so that no reset
    /// overtakes the answer.
    Lingering,
    /// The place is free at the end of the turn.
    Closed,
}

/// Who a client is.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Where the client wanted to go, if a PROXY header said so.
    pub(crate) destination: Option<Box<SocketAddr>>,
    length: u8,
    /// The address without port, as text: made once, written with every request.
    text: [u8; Peer::TEXT_MAX],
}

impl Peer {
    const TEXT_MAX: usize = 45;

    pub(crate) fn new(address: SocketAddr) -> Peer {
        let mut text = [0; Peer::TEXT_MAX];
        let mut rest = &mut text[..];
        write!(rest, "{}", address.ip().to_canonical()).expect("45 bytes hold any address");
        let length = (Peer::TEXT_MAX - rest.len()) as u8;
        Peer { address, destination: None, length, text }
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.text[..usize::from(self.length)]).expect("an address is ASCII")
    }

    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// What the client has connected to, over `io`.
    pub(crate) fn reached(&self, io: &Io) -> Option<SocketAddr> {
        self.destination.as_deref().copied().or_else(|| io.local_address())
    }
}

impl Client {
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }
}

/// The HTTP settings of a listener.
pub(super) fn http_spec(core: &Core, listener: u32) -> &HttpSpec {
    match &core.listeners[listener as usize].spec.service {
        Service::Http(http) => http,
        Service::Tcp(_) => unreachable!("an HTTP client came through an HTTP listener"),
    }
}

impl Http {
    /// Takes a new connection.
    pub(crate) fn accept(
        &mut self,
        core: &mut Core,
        listener: usize,
        stream: TcpStream,
        address: SocketAddr,
    ) {
        let entry = self.clients.vacant_entry();
        let index = entry.key();
        let token = Token::new(Kind::HttpClient, index);
        let Ok(io) = Io::accepted(stream, &core.registry, token) else {
            core.listeners[listener].stats(core.worker).limited.add(1);
            return;
        };
        entry.insert(Client {
            io,
            output: Pending::default(),
            input: Vec::new(),
            scanned: 0,
            listener: listener as u32,
            exchange: NONE,
            requests: 0,
            placed_on: None,
            state: State::Open,
            readable: false,
            read_closed: false,
            expects_proxy: core.listeners[listener].spec.accept_proxy,
            must_close: false,
            has_unread: false,
            peer: Peer::new(address),
        });
        let slot = &mut core.listeners[listener];
        slot.open += 1;
        let stats = slot.stats(core.worker);
        stats.accepted.add(1);
        stats.open.add(1);
        let head = http_spec(core, listener as u32).timeouts.head;
        core.set_timer(token, head);
    }

    /// Something happened on a client's connection.
    #[inline]
    pub(crate) fn client_ready(&mut self, core: &mut Core, index: usize, ready: Readiness) {
        let client = &mut self.clients[index];
        if client.is_closed() {
            return;
        }
        if ready.failed {
            return self.abort_client(core, index);
        }
        client.readable |= ready.readable;
        client.read_closed |= ready.read_closed;
        if ready.writable && !client.output.is_empty() {
            self.flush_client(core, index);
        }
        if ready.readable || ready.read_closed {
            self.advance_client(core, index);
        }
        if ready.read_closed {
            self.leave_if_unanswered(core, index);
        }
    }

    /// Lets a client go that has ended its direction while it waits for an answer.
    ///
    /// It could still want it: a half-closed connection looks the same. But clients that gave up are
    /// many just when nodes are slow, and must not hold places for answers that nobody reads. Where
    /// an answer has begun, sending shows whether somebody does.
    pub(super) fn leave_if_unanswered(&mut self, core: &mut Core, index: usize) {
        let client = &self.clients[index];
        if client.exchange == NONE {
            return;
        }
        let exchange = &self.exchanges[client.exchange as usize];
        if client.read_closed && exchange.request_body.is_done() && !exchange.has_answered {
            self.abort_client(core, index);
        }
    }

    /// Does what a client can do now: read a request, pass on a body, throw away the rest.
    pub(crate) fn advance_client(&mut self, core: &mut Core, index: usize) {
        let Some(client) = self.clients.get(index) else { return };
        match client.state {
            State::Closed => {}
            State::Lingering => self.discard_input(core, index),
            State::Open if client.exchange != NONE => self.pump_request(core, index),
            State::Open => {
                let mut scratch = std::mem::take(&mut core.scratch);
                self.read_request(core, index, &mut scratch);
                core.scratch = scratch;
            }
        }
    }

    fn read_request(&mut self, core: &mut Core, index: usize, scratch: &mut [u8]) {
        let client = &mut self.clients[index];
        if !client.output.is_empty() || client.must_close {
            return;
        }
        let mut filled = client.input.len();
        scratch[HEADROOM..HEADROOM + filled].copy_from_slice(&client.input);
        if filled > 0 {
            core.buffers.put(std::mem::take(&mut client.input));
        }
        let http = http_spec(core, client.listener);
        let limits =
            Limits { head_bytes_max: http.limits.head_bytes_max, headers_max: http.limits.headers_max };
        let timeouts = http.timeouts;
        loop {
            let client = &mut self.clients[index];
            let bytes = &scratch[HEADROOM..HEADROOM + filled];
            if client.expects_proxy && filled > 0 {
                match proxy_protocol::parse(bytes) {
                    Ok(Some(header)) => {
                        client.expects_proxy = false;
                        if let Some((source, destination)) = header.addresses {
                            client.peer = Peer::new(source);
                            client.peer.destination = Some(Box::new(destination));
                        }
                        scratch.copy_within(HEADROOM + header.len..HEADROOM + filled, HEADROOM);
                        filled -= header.len;
                        continue;
                    }
                    Ok(None) => {}
                    Err(_) => {
                        core.listeners[client.listener as usize].stats(core.worker).refused.add(1);
                        return self.close_client(core, index);
                    }
                }
            } else if filled > 0 {
                // Once a head was found to be incomplete, only its end is looked for: a head
                // that comes byte by byte must not be parsed as often as it has bytes.
                let scanned = client.scanned as usize;
                if scanned == 0
                    || filled >= limits.head_bytes_max as usize
                    || http1::find_head_end(bytes, scanned).is_some()
                {
                    match self.request.parse(bytes, &limits) {
                        Ok(true) => {
                            self.clients[index].scanned = 0;
                            return self.begin(core, index, &scratch[HEADROOM..HEADROOM + filled]);
                        }
                        Ok(false) => {}
                        Err(refusal) => {
                            let reply = Reply { status: refusal.status(), reason: refusal.reason() };
                            core.listeners[client.listener as usize].stats(core.worker).refused.add(1);
                            return self.refuse(core, index, reply);
                        }
                    }
                }
            }
            let client = &mut self.clients[index];
            if !client.expects_proxy {
                client.scanned = filled.saturating_sub(3).max(1) as u32;
            }
            let received = if client.readable {
                client.io.receive(&mut scratch[HEADROOM + filled..HEADROOM + READ_MAX])
            } else {
                Ok(Received::Blocked)
            };
            match received {
                Ok(Received::Data(n)) => {
                    // A short read has drained the socket, unless an end waits behind it.
                    client.readable = n == READ_MAX - filled || client.read_closed;
                    if filled == 0 {
                        client.scanned = 0;
                        // A head has begun: from here its own timeout counts.
                        core.timers.set(Token::new(Kind::HttpClient, index), core.clock.now(), timeouts.head);
                    }
                    filled += n;
                    core.listeners[client.listener as usize].stats(core.worker).bytes_in.add(n as u64);
                }
                Ok(Received::Blocked) => {
                    client.readable = false;
                    if filled > 0 {
                        client.input = core.buffers.take();
                        client.input.extend_from_slice(&scratch[HEADROOM..HEADROOM + filled]);
                    }
                    return;
                }
                Ok(Received::Eof) | Err(_) => {
                    if filled > 0 {
                        core.listeners[client.listener as usize].stats(core.worker).aborted.add(1);
                    }
                    return self.close_client(core, index);
                }
            }
        }
    }

    /// Answers a request that has no exchange, and lets the client go: what follows cannot be understood.
    pub(super) fn refuse(&mut self, core: &mut Core, index: usize, reply: Reply) {
        self.clients[index].must_close = true;
        self.clients[index].has_unread = true;
        self.reply(core, index, reply, b"");
    }

    /// Answers a request that has no exchange; `head` is what of it the log may tell.
    pub(super) fn reply(&mut self, core: &mut Core, index: usize, reply: Reply, head: &[u8]) {
        let client = &mut self.clients[index];
        let mut out = core.buffers.take();
        let body = reply.write(Version::Http11, !client.must_close, false, &mut out);
        let listener = &core.listeners[client.listener as usize];
        let stats = listener.stats(core.worker);
        stats.responses[usize::from(reply.status / 100 - 1)].add(1);
        stats.bytes_out.add(out.len() as u64);
        let Core { listeners, clock, log, timers, worker, .. } = core;
        let spec = &listeners[client.listener as usize].spec;
        let now = clock.now();
        if let Service::Http(http) = &spec.service
            && let Some(format) = http.access_log
        {
            let entry = Entry {
                client: client.peer.text(),
                head,
                protocol: "HTTP/1.1",
                status: reply.status,
                bytes_out: body as u64,
                started: now,
                now,
                listener: &spec.name,
                pool: "",
                node: "",
                latency: None,
                retries: 0,
                failure: reply.reason,
                request_id: None,
            };
            Core::log_line(log, timers, now, *worker, |line| entry.write(format, clock, line));
        }
        let client = &mut self.clients[index];
        let sent = client.output.send(&client.io, &out, &mut core.buffers);
        core.buffers.put(out);
        match sent {
            Ok(_) => self.next_request(core, index),
            Err(_) => self.close_client(core, index),
        }
    }

    /// Sends bytes of a response; says whether the client took all of them.
    ///
    /// # Errors
    /// If the client is gone.
    #[inline]
    pub(super) fn send_to_client(
        &mut self,
        core: &mut Core,
        index: usize,
        bytes: &[u8],
    ) -> std::io::Result<bool> {
        let client = &mut self.clients[index];
        core.listeners[client.listener as usize].stats(core.worker).bytes_out.add(bytes.len() as u64);
        client.output.send(&client.io, bytes, &mut core.buffers)
    }

    /// The client has to take something before anything else happens.
    pub(super) fn wait_for_client(&mut self, core: &mut Core, index: usize) {
        let timeout = http_spec(core, self.clients[index].listener).timeouts.body;
        core.set_timer(Token::new(Kind::HttpClient, index), timeout);
    }

    fn flush_client(&mut self, core: &mut Core, index: usize) {
        let client = &mut self.clients[index];
        match client.output.flush(&client.io, &mut core.buffers) {
            Ok(false) => self.wait_for_client(core, index),
            Err(_) => self.abort_client(core, index),
            Ok(true) => {
                let exchange = client.exchange;
                if exchange == NONE {
                    return self.next_request(core, index);
                }
                let exchange = &self.exchanges[exchange as usize];
                let link = exchange.link;
                if exchange.request_body.is_done() {
                    core.timers.clear(Token::new(Kind::HttpClient, index));
                } else {
                    self.arm_body(core, index);
                }
                // The node's side was held back until now.
                if link != NONE {
                    self.arm_link(core, link as usize);
                    self.read_link(core, link as usize);
                }
            }
        }
    }

    /// An exchange is over: on to the next one, or good-bye.
    pub(super) fn next_request(&mut self, core: &mut Core, index: usize) {
        let client = &mut self.clients[index];
        if !client.output.is_empty() {
            return self.wait_for_client(core, index);
        }
        if client.must_close {
            return self.finish_client(core, index);
        }
        if !client.input.is_empty() || client.readable {
            // Not from here: a client with many requests at hand would nest as deep.
            core.again.push(Token::new(Kind::HttpClient, index));
        }
        let timeouts = http_spec(core, client.listener).timeouts;
        // The next head may have begun behind the last request.
        let timeout = if client.input.is_empty() { timeouts.idle } else { timeouts.head };
        core.set_timer(Token::new(Kind::HttpClient, index), timeout);
    }

    /// All is said: closes the connection so that the client can still read it.
    pub(super) fn finish_client(&mut self, core: &mut Core, index: usize) {
        let client = &mut self.clients[index];
        if client.read_closed || (client.input.is_empty() && !client.readable && !client.has_unread) {
            return self.close_client(core, index);
        }
        client.state = State::Lingering;
        client.io.shutdown_write();
        core.buffers.put(std::mem::take(&mut client.input));
        core.set_timer(Token::new(Kind::HttpClient, index), LINGER);
        self.discard_input(core, index);
    }

    fn discard_input(&mut self, core: &mut Core, index: usize) {
        for _ in 0..READS_PER_TURN {
            let client = &mut self.clients[index];
            // Not the scratch buffer: it may be in use where the client is let go.
            match client.io.receive(&mut [0; DISCARD_BYTES]) {
                Ok(Received::Data(_)) => {}
                Ok(Received::Blocked) => return,
                Ok(Received::Eof) | Err(_) => return self.close_client(core, index),
            }
        }
        core.again.push(Token::new(Kind::HttpClient, index));
    }

    /// A client's time is up.
    pub(crate) fn client_timeout(&mut self, core: &mut Core, index: usize) {
        let Some(client) = self.clients.get(index) else { return };
        let is_answering = !client.output.is_empty();
        match client.state {
            State::Closed => {}
            State::Lingering => self.close_client(core, index),
            State::Open if client.exchange != NONE && !is_answering => self.body_timeout(core, index),
            State::Open => {
                let began = !client.input.is_empty() || is_answering;
                if began {
                    core.listeners[client.listener as usize].stats(core.worker).client_timeouts.add(1);
                }
                if is_answering {
                    self.abort_client(core, index);
                } else if began {
                    self.refuse(core, index, Reply::HEAD_TIMEOUT);
                } else {
                    self.close_client(core, index);
                }
            }
        }
    }

    /// The client is gone, or is to go at once.
    pub(super) fn abort_client(&mut self, core: &mut Core, index: usize) {
        let client = &self.clients[index];
        if client.exchange != NONE {
            core.listeners[client.listener as usize].stats(core.worker).aborted.add(1);
            if self.exchanges[client.exchange as usize].has_answered {
                client.io.reset_on_close();
            }
            self.cancel(core, client.exchange as usize);
        }
        self.close_client(core, index);
    }

    /// Closes a client that has no exchange.
    pub(super) fn close_client(&mut self, core: &mut Core, index: usize) {
        let client = &mut self.clients[index];
        debug_assert!(client.exchange == NONE, "an exchange ends before its client");
        if client.is_closed() {
            return;
        }
        client.state = State::Closed;
        if !client.output.is_empty() {
            // Part of an answer must not pass for all of it.
            client.io.reset_on_close();
        }
        client.output.discard(&mut core.buffers);
        core.buffers.put(std::mem::take(&mut client.input));
        core.timers.clear(Token::new(Kind::HttpClient, index));
        self.closed_clients.push(index as u32);
        core.connection_closed(client.listener as usize);
        // The descriptor closes now; the place in the slab is kept until the end of the turn.
        client.io.close();
    }
}
