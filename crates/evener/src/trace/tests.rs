use std::fs;

use evener_model::{Event, Job as Placed, NodeId, Outcome, Time};
use evener_record::{Encoder, End, EndReason, Entry, Head, What, end_frame, head_frame};
use evener_scheduler::Settings;

use super::*;

fn wanted(pool: Option<&str>, work: bool) -> TraceFile {
    TraceFile { pool: pool.map(Into::into), work, ..TraceFile::default() }
}

fn of(text: &[u8], wanted: &TraceFile) -> Result<Trace, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    fs::write(&path, text).unwrap();
    read(&path, wanted).map_err(|wrong| wrong.replace(path.to_str().unwrap(), "log"))
}

#[test]
fn a_list_has_times_and_perhaps_work_and_keys() {
    let trace = of(b"seconds,ms,key\n10.5,2,a\n# later\n11,0.5,b\n", &wanted(None, true)).unwrap();
    assert_eq!(trace.at_nanos, [0, 500_000_000]);
    assert_eq!(trace.work_nanos, [2_000_000, 500_000]);
    assert_eq!(trace.keys, [key("a"), key("b")]);
    let trace = of(b"1.5\n0.25", &wanted(None, false)).unwrap();
    assert_eq!((trace.at_nanos, trace.work_nanos, trace.keys), (vec![0, 1_250_000_000], vec![], vec![]));
}

#[test]
fn evener_s_own_access_log_is_read_by_pool() {
    let log = br#"{"time":"2026-10-10T13:55:36.500Z","client":"192.0.2.1","pool":"app","status":200,"duration_us":1500}
{"time":"2026-10-10T13:55:36.100Z","client":"192.0.2.2","pool":"app","duration_us":1500,"latency_us":900}
{"time":"2026-10-10T13:55:36.000Z","client":"192.0.2.2","pool":"other"}
"#;
    let trace = of(log, &wanted(Some("app"), true)).unwrap();
    assert_eq!(trace.at_nanos, [0, 400_000_000]);
    assert_eq!(trace.work_nanos, [900_000, 1_500_000]);
    assert_eq!(trace.keys, [key("192.0.2.2"), key("192.0.2.1")]);
    assert_eq!(of(log, &wanted(None, true)).unwrap_err(), "log: it does not say how long each job took");
    assert_eq!(of(log, &wanted(Some("api"), false)).unwrap_err(), "log: no job of pool api");
}

#[test]
fn jobs_of_a_second_are_spread_over_it() {
    let line =
        |second: u32| format!("192.0.2.1 - - [10/Oct/2026:13:55:{second} +0000] \"GET / HTTP/1.1\" 200 12\n");
    let trace = of([line(36), line(36), line(37)].concat().as_bytes(), &wanted(None, false)).unwrap();
    assert_eq!(trace.at_nanos, [0, 500_000_000, 1_250_000_000]);
}

#[test]
fn the_time_at_the_end_of_a_line_is_the_work() {
    let combined = |end: &str| {
        format!(
            "::1 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 12 \"-\" \"a \\\"b\\\" c\"{end}\n"
        )
    };
    let common = |end: &str| format!("::1 - - [10/Oct/2026:13:55:36 +0000] \"GET / HTTP/1.1\" 200 12{end}\n");
    for line in [combined(" 0.012"), combined(" 12000"), common(" 0.012"), common(" 12000")] {
        let trace = of(line.as_bytes(), &wanted(None, true)).unwrap();
        assert_eq!(trace.work_nanos, [12_000_000], "{line}");
    }
    for line in [combined(""), common("")] {
        let wrong = of(line.as_bytes(), &wanted(None, true)).unwrap_err();
        assert!(wrong.starts_with("log:1: no time at the end"), "{line}: {wrong}");
    }
}

#[test]
fn a_recording_has_the_jobs_of_a_pool() {
    let mut encoder = Encoder::new(0);
    let mut put = |pool, ms: u64, what| {
        encoder.put(&Entry { pool, now: Time::from_nanos(ms * 1_000_000), what });
    };
    for (pool, name) in [(0, "app"), (1, "other")] {
        put(pool, 1, What::Pool { name, nodes_max: 8, seed: 1, settings: Settings::default() });
    }
    let mut job = |pool, ms, key, avoid: &'static [NodeId]| {
        let job = Placed { key, avoid, excluded: &[], current: None };
        put(pool, ms, What::Pick { jobs: &[], job, choice: Ok(NodeId(0)) });
        let latency = Some(std::time::Duration::from_millis(1));
        put(pool, ms + 1, What::Event(Event::Finish { node: NodeId(0), outcome: Outcome::Success, latency }));
    };
    job(0, 5, 77, &[]);
    job(1, 6, 78, &[]);
    job(0, 7, 77, &[NodeId(1)]);
    job(0, 9, 79, &[]);
    let mut bytes = head_frame(&Head { program: "evener".into(), started_unix_ms: 0, workers: 1 });
    bytes.extend(encoder.take(Vec::new()).unwrap());
    bytes.extend(end_frame(&End { reason: EndReason::Complete, blocks: 1 }));
    let trace = of(&bytes, &wanted(Some("app"), true)).unwrap();
    assert_eq!((trace.at_nanos, trace.keys), (vec![0, 4_000_000], vec![77, 79]));
    assert_eq!(trace.work_nanos, [1_000_000, 1_000_000]);
    assert_eq!(of(&bytes, &wanted(None, false)).unwrap().at_nanos.len(), 3);
    bytes[60] ^= 1;
    assert!(of(&bytes, &wanted(None, false)).is_err());
}

#[test]
fn what_is_no_trace_is_told_with_its_line() {
    for (text, expected) in [
        (&b""[..], "log: no job"),
        (b"1,2\nsoon,3\n", "log:2: expected seconds, found \"soon\""),
        (b"1,2\n1,-3\n", "log:2: expected the work in milliseconds, found \"-3\""),
        (b"1\nNaN\n", "log:2: expected seconds, found \"NaN\""),
        (
            b"{\"time\":\"2026-10-10T13:55:36Z\"}\n{}\n",
            "log:2: no line of Evener's access log: missing field `time`",
        ),
        (b"x [yesterday] \"GET\"\n", "log:1: no time such as [10/Oct/2026:13:55:36 +0000]"),
        (b"\xff\xfe\x00[\n", "log:1: no time such as"),
    ] {
        let wrong = of(text, &wanted(None, false)).unwrap_err();
        assert!(wrong.starts_with(expected), "{wrong}");
    }
    assert!(read(Path::new("/no/such/file"), &wanted(None, false)).unwrap_err().contains("No such file"));
}
