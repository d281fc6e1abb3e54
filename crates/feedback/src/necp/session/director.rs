//! The director's side: one connection of one agent.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use evener_model::Time;

use super::exceptions::Exceptions;
use super::link::Link;
use super::pulse::{Pulse, Rhythm};
use super::{Reason, Values};
use crate::necp::frame::{self, Flags, Frame, Malformed, Opcode, Unit, Units};
use crate::necp::key::Key;
use crate::necp::unit::{Exception, Forwarding, Port, Query, QueryType, Service};
use crate::rng::Rng;

/// Services of an agent at the most. All of them are asked about in one message.
const SERVICES_MAX: usize = 64;
/// After so many keep-alives a question that an agent could not answer is asked again, and its health, which
/// an agent may just not know yet.
const RETRY_AFTER: u32 = 12;
const RETRY_HEALTH_AFTER: u32 = 3;

/// Which services agents may start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// Any.
    All,
    /// Those of these ports.
    Only(Vec<Port>),
}

/// How a director treats an agent.
#[derive(Clone, Debug)]
pub struct DirectorSettings {
    /// Keys of which the agent must have one; none: agents are not authenticated.
    pub keys: Vec<Key>,
    /// Which services it may start.
    pub accepts: Accepts,
    /// What it is asked of each service. What it cannot answer is left out.
    pub queries: Vec<QueryType>,
    /// How often it is asked.
    pub rhythm: Rhythm,
    /// How long it may take to begin.
    pub open_timeout: Duration,
}

impl Default for DirectorSettings {
    fn default() -> DirectorSettings {
        DirectorSettings {
            keys: Vec::new(),
            accepts: Accepts::All,
            queries: vec![
                QueryType::HEALTH,
                QueryType::JOBS,
                QueryType::QUEUE,
                QueryType::CPU_LOAD,
                QueryType::NETWORK_LOAD,
            ],
            rhythm: Rhythm::default(),
            open_timeout: Duration::from_secs(10),
        }
    }
}

/// What a connection has to say to the director.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectorEvent {
    /// The agent began, perhaps anew: all that was known from it is void, also from other connections of
    /// the same agent, which are to be ended. Its services are stopped until it starts them.
    Opened,
    /// The service may get jobs.
    Started(Service),
    /// The service gets no new jobs.
    Stopped(Port),
    /// What the agent said of a started service.
    Reported {
        /// The service.
        port: Port,
        /// What it said.
        values: Values,
        /// When it was asked: it was measured no earlier, if agents measure when they are asked.
        asked_at: Time,
    },
    /// The connection is over: send what is left to send, and close it. All services are stopped. Nothing follows.
    Ended(Reason),
}

/// The director's side of a connection.
#[derive(Debug)]
pub struct Director {
    settings: DirectorSettings,
    agent: IpAddr,
    link: Link,
    state: State,
    /// The place of the agent's key.
    key: Option<usize>,
    services: BTreeMap<Port, Served>,
    pulse: Pulse,
    keepalives: u32,
    /// Since when there is a service of which nothing has been asked.
    unasked: Option<Time>,
    nonce: u64,
    rng: Rng,
    events: VecDeque<DirectorEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Until then the agent has time to begin.
    Opening(Time),
    /// It began, but that may be a recording.
    Proving,
    Open,
    Ended,
}

#[derive(Debug)]
struct Served {
    forwarding: Forwarding,
    /// What the agent cannot answer of it.
    unknown: Vec<QueryType>,
}

impl Director {
    /// A connection that an agent at that address has just opened. `seed` is for jitter; `nonce` must be unpredictable
    /// if there are keys: the agent's sequence numbers begin there.
    pub fn new(settings: DirectorSettings, agent: IpAddr, now: Time, seed: u64, nonce: u64) -> Director {
        Director {
            pulse: Pulse::new(settings.rhythm, now),
            state: State::Opening(now + settings.open_timeout),
            settings,
            agent,
            link: Link::default(),
            key: None,
            services: BTreeMap::new(),
            keepalives: 0,
            unasked: None,
            nonce,
            rng: Rng::new(seed),
            events: VecDeque::new(),
        }
    }

