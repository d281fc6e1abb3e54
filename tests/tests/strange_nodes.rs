//! Nodes that answer too much, too little, too early or not at all: clients get whole answers to their own
//! requests, or see that something failed, and no connection is used again that may be out of step.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use evener_tests::director::{Director, web_with};
use evener_tests::http::{Client, Head};
use evener_tests::nodes::{self, Node};
use evener_tests::{free_address, wait_until};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const POOL: &str = "scheduler = \"round-robin\"\neject = \"off\"";

/// What a node does when a head has come.
#[derive(Clone, Copy, Debug)]
enum Do {
    Say(&'static str),
    /// Reads so many bytes of a body.
    Read(usize),
    Close,
    Reset,
    /// Waits until the director gives up.
    Rest,
}

/// A node that follows a script, which is given how many heads came before this one, and the head.
fn scripted(script: impl Fn(usize, &Head) -> Vec<Do> + Send + Sync + 'static) -> Node {
    let heads = Mutex::new(0);
    Node::tcp(move |stream| {
        let mut client = Client::new(stream);
        while let Ok(Some(head)) = client.head() {
            let steps = {
                let mut heads = heads.lock().expect("no node thread panics");
                *heads += 1;
                script(*heads - 1, &head)
            };
            for step in steps {
                let done = match step {
                    Do::Say(text) => client.send(text),
                    Do::Read(length) => client.take(length).map(|_| ()),
                    Do::Close => return,
                    Do::Reset => nodes::reset(&client.stream),
                    Do::Rest => client.rest().map(|_| ()),
                };
                if done.is_err() {
                    return;
                }
            }
        }
    })
}

/// A node that says `first` to its first request and is a good one from then on.
fn once(first: &'static str) -> Node {
    scripted(move |count, _| vec![Do::Say(if count == 0 { first } else { OK })])
}

fn start(nodes: &[&Node], listener: &str, pool: &str) -> (Director, SocketAddr) {
    let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
    let address = free_address();
    let config = web_with(address, listener, &addresses, &format!("{POOL}\n{pool}"));
    (Director::start_with("workers = 1", &config), address)
}

fn connect(address: SocketAddr) -> Client {
    Client::connect(address).expect("the listener accepts")
}

fn finish(director: &Director) {
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn what_follows_a_response_is_not_the_next_one() {
    // Whether the node's connection is used again, what it says, and to what.
    let cases = [
        (true, "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"),
        (true, "HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"),
        (false, "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"),
        (true, "GET", "HTTP/1.1 204 None\r\n\r\n"),
        (false, "GET", "HTTP/1.1 204 None\r\nContent-Length: 5\r\n\r\nhello"),
        (true, "GET", "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\n"),
        (false, "GET", "HTTP/1.1 304 Same\r\nContent-Length: 5\r\n\r\nhello"),
        (
            false,
            "GET",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen",
        ),
        (false, "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nmore"),
        (false, "GET", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok"),
        (true, "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"),
        (false, "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok"),
    ];
    for (is_reused, method, first) in cases {
        let node = once(first);
        let (director, address) = start(&[&node], "", "");
        let mut client = connect(address);
        client.send(format!("{method} /x HTTP/1.1\r\nHost: a\r\n\r\n")).expect("sent");
        let answer = client.response_to(method).unwrap_or_else(|error| panic!("{first:?}: {error}"));
        assert!(matches!(answer.status, 200 | 204 | 304), "{first:?}: {answer:?}");
        let next = client.get("/next").unwrap_or_else(|error| panic!("{first:?}: {error}"));
        assert_eq!((next.status, next.text()), (200, "ok"), "{first:?}");
        assert_eq!(node.connections() == 1, is_reused, "{first:?}");
        finish(&director);
    }
}

#[test]
fn a_connection_that_speaks_at_rest_is_closed() {
    let held: Arc<Mutex<Vec<std::net::TcpStream>>> = Arc::default();
    let kept = Arc::clone(&held);
    let node = Node::http(move |_, stream| {
        kept.lock().expect("no panics").push(stream.try_clone()?);
        nodes::respond(stream, "200 OK", "", b"ok")
    });
    let (director, address) = start(&[&node], "", "");
    let mut client = connect(address);
    assert_eq!(client.get("/x").expect("an answer").text(), "ok");
    let connections = || director.node("app", "n1")["connections"].as_u64().expect("connections");
    assert_eq!(connections(), 1);
    let stolen = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nstolen";
    held.lock().expect("no panics")[0].write_all(stolen).expect("sent");
    wait_until("the connection to be closed", || connections() == 0);
    assert_eq!(client.get("/x").expect("an answer").text(), "ok");
}

#[test]
fn responses_that_can_be_read_in_two_ways_are_not_passed_on() {
    let cases = [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        "HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\nok",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: 1\r\n 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nX: 1\x002\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0x2\r\nok\r\n0\r\n\r\n",
        "HTTP/1.1 103 Hints\r\nContent-Length: 2\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 101 Unasked\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        "HTTP/1.1 99 Low\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/2 200 OK\r\nContent-Length: 2\r\n\r\nok",
        "just text\r\n\r\n",
    ];
    for first in cases {
        let node = once(first);
        let (director, address) = start(&[&node], "", "retry = { attempts = 0 }");
        let mut client = connect(address);
        assert_eq!(client.get("/x").expect("an answer").status, 502, "{first:?}");
        assert_eq!(client.get("/next").expect("an answer").text(), "ok", "{first:?}");
        assert_eq!(node.connections(), 2, "{first:?}");
        finish(&director);
    }
}

#[test]
fn half_an_answer_cannot_pass_for_a_whole_one() {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf";
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    let open = "HTTP/1.1 200 OK\r\n\r\nhalf";
    for (text, end) in [
        (length, Do::Close),
        (length, Do::Reset),
        (length, Do::Rest),
        (chunks, Do::Close),
        (chunks, Do::Say("no chunk\r\n")),
        (open, Do::Reset),
    ] {
        let node = scripted(move |_, _| vec![Do::Say(text), end]);
        let pool = "retry = { attempts = 0 }\ntimeouts = { body = \"300ms\" }";
        let (director, address) = start(&[&node], "", pool);
        let mut client = connect(address);
        match client.get("/x") {
            // All came at once: nothing of it has been passed on.
            Ok(answer) => assert_eq!(answer.status, 502, "{text:?}, {end:?}"),
            Err(error) => assert!(
                error.kind() == std::io::ErrorKind::ConnectionReset
                    || error.to_string().contains("closed within"),
                "{text:?}, {end:?}: {error}"
            ),
        }
        finish(&director);
    }
    let node = scripted(move |_, _| vec![Do::Say(open), Do::Close]);
    let (_director, address) = start(&[&node], "", "");
    assert_eq!(connect(address).get("/x").expect("an end by closing").text(), "half");
}

#[test]
fn a_request_that_meets_a_closing_connection_is_sent_again_if_that_is_safe() {
    // It answers the first request on a connection, and closes when the second has come.
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let node = Node::tcp(move |stream| {
        let mut client = Client::new(stream);
        for count in 0..2 {
            let Ok(Some(head)) = client.head() else { return };
            log.lock().expect("no panics").push(head.start.clone());
            if count == 0 {
                let _ = client.send(OK);
            }
        }
    });
    let (director, address) = start(&[&node], "", "");
    let mut client = connect(address);
    for _ in 0..3 {
        assert_eq!(client.get("/x").expect("an answer").status, 200);
    }
    client.send("POST /once HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n").expect("sent");
    assert_eq!(client.response().expect("an answer").status, 502);
    let posts = seen.lock().expect("no panics").iter().filter(|start| start.starts_with("POST")).count();
    assert_eq!(posts, 1, "a POST that went out is not sent again");
    finish(&director);
}

const EXPECT: &str = "Host: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n";

#[test]
fn a_node_that_does_not_ask_for_the_body_is_too_slow_not_the_client() {
    let node = scripted(|_, _| vec![Do::Rest]);
    let listener = "timeouts = { body = \"100ms\" }";
    let (director, address) = start(&[&node], listener, "timeouts = { response = \"500ms\" }");
    let mut client = connect(address);
    client.send(format!("POST /x HTTP/1.1\r\n{EXPECT}")).expect("sent");
    assert_eq!(client.response().expect("an answer").status, 504);
    assert_eq!(director.node("app", "n1")["outcomes"]["timeout"], 1);
    finish(&director);
}

#[test]
fn a_node_that_asked_for_the_body_leaves_the_client_its_own_time() {
    let node = scripted(|_, _| vec![Do::Say("HTTP/1.1 100 Continue\r\n\r\n"), Do::Rest]);
    let listener = "timeouts = { body = \"300ms\" }";
    let (director, address) = start(&[&node], listener, "timeouts = { response = \"100ms\" }");
    let mut client = connect(address);
    client.send(format!("POST /x HTTP/1.1\r\n{EXPECT}")).expect("sent");
    let answer = client.response().expect("an answer");
    assert_eq!((answer.interim, answer.status), (vec![100], 408));
    finish(&director);
}

#[test]
fn a_body_that_is_still_to_come_goes_to_the_next_node() {
    let asks = || scripted(|_, _| vec![Do::Say("HTTP/1.1 100 Continue\r\n\r\n"), Do::Read(4), Do::Say(OK)]);
    // Idempotent: another node is tried though the first may have seen the head.
    let (resets, asking) = (scripted(|_, _| vec![Do::Reset]), asks());
    let (director, address) = start(&[&resets, &asking], "", "");
    for _ in 0..2 {
        let mut client = connect(address);
        client.send(format!("PUT /x HTTP/1.1\r\n{EXPECT}")).expect("sent");
        assert_eq!(client.head().expect("a head").expect("an answer").start, "HTTP/1.1 100 Continue");
        client.send("body").expect("sent");
        assert_eq!(client.response().expect("an answer").text(), "ok");
    }
    assert!(resets.connections() > 0);
    finish(&director);

    // Not idempotent: only where nothing was sent.
    let (director, address) = start(&[&resets, &asking], "", "");
    let statuses: Vec<_> = (0..2)
        .map(|_| {
            let mut client = connect(address);
            client.send(format!("POST /x HTTP/1.1\r\n{EXPECT}body")).expect("sent");
            client.response().expect("an answer").status
        })
        .collect();
    assert!(statuses == [200, 502] || statuses == [502, 200], "{statuses:?}");
    finish(&director);

    let asking = asks();
    let address = free_address();
    let nodes = [free_address(), asking.address];
    let director = Director::start_with("workers = 1", &web_with(address, "", &nodes, POOL));
    for _ in 0..2 {
        let mut client = connect(address);
        client.send(format!("POST /x HTTP/1.1\r\n{EXPECT}")).expect("sent");
        assert_eq!(client.head().expect("a head").expect("an answer").start, "HTTP/1.1 100 Continue");
        client.send("body").expect("sent");
        assert_eq!(client.response().expect("an answer").text(), "ok");
    }
    finish(&director);
}

#[test]
fn an_answer_before_the_body_ends_the_connection_and_says_so() {
    for early in ["HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n", OK] {
        let node = once(early);
        let (director, address) = start(&[&node], "", "");
        let mut client = connect(address);
        client.send(format!("POST /x HTTP/1.1\r\n{EXPECT}")).expect("sent");
        let answer = client.response().expect("an answer");
        assert!(answer.head.has_token("Connection", "close"), "{:?}", answer.head);
        // What the client still sends is no request.
        let _ = client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.rest().unwrap_or_default().is_empty());
        assert_eq!(connect(address).get("/x").expect("an answer").text(), "ok");
        assert_eq!(node.connections(), 2, "the node may still wait for the body");
        finish(&director);
    }
}

#[test]
fn a_failure_within_a_pipeline_keeps_to_its_request() {
    let node =
        scripted(|_, head| if head.start.starts_with("POST") { vec![Do::Reset] } else { vec![Do::Say(OK)] });
    let (director, address) = start(&[&node], "", "");
    let mut client = connect(address);
    let get = "GET /x HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(format!("{get}POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n{get}")).expect("sent");
    let statuses: Vec<_> = (0..3).map(|_| client.response().expect("an answer").status).collect();
    assert_eq!(statuses, [200, 502, 200]);
    finish(&director);
}

#[test]
fn an_upgrade_that_is_refused_is_an_ordinary_answer() {
    let node =
        once("HTTP/1.1 426 Other\r\nConnection: upgrade\r\nUpgrade: other\r\nContent-Length: 0\r\n\r\n");
    let (director, address) = start(&[&node], "", "");
    let mut client = connect(address);
    client
        .send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n")
        .expect("sent");
    let answer = client.response().expect("an answer");
    assert_eq!((answer.status, answer.header("Upgrade")), (426, Some("other")));
    assert_eq!(client.get("/x").expect("an answer").text(), "ok");
    assert_eq!(node.connections(), 1);
    finish(&director);
}

#[test]
fn http_1_0_clients_hear_nothing_of_chunks_even_from_head() {
    let node = once("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n");
    let (director, address) = start(&[&node], "", "");
    let mut client = connect(address);
    client.send("HEAD /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").expect("sent");
    let answer = client.response_to("HEAD").expect("an answer");
    assert_eq!(
        (answer.status, answer.header("Transfer-Encoding"), answer.header("Trailer")),
        (200, None, None)
    );
    client.send("GET /x HTTP/1.0\r\n\r\n").expect("sent");
    assert_eq!(client.response().expect("an answer").text(), "ok");
    finish(&director);
}
