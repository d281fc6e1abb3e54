//! TCP: a job is a connection. Also what an HTTP connection becomes after an upgrade.
//!
//! A *relay* joins a client and a node and passes bytes both ways. Each direction ends by
//! itself: when one side has sent all, the other is told so and may go on answering.

use std::net::SocketAddr;
use std::time::Duration;

use evener_model::{Job, NodeId, Outcome, Time};
use evener_protocol::proxy_protocol;
use evener_scheduler::PickError;
use mio::net::TcpStream;
use slab::Slab;

use crate::core::{Core, READ_MAX, READS_PER_TURN};
use crate::io::{self, Io, Pending, Received};
use crate::pool::Waiting;
use crate::service::http::{self, Exchange, Peer, Readiness, source_key};
use crate::snapshot::{ProxyVersion, Service, TcpSpec};
use crate::splice::Pipe;
use crate::token::{Kind, Token};

/// A PROXY header is complete within so many bytes, or never.
const PROXY_HEADER_MAX: usize = 4096 + 16;
/// A client that must send a PROXY header does so within this.
const PROXY_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// A direction that has filled this many whole reads in a row carries a long stream: from then on
/// its bytes stay in the kernel. Streams of 4 MiB then cost a third less CPU, those of 512 MiB half;
/// up to 1 MiB no difference was to be seen (docs/performance.md).
const SPLICE_AFTER_READS: u32 = 4;
/// Nodes that one connection is tried on at the most.
const TRIED_MAX: usize = 8;

/// All relays of a worker.
pub(crate) struct Relays {
    relays: Slab<Relay>,
    closed: Vec<u32>,
}

/// An HTTP exchange that agreed to speak another protocol.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) client: Io,
    pub(crate) node: Io,
    /// What each side has not taken yet.
    pub(crate) to_client: Pending,
    pub(crate) to_node: Pending,
    /// Its slot on the node is still reserved.
    pub(crate) exchange: Exchange,
    pub(crate) peer: Peer,
    pub(crate) idle_timeout: Duration,
}

/// A client and a node, joined.
#[derive(Debug)]
struct Relay {
    client: End,
    /// `None` until a node is found.
    node: Option<End>,
    /// From the client to the node.
    up: Flow,
    /// From the node to the client.
    down: Flow,
    listener: u32,
    peer: Peer,
    idle_timeout: Duration,
    job: Placing,
    is_connecting: bool,
    expects_proxy: bool,
    is_closed: bool,
}

/// The job as the scheduler knows it.
#[derive(Debug)]
enum Placing {
    /// A connection of a TCP listener.
    Connection(Connection),
    /// An upgraded HTTP request.
    Upgrade(Box<Exchange>),
}

#[derive(Debug)]
struct Connection {
    pool: u32,
    /// Where a slot is reserved; taken when it is released.
    node: Option<NodeId>,
    started: Time,
    picked: Time,
    latency: Option<Duration>,
    retries: u8,
    tried: Vec<NodeId>,
}

/// One end of a relay.
#[derive(Debug)]
struct End {
    io: Io,
    readable: bool,
    read_closed: bool,
}

/// One direction of a relay.
#[derive(Debug, Default)]
struct Flow {
    /// What the receiver has not taken yet.
    pending: Pending,
    /// The sender has sent all.
    has_ended: bool,
    /// The receiver has been told so.
    is_shut: bool,
    bytes: u64,
    full_reads: u32,
    pipe: Option<Pipe>,
}

/// How far a flow got.
enum Progress {
    /// Nothing more to do until an event.
    Waits,
    /// The turn is over, not the work.
    Again,
    /// The sender or the receiver failed.
    Broken,
}

impl Relays {
    pub(crate) fn new() -> Relays {
        Relays { relays: Slab::new(), closed: Vec::new() }
    }

    /// Relays that are open.
    pub(crate) fn open(&self) -> usize {
        self.relays.len() - self.closed.len()
    }

    /// Frees the places of relays closed since the last call.
    pub(crate) fn reap(&mut self) {
        for index in self.closed.drain(..) {
            self.relays.remove(index as usize);
        }
    }

