//! Agent and director through a bad network, on a virtual clock, for many seeds. What fails says its seed:
//! `EXPLORE_SEED=n cargo test -p evener-feedback --test necp_explorer` runs it alone; `EXPLORE_SEEDS=n` says how many.
//!
//! *Hostile*: authenticated; messages are lost, doubled, delayed past one another, damaged, and come back from
//! recordings of this connection and older ones. *Rough*: a TCP without credentials; bytes come in any pieces,
//! connections break, both ends start over, the network is cut without a word.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use evener_feedback::necp::session::{
    Agent, AgentEvent, AgentSettings, Backoff, Director, DirectorEvent, DirectorSettings, Exceptions, Rhythm,
};
use evener_feedback::necp::{
    Exception, Flows, Forwarding, Frame, Key, Port, Prefix, Protocol, QueryType, Scope, Service,
};
use evener_model::Time;

const AGENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const RHYTHM: Rhythm =
    Rhythm { interval: Duration::from_secs(5), jitter: Duration::from_secs(1), unanswered_max: 3 };
/// By then a cut connection is noticed: one more than may be unanswered, all late.
const NOTICED: Duration = Duration::from_secs(4 * 6);
/// By then a good network has brought both together: noticed, the longest wait, and opened.
const TOGETHER: Duration = Duration::from_secs(24 + 32 + 20);

struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Network {
    Hostile,
    Rough,
}

#[derive(Debug)]
enum Packet {
    ToDirector(Vec<u8>),
    ToAgent(Vec<u8>),
    /// The other end of the connection is gone.
    Closed {
        at_agent: bool,
    },
    /// The agent's connection reaches the director.
    Connected,
}

struct World {
    seed: u64,
    rng: Rng,
    now: Time,
    network: Network,
    /// Faults go on.
    bad: bool,
    cut_at: Option<Time>,
    agent: Agent,
    /// Connections at the director by number, as far as they have not ended.
    directors: BTreeMap<u32, Director>,
    /// The agent's connection.
    connection: u32,
    /// By arrival, then by the order of sending: connection and packet.
    packets: BTreeMap<(Time, u64), (u32, Packet)>,
    sent: u64,
    /// The last arrival in each direction: TCP keeps the order.
    last_arrival: [Time; 2],
    exceptions: Exceptions,
    /// What the agent's owner wants.
    wanted: BTreeSet<Port>,
    excepted: BTreeSet<Flows>,
    /// The connection that last opened, and what is started on it.
    open: Option<u32>,
    started: BTreeSet<Port>,
    last_report: Option<Time>,
    recordings: Vec<(bool, Vec<u8>)>,
    opened: u32,
}

fn key() -> Key {
    Key::new(b"explorer")
}

fn port(number: u64) -> Port {
    Port {
        protocol: if number.is_multiple_of(2) { Protocol::Tcp } else { Protocol::Udp },
        number: 80 + number as u16,
    }
}

fn flows(number: u64) -> Flows {
    let source = Prefix::new(Ipv4Addr::new(10, number as u8 + 1, 0, 0), 16).unwrap();
    Flows { source, destination: Prefix::ALL, protocol: 6, port: 0 }
}

impl World {
    fn new(network: Network, seed: u64) -> World {
        let now = Time::from_nanos(1_000_000_000);
        World {
            seed,
            rng: Rng(seed),
            now,
            network,
            bad: true,
            cut_at: None,
            agent: Agent::new(agent_settings(network), now, seed),
            directors: BTreeMap::new(),
            connection: 0,
            packets: BTreeMap::new(),
            sent: 0,
            last_arrival: [now; 2],
            exceptions: Exceptions::new(false),
            wanted: BTreeSet::new(),
            excepted: BTreeSet::new(),
            open: None,
            started: BTreeSet::new(),
            last_report: None,
            recordings: Vec::new(),
            opened: 0,
        }
    }

    fn check(&self, holds: bool, what: &str) {
        assert!(holds, "{:?}, seed {}, at {:?}: {what}", self.network, self.seed, self.now);
    }

    fn nonce(&mut self) -> u64 {
        self.rng.below(u64::MAX)
    }

    fn send(&mut self, connection: u32, packet: Packet) {
        let millis = match self.network {
            Network::Hostile if self.bad => self.rng.below(2000),
            _ => self.rng.below(20),
        };
        let mut at = self.now + Duration::from_millis(millis);
        if self.network == Network::Rough || !self.bad {
            let direction =
                usize::from(matches!(packet, Packet::ToAgent(_) | Packet::Closed { at_agent: true }));
            at = at.max(self.last_arrival[direction]);
            self.last_arrival[direction] = at;
        }
        self.sent += 1;
        self.packets.insert((at, self.sent), (connection, packet));
    }

