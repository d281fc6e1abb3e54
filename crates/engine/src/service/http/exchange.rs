//! One request and its response: placed on a node, tried again elsewhere, ended.

use std::io::ErrorKind;
use std::time::Duration;

use evener_model::{Job, NodeId, Outcome, Time};
use evener_protocol::http1::{self, Method, RequestEdits, Version};
use evener_scheduler::PickError;

use super::body::Body;
use super::client::http_spec;
use super::log::Entry;
use super::reply::Reply;
use super::{Http, NONE, route};
use crate::core::Core;
use crate::io;
use crate::pool::Waiting;
use crate::snapshot::Service;
use crate::token::{Kind, Token};

/// Nodes that one job is tried on at the most.
const TRIED_MAX: usize = 8;
/// A request that is longer is not kept for another try.
const REPLAY_MAX: usize = 64 * 1024;

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(super) client: u32,
    pub(super) listener: u32,
    pub(super) pool: u32,
    /// Where a slot is reserved. Taken when it is released: that happens once.
    node: Option<NodeId>,
    /// The node tried last, for the log.
    last_node: Option<NodeId>,
    pub(super) link: u32,
    /// The head as the node gets it, and what of the body came with it. Kept until the end: for
    /// another try, and for the log.
    pub(super) request: Vec<u8>,
    head_length: u32,
    pub(super) method: Method,
    pub(super) client_version: Version,
    pub(super) client_keep_alive: bool,
    pub(super) upgrades: bool,
    /// What of the request is still to come from the client.
    pub(super) request_body: Body,
    pub(super) body_length: u64,
    /// Body bytes that are not in `request` have been passed on: there is no other try.
    pub(super) streamed: bool,
    /// The client sends no body before the node has asked for it (`Expect: 100-continue`).
    pub(super) awaits_continue: bool,
    /// Something of the response has been sent to the client.
    pub(super) has_answered: bool,
    pub(super) response_body: Body,
    pub(super) decodes_chunks: bool,
    /// The next try opens a connection: an idle one was found dead.
    wants_new_link: bool,
    pub(super) status: u16,
    pub(super) bytes_out: u64,
    key: u64,
    pub(super) started: Time,
    picked: Time,
    pub(super) latency: Option<Duration>,
    retries: u8,
    tried_length: u8,
    tried: [NodeId; TRIED_MAX],
}

impl Exchange {
    /// Whether sending the request once more can do no harm, and all that a node got of it is still here.
    fn is_repeatable(&self) -> bool {
        self.method.is_idempotent() && !self.streamed && self.request.len() <= REPLAY_MAX
    }

    /// The first byte of the response has come.
    pub(super) fn note_latency(&mut self, now: Time) {
        self.latency = Some(now.since(self.picked));
    }

    fn tried(&self) -> &[NodeId] {
        &self.tried[..usize::from(self.tried_length)]
    }
}

