//! What agents are asked, and what they answer.

use std::time::Duration;

use evener_feedback::necp::session::{DirectorEvent, Rhythm, Values};
use evener_feedback::necp::{Flags, Frame, Opcode, Query, QueryType, Unit, frame};
use evener_model::Health;

use crate::pair::*;

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