    /// Cuts all relays off.
    pub(crate) fn abort(&mut self, core: &mut Core) {
        let open: Vec<usize> =
            self.relays.iter().filter(|(_, relay)| !relay.is_closed).map(|(index, _)| index).collect();
        for index in open {
            self.close(core, index, Outcome::Cancelled, "cut off");
        }
    }

    /// Takes a new connection of a TCP listener.
    pub(crate) fn accept(
        &mut self,
        core: &mut Core,
        listener: usize,
        stream: TcpStream,
        address: SocketAddr,
    ) {
        let entry = self.relays.vacant_entry();
        let index = entry.key();
        let token = Token::new(Kind::RelayClient, index);
        let now = core.now();
        let slot = &mut core.listeners[listener];
        let stats = slot.stats(core.worker);
        let (Ok(io), Service::Tcp(tcp), Some(pool)) =
            (Io::accepted(stream, &core.registry, token), &slot.spec.service, slot.pool)
        else {
            stats.limited.add(1);
            return;
        };
        stats.accepted.add(1);
        stats.open.add(1);
        let idle_timeout = tcp.idle_timeout;
        let expects_proxy = slot.spec.accept_proxy;
        slot.open += 1;
        entry.insert(Relay {
            client: End { io, readable: false, read_closed: false },
            node: None,
            up: Flow::default(),
            down: Flow::default(),
            listener: listener as u32,
            peer: Peer::new(address),
            idle_timeout,
            job: Placing::Connection(Connection {
                pool: pool as u32,
                node: None,
                started: now,
                picked: now,
                latency: None,
                retries: 0,
                tried: Vec::new(),
            }),
            is_connecting: false,
            expects_proxy,
            is_closed: false,
        });
        if expects_proxy {
            core.set_timer(token, PROXY_HEADER_TIMEOUT);
        } else {
            self.begin(core, index);
        }
    }

    /// Takes over what was an HTTP exchange.
    pub(crate) fn adopt(&mut self, core: &mut Core, tunnel: Tunnel) {
        let listener = tunnel.exchange.listener() as u32;
        let end = |io| End { io, readable: true, read_closed: false };
        let index = self.relays.insert(Relay {
            client: end(tunnel.client),
            node: Some(end(tunnel.node)),
            up: Flow { pending: tunnel.to_node, ..Flow::default() },
            down: Flow { pending: tunnel.to_client, ..Flow::default() },
            listener,
            peer: tunnel.peer,
            idle_timeout: tunnel.idle_timeout,
            job: Placing::Upgrade(Box::new(tunnel.exchange)),
            is_connecting: false,
            expects_proxy: false,
            is_closed: false,
        });
        let relay = &mut self.relays[index];
        let node = relay.node.as_mut().expect("a tunnel has both ends");
        let renamed = relay
            .client
            .io
            .rename(&core.registry, Token::new(Kind::RelayClient, index))
            .and_then(|()| node.io.rename(&core.registry, Token::new(Kind::RelayNode, index)));
        match renamed {
            Ok(()) => self.pump(core, index),
            Err(_) => self.close(core, index, Outcome::Cancelled, "cut off"),
        }
    }

    fn begin(&mut self, core: &mut Core, index: usize) {
        let relay = &self.relays[index];
        let listener = &core.listeners[relay.listener as usize];
        listener.stats(core.worker).jobs.add(1);
        if let Placing::Connection(connection) = &relay.job {
            let now = core.now();
            core.pools[connection.pool as usize].budget.count_job(now);
        }
        self.place(core, index);
    }

