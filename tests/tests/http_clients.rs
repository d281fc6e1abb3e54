//! Real HTTP clients speak to real and to echoing nodes through the director.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use evener_tests::clients::{curl, go, python, python_program, script};
use evener_tests::director::{Director, web};
use evener_tests::http::Client;
use evener_tests::nginx::Nginx;
use evener_tests::nodes::{self, Node};
use evener_tests::{checksum, free_address, noise};

fn echoing() -> (Director, SocketAddr, Node) {
    let node = nodes::echo();
    let address = free_address();
    (Director::start(&web(address, &[node.address])), address, node)
}

#[test]
fn curl_gets_and_puts_files_on_nginx() {
    let nginx = Nginx::start(&["rat"]);
    let address = free_address();
    let director = Director::start(&web(address, &nginx.addresses));
    let url = format!("http://{address}");
    assert_eq!(curl(&[&format!("{url}/x?n=1")]), "rat 1\n");
    assert_eq!(curl(&["--http1.0", &format!("{url}/x?n=2")]), "rat 2\n");

    let (sent, back) = (director.folder.path().join("sent"), director.folder.path().join("back"));
    std::fs::write(&sent, noise(10 << 20, 7)).expect("a file to send");
    let (sent_path, back_path) = (sent.display().to_string(), back.display().to_string());
    let file = format!("{url}/files/big");
    curl(&["--fail", "--upload-file", &sent_path, &file]);
    curl(&["--fail", "--output", &back_path, &file]);
    let read = |path| checksum(&std::fs::read(path).expect("a file"));
    assert_eq!(read(&sent), read(&back));
    curl(&["--fail", "-H", "Transfer-Encoding: chunked", "--upload-file", &sent_path, &file]);
    curl(&["--fail", "--output", &back_path, &file]);
    assert_eq!(read(&sent), read(&back));
    let head = curl(&["--fail", "--head", &file]);
    assert!(head.to_lowercase().contains("content-length: 10485760"), "{head}");
    let part = curl(&[
        "--fail",
        "--range",
        "0-99",
        "--write-out",
        "%{http_code} %{size_download}",
        "--output",
        "/dev/null",
        &file,
    ]);
    assert_eq!(part, "206 100");
}

#[test]
fn curl_keeps_its_connection() {
    let nginx = Nginx::start(&["rat", "watervole"]);
    let address = free_address();
    let _director = Director::start(&web(address, &nginx.addresses));
    let urls: Vec<_> = (0..5).map(|n| format!("http://{address}/x?n={n}")).collect();
    let mut arguments = vec!["--write-out", "%{num_connects}\n", "--output", "/dev/null"];
    for (i, url) in urls.iter().enumerate() {
        arguments.push(url);
        if i > 0 {
            arguments.extend(["--output", "/dev/null"]);
        }
    }
    assert_eq!(curl(&arguments), "1\n0\n0\n0\n0\n");
}

#[test]
fn curl_posts_with_100_continue() {
    let (_director, address, node) = echoing();
    let answer =
        curl(&["-H", "Expect: 100-continue", "--data-binary", "waited", &format!("http://{address}/echo")]);
    assert_eq!(answer, "waited");
    assert_eq!(node.last().body, b"waited");
}

#[test]
fn python_http_client() {
    let (_director, address, _node) = echoing();
    python("http_client.py", &[&format!("http://{address}")]);
}

#[test]
fn python_h11() {
    let (_director, address, _node) = echoing();
    python("h11_client.py", &[&format!("http://{address}")]);
}

#[test]
fn go_net_http() {
    let (_director, address, _node) = echoing();
    go(&[&format!("http://{address}")]);
}

