//! TCP listeners: bytes pass untouched, each direction ends on its own, addresses are handed on.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use evener_tests::director::{Director, pool_of, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Node};
use evener_tests::{DEADLINE, checksum, free_address, noise, wait_until};

fn config(address: SocketAddr, listener: &str, nodes: &[SocketAddr], pool: &str) -> String {
    format!("[listener.raw]\nbind = \"{address}\"\nprotocol = \"tcp\"\npool = \"app\"\n{listener}\n")
        + &pool_of("app", nodes, pool)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the listener accepts");
    stream.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    stream
}

fn read_all(mut stream: &TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("the stream ends");
    bytes
}

#[test]
fn half_close_is_kept_both_ways() {
    // The node sends its part, ends its direction, and goes on reading.
    let (report, reported) = std::sync::mpsc::channel();
    let report = std::sync::Mutex::new(report);
    let node = Node::tcp(move |mut stream| {
        stream.write_all(b"from the node").expect("sent");
        stream.shutdown(Shutdown::Write).expect("shut down");
        let _ = report.lock().expect("no panics").send(read_all(&stream));
    });
    let address = free_address();
    let director = Director::start(&config(address, "", &[node.address], ""));
    let mut client = connect(address);
    assert_eq!(read_all(&client), b"from the node");
    client.write_all(b"from the client, later").expect("the other direction is still open");
    client.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(
        reported.recv_timeout(DEADLINE).expect("the node reads to the end"),
        b"from the client, later"
    );
    wait_until("the job to end", || director.jobs() == 0);

    let echo = nodes::tcp_echo();
    let address = free_address();
    let director = Director::start(&config(address, "", &[echo.address], ""));
    let mut client = connect(address);
    client.write_all(b"ended early").expect("sent");
    client.shutdown(Shutdown::Write).expect("shut down");
    assert_eq!(read_all(&client), b"ended early");
    wait_until("the job to end", || director.jobs() == 0);
}

#[test]
fn large_streams_pass_both_ways_at_once() {
    let node = nodes::tcp_echo();
    let address = free_address();
    let director = Director::start(&config(address, "", &[node.address], ""));
    let piece = noise(1 << 20, 11);
    let client = connect(address);
    let mut writer = client.try_clone().expect("a second handle");
    let sent = piece.clone();
    let sender = std::thread::spawn(move || {
        for _ in 0..64 {
            writer.write_all(&sent).expect("sent");
        }
        writer.shutdown(Shutdown::Write).expect("shut down");
    });
    let expected = checksum(&piece);
    let mut back = vec![0; piece.len()];
    for _ in 0..64 {
        (&client).read_exact(&mut back).expect("it comes back");
        assert_eq!(checksum(&back), expected);
    }
    assert!(read_all(&client).is_empty());
    sender.join().expect("all was sent");
    wait_until("the job to end", || director.jobs() == 0);
}