    /// Picks a node and begins to connect, or lets the connection wait for a node.
    fn place(&mut self, core: &mut Core, index: usize) {
        let relay = &mut self.relays[index];
        let Placing::Connection(connection) = &mut relay.job else { return };
        let pool_index = connection.pool as usize;
        let picked = pick(core, &relay.peer, &relay.client.io, connection);
        let now = core.now();
        let pool = &mut core.pools[pool_index];
        match picked {
            Ok(node) => {
                connection.node = Some(node);
                connection.picked = now;
                pool.node(node).stats(core.worker).picks.add(1);
                self.connect(core, index, node);
            }
            Err(PickError::Full) => {
                let waiting = Waiting { token: Token::new(Kind::RelayClient, index), since: now };
                let was_empty = pool.queue.is_empty();
                let timeout = pool.spec.queue_timeout;
                if !pool.enqueue(core.worker, waiting) {
                    return self.close(core, index, Outcome::Cancelled, "the queue is full");
                }
                if was_empty {
                    core.set_timer(Token::new(Kind::Pool, pool_index), timeout);
                }
            }
            Err(_) => {
                pool.stats(core.worker).no_node.add(1);
                self.close(core, index, Outcome::Cancelled, "no node");
            }
        }
    }

    /// A waiting connection's turn. Says whether it is placed.
    pub(crate) fn place_waiting(&mut self, core: &mut Core, index: usize) -> bool {
        let relay = &mut self.relays[index];
        let Placing::Connection(connection) = &mut relay.job else { return true };
        let picked = pick(core, &relay.peer, &relay.client.io, connection);
        let now = core.now();
        let pool = &mut core.pools[connection.pool as usize];
        match picked {
            Ok(node) => {
                connection.node = Some(node);
                connection.picked = now;
                pool.node(node).stats(core.worker).picks.add(1);
                self.connect(core, index, node);
                true
            }
            Err(_) => false,
        }
    }

    /// A connection has waited too long for a node.
    pub(crate) fn queue_timeout(&mut self, core: &mut Core, index: usize) {
        if let Placing::Connection(connection) = &self.relays[index].job {
            core.pools[connection.pool as usize].stats(core.worker).queue_timeouts.add(1);
        }
        self.close(core, index, Outcome::Cancelled, "waited too long for a node");
    }

    fn connect(&mut self, core: &mut Core, index: usize, node: NodeId) {
        let relay = &mut self.relays[index];
        let Placing::Connection(connection) = &relay.job else { return };
        let token = Token::new(Kind::RelayNode, index);
        let pool = &mut core.pools[connection.pool as usize];
        let timeout = pool.spec.timeouts.connect;
        let pool_node = pool.node(node);
        let stats = pool_node.stats(core.worker);
        match Io::connect(pool_node.spec.address, &core.registry, token) {
            Ok(io) => {
                stats.connects.add(1);
                stats.connections.add(1);
                relay.node = Some(End { io, readable: false, read_closed: false });
                relay.is_connecting = true;
                core.set_timer(token, timeout);
            }
            Err(error) if io::is_want(&error) || io::is_out_of_ports(&error) => {
                self.node_failed(core, index, Outcome::Cancelled);
            }
            Err(_) => self.node_failed(core, index, Outcome::Refused),
        }
    }

