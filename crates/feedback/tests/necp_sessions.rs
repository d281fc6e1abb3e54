//! Both sides of a NECP connection, word by word.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use evener_feedback::necp::session::{
    Accepts, Agent, AgentEvent, AgentSettings, Director, DirectorEvent, DirectorSettings, Exceptions, Flow,
    Reason, Rhythm, Values,
};
use evener_feedback::necp::{
    Exception, Fault, Flags, Flows, Forwarding, Frame, Key, Opcode, Port, Prefix, Protocol, Query, QueryType,
    Scope, Service, Unit, frame,
};
use evener_model::{Health, Time};

const AGENT: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };
const DNS: Port = Port { protocol: Protocol::Udp, number: 53 };

fn service(port: Port) -> Service {
    Service { forwarding: Forwarding::Layer3, port }
}

fn second(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

/// An agent and a director that hear each other at once.
struct Pair {
    now: Time,
    agent: Agent,
    director: Director,
    exceptions: Exceptions,
    values: Values,
    /// What the agent does not know.
    unknown: Vec<QueryType>,
    heard: Vec<DirectorEvent>,
    agent_heard: Vec<AgentEvent>,
    /// Each message, and whether it came from the agent.
    wire: Vec<(bool, Vec<u8>)>,
}

impl Pair {
    fn new(agent: AgentSettings, director: DirectorSettings) -> Pair {
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

    fn talk(&mut self) {
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

    fn record(&mut self, from_agent: bool, mut bytes: &[u8]) {
        while let Ok(Some(frame)) = Frame::parse(bytes) {
            self.wire.push((from_agent, bytes[..frame.len()].to_vec()));
            bytes = &bytes[frame.len()..];
        }
    }

    fn run(&mut self, seconds: u64) {
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

    fn heard(&mut self) -> Vec<DirectorEvent> {
        std::mem::take(&mut self.heard)
    }

    fn agent_heard(&mut self) -> Vec<AgentEvent> {
        std::mem::take(&mut self.agent_heard)
    }

    /// What was said since the last look: opcode, flags, sequence number.
    fn said(&mut self, by_agent: bool) -> Vec<(Opcode, Flags, u64)> {
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

fn open() -> (AgentSettings, DirectorSettings) {
    (AgentSettings::default(), DirectorSettings::default())
}

fn keyed() -> (AgentSettings, DirectorSettings) {
    let key = Key::new(b"a secret of ours");
    let agent = AgentSettings { key: Some(key.clone()), ..AgentSettings::default() };
    (agent, DirectorSettings { keys: vec![Key::new(b"an older one"), key], ..DirectorSettings::default() })
}

fn pair((agent, director): (AgentSettings, DirectorSettings)) -> Pair {
    let mut pair = Pair::new(agent, director);
    pair.agent.start(pair.now, service(HTTP));
    pair
}

#[test]
fn an_agent_begins_starts_reports_and_stops() {
    for settings in [open(), keyed()] {
        let mut pair = pair(settings);
        pair.talk();
        assert_eq!(pair.heard(), [DirectorEvent::Opened, DirectorEvent::Started(service(HTTP))]);
        assert_eq!(pair.agent_heard(), [AgentEvent::Opened]);
        pair.run(1);
        let Some(DirectorEvent::Reported { port: HTTP, values, asked_at }) = pair.heard.pop() else {
            panic!("no report at once: {:?}", pair.heard)
        };
        assert_eq!((values.health, values.jobs), (pair.values.health, Some(3)));
        assert_eq!(asked_at, second(100));
        pair.heard();
        pair.run(60);
        let reports = pair.heard();
        assert!((10..=16).contains(&reports.len()), "{} in a minute", reports.len());
        pair.agent.shutdown(pair.now);
        pair.talk();
        assert_eq!(pair.heard(), [DirectorEvent::Stopped(HTTP)]);
        assert_eq!(pair.agent_heard(), [AgentEvent::Ended]);
        assert_eq!(pair.agent.deadline(), None);
        pair.director.closed();
        pair.talk();
        assert_eq!(pair.heard(), [DirectorEvent::Ended(Reason::Closed)]);
    }
}

#[test]
fn a_service_is_asked_about_as_soon_as_it_starts() {
    let mut pair = Pair::new(open().0, open().1);
    pair.run(7);
    pair.heard();
    for number in [80, 81, 82, 83, 84, 85] {
        let port = Port { number, ..HTTP };
        pair.agent.start(pair.now, service(port));
        pair.run(0);
        let heard = pair.heard();
        assert_eq!(heard[0], DirectorEvent::Started(service(port)));
        let reported =
            |event: &DirectorEvent| matches!(event, DirectorEvent::Reported { port: of, .. } if *of == port);
        assert!(heard.iter().any(reported), "{heard:?}");
    }
    // An agent that is slow to answer is not asked again and again.
    for number in 100..120 {
        let mut start = Vec::new();
        let unit = service(Port { number, ..HTTP }).unit();
        frame::write(&mut start, Opcode::Start, Flags::NONE, number, None, [unit]);
        pair.director.received(pair.now, &start, &mut pair.exceptions);
        pair.director.timeout(pair.now);
    }
    assert!(pair.director.deadline().unwrap() > pair.now);
    assert!(
        std::iter::from_fn(|| pair.director.poll()).all(|event| !matches!(event, DirectorEvent::Ended(_)))
    );
}

#[test]
fn sequence_numbers_are_as_asked_for_and_grow_by_one() {
    let mut pair = pair(keyed());
    pair.run(20);
    let wire = pair.wire.clone();
    let agent: Vec<u64> = pair.said(true).iter().map(|said| said.2).collect();
    pair.wire = wire;
    let director: Vec<u64> = pair.said(false).iter().map(|said| said.2).collect();
    assert_eq!(agent[0], 0, "INIT");
    assert!(agent[1..].iter().copied().eq(9000..9000 + agent.len() as u64 - 1), "{agent:?}");
    assert!(director.iter().copied().eq(5000..5000 + director.len() as u64), "{director:?}");
}

#[test]
fn without_authentication_numbers_are_zero() {
    let mut pair = pair(open());
    pair.run(20);
    assert!(pair.wire.len() > 8);
    assert!(pair.said(true).iter().all(|(_, flags, seq)| *seq == 0 && !flags.has(Flags::CREDENTIAL)));
}

#[test]
fn an_agent_without_the_key_is_refused_and_backs_off() {
    let (_, director) = keyed();
    let wrong = AgentSettings { key: Some(Key::new(b"wrong")), ..AgentSettings::default() };
    for agent in [AgentSettings::default(), wrong] {
        let mut pair = pair((agent, director.clone()));
        pair.talk();
        assert_eq!(pair.heard(), [DirectorEvent::Ended(Reason::Unauthenticated)]);
        assert_eq!(pair.agent_heard(), [AgentEvent::Closed(Reason::Unauthenticated)]);
        let refusal = Flags::ERROR.with(Flags::AUTH_REQUIRED);
        assert_eq!(pair.said(false), [(Opcode::InitAck, refusal, 0)]);
        let wait = pair.agent.deadline().unwrap().since(pair.now);
        assert!((1..=2).contains(&wait.as_secs()), "{wait:?}");
    }
}

#[test]
fn an_agent_with_a_key_does_not_speak_to_a_director_without() {
    let (agent, _) = keyed();
    let mut pair = pair((agent, DirectorSettings::default()));
    pair.talk();
    assert_eq!(pair.heard(), [DirectorEvent::Ended(Reason::Unauthenticated)]);
    assert_eq!(pair.agent_heard(), [AgentEvent::Closed(Reason::Unauthenticated)]);
    // Not even if somebody answers INIT as if nothing were.
    let (agent, director) = (keyed().0, open().1);
    let mut pair = Pair::new(agent, director);
    let mut ack = Vec::new();
    frame::write(&mut ack, Opcode::InitAck, Flags::NONE, 1, None, [Unit::default()]);
    pair.agent.received(pair.now, &ack, &mut |_| None);
    assert_eq!(pair.agent.poll(), Some(AgentEvent::Closed(Reason::Unauthenticated)));
}

#[test]
fn a_recording_changes_nothing() {
    let mut pair = pair(keyed());
    pair.run(30);
    let recording = pair.wire.clone();
    // On the same connection.
    let mut refused = 0;
    for (_, bytes) in recording.iter().take(8) {
        pair.director.received(pair.now, bytes, &mut pair.exceptions);
        let output = std::mem::take(pair.director.output());
        if let Ok(Some(answer)) = Frame::parse(&output) {
            assert!(answer.header.flags.has(Flags::ERROR.with(Flags::BAD_SEQUENCE_NUMBER)), "{answer:?}");
            refused += 1;
        }
    }
    assert!(refused > 2);
    assert_eq!(pair.director.bad_messages(), 8);
    assert!(pair.director.poll().is_none());
    // On a new one: INIT is answered, but nothing comes of it.
    let mut director = Director::new(keyed().1, AGENT, pair.now, 3, 77_000);
    for (_, bytes) in recording.iter().filter(|(from_agent, _)| *from_agent).take(10) {
        director.received(pair.now, bytes, &mut pair.exceptions);
        assert_eq!(director.poll(), None);
    }
    while let Some(deadline) = director.deadline() {
        director.timeout(deadline);
    }
    assert_eq!(director.poll(), Some(DirectorEvent::Ended(Reason::Silent)));
}

#[test]
fn a_message_with_another_credential_is_not_acted_upon() {
    let mut pair = pair(keyed());
    pair.talk();
    pair.heard();
    let mut bytes = Vec::new();
    let stop = service(HTTP).unit();
    frame::write(&mut bytes, Opcode::Stop, Flags::NONE, 9, Some((&Key::new(b"x"), 9003)), [stop]);
    frame::write(&mut bytes, Opcode::Stop, Flags::NONE, 10, None, [stop]);
    pair.director.received(pair.now, &bytes, &mut pair.exceptions);
    let output = std::mem::take(pair.director.output());
    let answer = Frame::parse(&output).unwrap().unwrap();
    assert_eq!(answer.header.opcode, Opcode::StopAck.code());
    assert!(answer.header.flags.has(Flags::ERROR.with(Flags::AUTH_REQUIRED)));
    assert!(answer.is_signed_by(&Key::new(b"a secret of ours")));
    assert_eq!(pair.director.poll(), None);
}

#[test]
fn another_version_is_answered_with_ours() {
    let mut pair = Pair::new(open().0, open().1);
    let mut init = Vec::new();
    frame::write(&mut init, Opcode::Init, Flags::NONE, 1, None, [Unit::default()]);
    init[4] = 2;
    pair.director.received(pair.now, &init, &mut pair.exceptions);
    let refusal = std::mem::take(pair.director.output());
    let header = Frame::parse(&refusal).unwrap().unwrap().header;
    assert_eq!((header.version, header.payload_length, header.request_id), (1, 0, 1));
    assert_eq!(header.flags, Flags::ERROR.with(Flags::VERSION_MISMATCH));
    // The agent may begin in ours.
    pair.talk();
    assert_eq!(pair.heard(), [DirectorEvent::Opened]);
    // An agent that is told so tries again later.
    let mut pair = Pair::new(open().0, open().1);
    let mut refusal = refusal;
    refusal[4] = 0;
    pair.agent.received(pair.now, &refusal, &mut |_| None);
    assert_eq!(pair.agent.poll(), Some(AgentEvent::Closed(Reason::Version(0))));
}

#[test]
fn what_an_agent_does_not_know_is_left_out_and_asked_again_later() {
    let mut pair = pair(open());
    pair.unknown = vec![QueryType::JOBS];
    pair.run(1);
    let reported = |pair: &mut Pair| {
        let reports: Vec<_> = pair
            .heard()
            .into_iter()
            .filter_map(|event| match event {
                DirectorEvent::Reported { values, .. } => Some((values.health.is_some(), values.jobs)),
                _ => None,
            })
            .collect();
        reports
    };
    assert_eq!(reported(&mut pair), [(true, None)], "health without another keep-alive's wait");
    let errors = pair.said(true).iter().filter(|(_, flags, _)| flags.has(Flags::ERROR)).count();
    assert_eq!(errors, 1);
    pair.unknown.clear();
    pair.run(90);
    let reports = reported(&mut pair);
    assert_eq!(reports.last(), Some(&(true, Some(3))));
    // Nothing is known for a while, not even its health.
    pair.unknown = vec![QueryType::HEALTH, QueryType::JOBS];
    pair.run(60);
    assert!(reported(&mut pair).iter().all(|report| *report == (false, None)));
    pair.unknown.clear();
    pair.run(18);
    assert_eq!(
        reported(&mut pair).last().map(|report| report.0),
        Some(true),
        "health is asked for again soon"
    );
}

#[test]
fn a_peer_that_errs_without_a_word_is_asked_for_its_health_alone() {
    let mut pair = pair(open());
    pair.talk();
    pair.director.timeout(pair.now);
    let ask = std::mem::take(pair.director.output());
    let asked = Frame::parse(&ask).unwrap().unwrap();
    assert_eq!(asked.message().unwrap().1.count(), 5);
    let mut error = Vec::new();
    let id = asked.header.request_id;
    frame::write(&mut error, Opcode::KeepaliveAck, Flags::ERROR, id, None, []);
    pair.director.received(pair.now, &error, &mut pair.exceptions);
    let again = std::mem::take(pair.director.output());
    let queries = Frame::parse(&again).unwrap().unwrap().message().unwrap().1;
    let queries: Vec<_> = queries.filter_map(Query::from_unit).collect();
    assert_eq!(queries, [Query { kind: QueryType::HEALTH, port: HTTP }]);
}

#[test]
fn three_keepalives_without_an_answer_end_it() {
    let mut pair = pair(open());
    pair.talk();
    pair.heard();
    pair.agent_heard();
    let started = pair.now;
    // Nothing that is said arrives.
    while pair.director.poll().is_none() {
        let deadline = pair.director.deadline().expect("not ended without a word");
        pair.director.timeout(deadline);
        pair.now = deadline;
    }
    let after = pair.now.since(started).as_secs();
    assert!((12..=18).contains(&after), "{after} s");
    assert_eq!(pair.director.deadline(), None);
    let closed = loop {
        let deadline = pair.agent.deadline().unwrap();
        pair.agent.timeout(deadline);
        if let Some(event) = pair.agent.poll() {
            break event;
        }
    };
    assert_eq!(closed, AgentEvent::Closed(Reason::Silent));
}

#[test]
fn services_that_are_not_accepted_are_refused_one_by_one() {
    let accepts = Accepts::Only(vec![HTTP]);
    let mut pair = pair((open().0, DirectorSettings { accepts, ..open().1 }));
    pair.agent.start(pair.now, service(DNS));
    pair.talk();
    assert_eq!(pair.heard(), [DirectorEvent::Opened, DirectorEvent::Started(service(HTTP))]);
    assert!(pair.agent_heard().contains(&AgentEvent::Refused(service(DNS))));
    // The unit comes back as it was, also if it means nothing.
    let nonsense = Unit([9, 6, 80, 0, 0, 0, 0, 7]);
    let mut start = Vec::new();
    frame::write(&mut start, Opcode::Start, Flags::NONE, 500, None, [service(HTTP).unit(), nonsense]);
    pair.director.received(pair.now, &start, &mut pair.exceptions);
    let output = std::mem::take(pair.director.output());
    let answer = Frame::parse(&output).unwrap().unwrap();
    assert_eq!(answer.header.flags, Flags::ERROR.with(Flags::BASIC_PAYLOAD));
    assert_eq!(answer.message().unwrap().1.collect::<Vec<_>>(), [nonsense]);
}

#[test]
fn a_service_that_is_stopped_is_not_asked_about() {
    let mut pair = pair(open());
    pair.agent.start(pair.now, service(DNS));
    pair.run(1);
    pair.heard();
    pair.agent.stop(pair.now, HTTP);
    pair.talk();
    assert_eq!(pair.heard(), [DirectorEvent::Stopped(HTTP)]);
    pair.run(20);
    let events = pair.heard();
    assert!(events.len() >= 3);
    assert!(
        events.iter().all(|event| matches!(event, DirectorEvent::Reported { port: DNS, .. })),
        "{events:?}"
    );
}

fn from(source: [u8; 4]) -> Flow {
    Flow { source: Ipv4Addr::from(source).into(), destination: AGENT, protocol: 6, port: 80 }
}

fn except(source: [u8; 4], length: u8, ttl_s: u32, scope: Scope) -> Exception {
    let source = Prefix::new(source.into(), length).unwrap();
    Exception { scope, ttl_s, flows: Flows { source, destination: Prefix::ALL, protocol: 0, port: 0 } }
}

#[test]
fn exceptions_are_kept_for_as_long_as_asked() {
    let mut pair = pair(keyed());
    pair.talk();
    let (other, now) = (IpAddr::from([10, 9, 0, 2]), pair.now);
    assert!(pair.agent.except(now, except([10, 1, 0, 0], 16, 60, Scope::Any)));
    assert!(pair.agent.except(now, except([10, 2, 0, 0], 16, 0, Scope::Local)));
    pair.talk();
    assert!(pair.exceptions.spares(now, AGENT, &from([10, 1, 2, 3])));
    assert!(pair.exceptions.spares(now, AGENT, &from([10, 2, 2, 3])));
    assert!(!pair.exceptions.spares(now, AGENT, &from([10, 3, 2, 3])));
    assert!(!pair.exceptions.spares(now, other, &from([10, 1, 2, 3])), "another node may still get it");
    assert!(
        !pair.exceptions.spares(now + Duration::from_secs(60), AGENT, &from([10, 1, 2, 3])),
        "its time is over"
    );
    // The same once more: a new time to live.
    pair.now += Duration::from_secs(30);
    pair.agent.except(pair.now, except([10, 1, 0, 0], 16, 60, Scope::Any));
    pair.talk();
    assert!(pair.exceptions.spares(now + Duration::from_secs(60), AGENT, &from([10, 1, 2, 3])));
    assert_eq!(pair.exceptions.iter().count(), 2);
    // A question, and its answer.
    pair.agent_heard();
    pair.agent.query_exceptions(pair.now, except([0, 0, 0, 0], 0, 0, Scope::Any));
    pair.talk();
    let [AgentEvent::Exceptions(units)] = &pair.agent_heard()[..] else { panic!("no answer") };
    assert_eq!(units[0], Unit([1, 0x0a09_0001, 0x0a01_0000, 16, 0, 0, 0, 0]));
    assert_eq!(units.len(), 2);
    pair.agent.delete_exception(pair.now, except([10, 1, 0, 0], 16, 0, Scope::Any).flows);
    pair.talk();
    assert!(!pair.exceptions.spares(pair.now, AGENT, &from([10, 1, 2, 3])));
    pair.agent.reset_exceptions(pair.now);
    pair.talk();
    assert!(pair.exceptions.is_empty());
}

#[test]
fn what_is_asked_for_again_is_not_undone_by_what_was_asked_before() {
    let mut pair = pair(keyed());
    pair.run(1);
    let exception = except([10, 1, 0, 0], 16, 0, Scope::Local);
    pair.agent.except(pair.now, exception);
    pair.talk();
    // This is lost on its way, and would be said again.
    pair.agent.delete_exception(pair.now, exception.flows);
    pair.agent.stop(pair.now, HTTP);
    pair.agent.output().clear();
    pair.agent.except(pair.now, exception);
    pair.agent.start(pair.now, service(HTTP));
    pair.run(30);
    assert!(pair.exceptions.spares(pair.now, AGENT, &from([10, 1, 2, 3])));
    assert!(!pair.heard().contains(&DirectorEvent::Stopped(HTTP)));
    // So would this, and it takes everything with it.
    pair.agent.reset_exceptions(pair.now);
    pair.agent.output().clear();
    pair.agent.except(pair.now, exception);
    pair.run(30);
    assert!(pair.exceptions.spares(pair.now, AGENT, &from([10, 1, 2, 3])));
}

#[test]
fn a_node_speaks_for_others_only_if_it_may() {
    let mut pair = pair(open());
    pair.talk();
    pair.agent_heard();
    let all = except([10, 1, 0, 0], 16, 0, Scope::Global);
    pair.agent.except(pair.now, all);
    pair.talk();
    assert_eq!(pair.agent_heard(), [AgentEvent::ExceptionRefused(all)]);
    assert!(pair.exceptions.is_empty());
    pair.exceptions = Exceptions::new(true);
    pair.agent.except(pair.now, all);
    pair.talk();
    assert!(pair.exceptions.spares(pair.now, [10, 9, 0, 2].into(), &from([10, 1, 2, 3])));
}

#[test]
fn init_wipes_what_was_known() {
    let mut pair = pair(open());
    pair.talk();
    pair.agent.except(pair.now, except([10, 1, 0, 0], 16, 0, Scope::Local));
    pair.talk();
    pair.heard();
    let mut init = Vec::new();
    frame::write(&mut init, Opcode::Init, Flags::NONE, 700, None, [Unit::default()]);
    pair.director.received(pair.now, &init, &mut pair.exceptions);
    assert!(pair.exceptions.is_empty());
    assert_eq!(pair.director.poll(), Some(DirectorEvent::Opened));
    // The agent hears an answer that it did not wait for, and says again what it wants.
    pair.talk();
    assert_eq!(pair.heard(), [DirectorEvent::Started(service(HTTP))]);
    assert!(!pair.exceptions.is_empty());
}

#[test]
fn what_does_not_begin_rightly_is_ended() {
    let first = |bytes: &[u8]| {
        let mut director = Director::new(open().1, AGENT, second(1), 1, 1);
        director.received(second(1), bytes, &mut Exceptions::new(false));
        director.poll()
    };
    let message = |opcode, flags, units: &[Unit]| {
        let mut out = Vec::new();
        frame::write(&mut out, opcode, flags, 1, None, units.iter().copied());
        out
    };
    let ended = |reason| Some(DirectorEvent::Ended(reason));
    assert_eq!(first(b"GET / HTTP/1.0\r\n"), ended(Reason::Fault(Fault::Magic)));
    assert_eq!(
        first(&message(Opcode::Start, Flags::NONE, &[service(HTTP).unit()])),
        ended(Reason::NotOpened)
    );
    assert_eq!(first(&message(Opcode::Init, Flags::NONE, &[])), ended(Reason::NotOpened));
    assert_eq!(first(&message(Opcode::Noop, Flags::NONE, &[])), None);
    let authenticated = Unit([1, 0, 7, 0, 0, 0, 0, 0]);
    assert_eq!(first(&message(Opcode::Init, Flags::NONE, &[authenticated])), ended(Reason::Unauthenticated));
    let mut director = Director::new(open().1, AGENT, second(1), 1, 1);
    director.timeout(second(10));
    assert_eq!(director.poll(), None);
    director.timeout(second(11));
    assert_eq!(director.poll(), ended(Reason::NotOpened));
}

#[test]
fn a_peer_that_only_errs_or_never_reads_is_ended() {
    let mut pair = pair(open());
    pair.talk();
    pair.heard();
    let mut noise = Vec::new();
    frame::write(&mut noise, Opcode::StartAck, Flags::NONE, 1, None, []);
    for _ in 0..17 {
        pair.director.received(pair.now, &noise, &mut pair.exceptions);
    }
    assert_eq!(pair.director.poll(), Some(DirectorEvent::Ended(Reason::BadMessages)));

    // A bad message now and then does not end it.
    let mut pair = self::pair(open());
    pair.talk();
    for _ in 0..40 {
        pair.director.received(pair.now, &noise, &mut pair.exceptions);
        pair.run(10);
    }
    assert_eq!(pair.director.bad_messages(), 40);
    assert!(!pair.heard().iter().any(|event| matches!(event, DirectorEvent::Ended(_))));

    let mut pair = self::pair(open());
    pair.talk();
    pair.heard();
    let mut questions = Vec::new();
    let unit = Query { kind: QueryType::HEALTH, port: HTTP }.unit();
    frame::write(&mut questions, Opcode::Keepalive, Flags::NONE, 1, None, [unit; 512]);
    for _ in 0..20 {
        pair.director.received(pair.now, &questions, &mut pair.exceptions);
    }
    assert_eq!(pair.director.poll(), Some(DirectorEvent::Ended(Reason::Unread)));
}

#[test]
fn asking_in_between_does_not_pile_up() {
    let mut pair = pair(open());
    pair.run(1);
    pair.heard();
    for _ in 0..50 {
        pair.director.ask(pair.now);
    }
    assert_eq!(
        pair.director.output().len(),
        20 + 2 * 32,
        "one question, without what the agent does not know"
    );
    pair.talk();
    assert!(matches!(pair.heard()[..], [DirectorEvent::Reported { .. }]));
    pair.director.change_rhythm(Rhythm {
        interval: Duration::from_secs(1),
        jitter: Duration::ZERO,
        unanswered_max: 3,
    });
    pair.run(30);
    assert!(pair.heard().len() >= 25);
}

#[test]
fn messages_may_come_in_any_pieces() {
    let mut whole = pair(keyed());
    whole.run(20);
    let bytes: Vec<u8> =
        whole.wire.iter().filter(|(from_agent, _)| *from_agent).flat_map(|(_, b)| b.clone()).collect();
    for piece in [1, 7, 33] {
        let mut director = Director::new(keyed().1, AGENT, second(100), 2, 9000);
        let mut events = Vec::new();
        for part in bytes.chunks(piece) {
            director.received(second(100), part, &mut whole.exceptions);
            events.extend(std::iter::from_fn(|| director.poll()));
        }
        assert_eq!(events[..2], [DirectorEvent::Opened, DirectorEvent::Started(service(HTTP))]);
    }
}

#[test]
fn values_become_a_report() {
    let values = Values {
        health: Some(Health::saturating(40)),
        jobs: Some(7),
        queue: Some(2),
        cpu_load_milli: Some(600),
        network_load_milli: Some(150),
    };
    let report = values.report(second(9));
    assert_eq!(
        (report.measured_at, report.jobs, report.health),
        (second(9), Some(9), Some(Health::saturating(40)))
    );
    assert!((report.load.unwrap() - 0.75).abs() < 1e-6);
    assert_eq!(Values::default().report(second(1)).load, None);
}

/// One message as bytes.
fn message(opcode: Opcode, flags: Flags, id: u16, sign: Option<(&Key, u64)>, units: &[Unit]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(&mut out, opcode, flags, id, sign, units.iter().copied());
    out
}

#[test]
fn errors_and_answers_get_no_answer() {
    let mut pair = pair(keyed());
    pair.talk();
    let stop = service(HTTP).unit();
    for (opcode, flags) in
        [(Opcode::Stop, Flags::ERROR), (Opcode::StopAck, Flags::NONE), (Opcode::Noop, Flags::NONE)]
    {
        pair.director.received(pair.now, &message(opcode, flags, 1, None, &[stop]), &mut pair.exceptions);
        assert!(pair.director.output().is_empty(), "{opcode:?}");
    }
    assert_eq!(pair.director.bad_messages(), 3);
}

#[test]
fn keepalives_do_not_keep_step() {
    let mut pair = pair(open());
    pair.talk();
    let mut times = Vec::new();
    for _ in 0..40 {
        pair.now = pair.director.deadline().unwrap();
        times.push(pair.now);
        pair.director.timeout(pair.now);
        pair.talk();
    }
    let intervals: Vec<_> = times[2..].windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
    assert!(intervals.iter().all(|ms| (4000..=6000).contains(ms)), "{intervals:?}");
    assert!(intervals.iter().min() < Some(&4500) && intervals.iter().max() > Some(&5500), "{intervals:?}");
}

#[test]
fn nodes_have_exceptions_of_their_own_and_not_too_many() {
    let mut shared = Exceptions::new(false);
    let exception = except([10, 1, 0, 0], 16, 0, Scope::Local);
    let init = message(Opcode::Init, Flags::NONE, 1, None, &[Unit::default()]);
    let agents = [AGENT, IpAddr::from([10, 9, 0, 2])];
    let mut directors = agents.map(|agent| {
        let mut director = Director::new(open().1, agent, second(1), 1, 1);
        director.received(second(1), &init, &mut shared);
        let add = message(Opcode::ExceptionAdd, Flags::NONE, 2, None, &[exception.unit()]);
        director.received(second(1), &add, &mut shared);
        director
    });
    let delete = message(Opcode::ExceptionDel, Flags::NONE, 3, None, &[exception.unit()]);
    directors[0].received(second(1), &delete, &mut shared);
    let spared = agents.map(|agent| shared.spares(second(1), agent, &from([10, 1, 0, 1])));
    assert_eq!(spared, [false, true]);
    directors[0].output().clear();
    let host = |i: u16| except([10, 2, (i >> 8) as u8, i as u8 + 1], 32, 0, Scope::Local).unit();
    let many: Vec<Unit> = (0..250).chain(300..310).map(host).collect();
    directors[0].received(
        second(1),
        &message(Opcode::ExceptionAdd, Flags::NONE, 4, None, &many),
        &mut shared,
    );
    let output = std::mem::take(directors[0].output());
    let answer = Frame::parse(&output).unwrap().unwrap();
    assert!(answer.header.flags.has(Flags::ERROR));
    assert_eq!(answer.message().unwrap().1.collect::<Vec<_>>(), many[Exceptions::NODE_MAX..]);
    assert_eq!(shared.iter().count(), Exceptions::NODE_MAX + 1, "its own, and the other's one");
}

#[test]
fn an_agent_starts_no_more_services_than_can_be_asked_about() {
    let mut pair = pair(open());
    pair.talk();
    let units: Vec<Unit> = (1000..1070).map(|number| service(Port { number, ..HTTP }).unit()).collect();
    pair.director.received(
        pair.now,
        &message(Opcode::Start, Flags::NONE, 50, None, &units),
        &mut pair.exceptions,
    );
    let output = std::mem::take(pair.director.output());
    let answer = Frame::parse(&output).unwrap().unwrap();
    assert_eq!(answer.message().unwrap().1.collect::<Vec<_>>(), units[63..]);
}

#[test]
fn only_what_was_asked_is_heard() {
    let mut pair = pair(open());
    pair.talk();
    pair.director.timeout(pair.director.deadline().unwrap());
    let output = std::mem::take(pair.director.output());
    let id = Frame::parse(&output).unwrap().unwrap().header.request_id;
    pair.heard();
    let answer = |port, kind, value| Query { kind, port }.answer_unit(value);
    let units = [
        answer(HTTP, QueryType::HEALTH, 1000),
        answer(HTTP, QueryType(77), 5),
        answer(DNS, QueryType::HEALTH, 50),
        Unit([1, 250, 80, 50, 0, 0, 0, 0]),
    ];
    let ack = message(Opcode::KeepaliveAck, Flags::NONE, id, None, &units);
    pair.director.received(pair.now, &ack, &mut pair.exceptions);
    let expected = Values { health: Some(Health::FULL), ..Values::default() };
    let event = pair.director.poll();
    assert!(
        matches!(event, Some(DirectorEvent::Reported { port: HTTP, values, .. }) if values == expected),
        "{event:?}"
    );
    assert_eq!(pair.director.poll(), None);
    // The same answer once more answers nothing.
    pair.director.received(pair.now, &ack, &mut pair.exceptions);
    assert_eq!(pair.director.poll(), None);
}

#[test]
fn an_agent_speaks_of_its_own_services_only() {
    let mut pair = pair(open());
    pair.talk();
    let units = [HTTP, DNS].map(|port| Query { kind: QueryType::HEALTH, port }.unit());
    let ask = message(Opcode::Keepalive, Flags::NONE, 900, None, &units);
    pair.agent.received(pair.now, &ask, &mut |_| Some(50));
    let output = std::mem::take(pair.agent.output());
    let answer = Frame::parse(&output).unwrap().unwrap();
    assert!(answer.header.flags.has(Flags::ERROR));
    assert_eq!(answer.message().unwrap().1.collect::<Vec<_>>(), units[1..]);
}

#[test]
fn the_answer_to_init_has_the_number_that_was_asked_for() {
    let key = Key::new(b"a secret of ours");
    for (number, opens) in [(5000, true), (5001, false), (4999, false)] {
        let mut pair = Pair::new(keyed().0, keyed().1);
        let unit = Unit([0, 9, 0, 0, 0, 0, 0, 0]);
        let ack = message(Opcode::InitAck, Flags::NONE, 1, Some((&key, number)), &[unit]);
        pair.agent.received(pair.now, &ack, &mut |_| None);
        assert_eq!(pair.agent.is_open(), opens);
        let refused = AgentEvent::Closed(Reason::Unauthenticated);
        assert_eq!(pair.agent.poll(), Some(if opens { AgentEvent::Opened } else { refused }));
    }
}

#[test]
fn an_agent_waits_longer_after_each_failure_until_it_has_talked() {
    let now = second(10);
    let mut agent = Agent::new(open().0, now, 4);
    let mut waits = Vec::new();
    let fail = |agent: &mut Agent, now: Time| {
        agent.timeout(agent.deadline().unwrap());
        agent.closed(now);
        agent.deadline().unwrap().since(now).as_secs()
    };
    for _ in 0..12 {
        waits.push(fail(&mut agent, now));
    }
    assert!(waits.windows(2).take(7).all(|pair| pair[0] < pair[1] + 1), "{waits:?}");
    assert!(waits[9..].iter().all(|wait| (128..=256).contains(wait)), "{waits:?}");
    // It connects, opens, and is answered.
    agent.timeout(agent.deadline().unwrap());
    agent.connected(now, 1);
    agent.output().clear();
    agent.received(now, &message(Opcode::InitAck, Flags::NONE, 1, None, &[Unit::default()]), &mut |_| None);
    let keepalive = std::mem::take(agent.output());
    let id = Frame::parse(&keepalive).unwrap().unwrap().header.request_id;
    agent.received(now, &message(Opcode::KeepaliveAck, Flags::NONE, id, None, &[]), &mut |_| None);
    agent.closed(now);
    let wait = agent.deadline().unwrap().since(now).as_secs();
    assert!((1..=2).contains(&wait), "{wait}");
}

#[test]
fn an_exception_that_ends_soon_does_not_become_one_for_ever() {
    let mut pair = pair(open());
    pair.talk();
    pair.agent.except(pair.now, except([10, 1, 0, 0], 16, 1, Scope::Local));
    pair.talk();
    pair.now += Duration::from_millis(500);
    let init = message(Opcode::Init, Flags::NONE, 700, None, &[Unit::default()]);
    pair.director.received(pair.now, &init, &mut pair.exceptions);
    pair.talk();
    assert!(pair.exceptions.spares(pair.now, AGENT, &from([10, 1, 2, 3])));
    assert!(!pair.exceptions.spares(pair.now + Duration::from_secs(1), AGENT, &from([10, 1, 2, 3])));
}
