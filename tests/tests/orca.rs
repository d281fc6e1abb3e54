//! What nodes say of themselves in their responses reaches the scheduler, and not the clients.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use evener_scheduler::Policy;
use evener_tests::agents::{Agent, tcp};
use evener_tests::clients::{curl, python};
use evener_tests::director::{Director, evener, pool_of, web_with};
use evener_tests::http::{Client, Response};
use evener_tests::nodes::{self, Node};
use evener_tests::{free_address, prometheus, wait_until};
use rustix::process::Signal;

/// Ways to say it: the path, the whole response, and the load that it tells.
const FORMS: [(&str, &str, f64); 8] = [
    (
        "text",
        "200 OK\r\nEndpoint-Load-Metrics: TEXT cpu_utilization=0.25, rps=7\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok",
        0.25,
    ),
    (
        "json",
        "200 OK\r\nX-A: 1\r\nContent-Length: 2\r\nendpoint-load-metrics: JSON {\"cpu_utilization\": 0.5, \"rps\": 7}\r\n\r\nok",
        0.5,
    ),
    (
        "bin",
        "200 OK\r\nX-A: 1\r\nendpoint-load-metrics: BIN CQAAAAAAANA/\r\nContent-Length: 2\r\n\r\nok",
        0.25,
    ),
    (
        "binary",
        "200 OK\r\nX-A: 1\r\nENDPOINT-LOAD-METRICS-BIN: CQAAAAAAAOg/\r\nContent-Length: 2\r\n\r\nok",
        0.75,
    ),
    (
        "trailer",
        "200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nTrailer: endpoint-load-metrics-bin\r\n\r\n\
         1\r\no\r\n1\r\nk\r\n0\r\nX-B: 2\r\nendpoint-load-metrics-bin: CQAAAAAAAOg/\r\nX-C: 3\r\n\r\n",
        0.75,
    ),
    (
        "trailer-only",
        "200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\
         endpoint-load-metrics: TEXT application_utilization=0.5\r\n\r\n",
        0.5,
    ),
    (
        "error",
        "503 Busy\r\nX-A: 1\r\nendpoint-load-metrics: TEXT cpu_utilization=1\r\nContent-Length: 2\r\n\r\nok",
        1.0,
    ),
    (
        "hints",
        "103 Early Hints\r\nendpoint-load-metrics: TEXT cpu_utilization=9\r\n\r\nHTTP/1.1 200 OK\r\nX-A: 1\r\n\
         endpoint-load-metrics: TEXT cpu_utilization=0.5\r\nContent-Length: 2\r\n\r\nok",
        0.5,
    ),
];

/// A node that answers each path in its form, `piece` bytes at a time.
fn node(piece: usize) -> Node {
    Node::http(move |request, stream| {
        let path = request.path().trim_start_matches('/');
        let (_, response, _) = FORMS.iter().find(|(name, ..)| *name == path).expect("a form");
        say(stream, &format!("HTTP/1.1 {response}"), piece)
    })
}

fn say(stream: &mut TcpStream, text: &str, piece: usize) -> std::io::Result<()> {
    text.as_bytes().chunks(piece).try_for_each(|bytes| stream.write_all(bytes))
}

/// A director with a pool for each form, so that none hides what another says.
fn start(node: &Node, pool: &str) -> (Director, SocketAddr) {
    let address = free_address();
    let routes: String =
        FORMS.iter().map(|(form, ..)| format!("{{ path = \"/{form}\", pool = \"{form}\" }}, ")).collect();
    let pools: String = FORMS.iter().map(|(form, ..)| pool_of(form, &[node.address], pool)).collect();
    let listener = format!("[listener.web]\nbind = \"{address}\"\nprotocol = \"http\"\nroute = [{routes}]\n");
    (Director::start(&(listener + &pools)), address)
}

/// The load that the node of a pool said in a response, as the director shows it.
fn load(director: &Director, pool: &str) -> Option<f64> {
    let node = director.node(pool, "n1");
    let signals = node["signals"].as_array().expect("signals");
    let said =
        signals.iter().find(|signal| signal["source"] == "orca" && signal["name"] == "reported_load")?;
    said["value"].as_f64()
}

