//! Faults under a steady load of a client that counts every response.
//! Each test prints its count: `cargo test -p evener-tests --test faults -- --nocapture`.

use std::net::SocketAddr;
use std::time::Duration;

use evener_tests::director::{Director, web_with};
use evener_tests::load::{Load, Report};
use evener_tests::nginx::Nginx;
use evener_tests::nodes;
use evener_tests::{free_address, wait_until};
use rustix::process::Signal;

const POOL: &str = "retry = { attempts = 2, budget = 20 }
timeouts = { connect = \"500ms\", response = \"500ms\", body = \"2s\" }
eject = { failures = 3, base = \"1s\" }";

fn config(address: SocketAddr, nodes: &[SocketAddr]) -> String {
    web_with(address, "", nodes, POOL)
}

fn load(address: SocketAddr) -> Load {
    Load::start(address, 12, Duration::from_millis(4))
}

/// Ends the load, prints what was counted, and sees that no reservation leaked.
fn finish(director: &Director, load: Load, what: &str) -> Report {
    let report = load.stop();
    println!("{what}: {report}");
    assert_none_leaked(director);
    report
}

/// Every reservation was released, and by one outcome.
fn assert_none_leaked(director: &Director) {
    wait_until("the jobs of all nodes to be 0", || director.jobs() == 0);
    for node in director.nodes("app") {
        let outcomes = node["outcomes"].as_object().expect("outcomes");
        let ended: u64 = outcomes.values().filter_map(serde_json::Value::as_u64).sum();
        assert_eq!(node["picks"], ended, "{node}");
    }
}

#[test]
fn a_node_is_killed_and_revived() {
    let (mut rat, vole) = (Nginx::start(&["rat"]), Nginx::start(&["vole"]));
    let address = free_address();
    let director = Director::start(&config(address, &[rat.address(), vole.address()]));
    let load = load(address);
    for _ in 0..3 {
        load.go_on(300);
        rat.kill();
        load.go_on(500);
        let picks =
            |director: &Director| director.node("app", "n1")["outcomes"]["success"].as_u64().unwrap_or(0);
        let before = picks(&director);
        rat.revive();
        wait_until("the revived node to serve again", || picks(&director) > before + 20);
    }
    let report = finish(&director, load, "node killed with SIGKILL and revived, 3 times");
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.by_node.len() == 2, "{report}");
}

#[test]
fn all_nodes_are_killed_and_one_is_revived() {
    let mut rat = Nginx::start(&["rat", "vole"]);
    let address = free_address();
    let director = Director::start(&config(address, &rat.addresses));
    let load = load(address);
    load.go_on(200);
    rat.kill();
    load.go_on(200);
    rat.revive();
    let answered = |director: &Director| {
        director.nodes("app").iter().filter_map(|node| node["outcomes"]["success"].as_u64()).sum::<u64>()
    };
    let before = answered(&director);
    wait_until("the pool to serve again", || answered(&director) > before + 200);
    let report = finish(&director, load, "all nodes killed and revived");
    assert!(
        report.failed.keys().all(|reason| matches!(reason.as_str(), "status 502" | "status 503")),
        "{report}"
    );
}

#[test]
fn a_node_accepts_and_never_answers() {
    let nginx = Nginx::start(&["rat", "vole"]);
    let silent = nodes::silent();
    let address = free_address();
    let nodes = [nginx.addresses[0], silent.address, nginx.addresses[1]];
    let director = Director::start(&config(address, &nodes));
    let load = load(address);
    let timed_out = || silent.seen().len() >= 5;
    wait_until("the silent node to be tried", timed_out);
    load.go_on(1000);
    let report = finish(&director, load, "node that accepts and never answers");
    assert_eq!(report.failures(), 0, "{report}");
    assert!(silent.seen().len() < report.sent as usize / 10, "it is ejected: {} tries", silent.seen().len());
}

#[test]
fn a_node_answers_byte_by_byte() {
    let nginx = Nginx::start(&["rat"]);
    let slow = nodes::dripping(Duration::from_millis(2));
    let address = free_address();
    let director = Director::start(&config(address, &[nginx.address(), slow.address]));
    let load = load(address);
    wait_until("the slow node to answer", || {
        director.node("app", "n2")["outcomes"]["success"].as_u64() >= Some(10)
    });
    let report = finish(&director, load, "node that answers byte by byte");
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.by_node.get("rat") > report.by_node.get("dripping"), "the quick node has more: {report}");
}

