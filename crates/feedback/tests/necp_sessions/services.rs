//! Services that start and stop.

use evener_feedback::necp::session::{Accepts, AgentEvent, DirectorEvent, DirectorSettings};
use evener_feedback::necp::{Flags, Frame, Opcode, Port, Query, QueryType, Unit, frame};

use crate::pair::*;

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
