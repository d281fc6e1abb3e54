//! Clients that attack: the director refuses, stays up, stays small, and serves the others.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use evener_tests::director::{Director, web, web_with};
use evener_tests::http::Client;
use evener_tests::load::Load;
use evener_tests::nginx::Nginx;
use evener_tests::nodes;
use evener_tests::{free_address, noise, raise_descriptor_limit, wait_until};

fn connect(address: SocketAddr) -> Client {
    Client::connect(address).expect("the listener accepts")
}

/// What each attempt needs to pass for something else at a node.
const AMBIGUOUS: &[(&str, &str)] = &[
    ("two lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!"),
    ("a length twice", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello"),
    ("a list of lengths", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 6\r\n\r\nhello!"),
    ("a signed length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello"),
    ("a hexadecimal length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x5\r\n\r\nhello"),
    ("an absurd length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n"),
    ("an empty length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n"),
    (
        "length and chunks",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunks and length",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    ),
    (
        "chunked not last",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    ),
    ("chunked twice", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n"),
    ("chunked misspelt", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n"),
    ("chunked with a tab", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n"),
    ("chunks in HTTP/1.0", "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    ("a space before the colon", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello"),
    ("a space before a name", "GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    ("a folded header", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\n\tContent-Length: 5\r\n\r\nhello"),
    ("bare line feeds", "GET / HTTP/1.1\nHost: a\n\n"),
    ("one bare line feed", "GET / HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n"),
    ("a bare carriage return", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\rY: 2\r\n\r\n"),
    ("NUL in a value", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\x002\r\n\r\n"),
    ("NUL in the target", "GET /\x00 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a space in the target", "GET / x HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
    ("no host", "GET / HTTP/1.1\r\nX: 1\r\n\r\n"),
    ("a header without colon", "GET / HTTP/1.1\r\nHost: a\r\nnonsense\r\n\r\n"),
    ("an empty name", "GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n"),
    ("a method that is none", "G<T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a version that is none", "GET / HTTP/1.11\r\nHost: a\r\n\r\n"),
    ("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n"),
];

const BAD_CHUNKS: &[(&str, &str)] = &[
    ("no size", "\r\nhello\r\n0\r\n\r\n"),
    ("a size that is none", "5g\r\nhello\r\n0\r\n\r\n"),
    ("a signed size", "+5\r\nhello\r\n0\r\n\r\n"),
    ("a prefixed size", "0x5\r\nhello\r\n0\r\n\r\n"),
    ("a size too large", "fffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
    ("a bare line feed", "5\nhello\r\n0\r\n\r\n"),
    ("data beyond the size", "5\r\nhello!\r\n0\r\n\r\n"),
    ("a bare line feed in an extension", "5;a\nb\r\nhello\r\n0\r\n\r\n"),
    ("a space before the size", " 5\r\nhello\r\n0\r\n\r\n"),
];

#[test]
fn nothing_ambiguous_reaches_a_node() {
    let node = nodes::echo();
    let address = free_address();
    let director = Director::start(&web(address, &[node.address]));
    for (name, attempt) in AMBIGUOUS {
        let mut client = connect(address);
        client.send(format!("{attempt}GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")).expect("sent");
        let answer = client.response().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(matches!(answer.status, 400 | 501 | 505), "{name}: {}", answer.head.start);
        assert!(client.rest().unwrap_or_default().is_empty(), "{name}: the connection ends with the refusal");
    }
    assert!(node.seen().is_empty(), "{:?}", node.seen());
    let metrics =
        evener_tests::prometheus::parse(director.admin("GET", "/metrics", "").text()).expect("metrics");
    let refused: f64 =
        metrics.iter().filter(|(name, _)| name.contains("refused")).map(|(_, family)| family.sum(&[])).sum();
    assert!(refused >= AMBIGUOUS.len() as f64, "refusals are counted: {refused}");
    assert_eq!(connect(address).get("/echo").expect("others are served").status, 200);
    assert_eq!(director.jobs(), 0);
}

#[test]
fn bad_chunks_end_the_request() {
    let node = nodes::echo();
    let address = free_address();
    let director = Director::start(&web(address, &[node.address]));
    for (name, chunks) in BAD_CHUNKS {
        for head_first in [false, true] {
            let mut client = connect(address);
            let head = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
            if head_first {
                client.send(format!("{head}3\r\nabc\r\n")).expect("sent");
                client.send(chunks).expect("sent");
            } else {
                client.send(format!("{head}{chunks}")).expect("sent");
            }
            let _ = client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
            if let Ok(answer) = client.response() {
                assert_eq!(answer.status, 400, "{name}");
            }
            assert!(client.rest().unwrap_or_default().is_empty(), "{name}: the connection ends");
        }
    }
    assert!(node.seen().is_empty(), "no request was complete: {:?}", node.seen());
    wait_until("the jobs to end", || director.jobs() == 0);
    assert_eq!(connect(address).get("/echo").expect("others are served").status, 200);
}

#[test]
fn absurd_sizes_are_refused() {
    let node = nodes::echo();
    let address = free_address();
    let limits = "limits = { head = \"64KiB\", headers = 128, body = \"1MiB\" }";
    let director = Director::start(&web_with(address, limits, &[node.address], ""));
    let status = |message: String| {
        let mut client = connect(address);
        let _ = client.send(message);
        client.response().expect("an answer").status
    };
    let long = "x".repeat(20_000);
    assert_eq!(
        status(format!("GET /echo HTTP/1.1\r\nHost: a\r\nX: {long}\r\n\r\n")),
        200,
        "20,000 bytes in one line"
    );
    assert_eq!(node.last().head.header("X").map(str::len), Some(20_000));
    assert_eq!(status(format!("GET /{long} HTTP/1.1\r\nHost: a\r\n\r\n")), 200);
    let longer = "x".repeat(70_000);
    assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {longer}\r\n\r\n")), 431);
    assert!(matches!(status(format!("GET /{longer} HTTP/1.1\r\nHost: a\r\n\r\n")), 414 | 431));
    assert_eq!(status(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(200))), 431);
    assert_eq!(status("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n".into()), 413);
    let chunk = format!("100000\r\n{}\r\n", "x".repeat(0x10_0000));
    let mut client = connect(address);
    let _ = client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"
    ));
    assert!(client.response().map_or(true, |answer| answer.status == 413), "a body too large in chunks");
    assert_eq!(node.seen().len(), 2);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn limits_of_requests_are_not_those_of_responses() {
    let node = nodes::Node::http(|_, stream| {
        let fields = "X-Field: 0123456789\r\n".repeat(500);
        nodes::respond(stream, "200 OK", &fields, b"ok")
    });
    let address = free_address();
    let limits = "limits = { head = \"1KiB\", headers = 10 }";
    let director = Director::start(&web_with(address, limits, &[node.address], ""));
    let answer = connect(address).get("/x").expect("an answer");
    assert_eq!((answer.status, answer.head.all("X-Field").count()), (200, 500));
    let mut client = connect(address);
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(11))).expect("sent");
    assert_eq!(client.response().expect("an answer").status, 431);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn requests_on_one_connection_are_limited() {
    let node = nodes::echo();
    let address = free_address();
    let _director = Director::start(&web_with(address, "limits = { requests = 3 }", &[node.address], ""));
    let mut client = connect(address);
    for i in 1..=3 {
        let answer = client.get("/echo").expect("an answer");
        assert_eq!(answer.head.has_token("Connection", "close"), i == 3, "{:?}", answer.head);
    }
    assert!(client.rest().expect("the connection closes").is_empty());
}

#[test]
fn a_client_that_is_let_go_may_have_sent_more() {
    let node = nodes::echo();
    let address = free_address();
    let director = Director::start(&web_with(address, "limits = { requests = 2 }", &[node.address], ""));
    let mut client = connect(address);
    let get = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send([get, get].concat()).expect("sent");
    for _ in 0..2 {
        assert_eq!(client.response().expect("an answer").status, 200);
    }
    // A reset here could overtake the last answer on its way.
    for _ in 0..20 {
        client.send(get).expect("it is read and thrown away");
        assert_eq!(connect(address).get("/echo").expect("others are served").status, 200);
    }
    assert!(client.rest().expect("the connection closes").is_empty());
    drop(client);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn slow_clients_run_into_their_timeouts_and_others_are_served() {
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    let timeouts = "timeouts = { head = \"1s\", idle = \"1s\", body = \"1s\" }";
    let director = Director::start(&web_with(address, timeouts, &nginx.addresses, ""));
    let load = Load::start(address, 4, Duration::from_millis(5));

    let begin = |text: &str| {
        let mut stream = TcpStream::connect(address).expect("the listener accepts");
        stream.write_all(text.as_bytes()).expect("sent");
        stream
    };
    let mut attackers = Vec::new();
    for _ in 0..50 {
        attackers.push((begin("GET / HTTP/1.1\r\nHost: a\r\nX-"), "a", true));
        attackers.push((begin("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n"), "", false));
        attackers.push((
            begin("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel"),
            "",
            false,
        ));
        attackers.push((begin(""), "", true));
        attackers.push((begin("GET / HTT"), "", true));
    }
    // The heads go on dripping: their time counts from the first byte and not from the last.
    wait_until("all slow clients to be let go", || {
        for (stream, drip, _) in &mut attackers {
            let _ = stream.write_all(drip.as_bytes());
        }
        attackers.retain(|(stream, _, _)| !ended(stream));
        attackers.is_empty()
    });
    let report = load.stop();
    println!("beside 250 slow clients: {report}");
    assert_eq!(report.failures(), 0, "{report}");
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn a_head_that_began_behind_another_request_has_its_time_too() {
    let node = nodes::echo();
    let address = free_address();
    let timeouts = "timeouts = { head = \"300ms\", idle = \"10m\" }";
    let director = Director::start(&web_with(address, timeouts, &[node.address], ""));
    let mut client = connect(address);
    client.send("GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HT").expect("sent");
    assert_eq!(client.response().expect("an answer").status, 200);
    assert_eq!(client.response().expect("an answer").status, 408);
    assert!(client.rest().expect("the connection closes").is_empty());
    assert_eq!(director.jobs(), 0);
}

/// Reads what there is; whether the connection has ended.
fn ended(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).expect("non-blocking");
    let mut bytes = [0; 4096];
    let end = loop {
        match stream.read(&mut bytes) {
            Ok(0) => break true,
            Ok(_) => {}
            Err(error) => break error.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    stream.set_nonblocking(false).expect("blocking");
    end
}

#[test]
fn half_requests_and_garbage_are_survived() {
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    let mut director = Director::start(&web(address, &nginx.addresses));
    let load = Load::start(address, 4, Duration::from_millis(5));
    let whole = "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    for length in 0..whole.len() {
        let mut client = connect(address);
        client.send(&whole[..length]).expect("sent");
        match length % 3 {
            0 => drop(client),
            1 => client.stream.shutdown(Shutdown::Write).expect("shut down"),
            _ => {
                let _ = nodes::reset(&client.stream);
            }
        }
    }
    for seed in 1..200 {
        let mut client = connect(address);
        let _ = client.send(noise(1 + seed as usize * 37 % 5000, seed));
        let _ = client.stream.shutdown(Shutdown::Write);
        let _ = client.rest();
    }
    let report = load.stop();
    println!("beside half requests and garbage: {report}");
    assert_eq!(report.failures(), 0, "{report}");
    assert!(director.runs());
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn a_client_that_does_not_read_is_cut_off_so_that_it_can_tell() {
    // The end of the connection is that of the body: a part must not look like the whole.
    let node = nodes::Node::http(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
        let piece = vec![b'x'; 1 << 20];
        (0..64).try_for_each(|_| stream.write_all(&piece))?;
        Err(std::io::ErrorKind::ConnectionAborted.into())
    });
    let address = free_address();
    let timeouts = "timeouts = { body = \"300ms\" }";
    let director = Director::start(&web_with(address, timeouts, &[node.address], ""));
    let mut client = connect(address);
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    wait_until("the client to be let go", || director.node("app", "n1")["outcomes"]["cancelled"] == 1);
    let error = client.rest().expect_err("a part of the body");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn clients_that_do_not_read_hold_no_memory() {
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    // All of them are read in the end, one after the other, which takes a slow machine a while.
    let timeouts = "timeouts = { body = \"10m\" }";
    let director = Director::start(&web_with(address, timeouts, &nginx.addresses, ""));
    let file = "/files/large";
    let size = 8 << 20;
    let put = format!("PUT {file} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n");
    let mut client = connect(address);
    client.send(put).expect("sent");
    client.send(noise(size, 3)).expect("sent");
    assert_eq!(client.response().expect("an answer").status, 201);

    let before = director.resident_bytes();
    let mut readers: Vec<_> = (0..100).map(|_| connect(address)).collect();
    for reader in &mut readers {
        reader.send(format!("GET {file} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("sent");
    }
    wait_until("all to be placed", || director.jobs() == 100);
    // Nothing tells when a stalled connection has taken all it will: other requests pass meanwhile.
    for _ in 0..500 {
        assert_eq!(connect(address).get("/x?n=1").expect("others are served").status, 200);
    }
    let grown = director.resident_bytes().saturating_sub(before);
    println!("100 clients that do not read 8 MiB each: {} KiB more in the director", grown >> 10);
    assert!(grown < 100 * (256 << 10), "{grown} bytes for 100 stalled clients");
    let bodies: Vec<_> =
        readers.into_iter().map(|mut reader| reader.response().map(|answer| answer.body.len())).collect();
    assert!(bodies.iter().all(|length| length.as_ref().is_ok_and(|&length| length == size)), "{bodies:?}");
}

#[test]
fn idle_connections_are_small() {
    const IDLE: usize = 5000;
    let limit = raise_descriptor_limit();
    assert!(limit > 6000, "this test needs 6,000 descriptors a process, and may have {limit}");
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    let director = Director::start(&web_with(address, "clients_max = 10000", &nginx.addresses, ""));
    let open = |count: usize| -> Vec<Client> {
        let mut clients: Vec<_> = (0..count).map(|_| connect(address)).collect();
        for client in &mut clients {
            client
                .send("GET /x?n=1 HTTP/1.1\r\nHost: example.com\r\nUser-Agent: idle\r\n\r\n")
                .expect("sent");
            assert_eq!(client.response().expect("an answer").status, 200);
        }
        clients
    };
    let first = open(100); // what is allocated once
    let before = director.resident_bytes();
    let mut idle = open(IDLE);
    let each = director.resident_bytes().saturating_sub(before) / IDLE as u64;
    println!("an idle keep-alive connection: {each} bytes of the director's own memory");
    assert!(each <= 4096, "{each} bytes for each idle connection");

    assert_eq!(connect(address).get("/x?n=2").expect("others are served").status, 200);
    for client in idle.iter_mut().step_by(50) {
        assert_eq!(client.get("/x?n=3").expect("an idle connection still works").text(), "rat 3\n");
    }
    drop((first, idle));
    let open = || {
        let page = director.admin("GET", "/metrics", "");
        let families = evener_tests::prometheus::parse(page.text()).expect("metrics");
        families
            .iter()
            .filter(|(name, _)| name.contains("listener") && name.contains("open"))
            .map(|(_, family)| family.sum(&[]))
            .sum::<f64>()
    };
    wait_until("all connections to be gone", || open() == 0.0);
}