#[test]
fn websocket_passes_through() {
    let mut command = Command::new(python_program());
    command.arg(script("websocket_node.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut node = command.spawn().expect("the WebSocket node starts");
    let mut line = String::new();
    BufReader::new(node.stdout.take().expect("piped")).read_line(&mut line).expect("the node's port");
    let port: u16 = line.trim().parse().expect("a port");
    let address = free_address();
    let director = Director::start(&web(address, &[SocketAddr::from(([127, 0, 0, 1], port))]));
    python("websocket_client.py", &[&format!("ws://{address}/chat")]);
    evener_tests::wait_until("the tunnels to end", || director.jobs() == 0);
    drop(node.stdin.take());
    node.wait().expect("the node ends");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (_director, address, _node) = echoing();
    let mut client = Client::connect(address).expect("the listener accepts");
    let requests: Vec<u8> = (0..50)
        .flat_map(|i| {
            let body = format!("body {i}");
            format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                .into_bytes()
        })
        .collect();
    client.send(requests).expect("sent");
    for i in 0..50 {
        assert_eq!(client.response().expect("an answer").text(), format!("body {i}"));
    }
}

#[test]
fn requests_may_arrive_byte_by_byte() {
    let (_director, address, _node) = echoing();
    let mut client = Client::connect(address).expect("the listener accepts");
    let chunked = "POST /trailers HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-Sent: z\r\n\r\n";
    for message in [chunked, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n"] {
        for byte in message.bytes() {
            client.send([byte]).expect("sent");
        }
        let answer = client.response().expect("an answer");
        assert_eq!(answer.status, 200);
        if message == chunked {
            assert_eq!((answer.text(), answer.trailers.len()), ("hello world", 2), "{answer:?}");
        }
    }
}

#[test]
fn http_1_0_clients_get_what_they_understand() {
    let (_director, address, _node) = echoing();
    let ask = |headers: &str, body: &str| {
        let mut client = Client::connect(address).expect("the listener accepts");
        client
            .send(format!("POST /chunked HTTP/1.0\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len()))
            .expect("sent");
        let answer = client.response().expect("an answer");
        (answer, client)
    };
    let (answer, mut client) = ask("", "old");
    assert_eq!((answer.status, answer.text(), answer.header("Transfer-Encoding")), (200, "old", None));
    assert!(client.rest().expect("the connection closes").is_empty());

    // Without a length the connection cannot be kept, whatever the client asked.
    let (answer, mut client) = ask("Connection: keep-alive\r\n", "kept?");
    assert_eq!(answer.text(), "kept?");
    assert!(client.rest().expect("the connection closes").is_empty());

    let mut client = Client::connect(address).expect("the listener accepts");
    for _ in 0..3 {
        client.send("GET /head HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").expect("sent");
        let answer = client.response().expect("an answer");
        assert!(answer.head.has_token("Connection", "keep-alive"), "{:?}", answer.head);
    }
}

#[test]
fn a_client_that_asks_to_close_is_closed() {
    let (_director, address, _node) = echoing();
    let mut client = Client::connect(address).expect("the listener accepts");
    client.send("GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let answer = client.response().expect("an answer");
    assert!(answer.head.has_token("Connection", "close"), "{:?}", answer.head);
    assert!(client.rest().expect("the connection closes").is_empty());
}

#[test]
fn a_client_may_end_its_direction_once_its_answer_has_begun() {
    let (go_on, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let node = Node::http(move |_, stream| {
        std::io::Write::write_all(stream, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbegun")?;
        wait.lock().expect("no panics").recv().expect("the test goes on");
        std::io::Write::write_all(stream, b" all")
    });
    let address = free_address();
    let director = Director::start(&web(address, &[node.address]));
    let mut client = Client::connect(address).expect("the listener accepts");
    client.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nhalf").expect("sent");
    client.send("GET /next HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let head = client.head().expect("a head").expect("an answer");
    assert_eq!(client.take(5).expect("what there is"), b"begun");
    client.stream.shutdown(std::net::Shutdown::Write).expect("shut down");
    // Others are served after it: by then the end of its direction has been seen.
    for _ in 0..2 {
        let other = Client::connect(address).and_then(|mut client| {
            client.send("nonsense\r\n\r\n")?;
            client.response()
        });
        assert_eq!(other.expect("an answer").status, 400);
    }
    go_on.send(()).expect("the node waits");
    assert_eq!(
        (head.header("Content-Length"), client.take(4).expect("the rest")),
        (Some("9"), b" all".to_vec())
    );
    assert!(client.rest().expect("the connection closes").is_empty());
    evener_tests::wait_until("the job to end", || director.jobs() == 0);
    assert_eq!(node.seen().len(), 1, "the next request is nobody's any more");
}

#[test]
fn an_upgrade_becomes_a_tunnel() {
    let (director, address, node) = echoing();
    let mut client = Client::connect(address).expect("the listener accepts");
    client
        .send("GET /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly")
        .expect("sent");
    let answer = client.response().expect("an answer");
    assert_eq!((answer.status, answer.header("Upgrade")), (101, Some("echo")));
    assert!(node.last().head.has_token("Connection", "upgrade"));
    assert_eq!(client.take(5).expect("what was sent early comes back"), b"early");
    let data = noise(3 << 20, 5);
    let mut writer = client.stream.try_clone().expect("a second handle");
    let sent = data.clone();
    let sender = std::thread::spawn(move || std::io::Write::write_all(&mut writer, &sent).expect("sent"));
    assert_eq!(checksum(&client.take(data.len()).expect("it comes back")), checksum(&data));
    sender.join().expect("all was sent");
    assert_eq!(director.jobs(), 1);
    client.stream.shutdown(std::net::Shutdown::Write).expect("shut down");
    assert!(client.rest().expect("the tunnel ends").is_empty());
    evener_tests::wait_until("the job to end", || director.jobs() == 0);
}