/// A counter of reports in responses.
fn count(director: &Director, counter: &str) -> f64 {
    let page = prometheus::parse(director.admin("GET", "/metrics", "").text()).expect("a page of metrics");
    page[counter].sum(&[("source", "orca")])
}

/// What a client sees of a response: header fields and trailers that name what nodes say of themselves.
fn leaks(response: &Response) -> usize {
    let fields = response.head.headers.iter().chain(&response.trailers);
    fields
        .filter(|(name, value)| format!("{name}: {value}").to_ascii_lowercase().contains("endpoint-load"))
        .count()
}

fn ask(client: &mut Client, form: &str) -> Response {
    client.get(&format!("/{form}")).expect("an answer")
}

#[test]
fn each_form_is_heard_and_not_passed_on() {
    for piece in [1, 7, 100_000] {
        let node = node(piece);
        let (director, address) = start(&node, "");
        let mut client = Client::connect(address).expect("the listener accepts");
        for (form, ..) in FORMS {
            // Both connections go on, and what follows is in step.
            for _ in 0..3 {
                let response = ask(&mut client, form);
                assert_eq!(response.text(), "ok", "{form} by {piece}");
                assert_eq!(leaks(&response), 0, "{form} by {piece}: {response:?}");
                assert_eq!(response.header("X-A"), Some("1"), "{form} by {piece}");
            }
        }
        let trailers = ask(&mut client, "trailer").trailers;
        assert_eq!(trailers, [("X-B".into(), "2".into()), ("X-C".into(), "3".into())], "by {piece}");
        assert_eq!(node.connections(), FORMS.len() as u64, "one connection for each pool, by {piece}");
        for (form, _, expected) in FORMS {
            wait_until("the load to be known", || load(&director, form) == Some(expected));
        }
        let heard = count(&director, "evener_reports_total");
        assert!(heard >= FORMS.len() as f64, "{heard}");
    }
}

#[test]
fn an_old_client_gets_the_body_and_the_scheduler_the_trailer() {
    for piece in [1, 100_000] {
        let node = node(piece);
        let (director, address) = start(&node, "");
        let mut client = Client::connect(address).expect("the listener accepts");
        client.send("GET /trailer HTTP/1.0\r\nHost: a\r\n\r\n").expect("sent");
        let rest = String::from_utf8(client.rest().expect("a response")).expect("text");
        assert!(rest.ends_with("\r\n\r\nok"), "{rest}");
        assert!(!rest.to_ascii_lowercase().contains("endpoint-load"), "{rest}");
        wait_until("the load to be known", || load(&director, "trailer") == Some(0.75));
    }
}

#[test]
fn responses_without_a_body_say_it_too() {
    let node = Node::http(|request, stream| {
        let status = if request.method() == "HEAD" { "200 OK" } else { "304 Not Modified" };
        let said = if request.method() == "HEAD" { 0.25 } else { 0.75 };
        let fields =
            format!("Content-Length: 5\r\nendpoint-load-metrics: TEXT cpu_utilization={said}\r\nETag: x\r\n");
        stream.write_all(format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes())
    });
    let (director, address) = start(&node, "");
    let mut client = Client::connect(address).expect("the listener accepts");
    for (method, form, expected) in [("HEAD", "text", 0.25), ("GET", "json", 0.75)] {
        for _ in 0..2 {
            client.send(format!("{method} /{form} HTTP/1.1\r\nHost: a\r\n\r\n")).expect("sent");
            let response = client.response_to(method).expect("an answer");
            assert_eq!((leaks(&response), response.header("ETag")), (0, Some("x")), "{method}");
        }
        wait_until("the load to be known", || load(&director, form) == Some(expected));
    }
}

#[test]
fn what_makes_no_sense_is_counted_and_not_passed_on() {
    let node = Node::http(|_, stream| {
        let fields =
            "endpoint-load-metrics: TEXT cpu_utilization=much\r\nendpoint-load-metrics-bin: ====\r\n";
        let trailer = "endpoint-load-metrics:\r\nEndpoint-Load-Metrics: JSON {\"cpu_utilization\": -1}\r\n";
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n");
        stream.write_all(format!("{head}2\r\nok\r\n0\r\n{trailer}\r\n").as_bytes())
    });
    let (director, address) = start(&node, "");
    let mut client = Client::connect(address).expect("the listener accepts");
    for _ in 0..5 {
        let response = ask(&mut client, "text");
        assert_eq!((response.text(), leaks(&response)), ("ok", 0));
    }
    assert_eq!(count(&director, "evener_reports_refused_total"), 20.0);
    assert_eq!(count(&director, "evener_reports_total"), 0.0);
    assert_eq!(load(&director, "text"), None);
}

