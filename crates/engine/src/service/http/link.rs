//! The node side: connections to nodes, and the responses that come over them.

use std::io;

use evener_model::{NodeId, Outcome};
use evener_protocol::http1::{self, Framing, Limits, ResponseEdits, Version};
use evener_protocol::proxy_protocol;

use super::body::Body;
use super::client::http_spec;
use super::exchange::connect_outcome;
use super::{Http, NONE, Readiness, orca};
use crate::core::{Core, HEADROOM, READ_MAX, READS_PER_TURN};
use crate::io::{Buffers, Io, Pending, Received};
use crate::service::tcp::Tunnel;
use crate::snapshot::{Orca, ProxyVersion};
use crate::token::{Kind, Token};

/// Heads of responses may be so large, whatever is asked of clients: an operator who expects short
/// requests expects no short answers.
const HEAD_LIMITS: Limits = Limits { head_bytes_max: 64 * 1024, headers_max: 1000 };

/// Bytes of a trailer without fields.
const EMPTY_TRAILER: usize = 2;

/// A connection to a node.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) io: Io,
    /// What the node has not taken yet.
    pub(super) output: Pending,
    /// A response's head or trailer that is not complete.
    input: Vec<u8>,
    pub(super) pool: u32,
    pub(super) node: NodeId,
    pub(super) exchange: u32,
    pub(super) is_connecting: bool,
    /// Has carried an exchange before.
    is_reused: bool,
    /// Something of the present response has come.
    has_answered: bool,
    is_closed: bool,
    pub(super) readable: bool,
    pub(super) read_closed: bool,
    /// Whether the node keeps the connection after the present response.
    keep_alive: bool,
    /// The header that it begins with, which says whose the connection is: no other client may use it.
    proxy: Option<ProxyVersion>,
}

impl Link {
    /// Gives an idle link the next exchange, and sends its request.
    ///
    /// # Errors
    /// If the node has closed the connection: it has seen nothing of the request.
    pub(super) fn reuse(&mut self, exchange: u32, request: &[u8], buffers: &mut Buffers) -> io::Result<()> {
        self.exchange = exchange;
        self.is_reused = true;
        self.has_answered = false;
        self.output.send(&self.io, request, buffers).map(|_| ())
    }
}

impl Http {
    /// Begins to connect to `node` for an exchange, and returns the link.
    pub(super) fn open_link(
        &mut self,
        core: &mut Core,
        pool_index: usize,
        node: NodeId,
        exchange: u32,
    ) -> io::Result<u32> {
        let entry = self.links.vacant_entry();
        let index = entry.key();
        let token = Token::new(Kind::HttpNode, index);
        let pool = &mut core.pools[pool_index];
        let timeout = pool.spec.timeouts.connect;
        let proxy = pool.spec.send_proxy;
        let pool_node = pool.node(node);
        let io = Io::connect(pool_node.spec.address, &core.registry, token)?;
        let stats = pool_node.stats(core.worker);
        stats.connects.add(1);
        stats.connections.add(1);
        entry.insert(Link {
            io,
            output: Pending::default(),
            input: Vec::new(),
            pool: pool_index as u32,
            node,
            exchange,
            is_connecting: true,
            is_reused: false,
            has_answered: false,
            is_closed: false,
            readable: false,
            read_closed: false,
            keep_alive: true,
            proxy,
        });
        core.set_timer(token, timeout);
        Ok(index as u32)
    }