#[test]
fn a_node_that_is_down_is_passed_over() {
    let node = nodes::tcp_echo();
    let address = free_address();
    let down = free_address();
    let director =
        Director::start(&config(address, "", &[down, node.address], "scheduler = \"round-robin\""));
    for i in 0..20 {
        let mut client = connect(address);
        let message = format!("connection {i}");
        client.write_all(message.as_bytes()).expect("sent");
        client.shutdown(Shutdown::Write).expect("shut down");
        assert_eq!(read_all(&client), message.as_bytes());
    }
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn clients_are_let_go_when_no_node_accepts() {
    let address = free_address();
    let director = Director::start(&config(address, "", &[free_address()], ""));
    let client = connect(address);
    let mut byte = [0];
    assert!(!matches!((&client).read(&mut byte), Ok(1..)), "closed or reset, without a byte");
    wait_until("the job to end", || director.jobs() == 0);
}

#[test]
fn a_reset_is_handed_on() {
    let node = Node::tcp(|mut stream| {
        let _ = stream.read(&mut [0; 16]);
        let _ = nodes::reset(&stream);
    });
    let address = free_address();
    let director = Director::start(&config(address, "", &[node.address], ""));
    let mut client = connect(address);
    client.write_all(b"x").expect("sent");
    let mut byte = [0];
    assert!(!matches!(client.read(&mut byte), Ok(1..)), "closed or reset, without a byte");
    wait_until("the job to end", || director.jobs() == 0);
}

/// A node that gives back whatever comes first on each connection.
fn header_node() -> Node {
    Node::tcp(|mut stream| {
        let mut bytes = [0; 512];
        if let Ok(length) = stream.read(&mut bytes) {
            let _ = stream.write_all(&bytes[..length]);
        }
    })
}

#[test]
fn proxy_headers_tell_the_node_the_client() {
    for version in ["v1", "v2"] {
        let node = header_node();
        let address = free_address();
        let _director =
            Director::start(&config(address, "", &[node.address], &format!("send_proxy = \"{version}\"")));
        let mut client = connect(address);
        client.write_all(b"payload").expect("sent");
        let local = client.local_addr().expect("an address");
        let mut expected = proxy_header(version, local, address);
        let mut back = vec![0; expected.len()];
        client.read_exact(&mut back).expect("the header comes back");
        if version == "v2" {
            // The lowest byte of the third word is address family and transport: TCP over IPv4.
            expected.truncate(28);
            back.truncate(28);
        }
        assert_eq!(back, expected, "{version}");
    }
}

#[test]
fn proxy_headers_from_clients_are_believed_where_asked_for() {
    let source: SocketAddr = "192.0.2.7:4321".parse().expect("an address");
    for version in ["v1", "v2"] {
        let node = header_node();
        let address = free_address();
        let _director =
            Director::start(&config(address, "accept_proxy = true", &[node.address], "send_proxy = \"v1\""));
        let mut client = connect(address);
        let header = proxy_header(version, source, address);
        for byte in &header {
            client.write_all(&[*byte]).expect("sent byte by byte");
        }
        client.write_all(b"payload").expect("sent");
        let expected = proxy_header("v1", source, address);
        let mut back = vec![0; expected.len()];
        client.read_exact(&mut back).expect("the header comes back");
        assert_eq!(String::from_utf8_lossy(&back), String::from_utf8_lossy(&expected));
    }
}

#[test]
fn proxy_headers_work_for_http_too() {
    let node = nodes::echo();
    let address = free_address();
    let _director = Director::start(&web_with(address, "accept_proxy = true", &[node.address], ""));
    let source: SocketAddr = "192.0.2.7:4321".parse().expect("an address");
    let mut client = Client::connect(address).expect("the listener accepts");
    let mut message = proxy_header("v2", source, address);
    message.extend(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(message).expect("sent");
    assert_eq!(client.response().expect("an answer").status, 200);
    assert_eq!(node.last().head.header("X-Forwarded-For"), Some("192.0.2.7"));

    let mut client = Client::connect(address).expect("the listener accepts");
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let _ = client.rest();
    assert_eq!(node.seen().len(), 1, "without its header a connection is refused");
}

/// An HTTP node that answers with the port of the client that the connection's PROXY header names,
/// or with "nobody" if there is none.
fn owner_node() -> Node {
    Node::tcp(|mut stream| {
        let (mut input, mut owner, mut bytes) = (String::new(), None, [0; 4096]);
        while let Ok(length @ 1..) = stream.read(&mut bytes) {
            input.push_str(&String::from_utf8_lossy(&bytes[..length]));
            while let Some(end) = input.find("\r\n\r\n") {
                let message: String = input.drain(..end + 4).collect();
                let port = message.split("\r\n").next().filter(|line| line.starts_with("PROXY "));
                let port = port.and_then(|line| line.split(' ').nth(4).map(str::to_owned));
                let owner = owner.get_or_insert(port.unwrap_or_else(|| "nobody".to_owned()));
                let _ = nodes::respond(&mut stream, "200 OK", "", owner.as_bytes());
            }
        }
    })
}

#[test]
fn a_connection_that_names_a_client_is_used_for_no_other() {
    let node = owner_node();
    let address = free_address();
    let config = |pool: &str| web_with(address, "", &[node.address], pool);
    let director = Director::start_with("workers = 1", &config("send_proxy = \"v1\""));
    let mut clients: Vec<_> =
        (0..3).map(|_| Client::connect(address).expect("the listener accepts")).collect();
    let port = |client: &Client| client.stream.local_addr().expect("an address").port().to_string();
    for _ in 0..5 {
        for client in &mut clients {
            let answer = client.get("/x").expect("an answer");
            assert_eq!(answer.text(), port(client));
        }
    }

    // Connections from before a reload belong to whom they belonged to then.
    director.write_config(&config(""));
    assert_eq!(director.reload().status, 200);
    for client in &mut clients {
        wait_until("connections without a header", || {
            client.get("/x").expect("an answer").text() == "nobody"
        });
    }
    director.write_config(&config("send_proxy = \"v1\""));
    assert_eq!(director.reload().status, 200);
    for client in &mut clients {
        let answer = client.get("/x").expect("an answer");
        assert_eq!(answer.text(), port(client));
    }
    wait_until("the jobs to end", || director.jobs() == 0);
}

fn proxy_header(version: &str, source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
    if version == "v1" {
        let (from, to) = (source.ip(), destination.ip());
        return format!("PROXY TCP4 {from} {to} {} {}\r\n", source.port(), destination.port()).into_bytes();
    }
    let octets = |address: SocketAddr| match address {
        SocketAddr::V4(address) => address.ip().octets(),
        SocketAddr::V6(_) => unreachable!("the tests use IPv4"),
    };
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    header.extend(octets(source).into_iter().chain(octets(destination)));
    header.extend(source.port().to_be_bytes().into_iter().chain(destination.port().to_be_bytes()));
    header
}