    /// Puts what a session put out onto the network.
    fn carry(&mut self, connection: u32, from_agent: bool, bytes: &[u8]) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let part = match self.network {
                // Whole messages, each for itself.
                Network::Hostile => Frame::parse(rest).expect("what we write").expect("whole").len(),
                Network::Rough => (self.rng.below(60) as usize + 1).min(rest.len()),
            };
            let (piece, after) = rest.split_at(part);
            rest = after;
            let mut piece = piece.to_vec();
            let mut copies = 1;
            if self.network == Network::Hostile {
                self.recordings.push((from_agent, piece.clone()));
                if self.bad {
                    copies = if self.rng.one_in(12) { 0 } else { 1 + u32::from(self.rng.one_in(12)) };
                    if self.rng.one_in(40) {
                        let at = self.rng.below(piece.len() as u64) as usize;
                        piece[at] ^= 1 << self.rng.below(8);
                    }
                }
            }
            for _ in 0..copies {
                let piece = piece.clone();
                self.send(
                    connection,
                    if from_agent { Packet::ToDirector(piece) } else { Packet::ToAgent(piece) },
                );
            }
        }
    }

    fn is_cut(&self) -> bool {
        self.cut_at.is_some()
    }

    fn deliver(&mut self, connection: u32, packet: Packet) {
        if self.is_cut() {
            // Bytes that a TCP cannot bring in order any more end it for good.
            return;
        }
        match packet {
            Packet::Connected => {
                let (seed, nonce) = (self.rng.below(u64::MAX), self.nonce());
                let director = Director::new(director_settings(self.network), AGENT, self.now, seed, nonce);
                self.directors.insert(connection, director);
            }
            Packet::ToDirector(bytes) => {
                if let Some(director) = self.directors.get_mut(&connection) {
                    director.received(self.now, &bytes, &mut self.exceptions);
                }
            }
            Packet::ToAgent(bytes) if connection == self.connection => {
                // The time of measuring, in milliseconds, is the value: a report shows how old it is.
                let millis = (self.now.as_nanos() / 1_000_000) as u32;
                self.agent.received(self.now, &bytes, &mut |query| match query.kind {
                    QueryType::HEALTH => Some(50),
                    QueryType::JOBS => Some(millis),
                    _ => None,
                });
            }
            Packet::Closed { at_agent: true } if connection == self.connection => self.agent.closed(self.now),
            Packet::Closed { at_agent: false } => {
                if let Some(director) = self.directors.get_mut(&connection) {
                    director.closed();
                }
            }
            _ => {}
        }
    }

    /// Takes output and events of both until there are none.
    fn settle(&mut self) {
        let output = std::mem::take(self.agent.output());
        self.carry(self.connection, true, &output);
        while let Some(event) = self.agent.poll() {
            match event {
                AgentEvent::Connect => {
                    self.connection += 1;
                    let connection = self.connection;
                    if self.is_cut() || self.bad && self.rng.one_in(4) {
                        self.agent.closed(self.now);
                    } else {
                        self.send(connection, Packet::Connected);
                        let nonce = self.nonce();
                        self.agent.connected(self.now, nonce);
                        let output = std::mem::take(self.agent.output());
                        // Behind the connection itself.
                        self.last_arrival[0] = self.now + Duration::from_secs(2);
                        let at = self.last_arrival[0];
                        self.sent += 1;
                        if self.network == Network::Hostile {
                            self.recordings.push((true, output.clone()));
                        }
                        self.packets.insert((at, self.sent), (connection, Packet::ToDirector(output)));
                    }
                }
                AgentEvent::Closed(_) => self.send(self.connection, Packet::Closed { at_agent: false }),
                AgentEvent::Refused(_) | AgentEvent::ExceptionRefused(_) => {
                    self.check(false, "all is accepted here")
                }
                AgentEvent::Ended => self.check(false, "nobody asked for an end"),
                AgentEvent::Opened | AgentEvent::Exceptions(_) => {}
            }
        }
        let connections: Vec<u32> = self.directors.keys().copied().collect();
        for connection in connections {
            let Some(director) = self.directors.get_mut(&connection) else { continue };
            let output = std::mem::take(director.output());
            let events: Vec<DirectorEvent> = std::iter::from_fn(|| director.poll()).collect();
            self.carry(connection, false, &output);
            for event in events {
                self.heard(connection, event);
            }
        }
    }

    fn heard(&mut self, connection: u32, event: DirectorEvent) {
        match event {
            DirectorEvent::Opened => {
                self.opened += 1;
                self.open = Some(connection);
                self.started.clear();
                // As a director must: what other connections of this agent said is void.
                self.directors.retain(|&number, _| number == connection);
            }
            DirectorEvent::Started(service) => {
                let new = self.started.insert(service.port);
                self.check(new, "a service is started once");
            }
            DirectorEvent::Stopped(port) => {
                let known = self.started.remove(&port);
                self.check(known, "what is stopped was started");
            }
            DirectorEvent::Reported { port, values, asked_at } => {
                self.check(self.started.contains(&port), "reports are of services that are started");
                let jobs = values.jobs.map(u64::from);
                let floor = asked_at.as_nanos() / 1_000_000;
                let fresh = jobs.is_none_or(|at| at >= floor && at <= self.now.as_nanos() / 1_000_000);
                self.check(fresh, "a report was measured between the question and now");
                self.check(
                    self.now.since(asked_at) <= NOTICED,
                    "no answer counts after the peer is given up",
                );
                if jobs.is_some() {
                    self.last_report = Some(self.now);
                }
            }
            DirectorEvent::Ended(_) => {
                self.directors.remove(&connection);
                // Another may have ended before it began.
                if self.open == Some(connection) {
                    self.started.clear();
                }
                self.send(connection, Packet::Closed { at_agent: true });
            }
        }
    }

    /// Something happens that nobody planned for.
    fn mishap(&mut self) {
        match (self.network, self.rng.below(12)) {
            (_, 0) => {
                // The director's process starts over.
                self.directors.clear();
                self.started.clear();
                self.exceptions = Exceptions::new(false);
                self.send(self.connection, Packet::Closed { at_agent: true });
            }
            (_, 1) => {
                // The agent's process does.
                self.agent = Agent::new(agent_settings(self.network), self.now, self.rng.0);
                for &port in &self.wanted {
                    self.agent.start(self.now, Service { forwarding: Forwarding::Layer3, port });
                }
                for &flows in &self.excepted {
                    self.agent.except(self.now, Exception { scope: Scope::Any, ttl_s: 0, flows });
                }
                self.send(self.connection, Packet::Closed { at_agent: false });
                self.connection += 1;
            }
            (_, 2) => {
                // The connection breaks, and both hear of it.
                self.send(self.connection, Packet::Closed { at_agent: false });
                self.send(self.connection, Packet::Closed { at_agent: true });
            }
            (Network::Rough, 3) if !self.is_cut() => self.cut_at = Some(self.now),
            (Network::Hostile, 3) => self.impersonate(),
            (Network::Hostile, 4..12) if !self.recordings.is_empty() => self.replay(),
            _ => {}
        }
    }

    /// Somebody connects and says what the agent once said, from some INIT on.
    fn impersonate(&mut self) {
        let is_init = |(from_agent, bytes): &(bool, Vec<u8>)| *from_agent && bytes.get(5) == Some(&1);
        let inits = self.recordings.iter().enumerate().filter(|(_, recording)| is_init(recording));
        let inits: Vec<usize> = inits.map(|(place, _)| place).collect();
        if inits.is_empty() {
            return;
        }
        let from = *self.rng.pick(&inits);
        let said = self.recordings[from..].iter().filter(|(from_agent, _)| *from_agent).take(10);
        let said: Vec<Vec<u8>> = said.map(|(_, bytes)| bytes.clone()).collect();
        let (seed, nonce) = (self.rng.below(u64::MAX), self.nonce());
        let mut director = Director::new(director_settings(self.network), AGENT, self.now, seed, nonce);
        for bytes in said {
            director.received(self.now, &bytes, &mut self.exceptions);
            let event = director.poll();
            self.check(
                matches!(event, None | Some(DirectorEvent::Ended(_))),
                "nobody can speak for the agent",
            );
        }
    }

    fn replay(&mut self) {
        let (from_agent, bytes) = self.rng.pick(&self.recordings).clone();
        let connections: Vec<u32> = self.directors.keys().copied().collect();
        if from_agent && !connections.is_empty() {
            let connection = *self.rng.pick(&connections);
            self.deliver(connection, Packet::ToDirector(bytes));
        } else if !from_agent {
            self.deliver(self.connection, Packet::ToAgent(bytes));
        }
    }

    /// The agent's owner changes what he wants.
    fn whim(&mut self) {
        let (now, number) = (self.now, self.rng.below(4));
        match self.rng.below(4) {
            0 | 1 => {
                self.wanted.insert(port(number));
                self.agent.start(now, Service { forwarding: Forwarding::Layer3, port: port(number) });
            }
            2 => {
                self.wanted.remove(&port(number));
                self.agent.stop(now, port(number));
            }
            _ if self.excepted.insert(flows(number)) => {
                self.agent.except(now, Exception { scope: Scope::Any, ttl_s: 0, flows: flows(number) });
            }
            _ => {
                self.excepted.remove(&flows(number));
                self.agent.delete_exception(now, flows(number));
            }
        }
    }

    fn run(&mut self, duration: Duration) {
        let end = self.now + duration;
        let mut steps = 0;
        let mut next_trouble = self.now;
        while self.now < end {
            steps += 1;
            self.check(steps < 200_000, "time goes on");
            let deadlines =
                self.directors.values().filter_map(Director::deadline).chain(self.agent.deadline());
            let arrival = self.packets.keys().next().map(|(at, _)| *at);
            let trouble = self.bad.then_some(next_trouble);
            let next = deadlines.chain(arrival).chain(trouble).min().unwrap_or(end).min(end);
            self.now = self.now.max(next);
            while let Some(entry) = self.packets.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (connection, packet) = entry.remove();
                self.deliver(connection, packet);
                self.settle();
            }
            self.agent.timeout(self.now);
            self.directors.values_mut().for_each(|director| director.timeout(self.now));
            if self.bad && self.now >= next_trouble {
                next_trouble = self.now + Duration::from_millis(200 + self.rng.below(8000));
                if self.rng.one_in(2) {
                    self.mishap();
                } else {
                    self.whim();
                }
            }
            self.settle();
            if let Some(at) = self.cut_at {
                if self.now.since(at) > NOTICED {
                    self.check(
                        self.directors.is_empty() && self.started.is_empty(),
                        "a cut is noticed in time",
                    );
                    self.check(!self.agent.is_open(), "by the agent too");
                }
                if self.now.since(at) > NOTICED + Duration::from_secs(20) || !self.bad {
                    self.cut_at = None;
                    self.packets.clear();
                }
            }
            self.check(self.directors.len() < 200, "connections end");
        }
    }

    fn is_as_wanted(&self) -> bool {
        let excepted: BTreeSet<Flows> =
            self.exceptions.iter().map(|(_, exception)| exception.flows).collect();
        self.agent.is_open() && self.started == self.wanted && excepted == self.excepted
    }
}