impl Http {
    /// A client's head is complete: `bytes` is what has come, `self.request` what it says.
    pub(super) fn begin(&mut self, core: &mut Core, client_index: usize, bytes: &[u8]) {
        let now = core.now();
        let client = &mut self.clients[client_index];
        client.requests += 1;
        let listener = &core.listeners[client.listener as usize];
        let stats = listener.stats(core.worker);
        stats.jobs.add(1);
        let http = http_spec(core, client.listener);
        let request = &self.request;
        let mut body = Body::new(request.framing);
        let limit = http.limits.body_bytes_max;
        if let Body::Length(length) = body
            && limit > 0
            && length > limit
        {
            return self.refuse(core, client_index, Reply::BODY_TOO_LARGE);
        }
        let Some(pool_index) = route::pool(listener, http, request, bytes) else {
            if !body.is_done() || request.method == Method::Head {
                return self.refuse(core, client_index, Reply::NO_ROUTE);
            }
            let (head, rest) = bytes.split_at(request.head_len as usize);
            client.must_close |= !request.keep_alive || core.draining;
            client.input = core.buffers.take();
            client.input.extend_from_slice(rest);
            return self.reply(core, client_index, Reply::NO_ROUTE, head);
        };
        let is_last_request = http.limits.requests_max > 0 && client.requests >= http.limits.requests_max;
        client.has_unread |= is_last_request && self.request.keep_alive;
        let client_ip = client.peer.ip();
        let is_tagged = http.headers.request_id.is_some();
        let id = if is_tagged { core.random.id() } else { [0; 32] };
        let mut buffer = core.buffers.take();
        let http = http_spec(core, client.listener);
        let request_id = http.headers.request_id.as_deref().map(|name| (name, &id[..]));
        let edits = RequestEdits {
            client: client.peer.text(),
            scheme: "http",
            trusted: !http.trusted.is_empty() && http.trusted.iter().any(|block| block.contains(client_ip)),
            x_forwarded_for: http.headers.x_forwarded_for,
            x_forwarded_proto: http.headers.x_forwarded_proto,
            x_forwarded_host: http.headers.x_forwarded_host,
            forwarded: http.headers.forwarded,
            via: http.headers.via.as_deref(),
            request_id,
        };
        http1::forward_request(request, bytes, &edits, &mut buffer);
        let head_length = buffer.len() as u32;

        let rest = &bytes[request.head_len as usize..];
        let Ok(part) = body.take(rest) else {
            core.listeners[client.listener as usize].stats(core.worker).refused.add(1);
            core.buffers.put(buffer);
            return self.refuse(core, client_index, Reply::BAD_BODY);
        };
        buffer.extend_from_slice(&rest[..part.length]);
        if limit > 0 && part.length as u64 > limit {
            core.buffers.put(buffer);
            return self.refuse(core, client_index, Reply::BODY_TOO_LARGE);
        }
        if rest.len() > part.length {
            // The next request: it waits until this one is answered.
            client.input = core.buffers.take();
            client.input.extend_from_slice(&rest[part.length..]);
        }
        let pool = &mut core.pools[pool_index];
        pool.budget.count_job(now);
        let key = if pool.spec.scheduler.hashes() {
            match pool.spec.scheduler.policy {
                evener_scheduler::Policy::SourceHash => route::source_key(client_ip),
                _ => route::key(&pool.spec.hash_key, request, bytes, client_ip),
            }
        } else {
            0
        };
        let awaits_continue = request.expect_continue && part.length == 0 && !body.is_done();
        let exchange = Exchange {
            client: client_index as u32,
            listener: client.listener,
            pool: pool_index as u32,
            node: None,
            last_node: None,
            link: NONE,
            request: buffer,
            head_length,
            method: request.method,
            client_version: request.version,
            client_keep_alive: request.keep_alive && !is_last_request,
            upgrades: request.upgrade.is_some(),
            request_body: body,
            body_length: part.length as u64,
            streamed: false,
            awaits_continue,
            has_answered: false,
            response_body: Body::Done,
            decodes_chunks: false,
            wants_new_link: false,
            status: 0,
            bytes_out: 0,
            key,
            started: now,
            picked: now,
            latency: None,
            retries: 0,
            tried_length: 0,
            tried: [NodeId(0); TRIED_MAX],
        };
        let is_complete = exchange.request_body.is_done();
        let index = self.exchanges.insert(exchange);
        client.exchange = index as u32;
        if is_complete && client.read_closed {
            return self.leave_if_unanswered(core, client_index);
        }
        if is_complete {
            core.timers.clear(Token::new(Kind::HttpClient, client_index));
        } else {
            self.arm_body(core, client_index);
        }
        self.place(core, index);
    }

    /// Picks a node and sends the request there, or lets it wait for one.
    pub(super) fn place(&mut self, core: &mut Core, index: usize) {
        let picked = self.pick(core, index);
        self.follow(core, index, picked);
    }

    fn pick(&mut self, core: &mut Core, index: usize) -> Result<NodeId, PickError> {
        let now = core.now();
        let exchange = &mut self.exchanges[index];
        let Core { pools, excluded, .. } = core;
        let pool = &mut pools[exchange.pool as usize];
        let client = &self.clients[exchange.client as usize];
        pool.excluded(client.peer.ip(), || client.peer.reached(&client.io), excluded);
        let is_here = |(on, _): &(u32, NodeId)| *on == exchange.pool;
        let current = match pool.spec.scheduler.current_bonus_percent {
            0 => None,
            _ => client.placed_on.filter(is_here).map(|(_, node)| node),
        };
        let job = Job { key: exchange.key, avoid: exchange.tried(), excluded, current };
        let picked = pool.scheduler.pick(now, &job);
        if let Ok(node) = picked {
            pool.node(node).stats(core.worker).picks.add(1);
        }
        picked
    }