#[test]
fn a_node_that_says_it_in_each_response_is_heard_now_and_then() {
    let node = node(100_000);
    let (director, address) = start(&node, "");
    let mut client = Client::connect(address).expect("the listener accepts");
    let begun = std::time::Instant::now();
    for _ in 0..2000 {
        ask(&mut client, "text");
    }
    let windows = begun.elapsed().as_millis() / 100 + 1;
    let heard = count(&director, "evener_reports_total");
    assert!(heard >= 1.0 && heard <= windows as f64, "{heard} in {windows} × 100 ms");
}

#[test]
fn a_pool_may_forward_it_or_not_look_at_it() {
    let settings = [("orca = \"forward\"", Some(0.75)), ("orca = \"off\"", None), ("from = \"necp\"", None)];
    for (orca, expected) in settings {
        let node = node(3);
        let (director, address) = start(&node, &format!("feedback = {{ {orca} }}"));
        let mut client = Client::connect(address).expect("the listener accepts");
        let told = ask(&mut client, "binary");
        assert_eq!(told.header("endpoint-load-metrics-bin"), Some("CQAAAAAAAOg/"), "{orca}");
        let told = ask(&mut client, "trailer");
        assert_eq!(told.trailers.len(), 3, "{orca}: {told:?}");
        assert_eq!(told.header("Trailer"), Some("endpoint-load-metrics-bin"), "{orca}");
        let other = ask(&mut client, "text");
        assert!(other.header("endpoint-load-metrics").is_some());
        if expected.is_some() {
            wait_until("the load to be known", || load(&director, "trailer") == expected);
        } else {
            assert_eq!(count(&director, "evener_reports_total"), 0.0);
        }
    }
}

#[test]
fn other_peoples_clients_see_nothing_of_it() {
    let node = Node::http(|request, stream| {
        let said = "endpoint-load-metrics: TEXT cpu_utilization=0.5\r\n";
        if request.path() == "/trailer" {
            let head = format!("HTTP/1.1 200 OK\r\n{said}Transfer-Encoding: chunked\r\n\r\n");
            let body = "5\r\nhello\r\n0\r\nendpoint-load-metrics-bin: CQAAAAAAAOg/\r\nX-B: 2\r\n\r\n";
            return stream.write_all(format!("{head}{body}").as_bytes());
        }
        nodes::respond(stream, "200 OK", said, b"hello")
    });
    let (_director, address) = start(&node, "");
    for form in ["text", "trailer"] {
        let url = format!("http://{address}/{form}");
        let printed = curl(&["--verbose", "--stderr", "-", "--include", &url, &url]);
        assert_eq!(printed.matches("hello").count(), 2, "{printed}");
        assert!(!printed.to_ascii_lowercase().contains("endpoint-load"), "{printed}");
        let printed = curl(&["--http1.0", "--include", &url]);
        assert!(printed.ends_with("hello") && !printed.contains("endpoint-load"), "{printed}");
        python("load_metrics_client.py", &[&url, "hello"]);
    }
}

