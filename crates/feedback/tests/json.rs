//! Reports as JSON.

use std::time::Duration;

use evener_feedback::gathered::Gathered;
use evener_feedback::json::{self, BODY_BYTES_MAX, Fault, Said};
use evener_feedback::necp::{Port, Protocol};
use evener_model::{Health, Report, Time};
use proptest::prelude::*;

const HTTP: Port = Port { protocol: Protocol::Tcp, number: 80 };

fn second(seconds: u64) -> Time {
    Time::from_nanos(seconds * 1_000_000_000)
}

fn parse(body: &str) -> Result<Vec<Said>, Fault> {
    json::parse(body.as_bytes())
}

#[test]
fn one_report_or_a_list() {
    let one =
        parse(r#"{"node": "rat", "service": "tcp/80", "age_ms": 40, "health": 75, "load": 0.4, "jobs": 3}"#);
    let rat = Said {
        node: Some("rat".to_owned()),
        service: Some(HTTP),
        age_ms: 40,
        health: Some(75),
        load: Some(0.4),
        jobs: Some(3),
        ..Said::default()
    };
    assert_eq!(one, Ok(vec![rat]));
    let list = parse(r#" [{"health": 1}, {"jobs": 2, "later": {"more": []}}]"#).unwrap();
    assert_eq!((list[0].health, list[1].jobs), (Some(1), Some(2)));
    assert_eq!(parse("[]"), Ok(Vec::new()));
}

#[test]
fn what_is_wrong_is_said() {
    let message = |body: &str| parse(body).unwrap_err().to_string();
    assert_eq!(message(r#"{"health": 101}"#), "health is out of its range");
    assert_eq!(message(r#"{"node": "", "health": 1}"#), "node is out of its range");
    assert_eq!(message(r#"{"load": -1}"#), "load is out of its range");
    assert_eq!(message(r#"{"latency_ms": 1e300}"#), "latency_ms is out of its range");
    assert_eq!(message(r#"{"node": "rat"}"#), "a report without a value");
    assert!(message(r#"{"health": 75.5}"#).contains("line 1 column 15"));
    assert!(message(r#"{"health": 1, "service": "http"}"#).contains("tcp/80"));
    assert!(message("").starts_with("not a report, nor a list"));
    assert!(message("[1]").starts_with("not a report"));
    assert_eq!(parse(&" ".repeat(BODY_BYTES_MAX + 1)), Err(Fault::Length));
    assert_eq!(parse(&format!("[{}{{\"jobs\":1}}]", "{\"jobs\":1},".repeat(1024))), Err(Fault::Length));
    assert!(matches!(parse(&"[".repeat(10_000)), Err(Fault::Form(_))), "no stack is deep enough for all");
}

#[test]
fn a_report_keeps_its_age_on_the_way() {
    let report = Report {
        measured_at: second(10),
        jobs: Some(3),
        load: Some(0.25),
        health: Some(Health::saturating(60)),
        credits: Some(5),
        jobs_per_s: Some(12.5),
        errors_per_s: Some(0.5),
        latency: Some(Duration::from_millis(3)),
    };
    let said = Said::of("rat", &report, second(12));
    assert_eq!(said.age_ms, 2000);
    let mut body = Vec::new();
    json::write(&mut body, std::slice::from_ref(&said));
    let read = json::parse(&body).unwrap();
    assert_eq!(read, [said]);
    // Another clock, on another machine.
    assert_eq!(read[0].report(second(500)), Report { measured_at: second(498), ..report });
}

#[test]
fn services_are_protocol_and_port() {
    assert_eq!(HTTP.to_string(), "tcp/80");
    assert_eq!("udp/53".parse(), Ok(Port { protocol: Protocol::Udp, number: 53 }));
    for wrong in ["", "tcp", "tcp/", "tcp/0", "tcp/+80", "tcp/65536", "TCP/80", "sctp/80", "tcp/80/1"] {
        assert!(wrong.parse::<Port>().is_err(), "{wrong}");
    }
}

#[test]
fn what_is_gathered_ages_and_is_bounded() {
    let said = |node: &str, age_ms, jobs| Said {
        node: Some(node.into()),
        age_ms,
        jobs: Some(jobs),
        ..Said::default()
    };
    let mut gathered = Gathered::new(Duration::from_secs(10), 2);
    assert!(gathered.insert(second(100), said("rat", 500, 1)));
    assert!(!gathered.insert(second(100), said("rat", 600, 2)), "older than what is known");
    assert!(gathered.insert(second(101), said("mole", 0, 3)));
    assert!(!gathered.insert(second(101), said("toad", 0, 4)), "one too many");
    assert!(!gathered.insert(second(101), said("mole", 10_000, 4)), "too old");
    assert!(!gathered.insert(second(101), Said { jobs: Some(1), ..Said::default() }), "nobody's");
    assert_eq!(gathered.all(second(102)), [said("mole", 1000, 3), said("rat", 2500, 1)]);
    assert_eq!(gathered.all(second(110)), [said("mole", 9000, 3)]);
    assert!(gathered.insert(second(110), said("toad", 0, 4)), "there is room again");
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        node in prop::option::of("[a-z.é\"\\\\]{1,20}"),
        service in prop::option::of(1u16..),
        age_ms: u64,
        (health, jobs, credits) in (prop::option::of(0u8..=100), any::<Option<u32>>(), any::<Option<u32>>()),
        (load, jobs_per_s) in (prop::option::of(0f32..1e9), prop::option::of(0f32..1e9)),
        latency_ms in prop::option::of(0f64..1e6),
        copies in 0usize..3,
    ) {
        let service = service.map(|number| Port { protocol: Protocol::Udp, number });
        let said = Said { node, service, age_ms, health, jobs, credits, load, jobs_per_s, errors_per_s: Some(0.0), latency_ms };
        let list = vec![said; copies];
        let mut body = Vec::new();
        json::write(&mut body, &list);
        prop_assert_eq!(json::parse(&body), Ok(list));
    }
}