    /// The node did not take the connection: nothing was sent, so another may have it.
    fn node_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        let relay = &mut self.relays[index];
        let Placing::Connection(connection) = &mut relay.job else { return };
        let pool_index = connection.pool as usize;
        let Some(node) = connection.node.take() else { return };
        if let Some(mut end) = relay.node.take() {
            end.io.close();
            core.pools[pool_index].node(node).stats(core.worker).connections.sub(1);
        }
        relay.is_connecting = false;
        core.timers.clear(Token::new(Kind::RelayNode, index));
        core.finish_job(pool_index, node, outcome, None);
        if connection.tried.len() < TRIED_MAX {
            connection.tried.push(node);
        }
        let now = core.now();
        let pool = &mut core.pools[pool_index];
        let retry = pool.spec.retry;
        if connection.retries < retry.attempts_max {
            if pool.budget.take(now, &retry) {
                connection.retries += 1;
                pool.stats(core.worker).retries.add(1);
                return self.place(core, index);
            }
            pool.stats(core.worker).retries_denied.add(1);
        }
        self.close(core, index, outcome, outcome.name());
    }

    fn connected(&mut self, core: &mut Core, index: usize) {
        let now = core.now();
        let relay = &mut self.relays[index];
        relay.is_connecting = false;
        core.timers.clear(Token::new(Kind::RelayNode, index));
        if let Placing::Connection(connection) = &mut relay.job {
            connection.latency = Some(now.since(connection.picked));
            let send_proxy = core.pools[connection.pool as usize].spec.send_proxy;
            let destination = relay.peer.reached(&relay.client.io);
            if let (Some(version), Some(destination)) = (send_proxy, destination) {
                let mut header = core.buffers.take();
                match version {
                    ProxyVersion::V1 => {
                        proxy_protocol::write_v1(&mut header, relay.peer.address, destination)
                    }
                    ProxyVersion::V2 => {
                        proxy_protocol::write_v2(&mut header, relay.peer.address, destination)
                    }
                }
                // What a client sent behind its own header comes after this one.
                let mut early = std::mem::take(&mut relay.up.pending);
                relay.up.pending.keep(&header, &mut core.buffers);
                relay.up.pending.keep(early.bytes(), &mut core.buffers);
                early.discard(&mut core.buffers);
                core.buffers.put(header);
            }
        }
        self.pump(core, index);
    }

    /// Something happened on a client's connection.
    pub(crate) fn client_ready(&mut self, core: &mut Core, index: usize, ready: Readiness) {
        let relay = &mut self.relays[index];
        if relay.is_closed {
            return;
        }
        relay.client.readable |= ready.readable || ready.failed;
        relay.client.read_closed |= ready.read_closed;
        if relay.expects_proxy {
            return self.read_proxy_header(core, index);
        }
        if ready.failed && (relay.node.is_none() || relay.is_connecting) {
            return self.close(core, index, Outcome::Cancelled, "client closed");
        }
        self.pump(core, index);
    }

    /// Something happened on a connection to a node.
    pub(crate) fn node_ready(&mut self, core: &mut Core, index: usize, ready: Readiness) {
        let relay = &mut self.relays[index];
        let Some(node) = &mut relay.node else { return };
        if relay.is_closed {
            return;
        }
        node.readable |= ready.readable || ready.failed;
        node.read_closed |= ready.read_closed;
        if relay.is_connecting {
            if ready.failed {
                let error = node.io.take_error();
                return self.node_failed(core, index, http::connect_outcome(error.as_ref()));
            }
            if ready.writable {
                self.connected(core, index);
            }
            return;
        }
        self.pump(core, index);
    }

    /// Goes on with a relay whose turn had ended.
    pub(crate) fn advance(&mut self, core: &mut Core, index: usize) {
        if self.relays.get(index).is_some_and(|relay| !relay.is_closed) {
            self.pump(core, index);
        }
    }

    fn read_proxy_header(&mut self, core: &mut Core, index: usize) {
        let relay = &mut self.relays[index];
        let mut scratch = std::mem::take(&mut core.scratch);
        let kept = relay.up.pending.bytes().len();
        scratch[..kept].copy_from_slice(relay.up.pending.bytes());
        relay.up.pending.discard(&mut core.buffers);
        let mut is_bad = false;
        let mut is_complete = false;
        match relay.client.io.receive(&mut scratch[kept..PROXY_HEADER_MAX]) {
            Ok(Received::Data(n)) => {
                let bytes = &scratch[..kept + n];
                match proxy_protocol::parse(bytes) {
                    Ok(Some(header)) => {
                        if let Some((source, destination)) = header.addresses {
                            relay.peer = Peer::new(source);
                            relay.peer.destination = Some(Box::new(destination));
                        }
                        relay.expects_proxy = false;
                        relay.up.pending.keep(&bytes[header.len..], &mut core.buffers);
                        is_complete = true;
                    }
                    Ok(None) if kept + n < PROXY_HEADER_MAX => {
                        relay.up.pending.keep(bytes, &mut core.buffers);
                    }
                    _ => is_bad = true,
                }
            }
            Ok(Received::Blocked) => relay.up.pending.keep(&scratch[..kept], &mut core.buffers),
            Ok(Received::Eof) | Err(_) => is_bad = true,
        }
        core.scratch = scratch;
        if is_bad {
            core.listeners[relay.listener as usize].stats(core.worker).refused.add(1);
            self.close(core, index, Outcome::Cancelled, "no PROXY header");
        } else if is_complete {
            core.timers.clear(Token::new(Kind::RelayClient, index));
            self.begin(core, index);
        }
    }

    /// Moves bytes both ways as far as they go.
    fn pump(&mut self, core: &mut Core, index: usize) {
        let relay = &mut self.relays[index];
        let Some(node) = &mut relay.node else { return };
        if relay.is_connecting {
            return;
        }
        let (up_before, down_before) = (relay.up.bytes, relay.down.bytes);
        let up = relay.up.pump(core, &mut relay.client, &node.io);
        let down = relay.down.pump(core, node, &relay.client.io);
        let (up_moved, down_moved) = (relay.up.bytes - up_before, relay.down.bytes - down_before);
        let stats = core.listeners[relay.listener as usize].stats(core.worker);
        stats.bytes_in.add(up_moved);
        stats.bytes_out.add(down_moved);
        if let Placing::Connection(Connection { pool, node: Some(node), .. }) = &relay.job {
            let stats = core.pools[*pool as usize].node(*node).stats(core.worker);
            stats.bytes_out.add(up_moved);
            stats.bytes_in.add(down_moved);
        }
        if matches!(down, Progress::Broken) || matches!(up, Progress::Broken) {
            // Each side sees what the other did: a reset, not an orderly end.
            relay.client.io.reset_on_close();
            node.io.reset_on_close();
            return self.close(core, index, Outcome::Success, "reset");
        }
        if relay.up.is_shut && relay.down.is_shut {
            return self.close(core, index, Outcome::Success, "");
        }
        if matches!(up, Progress::Again) || matches!(down, Progress::Again) {
            core.again.push(Token::new(Kind::RelayClient, index));
        }
        let timeout = relay.idle_timeout;
        core.set_timer(Token::new(Kind::RelayClient, index), timeout);
    }

    /// A client's time is up: no PROXY header, or no byte either way.
    pub(crate) fn client_timeout(&mut self, core: &mut Core, index: usize) {
        let Some(relay) = self.relays.get(index) else { return };
        if !relay.is_closed {
            core.listeners[relay.listener as usize].stats(core.worker).client_timeouts.add(1);
            self.close(core, index, Outcome::Cancelled, "idle");
        }
    }

    /// A node did not accept the connection in time.
    pub(crate) fn node_timeout(&mut self, core: &mut Core, index: usize) {
        if self.relays.get(index).is_some_and(|relay| !relay.is_closed && relay.is_connecting) {
            self.node_failed(core, index, Outcome::Timeout);
        }
    }

    /// Ends a relay: releases its slot, counts and logs it, closes both ends.
    fn close(&mut self, core: &mut Core, index: usize, outcome: Outcome, failure: &str) {
        let relay = &mut self.relays[index];
        if relay.is_closed {
            return;
        }
        relay.is_closed = true;
        let token = Token::new(Kind::RelayClient, index);
        let pool_index = match &mut relay.job {
            Placing::Connection(connection) => {
                let pool = connection.pool as usize;
                match connection.node {
                    Some(node) => {
                        if relay.node.is_some() {
                            core.pools[pool].node(node).stats(core.worker).connections.sub(1);
                        }
                        connection.node = None;
                        core.finish_job(pool, node, outcome, connection.latency);
                        log_connection(
                            core,
                            relay.listener,
                            &relay.peer,
                            connection,
                            Some(node),
                            relay.down.bytes,
                            failure,
                        );
                    }
                    None => {
                        log_connection(
                            core,
                            relay.listener,
                            &relay.peer,
                            connection,
                            None,
                            relay.down.bytes,
                            failure,
                        );
                    }
                }
                pool
            }
            Placing::Upgrade(exchange) => {
                exchange.add_bytes_out(relay.down.bytes);
                let pool = exchange.pool();
                if let Some((pool, node, latency)) = exchange.take_slot() {
                    core.finish_job(pool, node, outcome, latency);
                }
                http::finish(core, exchange, &relay.peer, failure);
                pool
            }
        };
        core.pools[pool_index].forget(core.worker, token);
        core.timers.clear(token);
        core.timers.clear(Token::new(Kind::RelayNode, index));
        for flow in [&mut relay.up, &mut relay.down] {
            flow.pending.discard(&mut core.buffers);
            flow.pipe = None;
        }
        relay.client.io.close();
        if let Some(node) = &mut relay.node {
            node.io.close();
        }
        core.connection_closed(relay.listener as usize);
        self.closed.push(index as u32);
    }
}