#[test]
fn what_was_chosen_by_it_is_chosen_again_in_the_replay() {
    let said = |load: &'static str| {
        Node::http(move |request, stream| {
            // One says it in heads, the other in trailers, and both say something new all the time.
            let load = format!("TEXT cpu_utilization={load}{}, rps=50", request.path().len() % 10);
            let head = format!(
                "HTTP/1.1 200 OK\r\nendpoint-load-metrics: {load}\r\nTransfer-Encoding: chunked\r\n\r\n"
            );
            let trailer = format!("2\r\nok\r\n0\r\nendpoint-load-metrics: {load}\r\n\r\n");
            stream.write_all((head + &trailer).as_bytes())
        })
    };
    let nodes = [said("0.1"), said("0.8")];
    let addresses = [nodes[0].address, nodes[1].address];
    let listeners: Vec<_> = Policy::ALL.iter().map(|policy| (policy.name(), free_address())).collect();
    let config: String = listeners
        .iter()
        .map(|(name, address)| {
            let listener =
                format!("[listener.{name}]\nbind = \"{address}\"\nprotocol = \"http\"\npool = \"{name}\"\n");
            listener + &pool_of(name, &addresses, &format!("scheduler = \"{name}\"\nreport_expiry = \"1s\""))
        })
        .collect();
    let mut director = Director::start_recording("workers = 2", &config, &[]);
    std::thread::scope(|scope| {
        for (name, address) in &listeners {
            scope.spawn(move || {
                let begun = std::time::Instant::now();
                let mut client = Client::connect(*address).expect("the listener accepts");
                let mut requests = 0;
                while begun.elapsed().as_millis() < 2500 {
                    let path = "x".repeat(requests % 7);
                    let answer = client.get(&format!("/{path}")).expect("an answer");
                    assert_eq!(answer.text(), "ok", "{name}");
                    requests += 1;
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
            });
        }
    });
    let heard = count(&director, "evener_reports_total");
    assert!(heard >= 2.0 * listeners.len() as f64, "{heard}");
    director.signal(director.pid(), Signal::TERM);
    assert_eq!(director.wait().code(), Some(0), "{}", director.stderr());
    let recording = director.folder.path().join("run.rec").display().to_string();
    let replayed = evener(&["sim", "replay", &recording]);
    assert!(replayed.status.success(), "{replayed:?}");
}

#[test]
fn a_response_does_not_let_a_node_in_again_whose_agent_wants_no_jobs() {
    let rat = IpAddr::from([127, 0, 11, 1]);
    let gate: Arc<(Mutex<bool>, Condvar)> = Arc::default();
    let held = Arc::clone(&gate);
    let node = Node::http_on(rat, move |request, stream| {
        if request.path() != "/long" {
            return nodes::respond(stream, "200 OK", "", b"rat");
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nrat\r\n")?;
        let (is_open, changed) = &*held;
        let opened = changed.wait_while(is_open.lock().expect("no panic"), |is_open| !*is_open);
        drop(opened.expect("no node thread panics"));
        stream.write_all(b"0\r\nendpoint-load-metrics: TEXT cpu_utilization=0.25\r\n\r\n")
    });
    let (mole, web, necp) = (nodes::named("mole"), free_address(), free_address());
    let feedback = format!("[feedback]\nnecp = \"{necp}\"\nallow_unauthenticated = true\n");
    let pool = "scheduler = \"round-robin\"";
    let config = feedback + &web_with(web, "", &[node.address, mole.address], pool);
    let director = Director::start_with("workers = 1", &config);
    let agent = Agent::connect(necp, rat, None);
    agent.start(tcp(node.address.port()));
    agent.wait_open();
    // A request that the rat answers as long as the test wants.
    let mut long = loop {
        let mut client = Client::connect(web).expect("the listener accepts");
        client.send("GET /long HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        let head = client.head().expect("an answer").expect("a head");
        if head.has_token("Transfer-Encoding", "chunked") {
            break (client, head);
        }
    };
    agent.say_health(0);
    let names = || -> BTreeSet<String> {
        let mut client = Client::connect(web).expect("the listener accepts");
        (0..6).map(|_| client.get("/").expect("an answer").text().to_owned()).collect()
    };
    wait_until("the rat to get no jobs", || names().iter().eq(["mole"]));
    assert_eq!(count(&director, "evener_reports_total"), 0.0);
    *gate.0.lock().expect("no panic") = true;
    gate.1.notify_all();
    let (body, trailers) = long.0.body(&long.1, false).expect("a body");
    assert_eq!((&body[..], trailers.len()), (&b"rat"[..], 0));
    wait_until("the response to be heard", || count(&director, "evener_reports_total") == 1.0);
    wait_until("the load to be known", || {
        let signals = director.node("app", "n1")["signals"].to_string();
        signals.contains("reported_load") && signals.contains("0.25")
    });
    assert!(names().iter().eq(["mole"]));
    agent.say_health(100);
    wait_until("the rat to get jobs", || names().contains("rat"));
}
