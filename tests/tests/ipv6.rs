//! IPv6 on the loopback: listeners, nodes, and addresses wherever they are written down.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};

use evener_tests::clients::curl;
use evener_tests::director::{Director, pool_of, web_with};
use evener_tests::http::Client;
use evener_tests::nginx::Nginx;
use evener_tests::nodes::{self, Node};
use evener_tests::{DEADLINE, free_address_on, wait_until};

const LOOPBACK: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

/// Whether this machine has an IPv6 loopback; says so if a test is left out for that.
fn has_ipv6() -> bool {
    let error = TcpListener::bind((LOOPBACK, 0)).err();
    if let Some(error) = &error {
        println!("SKIPPED: this machine has no [::1]: {error}");
    }
    error.is_none()
}

/// Answers with the request's head.
fn head_node() -> Node {
    Node::http_on(LOOPBACK, |request, stream| {
        let lines: Vec<_> =
            request.head.headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        nodes::respond(stream, "200 OK", "", lines.join("\n").as_bytes())
    })
}

#[test]
fn listener_and_nodes_are_on_ipv6() {
    if !has_ipv6() {
        return;
    }
    let nginx = Nginx::start_on(LOOPBACK, &["rat", "vole"]);
    let address = free_address_on(LOOPBACK);
    let to: Vec<_> = nginx.addresses.iter().map(SocketAddr::to_string).collect();
    let listen = format!("http://{address}");
    let arguments = ["run", "--listen", &listen, "--to", &to[0], "--to", &to[1]];
    let director = Director::start_from_arguments(
        &[&arguments[..], &["--scheduler", "round-robin", "--workers", "1"]].concat(),
    );
    let answers: Vec<_> = (0..4).map(|_| curl(&["--globoff", &format!("{listen}/?n=1")])).collect();
    assert_eq!(answers, ["rat 1\n", "vole 1\n", "rat 1\n", "vole 1\n"]);
    // Without names, nodes are called by their addresses.
    assert_eq!(director.json("/pools")["pools"][0]["nodes"][0]["name"], to[0]);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn ipv6_clients_are_named_as_each_header_wants_it() {
    if !has_ipv6() {
        return;
    }
    let node = head_node();
    let address = free_address_on(LOOPBACK);
    let _director =
        Director::start(&web_with(address, "headers = { forwarded = true }", &[node.address], ""));
    let mut client = Client::connect(address).expect("the listener accepts");
    client.send(format!("GET /x HTTP/1.1\r\nHost: {address}\r\nX-Forwarded-For: ::2\r\n\r\n")).expect("sent");
    assert_eq!(client.response().expect("an answer").status, 200);
    let head = node.last().head;
    assert_eq!(head.all("X-Forwarded-For").collect::<Vec<_>>(), ["::1"]);
    assert_eq!(head.header("X-Forwarded-Host"), Some(&*address.to_string()));
    let forwarded = head.header("Forwarded").expect("the header");
    assert!(forwarded.contains("for=\"[::1]\""), "{forwarded}");
}

#[test]
fn ipv6_clients_are_trusted_by_block() {
    if !has_ipv6() {
        return;
    }
    for (block, expected) in [("::/64", "::2, ::1"), ("::1/128", "::2, ::1"), ("2001:db8::/32", "::1")] {
        let node = head_node();
        let address = free_address_on(LOOPBACK);
        let listener = format!("trusted = [\"{block}\"]");
        let _director = Director::start(&web_with(address, &listener, &[node.address], ""));
        let mut client = Client::connect(address).expect("the listener accepts");
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: ::2\r\n\r\n").expect("sent");
        assert_eq!(client.response().expect("an answer").status, 200);
        let head = node.last().head;
        assert_eq!(head.all("X-Forwarded-For").collect::<Vec<_>>().join(", "), expected, "{block}");
    }
}

#[test]
fn hosts_in_brackets_are_routed() {
    if !has_ipv6() {
        return;
    }
    let (app, other) = (nodes::named("app"), nodes::named("other"));
    let address = free_address_on(LOOPBACK);
    let listener = "route = [{ host = \"[::1]\", pool = \"other\" }]";
    let config = web_with(address, listener, &[app.address], "") + &pool_of("other", &[other.address], "");
    let _director = Director::start(&config);
    let mut client = Client::connect(address).expect("the listener accepts");
    for (host, expected) in [("[::1]", "other"), ("[::1]:80", "other"), ("[::2]", "app"), ("a", "app")] {
        client.send(format!("GET /x HTTP/1.1\r\nHost: {host}\r\n\r\n")).expect("sent");
        assert_eq!(client.response().expect("an answer").text(), expected, "{host}");
    }
}

#[test]
fn a_port_without_an_address_serves_both_families() {
    if !has_ipv6() {
        return;
    }
    let node = head_node();
    let port = free_address_on(Ipv6Addr::UNSPECIFIED).port();
    let listener =
        format!("[listener.web]\nbind = \":{port}\"\npool = \"app\"\ntrusted = [\"127.0.0.0/8\"]\n");
    let _director = Director::start(&(listener + &pool_of("app", &[node.address], "")));
    let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // An IPv4 client is one, though it came over an IPv6 socket.
    for (address, expected) in [(v4, "192.0.2.7, 127.0.0.1"), ((LOOPBACK, port).into(), "::1")] {
        let mut client = Client::connect(address).expect("the listener accepts");
        client.send("GET /x HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\n\r\n").expect("sent");
        assert_eq!(client.response().expect("an answer").status, 200);
        let head = node.last().head;
        assert_eq!(head.all("X-Forwarded-For").collect::<Vec<_>>().join(", "), expected);
    }
}

#[test]
fn tcp_and_proxy_headers_carry_ipv6() {
    if !has_ipv6() {
        return;
    }
    // It gives back whatever comes, after the end of the client's direction.
    let node = Node::tcp_on(LOOPBACK, |mut stream| {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        let _ = stream.write_all(&bytes);
    });
    let address = free_address_on(LOOPBACK);
    let source: SocketAddr = "[2001:db8::7]:4321".parse().expect("an address");
    for (accept, version) in [(false, "v1"), (true, "v1"), (false, "v2"), (true, "v2")] {
        let config = format!(
            "[listener.raw]\nbind = \"{address}\"\nprotocol = \"tcp\"\npool = \"app\"\naccept_proxy = {accept}\n"
        ) + &pool_of("app", &[node.address], &format!("send_proxy = \"{version}\""));
        let director = Director::start(&config);
        let mut client = TcpStream::connect(address).expect("the listener accepts");
        client.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let told = if accept { source } else { client.local_addr().expect("an address") };
        let header = proxy_header(version, told, address);
        if accept {
            client.write_all(&header).expect("sent");
        }
        client.write_all(b"payload").expect("sent");
        client.shutdown(Shutdown::Write).expect("shut down");
        let mut back = Vec::new();
        client.read_to_end(&mut back).expect("it comes back");
        assert_eq!(back, [&header[..], b"payload"].concat(), "{version}, accepted: {accept}");
        wait_until("the job to end", || director.jobs() == 0);
    }
}

fn proxy_header(version: &str, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    if version == "v1" {
        let (from, to) = (source.ip(), destination.ip());
        return format!("PROXY TCP6 {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes();
    }
    let octets = |address: SocketAddr| match address {
        SocketAddr::V6(address) => address.ip().octets(),
        SocketAddr::V4(_) => unreachable!("these tests use IPv6"),
    };
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x24".to_vec();
    header.extend(octets(source).into_iter().chain(octets(destination)));
    header.extend(source.port().to_be_bytes().into_iter().chain(destination.port().to_be_bytes()));
    header
}
