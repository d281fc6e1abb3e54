//! A client's next request goes to the node of its last one, as far as the pool wants that.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use evener_tests::director::{Director, evener, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Gate};
use evener_tests::{free_address, wait_until};
use rustix::process::Signal;

/// The nodes that answer the requests of a connection.
fn answers(address: SocketAddr, requests: usize) -> BTreeSet<String> {
    let mut client = Client::connect(address).expect("the listener accepts");
    (0..requests).map(|_| client.get("/").expect("an answer").text().to_owned()).collect()
}

#[test]
fn a_connection_stays_on_its_node_while_that_is_not_much_worse() {
    let nodes = [nodes::named("rat"), nodes::named("mole")];
    let addresses = nodes.each_ref().map(|node| node.address);
    let start = |bonus: &str| {
        let address = free_address();
        let pool = format!("scheduler = \"least-jobs\"\n{bonus}");
        (Director::start_recording("workers = 1", &web_with(address, "", &addresses, &pool), &[]), address)
    };
    let (_director, address) = start("");
    assert_eq!(answers(address, 10).len(), 2, "idle nodes take turns");

    let (mut director, address) = start("current_bonus = 0.5");
    let all: BTreeSet<String> = (0..10)
        .flat_map(|_| {
            let answers = answers(address, 10);
            assert_eq!(answers.len(), 1, "{answers:?}");
            answers
        })
        .collect();
    assert_eq!(all.len(), 2, "other connections go elsewhere");
    director.signal(director.pid(), Signal::TERM);
    assert_eq!(director.wait().code(), Some(0), "{}", director.stderr());
    let replayed = evener(&["sim", "replay", &director.folder.path().join("run.rec").display().to_string()]);
    assert!(replayed.status.success(), "{replayed:?}");
}

#[test]
fn a_connection_leaves_a_node_that_has_more_to_do() {
    let (rat, mole) = (Gate::new("rat"), nodes::named("mole"));
    let address = free_address();
    let pool = "scheduler = \"least-jobs\"\ncurrent_bonus = 0.5";
    let _director =
        Director::start_with("workers = 1", &web_with(address, "", &[rat.node.address, mole.address], pool));
    // Idle nodes take turns: of two clients one is on the rat.
    rat.pass();
    let clients = [(); 2].map(|()| {
        let mut client = Client::connect(address).expect("the listener accepts");
        let name = client.get("/").expect("an answer").text().to_owned();
        (name, client)
    });
    let mut on_rat = clients.into_iter().find(|(name, _)| name == "rat").expect("one of two").1;
    // Others come, of which the rat holds one.
    let held: Vec<_> = (0..3)
        .map(|_| {
            let mut client = Client::connect(address).expect("the listener accepts");
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
            client
        })
        .collect();
    wait_until("a job to be held", || rat.held() > 0);
    assert_eq!(on_rat.get("/").expect("an answer").text(), "mole");
    rat.open();
    drop(held);
}