    /// Something happened on a connection to a node.
    #[inline]
    pub(crate) fn link_ready(&mut self, core: &mut Core, index: usize, ready: Readiness) {
        let link = &mut self.links[index];
        if link.is_closed {
            return;
        }
        link.readable |= ready.readable;
        link.read_closed |= ready.read_closed;
        if link.exchange == NONE {
            // An idle node has nothing to say but good-bye.
            if ready.readable || ready.read_closed || ready.failed {
                self.drop_idle(core, index);
            }
            return;
        }
        if link.is_connecting {
            if ready.failed {
                let error = link.io.take_error();
                return self.link_failed(core, index, connect_outcome(error.as_ref()));
            }
            if ready.writable {
                self.connected(core, index);
            }
            return;
        }
        if ready.writable && !link.output.is_empty() {
            match link.output.flush(&link.io, &mut core.buffers) {
                Ok(true) => {
                    let client = self.exchanges[link.exchange as usize].client;
                    self.go_on_with_body(core, client as usize);
                }
                Ok(false) => {}
                // Whatever the node said before it closed is read below.
                Err(_) => link.output.discard(&mut core.buffers),
            }
        }
        let link = &mut self.links[index];
        if ready.failed {
            // A reset may have overtaken a response that is still to be read.
            link.readable = true;
        }
        if link.exchange != NONE && link.readable {
            self.read_link(core, index);
        }
    }

    fn connected(&mut self, core: &mut Core, index: usize) {
        let link = &mut self.links[index];
        link.is_connecting = false;
        let exchange_index = link.exchange as usize;
        let exchange = &self.exchanges[exchange_index];
        let client_index = exchange.client as usize;
        let pool = &mut core.pools[link.pool as usize];
        if let Some(version) = link.proxy {
            let client = &self.clients[client_index];
            let destination = client.peer.reached(&client.io);
            let mut header = core.buffers.take();
            if let Some(destination) = destination {
                match version {
                    ProxyVersion::V1 => {
                        proxy_protocol::write_v1(&mut header, client.peer.address, destination)
                    }
                    ProxyVersion::V2 => {
                        proxy_protocol::write_v2(&mut header, client.peer.address, destination)
                    }
                }
            }
            header.extend_from_slice(&exchange.request);
            let sent = link.output.send(&link.io, &header, &mut core.buffers);
            core.buffers.put(header);
            if sent.is_err() {
                return self.link_failed(core, index, Outcome::Reset);
            }
        } else if link.output.send(&link.io, &exchange.request, &mut core.buffers).is_err() {
            return self.link_failed(core, index, Outcome::Reset);
        }
        let sent = exchange.request.len() as u64;
        pool.node(link.node).stats(core.worker).bytes_out.add(sent);
        self.arm_link(core, index);
        self.go_on_with_body(core, client_index);
    }

    /// Gives the node as long as its pool allows for what comes next.
    pub(super) fn arm_link(&mut self, core: &mut Core, index: usize) {
        let link = &self.links[index];
        if link.is_closed || link.exchange == NONE {
            return;
        }
        let timeouts = core.pools[link.pool as usize].spec.timeouts;
        let timeout = if link.is_connecting {
            timeouts.connect
        } else if self.exchanges[link.exchange as usize].has_answered {
            timeouts.body
        } else {
            timeouts.response
        };
        core.set_timer(Token::new(Kind::HttpNode, index), timeout);
    }

    /// Goes on with a link whose turn had ended.
    pub(crate) fn advance_link(&mut self, core: &mut Core, index: usize) {
        if self.links.get(index).is_some_and(|link| !link.is_closed && link.exchange != NONE) {
            self.read_link(core, index);
        }
    }

