//! Peers that err, or say what nobody asked.

use evener_feedback::necp::session::{Agent, Director, DirectorEvent, Exceptions, Reason};
use evener_feedback::necp::{Fault, Flags, Frame, Opcode, Query, QueryType, Unit, frame};
use evener_model::Time;

use crate::pair::*;

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
