//! Requests find their pool by host and path.

use std::net::SocketAddr;

use evener_tests::director::{Director, pool_of};
use evener_tests::free_address;
use evener_tests::http::{Client, Response};
use evener_tests::nodes::{self, Node};

fn ask(address: SocketAddr, host: &str, target: &str) -> Response {
    let mut client = Client::connect(address).expect("the listener accepts");
    client.send(format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n")).expect("sent");
    client.response().expect("an answer")
}

fn start(routes: &str, default: bool) -> (Director, SocketAddr, Vec<Node>) {
    let address = free_address();
    let nodes: Vec<_> = ["a", "b", "c"].into_iter().map(nodes::named).collect();
    let pools: String =
        ["a", "b", "c"].iter().zip(&nodes).map(|(name, node)| pool_of(name, &[node.address], "")).collect();
    let default = if default { "pool = \"c\"" } else { "" };
    let listener =
        format!("[listener.web]\nbind = \"{address}\"\nprotocol = \"http\"\n{default}\nroute = [{routes}]\n");
    (Director::start(&(listener + &pools)), address, nodes)
}

#[test]
fn the_first_route_that_matches_takes_the_request() {
    let routes = r#"
        { host = "api.example.com", prefix = "/v1", pool = "a" },
        { path = "/exact", pool = "b" },
        { host = "*.wild.example", pool = "b" },
        { prefix = "/exact", pool = "a" },"#;
    let (_director, address, _nodes) = start(routes, true);
    let cases = [
        ("api.example.com", "/v1", "a"),
        ("api.example.com", "/v1/users?x=/exact", "a"),
        ("API.Example.COM:8080", "/v1/users", "a"),
        ("api.example.com", "/v10", "c"),
        ("api.example.com", "/", "c"),
        ("www.example.com", "/v1", "c"),
        ("www.example.com", "/exact", "b"),
        ("www.example.com", "/exact?query", "b"),
        ("www.example.com", "/exact/more", "a"),
        ("x.wild.example", "/", "b"),
        ("x.y.wild.example", "/", "b"),
        ("wild.example", "/", "c"),
    ];
    for (host, target, pool) in cases {
        assert_eq!(ask(address, host, target).text(), pool, "{host} {target}");
    }
}

#[test]
fn the_authority_of_an_absolute_target_wins_over_host() {
    let (_director, address, _nodes) =
        start(r#"{ host = "one.example", pool = "a" }, { host = "two.example", pool = "b" }"#, true);
    assert_eq!(ask(address, "two.example", "http://one.example/x").text(), "a");
    assert_eq!(ask(address, "one.example", "/x").text(), "a");
}

#[test]
fn requests_without_a_route_are_answered_with_404_and_keep_the_connection() {
    let (_director, address, nodes) = start(r#"{ prefix = "/known", pool = "a" }"#, false);
    let mut client = Client::connect(address).expect("the listener accepts");
    assert_eq!(client.get("/unknown").expect("an answer").status, 404);
    assert_eq!(client.get("/known").expect("an answer").text(), "a");
    assert_eq!(client.post("/unknown", &[b'x'; 10_000]).expect("an answer").status, 404);
    assert!(nodes[1].seen().is_empty() && nodes[2].seen().is_empty());
}