    /// Reads what the node answers and passes it on.
    pub(super) fn read_link(&mut self, core: &mut Core, index: usize) {
        let mut scratch = std::mem::take(&mut core.scratch);
        for turn in 0..=READS_PER_TURN {
            let link = &mut self.links[index];
            if link.is_closed || link.exchange == NONE || !link.readable {
                break;
            }
            let client = self.exchanges[link.exchange as usize].client as usize;
            if !self.clients[client].output.is_empty() {
                // The client is slow: the node waits, and that is not the node's fault.
                core.timers.clear(Token::new(Kind::HttpNode, index));
                self.wait_for_client(core, client);
                break;
            }
            if turn == READS_PER_TURN {
                core.again.push(Token::new(Kind::HttpNode, index));
                break;
            }
            let kept = link.input.len();
            if kept > 0 {
                scratch[HEADROOM..HEADROOM + kept].copy_from_slice(&link.input);
                link.input.clear();
            }
            let received = link.io.receive(&mut scratch[HEADROOM + kept..HEADROOM + READ_MAX]);
            match received {
                Ok(Received::Data(n)) => {
                    link.readable = n == READ_MAX - kept || link.read_closed;
                    core.pools[link.pool as usize].node(link.node).stats(core.worker).bytes_in.add(n as u64);
                    self.response_bytes(core, index, &mut scratch, HEADROOM + kept + n);
                }
                Ok(Received::Blocked) => {
                    link.readable = false;
                    link.input.extend_from_slice(&scratch[HEADROOM..HEADROOM + kept]);
                }
                Ok(Received::Eof) => self.link_ended(core, index),
                Err(_) => self.link_failed(core, index, Outcome::Reset),
            }
        }
        core.scratch = scratch;
    }

    /// Bytes of a response lie in `scratch[HEADROOM..end]`.
    #[inline]
    fn response_bytes(&mut self, core: &mut Core, index: usize, scratch: &mut [u8], end: usize) {
        let mut start = HEADROOM;
        loop {
            let link = &mut self.links[index];
            let exchange_index = link.exchange as usize;
            let exchange = &mut self.exchanges[exchange_index];
            if exchange.has_answered {
                return self.body_bytes(core, index, scratch, (start, start), end);
            }
            if !link.has_answered {
                link.has_answered = true;
                exchange.note_latency(core.now());
            }
            match self.response.parse(&scratch[start..end], &HEAD_LIMITS, exchange.method) {
                Ok(true) => {}
                Ok(false) => {
                    link.input.extend_from_slice(&scratch[start..end]);
                    return;
                }
                Err(fault) => {
                    tracing::debug!(node = %link.node, %fault, "response");
                    return self.link_failed(core, index, Outcome::Reset);
                }
            }
            let head_end = start + self.response.head_len as usize;
            match self.response.status {
                101 => {
                    if exchange.upgrades {
                        return self.become_tunnel(core, index, &scratch[start..end]);
                    }
                    return self.link_failed(core, index, Outcome::Reset);
                }
                status @ 100..=199 => {
                    if status == 100 && std::mem::take(&mut exchange.awaits_continue) {
                        // From here the client has its own time.
                        let client = exchange.client as usize;
                        self.arm_body(core, client);
                    }
                    if !self.pass_interim(core, index, &scratch[start..head_end]) {
                        return;
                    }
                    start = head_end;
                    if start == end {
                        return;
                    }
                }
                _ => return self.final_head(core, index, scratch, start, head_end, end),
            }
        }
    }

    /// Passes a 1xx response on to clients that understand it. Says whether the client is still there.
    fn pass_interim(&mut self, core: &mut Core, index: usize, head: &[u8]) -> bool {
        let exchange = &self.exchanges[self.links[index].exchange as usize];
        if exchange.client_version == Version::Http10 {
            return true;
        }
        let client = exchange.client as usize;
        let edits = ResponseEdits {
            version: Version::Http11,
            keep_alive: true,
            client_keep_alive_header: false,
            via: None,
            decode_chunked: false,
            drop_load_metrics: core.pools[self.links[index].pool as usize].spec.orca == Orca::Use,
            request_id: None,
        };
        self.head.clear();
        http1::forward_response(&self.response, head, &edits, &mut self.head);
        let rewritten = std::mem::take(&mut self.head);
        let sent = self.send_to_client(core, client, &rewritten);
        self.head = rewritten;
        if sent.is_err() {
            self.abort_client(core, client);
        }
        sent.is_ok()
    }

