//! ORCA headers, in each form.

use evener_feedback::orca::{self, Fault, Group, Metrics, NAMED_MAX, VALUE_BYTES_MAX};
use evener_model::Time;
use proptest::prelude::*;

type Named = Vec<(Group, String, f64)>;

fn parse(value: &str) -> Result<(Metrics, Named), Fault> {
    let mut named = Vec::new();
    let metrics =
        orca::parse(value.as_bytes(), &mut |group, name, value| named.push((group, name.to_owned(), value)))?;
    Ok((metrics, named))
}

fn metrics(value: &str) -> Metrics {
    parse(value).expect("a report").0
}

#[test]
fn text() {
    let value = "TEXT cpu_utilization=0.3,mem_utilization=0.8, rps_fractional=10.5 , eps=1,\
                 application_utilization=0.5,named_metrics.queue=4,request_cost.rows=1e3,utilization.disk=0.1";
    let (metrics, named) = parse(value).unwrap();
    let all = Metrics {
        cpu_utilization: Some(0.3),
        mem_utilization: Some(0.8),
        application_utilization: Some(0.5),
        rps: Some(10.5),
        eps: Some(1.0),
    };
    assert_eq!(metrics, all);
    let expected = [
        (Group::Named, "queue", 4.0),
        (Group::RequestCost, "rows", 1000.0),
        (Group::Utilization, "disk", 0.1),
    ];
    assert!(named.iter().map(|(group, name, value)| (*group, &name[..], *value)).eq(expected), "{named:?}");
}