fn agent_settings(network: Network) -> AgentSettings {
    let backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(32) };
    let key = (network == Network::Hostile).then(key);
    AgentSettings { key, rhythm: RHYTHM, backoff, ..AgentSettings::default() }
}

fn director_settings(network: Network) -> DirectorSettings {
    let keys = if network == Network::Hostile { vec![key()] } else { Vec::new() };
    DirectorSettings { keys, rhythm: RHYTHM, ..DirectorSettings::default() }
}

fn explore(network: Network, seed: u64) -> u32 {
    let mut world = World::new(network, seed);
    for _ in 0..3 {
        world.bad = true;
        world.run(Duration::from_secs(300));
        world.bad = false;
        world.run(TOGETHER);
        world.check(world.is_as_wanted(), "a good network brings both together");
        world.run(Duration::from_secs(30));
        world.check(world.is_as_wanted(), "and keeps them");
        if !world.wanted.is_empty() {
            let fresh = world.last_report.is_some_and(|at| world.now.since(at) <= Duration::from_secs(13));
            world.check(fresh, "reports come");
        }
        // Whatever was ever recorded, said again: nothing changes but the count of what was refused.
        let recordings = std::mem::take(&mut world.recordings);
        let on_its_way = |bytes: &[u8], world: &World| {
            let mut packets = world.packets.values();
            packets
                .any(|(_, packet)| matches!(packet, Packet::ToDirector(b) | Packet::ToAgent(b) if b == bytes))
        };
        let connection = world.connection;
        for (from_agent, bytes) in recordings.iter().rev().take(400) {
            if on_its_way(bytes, &world) {
                continue;
            }
            let before = world.started.clone();
            match from_agent {
                true => world.deliver(connection, Packet::ToDirector(bytes.clone())),
                false => world.deliver(connection, Packet::ToAgent(bytes.clone())),
            }
            let director = world.directors.get_mut(&connection);
            let heard = director.and_then(Director::poll);
            let harmless = matches!(heard, None | Some(DirectorEvent::Ended(_)));
            world.check(harmless, "a recording is not believed");
            if let Some(event) = heard {
                world.heard(connection, event);
                break;
            }
            world.check(world.started == before, "nor acted upon");
        }
        world.recordings = recordings;
        world.settle();
    }
    world.opened
}

#[expect(clippy::disallowed_methods, reason = "which seeds to run is for who runs them to say")]
fn seeds() -> impl Iterator<Item = u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let only: Option<u64> = number("EXPLORE_SEED");
    let count = number("EXPLORE_SEEDS").unwrap_or(100);
    only.map_or(0..count, |seed| seed..seed + 1)
}

#[test]
fn authenticated_sessions_survive_a_hostile_network() {
    let opened: u32 = seeds().map(|seed| explore(Network::Hostile, seed)).sum();
    assert!(opened > 0);
}

#[test]
fn sessions_survive_a_rough_network() {
    let opened: u32 = seeds().map(|seed| explore(Network::Rough, seed)).sum();
    assert!(opened > 0);
}