    /// The head of the response that counts is complete: it goes on to the client, with what of the
    /// body came with it.
    fn final_head(
        &mut self,
        core: &mut Core,
        index: usize,
        scratch: &mut [u8],
        start: usize,
        head_end: usize,
        end: usize,
    ) {
        let exchange_index = self.links[index].exchange as usize;
        let status = self.response.status;
        // What it says counts most where it says that it cannot serve.
        if self.response.has_load_metrics() {
            let link = &self.links[index];
            let fields = self.response.load_metrics(&scratch[start..head_end]);
            orca::hear(core, (link.pool, link.node), fields);
        }
        if self.retry_status(core, index, status) {
            return;
        }
        let response = &self.response;
        let link = &mut self.links[index];
        link.keep_alive = response.keep_alive;
        let exchange = &mut self.exchanges[exchange_index];
        let client = &mut self.clients[exchange.client as usize];
        exchange.status = status;
        exchange.has_answered = true;
        exchange.response_body = Body::new(response.framing);
        exchange.decodes_chunks =
            response.framing == Framing::Chunked && exchange.client_version == Version::Http10;
        let listener = &core.listeners[exchange.listener as usize];
        // Answered early: nobody may read what the client would still send.
        let keep_alive = exchange.client_keep_alive
            && exchange.request_body.is_done()
            && !core.draining
            && !listener.is_removed
            && !client.must_close
            && !exchange.decodes_chunks
            && response.framing != Framing::UntilClose;
        client.must_close |= !keep_alive;
        // Who wanted to go on may have sent the next request already.
        client.has_unread |= !keep_alive && exchange.client_keep_alive;
        let http = http_spec(core, exchange.listener);
        let edits = ResponseEdits {
            version: exchange.client_version,
            keep_alive,
            client_keep_alive_header: exchange.client_version == Version::Http10,
            via: http.headers.via.as_deref(),
            // The answer to HEAD, too, tells of no chunks that such a client does not know.
            decode_chunked: exchange.client_version == Version::Http10,
            drop_load_metrics: core.pools[link.pool as usize].spec.orca == Orca::Use,
            request_id: None,
        };
        self.head.clear();
        http1::forward_response(response, &scratch[start..head_end], &edits, &mut self.head);
        // The new head goes right before the body, so that one write sends both.
        let new_start = head_end.checked_sub(self.head.len());
        if let Some(new_start) = new_start
            && !exchange.decodes_chunks
        {
            scratch[new_start..head_end].copy_from_slice(&self.head);
            return self.body_bytes(core, index, scratch, (new_start, head_end), end);
        }
        let client_index = exchange.client as usize;
        let head = std::mem::take(&mut self.head);
        let sent = self.send_to_client(core, client_index, &head);
        self.head = head;
        match sent {
            Ok(_) => self.body_bytes(core, index, scratch, (head_end, head_end), end),
            Err(_) => self.abort_client(core, client_index),
        }
    }

