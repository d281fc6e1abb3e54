//! The access log: its formats, and that it can be rotated.

use std::path::Path;

use evener_tests::director::{Director, web};
use evener_tests::http::Client;
use evener_tests::{free_address, nodes, wait_until};
use rustix::process::Signal;

fn log(format: &str, path: &str) -> String {
    format!("[access_log]\npath = \"{path}\"\nformat = \"{format}\"\n")
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// One GET and one POST, and the lines they leave.
fn logged(format: &str) -> Vec<String> {
    let node = nodes::echo();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let address = free_address();
    let _director =
        Director::start(&(log(format, &path.display().to_string()) + &web(address, &[node.address])));
    let mut client = Client::connect(address).expect("the listener accepts");
    client
        .send("GET /x?y=1 HTTP/1.1\r\nHost: a\r\nReferer: http://from/\r\nUser-Agent: test \"1\"\r\n\r\n")
        .expect("sent");
    assert_eq!(client.response().expect("an answer").status, 200);
    assert_eq!(client.post("/echo", b"hello").expect("an answer").status, 200);
    wait_until("two lines", || lines(&path).len() == 2);
    lines(&path)
}

#[test]
fn common() {
    let lines = logged("common");
    assert!(
        lines[0].starts_with("127.0.0.1 - - [") && lines[0].ends_with("] \"GET /x?y=1 HTTP/1.1\" 200 -"),
        "{}",
        lines[0]
    );
    assert!(lines[1].ends_with("] \"POST /echo HTTP/1.1\" 200 5"), "{}", lines[1]);
    // [21/Nov/2026:01:42:14 +0000]
    let stamp = &lines[0][14..42];
    let shape: String = stamp
        .chars()
        .map(|c| {
            if c.is_ascii_digit() {
                '0'
            } else if c.is_ascii_alphabetic() {
                'a'
            } else {
                c
            }
        })
        .collect();
    assert!(shape.starts_with("[00/aaa/0000:00:00:00 ") && shape.ends_with("0000]"), "{stamp}");
}

#[test]
fn combined() {
    let lines = logged("combined");
    assert!(lines[0].contains(" 200 - \"http://from/\" \"test "), "{}", lines[0]);
    let agent = lines[0].split(" \"test ").nth(1).expect("the agent");
    assert!(!agent.starts_with("\"1\""), "quotes of the client are escaped: {}", lines[0]);
    assert!(lines[1].ends_with(" 200 5 \"-\" \"-\""), "{}", lines[1]);
}

#[test]
fn json() {
    for line in logged("json") {
        let value: serde_json::Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line.contains("\"app\"") && line.contains("\"n1\""), "pool and node are named: {line}");
        assert_eq!(value["status"], 200, "{line}");
    }
}

#[test]
fn stdout() {
    let node = nodes::echo();
    let address = free_address();
    let director = Director::start(&(log("common", "stdout") + &web(address, &[node.address])));
    let mut client = Client::connect(address).expect("the listener accepts");
    assert_eq!(client.get("/to-stdout").expect("an answer").status, 200);
    wait_until("the line", || director.stdout().contains("GET /to-stdout HTTP/1.1"));
}

#[test]
fn refusals_are_logged_too() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("access.log");
    let address = free_address();
    let _director =
        Director::start(&(log("common", &path.display().to_string()) + &web(address, &[free_address()])));
    let mut client = Client::connect(address).expect("the listener accepts");
    let status = client.get("/nobody").expect("an answer").status;
    assert!(matches!(status, 502 | 503), "{status}");
    wait_until("the line", || {
        lines(&path).iter().any(|line| line.contains(&format!("\"GET /nobody HTTP/1.1\" {status}")))
    });
}

#[test]
fn a_renamed_log_is_opened_anew() {
    let node = nodes::echo();
    let folder = tempfile::tempdir().expect("a folder");
    let (path, old) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let address = free_address();
    let director =
        Director::start(&(log("common", &path.display().to_string()) + &web(address, &[node.address])));
    let mut client = Client::connect(address).expect("the listener accepts");
    for i in 0..100 {
        client.get(&format!("/before/{i}")).expect("an answer");
    }
    std::fs::rename(&path, &old).expect("renamed");
    for i in 0..100 {
        client.get(&format!("/between/{i}")).expect("an answer");
    }
    director.signal(director.pid(), Signal::HUP);
    wait_until("the new file", || path.exists());
    for i in 0..100 {
        client.get(&format!("/after/{i}")).expect("an answer");
    }
    wait_until("all lines", || lines(&old).len() + lines(&path).len() == 300);
    assert!(lines(&path).iter().filter(|line| line.contains("/after/")).count() == 100);
}
