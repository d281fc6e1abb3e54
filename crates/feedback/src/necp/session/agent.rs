//! The agent's side: one director, connected again and again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use evener_model::Time;

use super::Reason;
use super::backoff::Backoff;
use super::link::Link;
use super::pulse::{Pulse, Rhythm};
use crate::necp::frame::{Flags, Frame, Malformed, Opcode, Unit, Units};
use crate::necp::key::Key;
use crate::necp::unit::{Exception, Flows, Forwarding, Port, Query, Scope, Service};
use crate::rng::Rng;

/// Requests that may wait for their answers; beyond, the director does not do its work.
const REQUESTS_MAX: usize = 64;

/// How an agent treats its director.
#[derive(Clone, Debug)]
pub struct AgentSettings {
    /// The key; `None`: the connection is not authenticated.
    pub key: Option<Key>,
    /// How often keep-alives are sent.
    pub rhythm: Rhythm,
    /// How long to wait before connecting again.
    pub backoff: Backoff,
    /// How long connecting may take, and then the answer to INIT.
    pub open_timeout: Duration,
    /// How long the last words may take.
    pub stop_timeout: Duration,
}

impl Default for AgentSettings {
    fn default() -> AgentSettings {
        AgentSettings {
            key: None,
            rhythm: Rhythm::default(),
            backoff: Backoff::default(),
            open_timeout: Duration::from_secs(10),
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// What an agent's session has to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AgentEvent {
    /// Open a connection to the director, then call [`Agent::connected`], or [`Agent::closed`] if that fails.
    Connect,
    /// The director knows us; what is wanted has been asked for.
    Opened,
    /// The director does not take the service.
    Refused(Service),
    /// The director does not take the exception.
    ExceptionRefused(Exception),
    /// What [`Agent::query_exceptions`] found: units as the director sent them.
    Exceptions(Vec<Unit>),
    /// The connection is over: send what is left to send, and close it. The session will ask to connect again.
    Closed(Reason),
    /// The session is over, as was asked. Nothing follows.
    Ended,
}

/// The agent's side of its connections to a director.
#[derive(Debug)]
pub struct Agent {
    settings: AgentSettings,
    link: Link,
    state: State,
    services: BTreeMap<Port, Forwarding>,
    exceptions: Vec<(Exception, Option<Time>)>,
    /// What has not been answered.
    requests: Vec<Request>,
    pulse: Pulse,
    failures: u32,
    /// The sequence number that the director's first message is to have.
    wanted: u64,
    rng: Rng,
    events: VecDeque<AgentEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before connecting again.
    Waiting(Time),
    Connecting(Time),
    /// INIT of that id has been sent.
    Opening(Time, u16),
    Open,
    /// STOP has been sent for everything.
    Stopping(Time),
    Ended,
}

#[derive(Clone, Debug)]
struct Request {
    id: u16,
    opcode: Opcode,
    units: Vec<Unit>,
    sent_at: Time,
}

impl Agent {
    /// Services and exceptions at the most, each.
    pub const WANTED_MAX: usize = 64;

    /// A session that connects at once. `seed` is for jitter.
    pub fn new(settings: AgentSettings, now: Time, seed: u64) -> Agent {
        Agent {
            pulse: Pulse::new(settings.rhythm, now),
            settings,
            link: Link::default(),
            state: State::Waiting(now),
            services: BTreeMap::new(),
            exceptions: Vec::new(),
            requests: Vec::new(),
            failures: 0,
            wanted: 0,
            rng: Rng::new(seed),
            events: VecDeque::new(),
        }
    }

    /// The connection is open. `nonce` must be unpredictable if there is a key: the director's sequence numbers begin there.
    pub fn connected(&mut self, now: Time, nonce: u64) {
        if !matches!(self.state, State::Connecting(_)) {
            return;
        }
        self.link = Link::default();
        self.wanted = nonce;
        let unit = match &self.settings.key {
            None => Unit::default(),
            Some(key) => {
                // INIT itself has the number 0. What comes before its answer has none that would fit.
                self.link.authenticate(key.clone(), 0, nonce.wrapping_sub(1));
                Unit([1, (nonce >> 32) as u32, nonce as u32, 0, 0, 0, 0, 0])
            }
        };
        let id = self.link.request(Opcode::Init, [unit]);
        self.state = State::Opening(now + self.settings.open_timeout, id);
    }

    /// Connecting failed, the director closed the connection, or it broke.
    pub fn closed(&mut self, now: Time) {
        match self.state {
            State::Connecting(_) => self.close(now, Reason::Unreachable),
            State::Opening(..) | State::Open | State::Stopping(_) => self.close(now, Reason::Closed),
            State::Waiting(_) | State::Ended => {}
        }
    }

    /// Takes bytes from the director. What it asks is answered from `values`; `None`: not supported, or not known now.
    pub fn received(&mut self, now: Time, bytes: &[u8], values: &mut dyn FnMut(Query) -> Option<u32>) {
        let input = self.link.gather(bytes);
        let mut consumed = 0;
        while matches!(self.state, State::Opening(..) | State::Open | State::Stopping(_)) {
            match Frame::parse(&input[consumed..]) {
                Ok(Some(frame)) => {
                    consumed += frame.len();
                    self.frame(now, &frame, values);
                }
                Ok(None) => break,
                Err(fault) => self.close(now, Reason::Fault(fault)),
            }
            if self.link.is_exhausted() {
                self.close(now, Reason::BadMessages);
            } else if self.link.is_choked() {
                self.close(now, Reason::Unread);
            }
        }
        self.link.keep(input, consumed);
    }

    /// Offers a service, now and after each new connection. Says whether there is room for it.
    pub fn start(&mut self, now: Time, service: Service) -> bool {
        let Service { forwarding, port } = service;
        if self.services.len() >= Agent::WANTED_MAX && !self.services.contains_key(&port) {
            return false;
        }
        self.services.insert(port, forwarding);
        self.forget(port);
        self.ask(now, Opcode::Start, vec![service.unit()]);
        true
    }

    /// Takes a service back: it gets no new jobs.
    pub fn stop(&mut self, now: Time, port: Port) {
        if let Some(forwarding) = self.services.remove(&port) {
            self.forget(port);
            self.ask(now, Opcode::Stop, vec![Service { forwarding, port }.unit()]);
        }
    }

    /// Asks to be spared flows, now and after each new connection, until the time to live is over. Says
    /// whether there is room.
    pub fn except(&mut self, now: Time, exception: Exception) -> bool {
        self.exceptions.retain(|(known, expires)| {
            let same = known.flows == exception.flows && known.scope == exception.scope;
            !same && expires.is_none_or(|at| now < at)
        });
        if self.exceptions.len() >= Agent::WANTED_MAX {
            return false;
        }
        let ttl = Duration::from_secs(exception.ttl_s.into());
        self.forget_exceptions(exception.flows);
        self.exceptions.push((exception, (exception.ttl_s > 0).then(|| now + ttl)));
        self.ask(now, Opcode::ExceptionAdd, vec![exception.unit()]);
        true
    }

    /// Takes back exceptions of these flows.
    pub fn delete_exception(&mut self, now: Time, flows: Flows) {
        let before = self.exceptions.len();
        self.exceptions.retain(|(known, _)| known.flows != flows);
        if self.exceptions.len() < before {
            self.forget_exceptions(flows);
            let exception = Exception { scope: Scope::Any, ttl_s: 0, flows };
            self.ask(now, Opcode::ExceptionDel, vec![exception.unit()]);
        }
    }

    /// Takes back all exceptions.
    pub fn reset_exceptions(&mut self, now: Time) {
        self.exceptions.clear();
        self.requests.retain(|request| request.opcode != Opcode::ExceptionAdd);
        self.ask(now, Opcode::ExceptionReset, Vec::new());
    }

    /// Asks which exceptions are installed, by whomever, that are as `wanted` says where it says something.
    pub fn query_exceptions(&mut self, now: Time, wanted: Exception) {
        self.ask(now, Opcode::ExceptionQuery, vec![wanted.unit()]);
    }

    /// Stops all services, and ends when the director has heard it or the time for it is over.
    pub fn shutdown(&mut self, now: Time) {
        if self.state == State::Open && !self.services.is_empty() {
            let stop = |(port, forwarding)| Service { forwarding, port }.unit();
            let units: Vec<Unit> = std::mem::take(&mut self.services).into_iter().map(stop).collect();
            self.requests.clear();
            self.ask(now, Opcode::Stop, units);
            self.state = State::Stopping(now + self.settings.stop_timeout);
        } else if !matches!(self.state, State::Ended | State::Stopping(_)) {
            self.end();
        }
    }

    /// When to call [`Agent::timeout`].
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Waiting(until) | State::Connecting(until) | State::Opening(until, _) => Some(until),
            State::Open => Some(self.pulse.due),
            State::Stopping(until) => Some(until.min(self.pulse.due)),
            State::Ended => None,
        }
    }