    /// Does what the scheduler said.
    fn follow(&mut self, core: &mut Core, index: usize, picked: Result<NodeId, PickError>) {
        let now = core.now();
        let exchange = &mut self.exchanges[index];
        let pool = &mut core.pools[exchange.pool as usize];
        match picked {
            Ok(node) => {
                exchange.node = Some(node);
                exchange.last_node = Some(node);
                exchange.picked = now;
                self.clients[exchange.client as usize].placed_on = Some((exchange.pool, node));
                self.connect(core, index, node);
            }
            Err(PickError::Full) => {
                let waiting =
                    Waiting { token: Token::new(Kind::HttpClient, exchange.client as usize), since: now };
                let was_empty = pool.queue.is_empty();
                if !pool.enqueue(core.worker, waiting) {
                    return self.answer(core, index, Reply::QUEUE_FULL);
                }
                if was_empty {
                    let timeout = pool.spec.queue_timeout;
                    core.set_timer(Token::new(Kind::Pool, exchange.pool as usize), timeout);
                }
            }
            Err(error) => {
                pool.stats(core.worker).no_node.add(1);
                let is_excluded = error == PickError::Excluded;
                self.answer(core, index, if is_excluded { Reply::NOT_WANTED } else { Reply::NO_NODE });
            }
        }
    }

    /// A waiting client's turn: tries to place its request once more. Says whether it is placed.
    pub(crate) fn place_waiting(&mut self, core: &mut Core, client: usize) -> bool {
        let index = self.clients[client].exchange as usize;
        let picked = self.pick(core, index);
        let is_placed = picked.is_ok();
        if is_placed {
            self.follow(core, index, picked);
        }
        is_placed
    }

    /// A client has waited too long for a node.
    pub(crate) fn queue_timeout(&mut self, core: &mut Core, client: usize) {
        let index = self.clients[client].exchange as usize;
        core.pools[self.exchanges[index].pool as usize].stats(core.worker).queue_timeouts.add(1);
        self.answer(core, index, Reply::QUEUE_TIMEOUT);
    }

    /// Sends the request over an idle link to `node`, or over a new one.
    fn connect(&mut self, core: &mut Core, index: usize, node: NodeId) {
        let pool_index = self.exchanges[index].pool as usize;
        loop {
            let exchange = &mut self.exchanges[index];
            if exchange.wants_new_link {
                break;
            }
            let pool = &mut core.pools[pool_index];
            // Since a reload it may be that what is idle lacks the header of its client.
            let is_shared = pool.spec.send_proxy.is_none();
            let pool_node = pool.node(node);
            let Some(link_index) = pool_node.idle.pop() else { break };
            let stats = pool_node.stats(core.worker);
            stats.idle.sub(1);
            let link = &mut self.links[link_index as usize];
            // A request that must not be sent twice does not go to where it may get lost.
            let is_usable = is_shared && (exchange.is_repeatable() || link.io.is_quiet());
            if is_usable && link.reuse(index as u32, &exchange.request, &mut core.buffers).is_ok() {
                stats.reused.add(1);
                stats.bytes_out.add(exchange.request.len() as u64);
                exchange.link = link_index;
                if !exchange.request_body.is_done() {
                    let client = exchange.client as usize;
                    self.arm_body(core, client);
                    // More of the body may have come meanwhile. Not from here: the scratch buffer may be in use.
                    core.again.push(Token::new(Kind::HttpClient, client));
                }
                self.arm_link(core, link_index as usize);
                return;
            }
            link.exchange = NONE;
            self.close_link(core, link_index as usize);
        }
        match self.open_link(core, pool_index, node, index as u32) {
            Ok(link) => self.exchanges[index].link = link,
            Err(error) => {
                tracing::debug!(node = %node, %error, "connect");
                if io::is_want(&error) {
                    core.pools[pool_index].stats(core.worker).no_node.add(1);
                    return self.answer(core, index, Reply::NO_DESCRIPTOR);
                }
                let outcome = if io::is_out_of_ports(&error) { Outcome::Cancelled } else { Outcome::Refused };
                self.node_failed(core, index, outcome, true);
            }
        }
    }

    /// The exchange's node has failed before it answered. Tries another node if that is safe and
    /// allowed, else answers in the node's stead.
    ///
    /// `nothing_sent`: the node cannot have seen anything of the request.
    pub(super) fn node_failed(
        &mut self,
        core: &mut Core,
        index: usize,
        outcome: Outcome,
        nothing_sent: bool,
    ) {
        self.note_tried(index);
        self.release(core, index, outcome);
        let exchange = &mut self.exchanges[index];
        exchange.link = NONE;
        exchange.wants_new_link = false;
        if !exchange.has_answered
            && (nothing_sent || exchange.is_repeatable())
            && let Some(picked) = self.pick_another(core, index, true)
        {
            return self.follow(core, index, picked);
        }
        let reply = if outcome == Outcome::Timeout { Reply::NODE_TIMEOUT } else { Reply::NODE_FAILED };
        self.answer(core, index, reply);
    }