    /// Takes bytes from the agent. What it asks about exceptions is done to `exceptions`, which all connections
    /// of a director share.
    pub fn received(&mut self, now: Time, bytes: &[u8], exceptions: &mut Exceptions) {
        let input = self.link.gather(bytes);
        let mut consumed = 0;
        while self.state != State::Ended {
            match Frame::parse(&input[consumed..]) {
                Ok(Some(frame)) => {
                    consumed += frame.len();
                    self.frame(now, &frame, exceptions);
                }
                Ok(None) => break,
                Err(fault) => self.end(Reason::Fault(fault)),
            }
            if self.link.is_exhausted() {
                self.end(Reason::BadMessages);
            } else if self.link.is_choked() {
                self.end(Reason::Unread);
            }
        }
        self.link.keep(input, consumed);
    }

    /// The agent closed the connection, or it broke.
    pub fn closed(&mut self) {
        self.end(Reason::Closed);
    }

    /// Ends the connection.
    pub fn end(&mut self, reason: Reason) {
        if self.state != State::Ended {
            self.state = State::Ended;
            self.services.clear();
            self.events.push_back(DirectorEvent::Ended(reason));
        }
    }

    /// Asks the agent at once, unless it has still to answer.
    pub fn ask(&mut self, now: Time) {
        if matches!(self.state, State::Open) && !self.pulse.is_waiting() {
            self.keepalive(now);
        }
    }

    /// Asks in another rhythm from the next time on.
    pub fn change_rhythm(&mut self, rhythm: Rhythm) {
        self.pulse.change(rhythm);
    }

    /// When to call [`Director::timeout`].
    pub fn deadline(&self) -> Option<Time> {
        match self.state {
            State::Opening(until) => Some(until),
            // Not before the last question is answered: a peer must not seem dead for being asked often.
            State::Open if !self.pulse.is_waiting() => {
                Some(self.unasked.unwrap_or(self.pulse.due).min(self.pulse.due))
            }
            State::Proving | State::Open => Some(self.pulse.due),
            State::Ended => None,
        }
    }

    /// The deadline has come, or may have.
    pub fn timeout(&mut self, now: Time) {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state {
            State::Opening(_) => self.end(Reason::NotOpened),
            _ if self.pulse.is_dead() => self.end(Reason::Silent),
            _ => self.keepalive(now),
        }
    }