#[test]
fn a_node_resets_in_mid_body() {
    let nginx = Nginx::start(&["rat", "vole"]);
    let resetting = nodes::resetting();
    let address = free_address();
    let nodes = [nginx.addresses[0], resetting.address, nginx.addresses[1]];
    let director = Director::start(&config(address, &nodes));
    let load = load(address);
    wait_until("the resetting node to be tried", || resetting.seen().len() >= 3);
    load.go_on(1000);
    let report = finish(&director, load, "node that resets in mid-body");
    // Half a body had been forwarded: nothing can be retried, and the client must see that it is half.
    assert!(report.failures() <= resetting.seen().len() as u64, "{report}");
    assert!(
        report
            .failed
            .keys()
            .all(|reason| reason.contains("closed within a body") || reason.contains("reset")),
        "{report}"
    );
    assert!(
        resetting.seen().len() < report.sent as usize / 10,
        "it is ejected: {} tries",
        resetting.seen().len()
    );
}

#[test]
fn twenty_reloads_lose_nothing() {
    let nginx = Nginx::start(&["rat", "vole", "shrew"]);
    let address = free_address();
    let director = Director::start(&config(address, &nginx.addresses));
    let load = load(address);
    for round in 0..20 {
        // Every other configuration is without the last node.
        director.write_config(&config(address, &nginx.addresses[..3 - round % 2]));
        if round % 4 < 2 {
            assert_eq!(director.reload().status, 200);
        } else {
            director.signal(director.pid(), Signal::HUP);
            wait_until("the reload", || director.nodes("app").len() == 3 - round % 2);
        }
        load.turn_over();
    }
    let report = finish(&director, load, "20 reloads");
    assert_eq!((report.failures(), report.resent), (0, 0), "{report}");
}

#[test]
fn five_hot_restarts_lose_nothing() {
    let nginx = Nginx::start(&["rat", "vole"]);
    let address = free_address();
    let process = "workers = 2\ndrain_timeout = \"5s\"";
    let director = Director::start_with(process, &config(address, &nginx.addresses));
    let load = load(address);
    let mut current = director.pid();
    for round in 0..5 {
        load.turn_over();
        if round % 2 == 0 {
            director.signal(current, Signal::USR2);
        } else {
            let output = director.ctl(&["upgrade"]);
            assert!(output.status.success(), "{output:?}");
        }
        let old = current;
        wait_until("the old process to end and a new one to serve", || match director.pids()[..] {
            [only] if only != old => {
                current = only;
                true
            }
            _ => false,
        });
    }
    load.turn_over();
    let report = finish(&director, load, "5 hot restarts");
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn new_connections_are_taken_throughout_a_hot_restart() {
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    let process = "workers = 2\ndrain_timeout = \"2s\"";
    let director = Director::start_with(process, &config(address, &nginx.addresses));
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let clients = std::thread::spawn(move || {
        let mut served = 0;
        while stopped.try_recv().is_err() {
            // One connection for each request: none may be refused or left in a queue that nobody serves.
            let answer =
                evener_tests::http::Client::connect(address).and_then(|mut client| client.get("/x?n=1"));
            assert_eq!(answer.expect("every connection is served").status, 200);
            served += 1;
        }
        served
    });
    for _ in 0..3 {
        let old = director.pids();
        director.signal(old[0], Signal::USR2);
        wait_until("the old process to end", || {
            let now = director.pids();
            now.len() == 1 && now != old
        });
    }
    stop.send(()).expect("the clients still run");
    let served: u64 = clients.join().expect("no connection failed");
    assert_none_leaked(&director);
    println!("3 hot restarts, a connection for each request: {served} served, 0 failed");
}