    /// Picks another node if one more try is allowed and within the budget. `may_wait`: for the
    /// answer that all nodes are full, too.
    fn pick_another(
        &mut self,
        core: &mut Core,
        index: usize,
        may_wait: bool,
    ) -> Option<Result<NodeId, PickError>> {
        let now = core.now();
        let exchange = &self.exchanges[index];
        let pool_index = exchange.pool as usize;
        let retry = core.pools[pool_index].spec.retry;
        if exchange.retries >= retry.attempts_max {
            return None;
        }
        let picked = self.pick(core, index);
        let exchange = &mut self.exchanges[index];
        let is_another = match picked {
            // Where all have been tried, the scheduler names one of them.
            Ok(node) => !exchange.tried().contains(&node),
            Err(PickError::Full) => may_wait,
            Err(_) => false,
        };
        let pool = &mut core.pools[pool_index];
        if is_another && pool.budget.take(now, &retry) {
            pool.stats(core.worker).retries.add(1);
            exchange.retries += 1;
            return Some(picked);
        }
        if is_another {
            pool.stats(core.worker).retries_denied.add(1);
        }
        if let Ok(node) = picked {
            core.finish_job(pool_index, node, Outcome::Cancelled, None);
        }
        None
    }

    /// The exchange's node is not to be tried again.
    fn note_tried(&mut self, index: usize) {
        let exchange = &mut self.exchanges[index];
        if let Some(node) = exchange.node
            && usize::from(exchange.tried_length) < TRIED_MAX
        {
            exchange.tried[usize::from(exchange.tried_length)] = node;
            exchange.tried_length += 1;
        }
    }

    /// The node of a link answers that it cannot serve: takes the request to another one if that is
    /// wanted, allowed and there is one. Else the answer stands.
    pub(super) fn retry_status(&mut self, core: &mut Core, link: usize, status: u16) -> bool {
        let index = self.links[link].exchange as usize;
        let exchange = &self.exchanges[index];
        let is_wanted = core.pools[exchange.pool as usize].spec.retry.on_unavailable;
        if !is_wanted || !matches!(status, 502..=504) || !exchange.is_repeatable() {
            return false;
        }
        self.note_tried(index);
        let Some(picked) = self.pick_another(core, index, false) else { return false };
        self.close_link(core, link);
        self.release(core, index, Outcome::Error);
        let exchange = &mut self.exchanges[index];
        exchange.link = NONE;
        exchange.wants_new_link = false;
        self.follow(core, index, picked);
        true
    }

    /// An idle link turned out to be dead when it was used. That is nobody's fault: once more,
    /// over a new connection, if sending the request again can do no harm.
    pub(super) fn link_was_stale(&mut self, core: &mut Core, index: usize) {
        let exchange = &mut self.exchanges[index];
        if !exchange.is_repeatable() || exchange.wants_new_link {
            return self.node_failed(core, index, Outcome::Reset, false);
        }
        exchange.link = NONE;
        exchange.wants_new_link = true;
        match exchange.node {
            Some(node) => self.connect(core, index, node),
            None => self.place(core, index),
        }
    }

    /// Gives the reserved slot back.
    pub(super) fn release(&mut self, core: &mut Core, index: usize, outcome: Outcome) {
        let exchange = &mut self.exchanges[index];
        if let Some(node) = exchange.node.take() {
            core.finish_job(exchange.pool as usize, node, outcome, exchange.latency);
        }
    }

    /// Answers in the place of a node, and ends the exchange.
    pub(super) fn answer(&mut self, core: &mut Core, index: usize, reply: Reply) {
        self.release(core, index, Outcome::Cancelled);
        let exchange = &mut self.exchanges[index];
        let client_index = exchange.client as usize;
        if exchange.has_answered {
            // Too late for words: cut the answer off, so that it cannot pass for a whole one.
            self.clients[client_index].io.reset_on_close();
            self.end(core, index, reply.reason);
            return self.close_client(core, client_index);
        }
        let keep_alive = exchange.client_keep_alive && exchange.request_body.is_done() && !core.draining;
        exchange.status = reply.status;
        let mut out = core.buffers.take();
        let head_only = exchange.method == Method::Head;
        let wanted_more = exchange.client_keep_alive;
        exchange.bytes_out = reply.write(exchange.client_version, keep_alive, head_only, &mut out) as u64;
        self.end(core, index, reply.reason);
        self.clients[client_index].must_close |= !keep_alive;
        self.clients[client_index].has_unread |= !keep_alive && wanted_more;
        let sent = self.send_to_client(core, client_index, &out);
        core.buffers.put(out);
        match sent {
            Ok(_) => self.next_request(core, client_index),
            Err(_) => self.close_client(core, client_index),
        }
    }