    /// Passes on `scratch[from..end]`: of that, the part before `body` is a head, the rest is body
    /// (and what does not belong there).
    #[inline]
    fn body_bytes(
        &mut self,
        core: &mut Core,
        index: usize,
        scratch: &mut [u8],
        (from, body): (usize, usize),
        end: usize,
    ) {
        let link = &mut self.links[index];
        let exchange_index = link.exchange as usize;
        let exchange = &mut self.exchanges[exchange_index];
        let client_index = exchange.client as usize;
        let orca = core.pools[link.pool as usize].spec.orca;
        self.head.clear();
        let decoded = exchange.decodes_chunks.then_some(&mut self.head);
        let taken = exchange.response_body.take_response(&scratch[body..end], decoded, orca != Orca::Off);
        let Ok(part) = taken else {
            // As long as the head is still here, this can be another node's answer, or a plain 502.
            exchange.has_answered &= from == body;
            return self.link_failed(core, index, Outcome::Reset);
        };
        let chunks_end = body + part.length;
        let mut sent_end = chunks_end + part.trailer;
        let is_clean = sent_end == end;
        if part.trailer > EMPTY_TRAILER {
            let trailer = &mut scratch[chunks_end..sent_end];
            sent_end = chunks_end + orca::hear_trailer(core, (link.pool, link.node), trailer);
        } else if !part.is_last {
            // The beginning of a trailer waits here for the rest.
            link.input.extend_from_slice(&scratch[chunks_end..end]);
        }
        let sent = if exchange.decodes_chunks {
            exchange.bytes_out += self.head.len() as u64;
            let data = std::mem::take(&mut self.head);
            let sent = self.send_to_client(core, client_index, &data);
            self.head = data;
            sent
        } else if from < sent_end {
            exchange.bytes_out += (sent_end - body) as u64;
            self.send_to_client(core, client_index, &scratch[from..sent_end])
        } else {
            Ok(true)
        };
        if sent.is_err() {
            return self.abort_client(core, client_index);
        }
        if part.is_last {
            self.response_complete(core, index, is_clean);
        } else {
            self.arm_link(core, index);
        }
    }

    /// The response is complete: the node is free again, whether or not the client has it all yet.
    fn response_complete(&mut self, core: &mut Core, index: usize, is_clean: bool) {
        let link = &mut self.links[index];
        let exchange_index = link.exchange as usize;
        link.exchange = NONE;
        let exchange = &mut self.exchanges[exchange_index];
        exchange.link = NONE;
        let client_index = exchange.client as usize;
        // A node that answered before it had the whole request cannot be used again.
        let keeps = is_clean
            && link.keep_alive
            && exchange.request_body.is_done()
            && link.output.is_empty()
            && !link.read_closed
            && (!link.readable || link.io.is_quiet());
        let outcome = if exchange.status >= 500 { Outcome::Error } else { Outcome::Success };
        if keeps {
            self.park(core, index)
        } else {
            self.close_link(core, index)
        }
        self.release(core, exchange_index, outcome);
        self.end(core, exchange_index, "");
        self.next_request(core, client_index);
    }

    /// Keeps a link for later exchanges.
    fn park(&mut self, core: &mut Core, index: usize) {
        let link = &mut self.links[index];
        let pool = &mut core.pools[link.pool as usize];
        let (idle_max, idle_timeout) = (pool.spec.idle_connections_max, pool.spec.timeouts.idle);
        // Without a header it was opened for everybody, with one for a single client.
        let is_shared = link.proxy.is_none() && pool.spec.send_proxy.is_none();
        let is_wanted = is_shared && !core.draining && !pool.is_removed;
        let node = pool.node(link.node);
        if !is_wanted || !node.keeps(idle_max) {
            return self.close_link(core, index);
        }
        node.idle.push(index as u32);
        node.stats(core.worker).idle.add(1);
        // A head that came in pieces has grown it.
        core.buffers.put(std::mem::take(&mut link.input));
        core.set_timer(Token::new(Kind::HttpNode, index), idle_timeout);
    }

    fn drop_idle(&mut self, core: &mut Core, index: usize) {
        let link = &self.links[index];
        let node = core.pools[link.pool as usize].node(link.node);
        if let Some(place) = node.idle.iter().rposition(|&idle| idle as usize == index) {
            // Order matters: the last one used is the next one used.
            node.idle.remove(place);
            node.stats(core.worker).idle.sub(1);
        }
        self.close_link(core, index);
    }

    /// The node will send nothing more.
    fn link_ended(&mut self, core: &mut Core, index: usize) {
        let exchange_index = self.links[index].exchange as usize;
        let exchange = &mut self.exchanges[exchange_index];
        if exchange.has_answered && matches!(exchange.response_body, Body::UntilClose) {
            exchange.response_body = Body::Done;
            self.links[index].keep_alive = false;
            return self.response_complete(core, index, true);
        }
        self.link_failed(core, index, Outcome::Reset);
    }

