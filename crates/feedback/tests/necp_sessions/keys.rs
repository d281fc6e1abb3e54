//! Who is believed: keys, credentials and recordings.

use evener_feedback::necp::session::{
    AgentEvent, AgentSettings, Director, DirectorEvent, DirectorSettings, Reason,
};
use evener_feedback::necp::{Flags, Frame, Key, Opcode, Unit, frame};

use crate::pair::*;

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
