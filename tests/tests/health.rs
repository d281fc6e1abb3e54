//! Active health checks: what they ask, and what their verdict does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use evener_tests::director::{Director, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Node};
use evener_tests::{free_address, wait_until};

/// A node named `name` whose `/health` answers 200 and "fine" while the switch is on, else `sick`.
fn switched(name: &'static str, sick: &'static str) -> (Node, Arc<AtomicBool>) {
    let healthy = Arc::new(AtomicBool::new(true));
    let state = Arc::clone(&healthy);
    let node = Node::http(move |request, stream| match (request.path(), state.load(Ordering::SeqCst)) {
        ("/health", true) => nodes::respond(stream, "200 OK", "", b"fine"),
        ("/health", false) => nodes::respond(stream, sick, "", b"sick"),
        _ => nodes::respond(stream, "200 OK", "", name.as_bytes()),
    });
    (node, healthy)
}

fn state(director: &Director, node: &str) -> String {
    director.node("app", node)["state"].to_string().to_lowercase()
}

fn is_up(director: &Director, node: &str) -> bool {
    state(director, node).contains("up")
}

/// Switches a node off and on under `check`, and sees that it gets jobs only while it is healthy.
fn follows(check: &str, sick: &'static str) {
    let ((a, healthy), (b, _)) = (switched("a", sick), switched("b", sick));
    let address = free_address();
    let pool = format!(
        "scheduler = \"round-robin\"\ncheck = {{ {check}, interval = \"50ms\", timeout = \"1s\", rise = 2, fall = 2 }}"
    );
    let director = Director::start(&web_with(address, "", &[a.address, b.address], &pool));
    let answers = || {
        let mut client = Client::connect(address).expect("the listener accepts");
        (0..10).map(|_| client.get("/x").expect("an answer").text().to_owned()).collect::<Vec<_>>()
    };
    wait_until("both to be up", || is_up(&director, "n1") && is_up(&director, "n2"));
    assert!(answers().contains(&"a".to_owned()));
    for _ in 0..2 {
        healthy.store(false, Ordering::SeqCst);
        wait_until("the sick node to be down", || !is_up(&director, "n1"));
        assert_eq!(answers(), ["b"; 10]);
        healthy.store(true, Ordering::SeqCst);
        wait_until("the node to be up again", || is_up(&director, "n1"));
        assert!(answers().contains(&"a".to_owned()));
    }
    let asked = a.seen().into_iter().find(|request| request.path() == "/health").expect("it was asked");
    assert_eq!(asked.head.header("Host"), Some("health.example"));
}

#[test]
fn http_checks_judge_by_status() {
    follows("http = \"GET /health\", host = \"health.example\"", "500 Sick");
}

#[test]
fn http_checks_judge_by_a_set_of_statuses() {
    follows("http = \"GET /health\", host = \"health.example\", expect = [200, 204]", "202 Accepted");
}

#[test]
fn http_checks_judge_by_the_body() {
    follows("http = \"GET /health\", host = \"health.example\", body = \"fine\"", "200 OK");
}

#[test]
fn tcp_checks_judge_by_the_connection() {
    let (good, gone) = (nodes::named("good"), free_address());
    let address = free_address();
    let pool = "check = { tcp = true, interval = \"50ms\", timeout = \"1s\", rise = 1, fall = 1 }";
    let director = Director::start(&web_with(address, "", &[good.address, gone], pool));
    wait_until("the verdicts", || is_up(&director, "n1") && !is_up(&director, "n2"));
    let listener = std::net::TcpListener::bind(gone).expect("the port is free");
    wait_until("the second to be up", || is_up(&director, "n2"));
    drop(listener);
    wait_until("the second to be down", || !is_up(&director, "n2"));
}

#[test]
fn exec_checks_judge_by_the_exit_status() {
    let node = nodes::named("node");
    let other = nodes::named("other");
    let folder = tempfile::tempdir().expect("a folder");
    let flag = folder.path().join("healthy");
    std::fs::write(&flag, "").expect("a file");
    let address = free_address();
    let pool = format!(
        "check = {{ exec = [\"test\", \"-e\", \"{}\"], interval = \"50ms\", timeout = \"2s\", rise = 1, fall = 1 }}",
        flag.display()
    );
    let director = Director::start(&web_with(address, "", &[node.address, other.address], &pool));
    wait_until("the nodes to be up", || is_up(&director, "n1") && is_up(&director, "n2"));
    std::fs::remove_file(&flag).expect("removed");
    wait_until("the nodes to be down", || !is_up(&director, "n1") && !is_up(&director, "n2"));
    // When everything looks dead, the fault may be in the looking: all are used.
    let answer = Client::connect(address).and_then(|mut client| client.get("/x")).expect("an answer");
    assert_eq!(answer.status, 200);
    std::fs::write(&flag, "").expect("a file");
    wait_until("the nodes to be up again", || is_up(&director, "n1") && is_up(&director, "n2"));
}

#[test]
fn checks_may_ask_another_port_and_time_out() {
    let (node, silent) = (nodes::named("node"), nodes::silent());
    let address = free_address();
    let port = silent.address.port();
    let pool = format!(
        "check = {{ http = \"GET /\", port = {port}, interval = \"50ms\", timeout = \"100ms\", rise = 1, fall = 2 }}"
    );
    let director = Director::start(&web_with(address, "", &[node.address], &pool));
    wait_until("the checks to time out", || !is_up(&director, "n1"));
    assert!(node.seen().is_empty() && !silent.seen().is_empty());
}
