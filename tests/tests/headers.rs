//! What is added to messages that pass, what is taken out, and what stays as it was.

use std::net::SocketAddr;

use evener_tests::director::{Director, web_with};
use evener_tests::free_address;
use evener_tests::http::{Client, Response};
use evener_tests::nodes::{self, Node, Received};

fn start(listener: &str) -> (Director, SocketAddr, Node) {
    let node = nodes::echo();
    let address = free_address();
    (Director::start(&web_with(address, listener, &[node.address], "")), address, node)
}

/// Sends a GET with further headers: what the node got, and its answer.
fn pass(address: SocketAddr, node: &Node, headers: &str) -> (Received, Response) {
    let mut client = Client::connect(address).expect("the listener accepts");
    client.send(format!("GET /x HTTP/1.1\r\nHost: www.example.com\r\n{headers}\r\n")).expect("sent");
    let answer = client.response().expect("an answer");
    (node.last(), answer)
}

#[test]
fn defaults_tell_the_node_who_asked() {
    let (_director, address, node) = start("");
    let (received, _) = pass(
        address,
        &node,
        "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nX-Request-Id: forged\r\n",
    );
    let head = &received.head;
    assert_eq!(head.all("X-Forwarded-For").collect::<Vec<_>>(), ["127.0.0.1"]);
    assert_eq!(head.all("X-Forwarded-Proto").collect::<Vec<_>>(), ["http"]);
    assert_eq!(head.all("X-Forwarded-Host").collect::<Vec<_>>(), ["www.example.com"]);
    assert_eq!(head.header("Host"), Some("www.example.com"));
    assert!(head.header("Via").is_some_and(|via| via.ends_with("evener")), "{head:?}");
    assert!(head.header("Forwarded").is_none());
    let id = head.header("X-Request-Id").expect("a request id");
    assert!(id.len() >= 16 && id != "forged", "{id}");
    let (next, _) = pass(address, &node, "");
    assert_ne!(next.head.header("X-Request-Id"), Some(id), "each request has its own");
}

#[test]
fn trusted_clients_are_believed() {
    let (_director, address, node) = start("trusted = [\"127.0.0.0/8\"]\nheaders = { forwarded = true }");
    let sent = "X-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: first.example\r\n\
                Forwarded: for=9.9.9.9;proto=https\r\nX-Request-Id: 0123456789abcdef\r\n";
    let (received, _) = pass(address, &node, sent);
    let head = &received.head;
    let joined = |name| head.all(name).collect::<Vec<_>>().join(", ");
    assert_eq!(joined("X-Forwarded-For"), "9.9.9.9, 127.0.0.1");
    assert_eq!(joined("X-Forwarded-Proto"), "https");
    assert_eq!(joined("X-Forwarded-Host"), "first.example");
    assert_eq!(joined("X-Request-Id"), "0123456789abcdef");
    let forwarded = joined("Forwarded");
    assert!(
        forwarded.starts_with("for=9.9.9.9;proto=https, ") && forwarded.contains("for=127.0.0.1"),
        "{forwarded}"
    );
}

#[test]
fn each_header_can_be_left_out() {
    let off = "headers = { x_forwarded_for = false, x_forwarded_proto = false, x_forwarded_host = false, via = false, request_id = false }";
    let (_director, address, node) = start(off);
    let (received, answer) = pass(address, &node, "");
    for name in
        ["X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Via", "X-Request-Id", "Forwarded"]
    {
        assert_eq!(received.head.header(name), None, "{name}");
    }
    assert_eq!(answer.header("Via"), None);
}

#[test]
fn hop_by_hop_headers_stop_here() {
    let (_director, address, node) = start("");
    let sent = "Connection: keep-alive, X-Secret, close\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nTE: gzip\r\n\
                Proxy-Connection: keep-alive\r\nX-Kept: as  it\tis\r\n";
    let (received, _) = pass(address, &node, sent);
    for name in ["X-Secret", "Keep-Alive", "Proxy-Connection"] {
        assert_eq!(received.head.header(name), None, "{name}");
    }
    assert!(!received.head.has_token("TE", "gzip"));
    assert!(!received.head.has_token("Connection", "X-Secret"));
    assert!(!received.head.has_token("Connection", "close"), "the node's connection is kept all the same");
    assert_eq!(received.head.header("X-Kept"), Some("as  it\tis"));
}

#[test]
fn hop_by_hop_headers_of_the_node_stop_here_too() {
    let node = Node::http(|_, stream| {
        nodes::respond(
            stream,
            "200 Fine",
            "Connection: X-Inner\r\nX-Inner: 1\r\nKeep-Alive: timeout=9\r\nX-Outer: 2\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n",
            b"",
        )
    });
    let address = free_address();
    let _director = Director::start(&web_with(address, "", &[node.address], ""));
    let (_, answer) = pass(address, &node, "");
    assert_eq!((answer.header("X-Inner"), answer.header("Keep-Alive")), (None, None));
    assert_eq!(answer.header("X-Outer"), Some("2"));
    assert_eq!(answer.head.all("Set-Cookie").collect::<Vec<_>>(), ["a=1", "b=2"]);
    assert_eq!(answer.head.start, "HTTP/1.1 200 Fine");
}

#[test]
fn names_order_and_repetitions_are_kept() {
    let (_director, address, node) = start("");
    let (received, _) = pass(address, &node, "x-ONE: 1\r\nAccept: a\r\naccept: b\r\nX-two:2\r\nX-Empty:\r\n");
    let names = ["x-ONE", "Accept", "accept", "X-two", "X-Empty"];
    let kept: Vec<_> =
        received.head.headers.iter().filter(|(name, _)| names.contains(&name.as_str())).collect();
    let expected = [("x-ONE", "1"), ("Accept", "a"), ("accept", "b"), ("X-two", "2"), ("X-Empty", "")];
    assert_eq!(
        kept,
        expected.map(|(name, value)| (name.to_owned(), value.to_owned())).iter().collect::<Vec<_>>()
    );
}