    /// The client is gone: what the node does for it is not wanted any more.
    pub(super) fn cancel(&mut self, core: &mut Core, index: usize) {
        let exchange = &mut self.exchanges[index];
        let link = std::mem::replace(&mut exchange.link, NONE);
        if exchange.node.is_none() {
            let token = Token::new(Kind::HttpClient, exchange.client as usize);
            core.pools[exchange.pool as usize].forget(core.worker, token);
        }
        if exchange.status == 0 {
            // As nginx logs a client that closed its request.
            exchange.status = 499;
        }
        self.release(core, index, Outcome::Cancelled);
        if link != NONE {
            self.links[link as usize].exchange = NONE;
            self.close_link(core, link as usize);
        }
        self.end(core, index, "client closed");
    }

    /// A request whose body cannot be passed on ends here.
    pub(super) fn refuse_body(&mut self, core: &mut Core, index: usize, reply: Reply) {
        let exchange = &mut self.exchanges[index];
        let link = std::mem::replace(&mut exchange.link, NONE);
        if link != NONE {
            self.links[link as usize].exchange = NONE;
            self.close_link(core, link as usize);
        } else if exchange.node.is_none() {
            let token = Token::new(Kind::HttpClient, exchange.client as usize);
            core.pools[exchange.pool as usize].forget(core.worker, token);
        }
        self.answer(core, index, reply);
    }

    /// Ends an exchange whose slot is released: counts and logs it.
    pub(super) fn end(&mut self, core: &mut Core, index: usize, failure: &str) {
        let exchange = self.exchanges.remove(index);
        debug_assert!(exchange.node.is_none(), "a slot is released before its exchange ends");
        let client = &mut self.clients[exchange.client as usize];
        client.exchange = NONE;
        if !exchange.request_body.is_done() {
            client.must_close = true;
            client.has_unread = true;
        }
        finish(core, &exchange, &client.peer, failure);
        core.buffers.put(exchange.request);
    }

    /// Takes an exchange that became a tunnel out, with its slot still reserved.
    pub(super) fn take_exchange(&mut self, index: usize) -> Exchange {
        self.exchanges.remove(index)
    }
}

impl Exchange {
    /// The node that executes the job, for whoever takes the exchange over.
    pub(crate) fn take_slot(&mut self) -> Option<(usize, NodeId, Option<Duration>)> {
        self.node.take().map(|node| (self.pool as usize, node, self.latency))
    }

    pub(crate) fn pool(&self) -> usize {
        self.pool as usize
    }

    pub(crate) fn listener(&self) -> usize {
        self.listener as usize
    }

    pub(crate) fn add_bytes_out(&mut self, bytes: u64) {
        self.bytes_out += bytes;
    }
}

/// Counts and logs an exchange that has ended.
pub(crate) fn finish(core: &mut Core, exchange: &Exchange, peer: &super::client::Peer, failure: &str) {
    let Core { listeners, pools, clock, log, timers, worker, .. } = core;
    let now = clock.now();
    let listener = &listeners[exchange.listener as usize];
    let stats = listener.stats(*worker);
    if let Some(class) = stats.responses.get((exchange.status / 100).wrapping_sub(1) as usize) {
        class.add(1);
    }
    stats.duration.record(now.since(exchange.started));
    let Service::Http(http) = &listener.spec.service else { return };
    let Some(format) = http.access_log else { return };
    let pool = &pools[exchange.pool as usize];
    let entry = Entry {
        client: peer.text(),
        head: &exchange.request[..exchange.head_length as usize],
        protocol: match exchange.client_version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
        },
        status: exchange.status,
        bytes_out: exchange.bytes_out,
        started: exchange.started,
        now,
        listener: &listener.spec.name,
        pool: &pool.spec.name,
        node: exchange.last_node.map_or("", |node| pool.node_name(node)),
        latency: exchange.latency,
        retries: exchange.retries,
        failure,
        request_id: http.headers.request_id.as_deref(),
    };
    Core::log_line(log, timers, now, *worker, |line| entry.write(format, clock, line));
}

/// Whether an error says that nobody listens at the node's address.
pub(crate) fn connect_outcome(error: Option<&std::io::Error>) -> Outcome {
    match error.map(std::io::Error::kind) {
        Some(ErrorKind::TimedOut) => Outcome::Timeout,
        Some(ErrorKind::ConnectionReset) => Outcome::Reset,
        _ => Outcome::Refused,
    }
}
