//! Loads against a tiny responder on loopback.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use evener_replay::{Arrivals, Load, Report};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Answers each request on each connection by what `answer` makes of its path; `None` closes.
fn responder(answer: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            thread::spawn(move || serve(stream, &*answer));
        }
    });
    address
}

fn serve(mut stream: TcpStream, answer: &dyn Fn(&str) -> Option<String>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while let Some(Ok(request)) = lines.next() {
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        let Some(response) = answer(request.split(' ').nth(1).unwrap_or("")) else { return };
        if stream.write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}

fn plan(address: SocketAddr, rate: f64, duration_ms: u64) -> Load {
    Load {
        target: format!("http://{address}/job/{{n}}").parse().unwrap(),
        rate,
        arrivals: Arrivals::Poisson,
        duration: Duration::from_millis(duration_ms),
        seed: 1,
        connections_max: 64,
        timeout: Duration::from_secs(5),
    }
}

fn run(load: &Load) -> Report {
    load.run(Duration::from_secs(3600), |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn every_request_is_sent_once_and_answered() {
    let paths = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&paths);
    let address = responder(move |path| {
        seen.lock().unwrap().push(path.to_string());
        Some(OK.to_string())
    });
    let report = run(&plan(address, 400.0, 500));
    assert_eq!(report.answered, report.requests);
    assert_eq!(report.failed.total(), 0);
    assert_eq!(report.statuses, [0, report.requests, 0, 0, 0]);
    assert_eq!(report.bytes, report.requests * OK.len() as u64);
    let mut numbers: Vec<u64> = paths
        .lock()
        .unwrap()
        .iter()
        .map(|path| path.strip_prefix("/job/").unwrap().parse().unwrap())
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..report.requests).collect::<Vec<_>>());
    assert!((100..400).contains(&report.requests), "{} is far from 200", report.requests);
}

#[test]
fn even_arrivals_are_as_many_as_asked_for() {
    let address = responder(|_| Some(OK.to_string()));
    let report = run(&Load { arrivals: Arrivals::Even, ..plan(address, 200.0, 500) });
    assert_eq!(report.requests, 99);
}

#[test]
fn bodies_of_every_framing_are_followed_to_their_end() {
    let address = responder(|path| {
        let number: u64 = path.strip_prefix("/job/").unwrap().parse().unwrap();
        Some(match number % 4 {
            0 => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nT: x\r\n\r\n"
                .to_string(),
            1 => "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n".to_string(),
            2 => format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "x".repeat(100_000)),
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".to_string(),
        })
    });
    let report = run(&plan(address, 400.0, 300));
    assert_eq!((report.answered, report.failed.total()), (report.requests, 0));
}

#[test]
fn failures_are_counted_by_kind() {
    let address = responder(|path| {
        let number: u64 = path.strip_prefix("/job/").unwrap().parse().unwrap();
        match number {
            0 => Some("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_string()),
            1 => Some("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf".to_string()),
            2 => Some("no HTTP\r\n\r\n".to_string()),
            3 => None,
            _ => Some(OK.to_string()),
        }
    });
    let mut load = plan(address, 200.0, 500);
    load.timeout = Duration::from_millis(300);
    let report = run(&load);
    assert_eq!(report.failed.error, 1);
    assert_eq!(report.failed.timeout, 1, "the rest of the body never comes");
    assert_eq!(report.failed.protocol, 1);
    // A kept connection that closes before any answer is tried again; then, or on a new one, it is a failure.
    assert_eq!(report.failed.reset, 1);
    assert_eq!(report.failed.total() + report.answered, report.requests);
    // Each complete response and the timeout, which counts as a response at the limit.
    assert_eq!(report.corrected.samples, report.answered + 2);

    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let report = run(&plan(unused, 200.0, 100));
    assert_eq!(report.failed.refused, report.requests);
}

#[test]
fn waiting_for_a_connection_counts_as_response_time() {
    let address = responder(|_| {
        thread::sleep(Duration::from_millis(20));
        Some(OK.to_string())
    });
    // One connection can carry 50 requests a second; 100 are due.
    let mut load = plan(address, 100.0, 500);
    load.connections_max = 1;
    let report = run(&load);
    assert_eq!(report.connections, 1);
    assert_eq!(report.answered, report.requests);
    let (corrected, uncorrected) = (report.corrected, report.uncorrected);
    assert!(corrected.max_ms > 2.0 * uncorrected.p50_ms.unwrap(), "{corrected:?} {uncorrected:?}");
    assert!(report.invalid.is_some(), "the generator could not keep up");
}

#[test]
fn a_run_can_be_watched_and_stopped() {
    let address = responder(|_| Some(OK.to_string()));
    let mut ticks = 0;
    let report = plan(address, 100.0, 60_000)
        .run(Duration::from_millis(20), |tick| {
            assert_eq!(tick.requests, tick.answered + tick.failed + tick.open);
            ticks += 1;
            if ticks == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(ticks, 3);
    assert!(report.duration_s < 30.0);
    assert!(report.invalid.unwrap().contains("stopped"));
}
