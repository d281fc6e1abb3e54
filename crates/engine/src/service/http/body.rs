//! How far a body has come, and the body of a request on its way to the node.

use evener_model::Outcome;
use evener_protocol::http1::{Chunks, Fault, Framing, Parts};

use super::client::http_spec;
use super::reply::Reply;
use super::{Http, NONE};
use crate::core::{Core, READ_MAX, READS_PER_TURN};
use crate::io::Received;
use crate::token::{Kind, Token};

/// How much of a body is still to come.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body {
    Done,
    Length(u64),
    Chunked(Chunks),
    UntilClose,
}

/// The next part of a body.
#[derive(Debug)]
pub(super) struct BodyPart {
    /// Bytes that belong to the body.
    pub(super) length: usize,
    /// Whether the body is complete with them.
    pub(super) is_last: bool,
}

/// The next part of a response's body.
#[derive(Debug)]
pub(super) struct ResponsePart {
    /// Bytes that belong to the body, before a trailer that is looked into.
    pub(super) length: usize,
    /// Bytes after them that are the whole trailer, if it is looked into and all there.
    pub(super) trailer: usize,
    /// Whether the body is complete with them. If not, what is left of the input is the beginning of a trailer.
    pub(super) is_last: bool,
}

impl Body {
    pub(super) fn new(framing: Framing) -> Body {
        match framing {
            Framing::None | Framing::Length(0) => Body::Done,
            Framing::Length(length) => Body::Length(length),
            Framing::Chunked => Body::Chunked(Chunks::new()),
            Framing::UntilClose => Body::UntilClose,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self, Body::Done)
    }

    /// Takes what of `bytes` belongs to the body.
    ///
    /// # Errors
    /// If a chunked body is malformed.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<BodyPart, Fault> {
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

    /// Takes what of `bytes` belongs to a response's body. `decoded` gets the data of chunks, if it is there;
    /// `to_trailer`: a trailer is taken by itself, in one piece.
    ///
    /// # Errors
    /// If a chunked body is malformed.
    pub(super) fn take_response(
        &mut self,
        bytes: &[u8],
        decoded: Option<&mut Vec<u8>>,
        to_trailer: bool,
    ) -> Result<ResponsePart, Fault> {
        let part = match (&mut *self, decoded, to_trailer) {
            (Body::Chunked(chunks), None, true) => ResponsePart::of(chunks.scan_to_trailer(bytes)?),
            (Body::Chunked(chunks), Some(data), true) => {
                ResponsePart::of(chunks.decode_to_trailer(bytes, data)?)
            }
            (Body::Chunked(chunks), Some(data), false) => {
                let scan = chunks.decode(bytes, data)?;
                ResponsePart { length: scan.consumed, trailer: 0, is_last: scan.done }
            }
            (body, ..) => {
                let BodyPart { length, is_last } = body.take(bytes)?;
                ResponsePart { length, trailer: 0, is_last }
            }
        };
        if part.is_last {
            *self = Body::Done;
        }
        Ok(part)
    }
}

impl ResponsePart {
    fn of(parts: Parts) -> ResponsePart {
        let trailer = parts.trailer.unwrap_or(0);
        ResponsePart { length: parts.consumed, trailer, is_last: parts.trailer.is_some() }
    }
}

impl Http {
    /// A request's body made no progress for too long: because of the client, or of the node.
    pub(super) fn body_timeout(&mut self, core: &mut Core, client_index: usize) {
        let index = self.clients[client_index].exchange as usize;
        let exchange = &self.exchanges[index];
        let link = exchange.link;
        if link == NONE || self.links[link as usize].is_connecting || exchange.awaits_continue {
            // Nobody asks the client for its body yet, and waiting for a node has a time of its own.
            return self.arm_body(core, client_index);
        }
        if !self.links[link as usize].output.is_empty() {
            return self.link_failed(core, link as usize, Outcome::Timeout);
        }
        let listener = &core.listeners[self.clients[client_index].listener as usize];
        listener.stats(core.worker).client_timeouts.add(1);
        self.refuse_body(core, index, Reply::HEAD_TIMEOUT);
    }

