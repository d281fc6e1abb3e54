//! Flows that nodes take out of the balance.

use std::net::IpAddr;
use std::time::Duration;

use evener_feedback::necp::session::{AgentEvent, Director, DirectorEvent, Exceptions};
use evener_feedback::necp::{Flags, Frame, Opcode, Scope, Unit};

use crate::pair::*;

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
