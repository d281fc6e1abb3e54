//! How a connection begins, goes on and ends.

use evener_feedback::necp::session::{AgentEvent, Director, DirectorEvent, Reason};
use evener_feedback::necp::{Flags, Frame, Key, Opcode, Scope, Unit, frame};

use crate::pair::*;

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