    /// Gives the client time for the next part of its body.
    pub(super) fn arm_body(&mut self, core: &mut Core, client_index: usize) {
        let timeout = http_spec(core, self.clients[client_index].listener).timeouts.body;
        core.set_timer(Token::new(Kind::HttpClient, client_index), timeout);
    }

    /// The node takes more of a body now. Until now it was not for the client to go on.
    pub(super) fn go_on_with_body(&mut self, core: &mut Core, client_index: usize) {
        let exchange = &self.exchanges[self.clients[client_index].exchange as usize];
        if !exchange.request_body.is_done() {
            self.arm_body(core, client_index);
            self.pump_request(core, client_index);
        }
    }

    /// Passes the request's body on to the node as it comes.
    pub(super) fn pump_request(&mut self, core: &mut Core, client_index: usize) {
        let index = self.clients[client_index].exchange as usize;
        let mut scratch = std::mem::take(&mut core.scratch);
        self.pump_request_with(core, client_index, index, &mut scratch);
        core.scratch = scratch;
    }

    fn pump_request_with(&mut self, core: &mut Core, client_index: usize, index: usize, scratch: &mut [u8]) {
        for _ in 0..READS_PER_TURN {
            let client = &mut self.clients[client_index];
            let exchange = &mut self.exchanges[index];
            if !client.readable || exchange.request_body.is_done() || exchange.link == NONE {
                return;
            }
            let link = &mut self.links[exchange.link as usize];
            if link.is_connecting || !link.output.is_empty() {
                return;
            }
            let n = match client.io.receive(&mut scratch[..READ_MAX]) {
                Ok(Received::Data(n)) => n,
                Ok(Received::Blocked) => {
                    client.readable = false;
                    return;
                }
                Ok(Received::Eof) | Err(_) => return self.abort_client(core, client_index),
            };
            client.readable = n == READ_MAX || client.read_closed;
            let http = http_spec(core, client.listener);
            let (limit, timeout) = (http.limits.body_bytes_max, http.timeouts.body);
            core.listeners[client.listener as usize].stats(core.worker).bytes_in.add(n as u64);
            let Ok(part) = exchange.request_body.take(&scratch[..n]) else {
                core.listeners[client.listener as usize].stats(core.worker).refused.add(1);
                return self.refuse_body(core, index, Reply::BAD_BODY);
            };
            exchange.body_length += part.length as u64;
            if limit > 0 && exchange.body_length > limit {
                return self.refuse_body(core, index, Reply::BODY_TOO_LARGE);
            }
            if part.length < n {
                client.input = core.buffers.take();
                client.input.extend_from_slice(&scratch[part.length..n]);
            }
            exchange.streamed = true;
            exchange.awaits_continue = false;
            let node = core.pools[link.pool as usize].node(link.node);
            node.stats(core.worker).bytes_out.add(part.length as u64);
            let link_index = exchange.link as usize;
            if link.output.send(&link.io, &scratch[..part.length], &mut core.buffers).is_err() {
                // The node may have answered before it closed: its response is read first.
                link.readable = true;
                link.read_closed = true;
                self.exchanges[index].request_body = Body::Done;
                self.clients[client_index].must_close = true;
                self.clients[client_index].has_unread = true;
                core.again.push(Token::new(Kind::HttpNode, link_index));
                return;
            }
            let token = Token::new(Kind::HttpClient, client_index);
            if part.is_last {
                core.timers.clear(token);
                if client.read_closed {
                    return self.leave_if_unanswered(core, client_index);
                }
            } else {
                core.set_timer(token, timeout);
            }
            self.arm_link(core, link_index);
        }
        core.again.push(Token::new(Kind::HttpClient, client_index));
    }
}