/// Picks a node for a connection that is not placed.
fn pick(core: &mut Core, peer: &Peer, client: &Io, connection: &Connection) -> Result<NodeId, PickError> {
    let now = core.now();
    let Core { pools, excluded, .. } = core;
    let pool = &mut pools[connection.pool as usize];
    let key = if pool.spec.scheduler.hashes() { source_key(peer.ip()) } else { 0 };
    pool.excluded(peer.ip(), || peer.reached(client), excluded);
    pool.scheduler.pick(now, &Job { key, avoid: &connection.tried, excluded, ..Job::default() })
}

fn log_connection(
    core: &mut Core,
    listener: u32,
    peer: &Peer,
    connection: &Connection,
    node: Option<NodeId>,
    bytes_out: u64,
    failure: &str,
) {
    let Core { listeners, pools, clock, log, timers, worker, .. } = core;
    let spec = &listeners[listener as usize].spec;
    spec.stats.of(*worker).duration.record(clock.now().since(connection.started));
    let Service::Tcp(TcpSpec { access_log: Some(format), .. }) = &spec.service else { return };
    let pool = &pools[connection.pool as usize];
    let now = clock.now();
    let entry = http::log::Entry {
        client: peer.text(),
        head: b"",
        protocol: "TCP",
        status: 0,
        bytes_out,
        started: connection.started,
        now,
        listener: &spec.name,
        pool: &pool.spec.name,
        node: node.map_or("", |node| pool.node_name(node)),
        latency: connection.latency,
        retries: connection.retries,
        failure,
        request_id: None,
    };
    Core::log_line(log, timers, now, *worker, |line| entry.write(*format, clock, line));
}

