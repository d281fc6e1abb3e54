//! An agent and a director, and what they say to each other.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use evener_feedback::necp::session::{
    Agent, AgentEvent, AgentSettings, Director, DirectorEvent, DirectorSettings, Exceptions, Flow, Values,
};
use evener_feedback::necp::{
    Exception, Flags, Flows, Forwarding, Frame, Key, Opcode, Port, Prefix, Protocol, QueryType, Scope,
    Service, Unit, frame,
};
use evener_model::{Health, Time};

pub(crate) const AGENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
pub(crate) const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };
pub(crate) const DNS: Port = Port { protocol: Protocol::Udp, number: 53 };

pub(crate) fn service(port: Port) -> Service {
    Service { forwarding: Forwarding::Layer3, port }
}

pub(crate) fn second(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

/// An agent and a director that hear each other at once.
pub(crate) struct Pair {
    pub(crate) now: Time,
    pub(crate) agent: Agent,
    pub(crate) director: Director,
    pub(crate) exceptions: Exceptions,
    pub(crate) values: Values,
    /// What the agent does not know.
    pub(crate) unknown: Vec<QueryType>,
    pub(crate) heard: Vec<DirectorEvent>,
    pub(crate) agent_heard: Vec<AgentEvent>,
    /// Each message, and whether it came from the agent.
    pub(crate) wire: Vec<(bool, Vec<u8>)>,
}

impl Pair {
    pub(crate) fn new(agent: AgentSettings, director: DirectorSettings) -> Pair {
        let now = second(100);
        let mut agent = Agent::new(agent, now, 1);
        agent.timeout(now);
        assert_eq!(agent.poll(), Some(AgentEvent::Connect));
        agent.connected(now, 5000);
        Pair {
            now,
            agent,
            director: Director::new(director, AGENT, now, 2, 9000),
            exceptions: Exceptions::new(false),
            values: Values { health: Some(Health::saturating(75)), jobs: Some(3), ..Values::default() },
            unknown: Vec::new(),
            heard: Vec::new(),
            agent_heard: Vec::new(),
            wire: Vec::new(),
        }
    }

    pub(crate) fn talk(&mut self) {
        loop {
            let from_agent = std::mem::take(self.agent.output());
            let from_director = std::mem::take(self.director.output());
            if from_agent.is_empty() && from_director.is_empty() {
                break;
            }
            self.record(true, &from_agent);
            self.record(false, &from_director);
            self.director.received(self.now, &from_agent, &mut self.exceptions);
            let (values, unknown) = (self.values, &self.unknown);
            self.agent.received(self.now, &from_director, &mut |query| {
                values.answer(query).filter(|_| !unknown.contains(&query.kind))
            });
        }
        while let Some(event) = self.director.poll() {
            self.heard.push(event);
        }
        while let Some(event) = self.agent.poll() {
            self.agent_heard.push(event);
        }
    }

    pub(crate) fn record(&mut self, from_agent: bool, mut bytes: &[u8]) {
        while let Ok(Some(frame)) = Frame::parse(bytes) {
            self.wire.push((from_agent, bytes[..frame.len()].to_vec()));
            bytes = &bytes[frame.len()..];
        }
    }

    pub(crate) fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        self.talk();
        while let Some(next) = self.agent.deadline().into_iter().chain(self.director.deadline()).min() {
            if next > end {
                break;
            }
            self.now = self.now.max(next);
            self.agent.timeout(self.now);
            self.director.timeout(self.now);
            self.talk();
        }
        self.now = end;
    }

    pub(crate) fn heard(&mut self) -> Vec<DirectorEvent> {
        std::mem::take(&mut self.heard)
    }

    pub(crate) fn agent_heard(&mut self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.agent_heard)
    }

    /// What was said since the last look: opcode, flags, sequence number.
    pub(crate) fn said(&mut self, by_agent: bool) -> Vec<(Opcode, Flags, u64)> {
        let wire = std::mem::take(&mut self.wire);
        let of_one = wire.iter().filter(|(from_agent, _)| *from_agent == by_agent);
        of_one
            .map(|(_, bytes)| {
                let header = Frame::parse(bytes).unwrap().unwrap().header;
                (Opcode::from_code(header.opcode).unwrap(), header.flags, header.seq_num)
            })
            .collect()
    }
}

pub(crate) fn open() -> (AgentSettings, DirectorSettings) {
    (AgentSettings::default(), DirectorSettings::default())
}

pub(crate) fn keyed() -> (AgentSettings, DirectorSettings) {
    let key = Key::new(b"a secret of ours");
    let agent = AgentSettings { key: Some(key.clone()), ..AgentSettings::default() };
    (agent, DirectorSettings { keys: vec![Key::new(b"an older one"), key], ..DirectorSettings::default() })
}

pub(crate) fn pair((agent, director): (AgentSettings, DirectorSettings)) -> Pair {
    let mut pair = Pair::new(agent, director);
    pair.agent.start(pair.now, service(HTTP));
    pair
}

/// One message as bytes.
pub(crate) fn message(
    opcode: Opcode,
    flags: Flags,
    id: u16,
    sign: Option<(&Key, u64)>,
    units: &[Unit],
) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, opcode, flags, id, sign, units.iter().copied());
    out
}

pub(crate) fn from(source: [u8; 4]) -> Flow {
    Flow { source: Ipv4Addr::from(source).into(), destination: AGENT, protocol: 6, port: 80 }
}

pub(crate) fn except(source: [u8; 4], length: u8, ttl_s: u32, scope: Scope) -> Exception {
    let source = Prefix::new(source.into(), length).unwrap();
    Exception { scope, ttl_s, flows: Flows { source, destination: Prefix::ALL, protocol: 0, port: 0 } }
}