    /// Bytes for the agent, to be written and removed.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.link.output
    }

    /// What happened, oldest first.
    pub fn poll(&mut self) -> Option<DirectorEvent> {
        self.events.pop_front()
    }

    /// Which of [`DirectorSettings::keys`] the agent has; `None`: it has not begun, or there are no keys.
    pub fn key(&self) -> Option<usize> {
        self.key
    }

    /// Messages of the agent that could not be acted upon.
    pub fn bad_messages(&self) -> u32 {
        self.link.bad_messages()
    }

    fn frame(&mut self, now: Time, frame: &Frame<'_>, exceptions: &mut Exceptions) {
        if let State::Opening(_) = self.state {
            return self.open(now, frame, exceptions);
        }
        let Some((opcode, units)) = self.link.admit(frame) else { return };
        let bad = self.link.bad_messages();
        if self.state == State::Proving {
            // The number that was asked for has come back: this is no recording.
            self.opened(exceptions);
        }
        let id = frame.header.request_id;
        match opcode {
            Opcode::Noop => {}
            Opcode::Init if self.settings.keys.is_empty() => self.open(now, frame, exceptions),
            Opcode::Keepalive => {
                // Of a director nothing can be asked: only whether it is there.
                let flags = if units.count() > 0 { Flags::ERROR } else { Flags::NONE };
                self.link.answer(Opcode::KeepaliveAck, id, flags, units);
                // Both in one packet, and the agent's answer is one more: half of what two exchanges take.
                if self.state == State::Open && self.pulse.may_join(now) {
                    self.keepalive(now);
                    self.pulse.joined(&mut self.rng);
                }
            }
            Opcode::KeepaliveAck => self.answered(now, id, frame.header.flags, units),
            Opcode::Start => {
                self.all_or_failed(Opcode::StartAck, id, units, |director, unit| director.start(now, unit))
            }
            Opcode::Stop => {
                self.all_or_failed(Opcode::StopAck, id, units, |director, unit| director.stop(unit))
            }
            Opcode::ExceptionAdd => {
                self.all_or_failed(Opcode::ExceptionAddAck, id, units, |director, unit| {
                    let exception = Exception::from_unit(unit);
                    exception.is_some_and(|exception| exceptions.add(now, director.agent, exception))
                });
            }
            Opcode::ExceptionDel => {
                self.all_or_failed(Opcode::ExceptionDelAck, id, units, |director, unit| {
                    let exception = Exception::from_unit(unit);
                    exception.is_some_and(|exception| {
                        exceptions.delete(director.agent, &exception);
                        true
                    })
                });
            }
            Opcode::ExceptionReset => {
                exceptions.reset(self.agent);
                self.link.answer(Opcode::ExceptionResetAck, id, Flags::NONE, []);
            }
            Opcode::ExceptionQuery => self.query(now, id, units, exceptions),
            _ => self.link.refuse(frame, Flags::NONE),
        }
        self.link.count_good(bad);
    }

    /// The first message: INIT, or the connection ends.
    fn open(&mut self, now: Time, frame: &Frame<'_>, exceptions: &mut Exceptions) {
        let (opcode, mut units) = match frame.message() {
            Ok(message) => message,
            Err(Malformed::Version) => {
                self.link.count_bad();
                return frame::write_version_mismatch(&mut self.link.output, &frame.header, None);
            }
            Err(_) => return self.end(Reason::NotOpened),
        };
        let unit = match opcode {
            Opcode::Noop => return,
            Opcode::Init if !frame.header.flags.has(Flags::ERROR) => units.next(),
            _ => return self.end(Reason::NotOpened),
        };
        let Some(Unit([asked, high, low, ..])) = unit else { return self.end(Reason::NotOpened) };
        let authenticated = asked & 1 == 1;
        self.key = self.settings.keys.iter().position(|key| frame.is_signed_by(key));
        let key = self.key.map(|place| &self.settings.keys[place]);
        if authenticated != key.is_some() || key.is_none() != self.settings.keys.is_empty() {
            self.link.refuse(frame, Flags::AUTH_REQUIRED);
            return self.end(Reason::Unauthenticated);
        }
        let id = frame.header.request_id;
        self.pulse = Pulse::new(self.settings.rhythm, now);
        let Some(key) = key else {
            self.link.answer(Opcode::InitAck, id, Flags::NONE, [Unit::default()]);
            return self.opened(exceptions);
        };
        let wanted = self.nonce;
        let next = u64::from(high) << 32 | u64::from(low);
        self.link.authenticate(key.clone(), next, wanted.wrapping_sub(1));
        let unit = Unit([(wanted >> 32) as u32, wanted as u32, 0, 0, 0, 0, 0, 0]);
        self.link.answer(Opcode::InitAck, id, Flags::NONE, [unit]);
        self.state = State::Proving;
    }

    fn opened(&mut self, exceptions: &mut Exceptions) {
        self.state = State::Open;
        self.services.clear();
        exceptions.reset(self.agent);
        self.events.push_back(DirectorEvent::Opened);
    }

    /// Does `act` to each unit and answers: with an error and copies of those that failed, if any did.
    fn all_or_failed(
        &mut self,
        answer: Opcode,
        id: u16,
        units: Units<'_>,
        mut act: impl FnMut(&mut Director, Unit) -> bool,
    ) {
        let mut failed = Vec::new();
        for unit in units {
            if !act(self, unit) {
                failed.push(unit);
            }
        }
        let flags = if failed.is_empty() { Flags::NONE } else { Flags::ERROR };
        self.link.answer(answer, id, flags, failed);
    }

    fn start(&mut self, now: Time, unit: Unit) -> bool {
        let Some(service) = Service::from_unit(unit) else { return false };
        let Service { forwarding, port } = service;
        let accepted = match &self.settings.accepts {
            Accepts::All => true,
            Accepts::Only(ports) => ports.contains(&port),
        };
        let known = self.services.get(&port).map(|served| served.forwarding);
        if !accepted || known.is_none() && self.services.len() >= SERVICES_MAX {
            return false;
        }
        if known != Some(forwarding) {
            self.services.insert(port, Served { forwarding, unknown: Vec::new() });
            self.unasked.get_or_insert(now);
            self.events.push_back(DirectorEvent::Started(service));
        }
        true
    }

    /// A service that is not started is stopped: an agent that did not hear so may say it again.
    fn stop(&mut self, unit: Unit) -> bool {
        let Some(Service { port, .. }) = Service::from_unit(unit) else { return false };
        if self.services.remove(&port).is_some() {
            self.events.push_back(DirectorEvent::Stopped(port));
        }
        true
    }

    fn query(&mut self, now: Time, id: u16, units: Units<'_>, exceptions: &Exceptions) {
        let mut wanted = Vec::new();
        for unit in units {
            let Some(exception) = Exception::from_unit(unit) else {
                return self.link.answer(Opcode::ExceptionResp, id, Flags::ERROR, [unit]);
            };
            wanted.push(exception);
        }
        let found = wanted.iter().flat_map(|wanted| exceptions.query(now, *wanted));
        let found = found.map(|(exception, by)| exception.installed_unit(by));
        self.link.answer(Opcode::ExceptionResp, id, Flags::NONE, found);
    }

    fn keepalive(&mut self, now: Time) {
        self.unasked = None;
        self.keepalives = self.keepalives.wrapping_add(1);
        if self.keepalives.is_multiple_of(RETRY_AFTER) {
            self.services.values_mut().for_each(|served| served.unknown.clear());
        } else if self.keepalives.is_multiple_of(RETRY_HEALTH_AFTER) {
            let health = |kind: &QueryType| *kind == QueryType::HEALTH;
            self.services.values_mut().for_each(|served| served.unknown.retain(|kind| !health(kind)));
        }
        let (services, kinds) = (&self.services, &self.settings.queries);
        let queries = services.iter().flat_map(|(&port, served)| {
            let known = kinds.iter().filter(|kind| !served.unknown.contains(kind));
            known.map(move |&kind| Query { kind, port }.unit())
        });
        let id = self.link.request(Opcode::Keepalive, queries);
        self.pulse.sent(now, id, &mut self.rng);
    }

    fn answered(&mut self, now: Time, id: u16, flags: Flags, units: Units<'_>) {
        if flags.is_rejection() {
            // Not understood is not answered: if it lasts, the connection has to begin anew.
            self.link.count_bad();
            return;
        }
        // An answer to nothing, or a late one: a later keep-alive was answered already.
        let Some(asked_at) = self.pulse.answered(id) else { return };
        if flags.has(Flags::ERROR) {
            return self.unsupported(now, units);
        }
        let mut reports: BTreeMap<Port, Values> = BTreeMap::new();
        for unit in units {
            let Some(query) = Query::from_unit(unit) else { continue };
            if self.services.contains_key(&query.port) && self.settings.queries.contains(&query.kind) {
                reports.entry(query.port).or_default().set(query.kind, unit.0[3]);
            }
        }
        for (port, values) in reports {
            self.events.push_back(DirectorEvent::Reported { port, values, asked_at });
        }
    }

    /// Asks again at once without what the agent does not support.
    fn unsupported(&mut self, now: Time, units: Units<'_>) {
        let (mut learnt, says_what) = (false, units.count() > 0);
        for query in units.filter_map(Query::from_unit) {
            let Some(served) = self.services.get_mut(&query.port) else { continue };
            if self.settings.queries.contains(&query.kind) && !served.unknown.contains(&query.kind) {
                served.unknown.push(query.kind);
                learnt = true;
            }
        }
        if !says_what {
            // The health index is what every agent must know.
            for served in self.services.values_mut() {
                let all = self.settings.queries.iter().filter(|&&kind| kind != QueryType::HEALTH);
                let unknown: Vec<_> = all.copied().collect();
                learnt |= served.unknown.len() < unknown.len();
                served.unknown = unknown;
            }
        }
        if learnt {
            self.keepalive(now);
        }
    }
}