impl Flow {
    /// Moves bytes from `from` to `to` until one of them blocks.
    fn pump(&mut self, core: &mut Core, from: &mut End, to: &Io) -> Progress {
        match self.pending.flush(to, &mut core.buffers) {
            Ok(true) => {}
            Ok(false) => return Progress::Waits,
            Err(_) => return Progress::Broken,
        }
        for _ in 0..READS_PER_TURN {
            if let Some(pipe) = &mut self.pipe {
                match pipe.drain(to.descriptor()) {
                    Ok(true) => {}
                    Ok(false) => return Progress::Waits,
                    Err(_) => return Progress::Broken,
                }
            }
            if self.has_ended {
                if !self.is_shut {
                    to.shutdown_write();
                    self.is_shut = true;
                }
                return Progress::Waits;
            }
            if !from.readable {
                return Progress::Waits;
            }
            if let Some(pipe) = &mut self.pipe {
                match pipe.fill(from.io.descriptor()) {
                    Ok(Received::Data(n)) => self.bytes += n as u64,
                    Ok(Received::Blocked) => from.readable = false,
                    Ok(Received::Eof) => self.has_ended = true,
                    Err(_) => return Progress::Broken,
                }
                continue;
            }
            match from.io.receive(&mut core.scratch[..READ_MAX]) {
                Ok(Received::Data(n)) => {
                    let is_full = n == READ_MAX;
                    from.readable = is_full || from.read_closed;
                    self.bytes += n as u64;
                    match self.pending.send(to, &core.scratch[..n], &mut core.buffers) {
                        Ok(true) => {}
                        Ok(false) => return Progress::Waits,
                        Err(_) => return Progress::Broken,
                    }
                    self.full_reads = if is_full { self.full_reads + 1 } else { 0 };
                    if self.full_reads >= SPLICE_AFTER_READS {
                        // Without a pipe (too many files are open) copying goes on.
                        self.pipe = Pipe::new().ok();
                        self.full_reads = 0;
                    }
                }
                Ok(Received::Blocked) => from.readable = false,
                Ok(Received::Eof) => self.has_ended = true,
                Err(_) => return Progress::Broken,
            }
        }
        Progress::Again
    }
}