#[test]
fn json_in_both_spellings() {
    let (metrics, named) =
        parse(r#"JSON {"cpu_utilization": 0.3, "memUtilization": "0.8", "rps": 7, "eps": null, "named_metrics": {"q": -1}}"#)
            .unwrap();
    assert_eq!((metrics.cpu_utilization, metrics.mem_utilization), (Some(0.3), Some(0.8)));
    assert_eq!((metrics.rps, metrics.eps), (Some(7.0), None));
    assert_eq!(named, [(Group::Named, "q".to_owned(), -1.0)]);
    let (metrics, _) =
        parse(r#"JSON {"rps": 7, "rpsFractional": 7.5, "applicationUtilization": 1.25}"#).unwrap();
    assert_eq!((metrics.rps, metrics.application_utilization), (Some(7.5), Some(1.25)));
}

#[test]
fn binary_with_and_without_padding() {
    // As protoc encodes it: cpu_utilization 0.5, rps 3, named_metrics {"q": 2}.
    let message =
        [9, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 24, 3, 66, 12, 10, 1, b'q', 17, 0, 0, 0, 0, 0, 0, 0, 0x40];
    let mut named = Vec::new();
    let metrics =
        orca::decode(&message, &mut |group, name, value| named.push((group, name.to_owned(), value)))
            .unwrap();
    assert_eq!((metrics.cpu_utilization, metrics.rps), (Some(0.5), Some(3.0)));
    assert_eq!(named, [(Group::Named, "q".to_owned(), 2.0)]);
    let bare = "CQAAAAAAAOA/GANCDAoBcREAAAAAAAAAQA";
    for text in [bare.to_owned(), format!("{bare}==")] {
        assert_eq!(orca::parse_binary(text.as_bytes(), &mut |_, _, _| ()), Ok(metrics));
        assert_eq!(parse(&format!("BIN {text}")).unwrap().0, metrics);
    }
}

#[test]
fn later_versions_may_say_more() {
    assert_eq!(metrics("TEXT cpu_utilization=0.5,gpu_utilization=0.9,future.x=1").cpu_utilization, Some(0.5));
    assert_eq!(metrics(r#"JSON {"cpu_utilization": 0.5, "gpus": [1, {"a": 2}]}"#).cpu_utilization, Some(0.5));
    // Fields 15, 16, 17 and 18 in each of the ways there are.
    let message = [
        9, 0, 0, 0, 0, 0, 0, 0xe0, 0x3f, 120, 1, 0x82, 1, 1, 9, 0x8d, 1, 1, 2, 3, 4, 0x91, 1, 1, 2, 3, 4, 5,
        6, 7, 8,
    ];
    assert_eq!(orca::decode(&message, &mut |_, _, _| ()).unwrap().cpu_utilization, Some(0.5));
}

#[test]
fn what_cannot_be_is_refused() {
    for (value, fault) in [
        ("", Fault::Form),
        ("TEXT", Fault::Form),
        ("XML <a/>", Fault::Form),
        ("TEXT cpu_utilization", Fault::Form),
        ("TEXT cpu_utilization=x", Fault::Number),
        ("TEXT cpu_utilization=-0.1", Fault::Number),
        ("TEXT cpu_utilization=inf", Fault::Number),
        ("TEXT named_metrics.x=nan", Fault::Number),
        ("TEXT cpu_utilization=0.1,cpu_utilization=0.2", Fault::Twice),
        ("JSON {", Fault::Form),
        ("JSON []", Fault::Form),
        ("JSON {\"cpu_utilization\": []}", Fault::Form),
        ("JSON {\"cpu_utilization\": \"NaN\"}", Fault::Number),
        ("JSON {\"named_metrics\": 3}", Fault::Form),
        ("JSON {\"utilization\": {\"a\": -1}}", Fault::Number),
        ("BIN !", Fault::Form),
        ("BIN CQ", Fault::Form),
    ] {
        assert_eq!(parse(value).map(|_| ()), Err(fault), "{value}");
    }
    let many = (0..=NAMED_MAX).map(|i| format!("named_metrics.m{i}=1")).collect::<Vec<_>>().join(",");
    assert_eq!(parse(&format!("TEXT {many}")).map(|_| ()), Err(Fault::Length));
    assert_eq!(parse(&format!("TEXT {}", " ".repeat(VALUE_BYTES_MAX))).map(|_| ()), Err(Fault::Length));
}

#[test]
fn broken_messages_are_refused() {
    let decode = |message: &[u8]| orca::decode(message, &mut |_, _, _| ()).map(|_| ());
    assert_eq!(decode(&[]), Ok(()));
    // Cut off; a length beyond the end; field 0; a group; a varint without end, or too large; the wrong form of a field.
    assert_eq!(decode(&[9, 0, 0]), Err(Fault::Form));
    assert_eq!(decode(&[66, 0xff, 0xff, 0xff, 0xff, 0x0f, 1]), Err(Fault::Form));
    assert_eq!(decode(&[0, 1]), Err(Fault::Form));
    assert_eq!(decode(&[123]), Err(Fault::Form));
    assert_eq!(decode(&[24, 0x80]), Err(Fault::Form));
    assert_eq!(decode(&[24, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]), Err(Fault::Form));
    assert_eq!(decode(&[24, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]), Ok(()));
    assert_eq!(decode(&[8, 1]), Err(Fault::Form));
    assert_eq!(decode(&[25, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Fault::Form));
    assert_eq!(decode(&[66, 3, 10, 1, 0xff]), Err(Fault::Form));
}

#[test]
fn metrics_become_a_report() {
    let at = Time::from_nanos(5);
    let report = metrics("TEXT cpu_utilization=0.3,rps=100,eps=2").report(at);
    assert_eq!((report.measured_at, report.load), (at, Some(0.3)));
    assert_eq!((report.jobs_per_s, report.errors_per_s), (Some(100.0), Some(2.0)));
    let report = metrics("TEXT cpu_utilization=0.3,application_utilization=0.9").report(at);
    assert_eq!(report.load, Some(0.9), "the application knows better");
}

fn number() -> impl Strategy<Value = Option<f64>> {
    prop::option::of((0.0..1e9f64).prop_map(|value| value))
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        (cpu_utilization, mem_utilization, application_utilization, rps, eps) in
            (number(), number(), number(), number(), number()),
        named in prop::collection::vec(
            (prop::sample::select(vec![Group::RequestCost, Group::Utilization, Group::Named]), "[a-z.]{1,8}", 0.0..1e6f64),
            0..6,
        ),
    ) {
        let metrics = Metrics { cpu_utilization, mem_utilization, application_utilization, rps, eps };
        let named_refs = || named.iter().map(|(group, name, value)| (*group, &name[..], *value));
        let mut text = Vec::new();
        orca::write_text(&mut text, &metrics, named_refs());
        if text.is_empty() {
            prop_assert_eq!((metrics, named.len()), (Metrics::default(), 0));
        } else {
            let read = parse(std::str::from_utf8(&text).unwrap()).unwrap();
            prop_assert_eq!(read, (metrics, named.clone()));
        }
        let mut binary = Vec::new();
        orca::write_binary(&mut binary, &metrics, named_refs());
        let mut heard = Vec::new();
        let read = orca::parse_binary(&binary, &mut |group, name, value| heard.push((group, name.to_owned(), value)));
        prop_assert_eq!((read.unwrap(), heard), (metrics, named));
    }
}