    /// The deadline has come, or may have.
    pub fn timeout(&mut self, now: Time) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state {
            State::Waiting(_) => {
                self.state = State::Connecting(now + self.settings.open_timeout);
                self.events.push_back(AgentEvent::Connect);
            }
            State::Connecting(_) => self.close(now, Reason::Unreachable),
            State::Opening(..) => self.close(now, Reason::NotOpened),
            State::Stopping(until) if now >= until => self.end(),
            State::Open | State::Stopping(_) if self.pulse.is_dead() => self.close(now, Reason::Silent),
            State::Open | State::Stopping(_) => self.keepalive(now),
            State::Ended => {}
        }
    }

    /// Bytes for the director, to be written and removed.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.link.output
    }

    /// What happened, oldest first.
    pub fn poll(&mut self) -> Option<AgentEvent> {
        self.events.pop_front()
    }

    /// Whether the director knows us.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    fn frame(&mut self, now: Time, frame: &Frame<'_>, values: &mut dyn FnMut(Query) -> Option<u32>) {
        if let State::Opening(_, id) = self.state {
            return self.open(now, frame, id);
        }
        let Some((opcode, units)) = self.link.admit(frame) else { return };
        let bad = self.link.bad_messages();
        let (id, flags) = (frame.header.request_id, frame.header.flags);
        match opcode {
            Opcode::Noop => {}
            Opcode::Keepalive => self.answer(id, units, values),
            Opcode::KeepaliveAck => {
                // Not understood is not answered: if it lasts, the connection has to begin anew.
                if flags.is_rejection() {
                    self.link.count_bad();
                } else if self.pulse.answered(id).is_some() {
                    // Only a director that goes on talking ends the series of failures.
                    self.failures = 0;
                }
            }
            // It heard INIT once more, and has forgotten what we said.
            Opcode::InitAck if self.settings.key.is_none() && !flags.has(Flags::ERROR) => self.say_all(now),
            Opcode::StartAck
            | Opcode::StopAck
            | Opcode::ExceptionAddAck
            | Opcode::ExceptionDelAck
            | Opcode::ExceptionResetAck
            | Opcode::ExceptionResp => self.acknowledged(now, opcode, id, flags, units),
            _ => self.link.refuse(frame, Flags::NONE),
        }
        self.link.count_good(bad);
    }

    /// The answer to INIT.
    fn open(&mut self, now: Time, frame: &Frame<'_>, id: u16) {
        let header = frame.header;
        if header.flags.has(Flags::ERROR.with(Flags::VERSION_MISMATCH)) {
            return self.close(now, Reason::Version(header.version));
        }
        let (opcode, mut units) = match frame.message() {
            Ok(message) => message,
            Err(Malformed::Version) => return self.close(now, Reason::Version(header.version)),
            Err(_) => return self.close(now, Reason::NotOpened),
        };
        if opcode != Opcode::InitAck || header.request_id != id {
            self.link.count_bad();
            return;
        }
        // A refusal can have no credential: the director did not accept ours.
        if header.flags.has(Flags::ERROR) {
            let unauthenticated = header.flags.has(Flags::AUTH_REQUIRED);
            let reason = if unauthenticated { Reason::Unauthenticated } else { Reason::Refused };
            return self.close(now, reason);
        }
        if let Some(key) = &self.settings.key {
            let Some(Unit([high, low, ..])) = units.next() else {
                return self.close(now, Reason::NotOpened);
            };
            if !frame.is_signed_by(key) || header.seq_num != self.wanted {
                return self.close(now, Reason::Unauthenticated);
            }
            self.link.authenticate(key.clone(), u64::from(high) << 32 | u64::from(low), self.wanted);
        }
        self.state = State::Open;
        self.pulse = Pulse::new(self.settings.rhythm, now);
        self.say_all(now);
        // Also what proves to the director that INIT was no recording, if there is nothing to say.
        self.keepalive(now);
        self.events.push_back(AgentEvent::Opened);
    }

    /// Says all that is wanted: the director knows nothing.
    fn say_all(&mut self, now: Time) {
        self.requests.clear();
        let services = self.services.iter().map(|(&port, &forwarding)| Service { forwarding, port }.unit());
        let services: Vec<Unit> = services.collect();
        self.say_exceptions(now);
        if !services.is_empty() {
            self.request(now, Opcode::Start, services);
        }
    }

    fn say_exceptions(&mut self, now: Time) {
        self.exceptions.retain(|(_, expires)| expires.is_none_or(|at| now < at));
        let exceptions = self.exceptions.iter().map(|&(exception, expires)| {
            // What is left of the time to live, but not 0, which would be for ever.
            let left = expires.map_or(0, |at| at.since(now).as_secs().max(1) as u32);
            Exception { ttl_s: left, ..exception }.unit()
        });
        let exceptions: Vec<Unit> = exceptions.collect();
        if !exceptions.is_empty() {
            self.request(now, Opcode::ExceptionAdd, exceptions);
        }
    }

    fn keepalive(&mut self, now: Time) {
        self.repeat(now);
        let id = self.link.request(Opcode::Keepalive, []);
        self.pulse.sent(now, id, &mut self.rng);
    }

    fn answer(&mut self, id: u16, units: Units<'_>, values: &mut dyn FnMut(Query) -> Option<u32>) {
        let (mut answers, mut unsupported) = (Vec::new(), Vec::new());
        for unit in units {
            let query = Query::from_unit(unit).filter(|query| self.services.contains_key(&query.port));
            match query.and_then(|query| values(query).map(|value| query.answer_unit(value))) {
                Some(answer) => answers.push(answer),
                None => unsupported.push(unit),
            }
        }
        let (flags, units) = match unsupported.is_empty() {
            true => (Flags::NONE, answers),
            false => (Flags::ERROR, unsupported),
        };
        self.link.answer(Opcode::KeepaliveAck, id, flags, units);
    }

    fn acknowledged(&mut self, now: Time, opcode: Opcode, id: u16, flags: Flags, units: Units<'_>) {
        let is_answered = |request: &Request| request.id == id && request.opcode.answer() == Some(opcode);
        let Some(place) = self.requests.iter().position(is_answered) else { return };
        let request = self.requests.remove(place);
        if flags.has(Flags::ERROR.with(Flags::AUTH_REQUIRED)) {
            return self.close(now, Reason::Unauthenticated);
        }
        // Overtaken or damaged on the way: it holds still, with a new number. A refusal would say of what.
        if flags.is_rejection() || flags.has(Flags::ERROR) && units.count() == 0 {
            self.link.count_bad();
            return self.request(now, request.opcode, request.units);
        }
        match opcode {
            Opcode::ExceptionResp if !flags.has(Flags::ERROR) => {
                self.events.push_back(AgentEvent::Exceptions(units.collect()))
            }
            Opcode::StartAck if flags.has(Flags::ERROR) => {
                let refused = units.filter_map(Service::from_unit).map(AgentEvent::Refused);
                self.events.extend(refused);
            }
            Opcode::ExceptionAddAck if flags.has(Flags::ERROR) => {
                let refused = units.filter_map(Exception::from_unit).map(AgentEvent::ExceptionRefused);
                self.events.extend(refused);
            }
            // If it had to be said again, it took with it what was asked for since.
            Opcode::ExceptionResetAck => self.say_exceptions(now),
            _ => {}
        }
        if matches!(self.state, State::Stopping(_)) && self.requests.is_empty() {
            self.end();
        }
    }

    /// Sends a request if the director is there; if not, what is wanted is said when it is.
    fn ask(&mut self, now: Time, opcode: Opcode, units: Vec<Unit>) {
        if self.state == State::Open {
            self.request(now, opcode, units);
        }
    }

    fn request(&mut self, now: Time, opcode: Opcode, units: Vec<Unit>) {
        if self.requests.len() >= REQUESTS_MAX {
            return self.close(now, Reason::Silent);
        }
        let id = self.link.request(opcode, units.iter().copied());
        self.requests.push(Request { id, opcode, units, sent_at: now });
    }

    /// Says again what has not been answered: what it asks for may be said twice.
    fn repeat(&mut self, now: Time) {
        let patience = 2 * self.settings.rhythm.interval;
        let late = |request: &mut Request| now.since(request.sent_at) >= patience;
        let late: Vec<Request> = self.requests.extract_if(.., late).collect();
        for request in late {
            self.request(now, request.opcode, request.units);
        }
    }

    /// Forgets what was asked of a service: something else is now.
    fn forget(&mut self, port: Port) {
        for opcode in [Opcode::Start, Opcode::Stop] {
            self.forget_units(opcode, |unit| {
                Service::from_unit(*unit).is_some_and(|known| known.port == port)
            });
        }
    }

    /// Forgets what was asked about exceptions of these flows.
    fn forget_exceptions(&mut self, flows: Flows) {
        for opcode in [Opcode::ExceptionAdd, Opcode::ExceptionDel] {
            self.forget_units(opcode, |unit| {
                Exception::from_unit(*unit).is_some_and(|known| known.flows == flows)
            });
        }
    }

    fn forget_units(&mut self, opcode: Opcode, void: impl Fn(&Unit) -> bool) {
        for request in self.requests.iter_mut().filter(|request| request.opcode == opcode) {
            request.units.retain(|unit| !void(unit));
        }
        self.requests.retain(|request| request.opcode != opcode || !request.units.is_empty());
    }

    fn close(&mut self, now: Time, reason: Reason) {
        self.requests.clear();
        if matches!(self.state, State::Stopping(_)) {
            return self.end();
        }
        let wait = self.settings.backoff.wait(self.failures, &mut self.rng);
        self.failures = self.failures.saturating_add(1);
        self.state = State::Waiting(now + wait);
        self.events.push_back(AgentEvent::Closed(reason));
    }

    fn end(&mut self) {
        self.state = State::Ended;
        self.events.push_back(AgentEvent::Ended);
    }
}