    /// The connection to the node broke, or the node broke the protocol.
    pub(super) fn link_failed(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        let link = &mut self.links[index];
        let exchange_index = link.exchange as usize;
        let was_connecting = link.is_connecting;
        let was_stale = link.is_reused && !link.has_answered && outcome == Outcome::Reset;
        link.exchange = NONE;
        self.close_link(core, index);
        if was_stale {
            self.link_was_stale(core, exchange_index);
        } else {
            self.node_failed(core, exchange_index, outcome, was_connecting);
        }
    }

    /// A node's time is up.
    pub(crate) fn link_timeout(&mut self, core: &mut Core, index: usize) {
        let Some(link) = self.links.get(index) else { return };
        if link.is_closed {
            return;
        }
        if link.exchange == NONE {
            return self.drop_idle(core, index);
        }
        let exchange = &self.exchanges[link.exchange as usize];
        let waits_for_client = !exchange.request_body.is_done() && !exchange.awaits_continue;
        if !link.is_connecting && !exchange.has_answered && waits_for_client {
            // The node waits for the client's body, whose own timeout counts.
            return self.arm_link(core, index);
        }
        self.link_failed(core, index, Outcome::Timeout);
    }

    /// Closes a link that has no exchange and is in no idle list.
    pub(super) fn close_link(&mut self, core: &mut Core, index: usize) {
        let link = &mut self.links[index];
        if link.is_closed {
            return;
        }
        link.is_closed = true;
        link.exchange = NONE;
        link.output.discard(&mut core.buffers);
        core.buffers.put(std::mem::take(&mut link.input));
        core.timers.clear(Token::new(Kind::HttpNode, index));
        core.pools[link.pool as usize].node(link.node).stats(core.worker).connections.sub(1);
        link.io.close();
        self.closed_links.push(index as u32);
    }

    /// The node agreed to speak another protocol: from here on bytes pass both ways untouched.
    fn become_tunnel(&mut self, core: &mut Core, index: usize, bytes: &[u8]) {
        let exchange_index = self.links[index].exchange as usize;
        let exchange = &mut self.exchanges[exchange_index];
        exchange.status = 101;
        let client_index = exchange.client as usize;
        let http = http_spec(core, exchange.listener);
        let idle_timeout = http.timeouts.tunnel;
        let edits = ResponseEdits {
            version: Version::Http11,
            keep_alive: true,
            client_keep_alive_header: false,
            via: http.headers.via.as_deref(),
            decode_chunked: false,
            drop_load_metrics: core.pools[self.links[index].pool as usize].spec.orca == Orca::Use,
            request_id: None,
        };
        let head_length = self.response.head_len as usize;
        self.head.clear();
        http1::forward_response(&self.response, &bytes[..head_length], &edits, &mut self.head);
        self.head.extend_from_slice(&bytes[head_length..]);
        let client = &mut self.clients[client_index];
        client.output.keep(&self.head, &mut core.buffers);
        let link = &mut self.links[index];
        link.output.keep(&client.input, &mut core.buffers);
        let tunnel = Tunnel {
            client: client.io.take(),
            node: link.io.take(),
            to_client: std::mem::take(&mut client.output),
            to_node: std::mem::take(&mut link.output),
            exchange: self.take_exchange(exchange_index),
            peer: self.clients[client_index].peer.clone(),
            idle_timeout,
        };
        self.clients[client_index].exchange = NONE;
        self.links[index].exchange = NONE;
        // The relay counts as one of the listener's connections from now on.
        let listener = &mut core.listeners[tunnel.exchange.listener()];
        listener.open += 1;
        listener.stats(core.worker).open.add(1);
        self.tunnels.push(tunnel);
        self.close_link(core, index);
        self.close_client(core, client_index);
    }
}
