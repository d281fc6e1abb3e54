//! More work than the nodes take: queues, refusals, retries on another node, budgets, ejection.

use std::net::{Shutdown, SocketAddr};
use std::thread::JoinHandle;

use evener_tests::director::{Director, pool_of, web, web_with};
use evener_tests::http::{Client, Response};
use evener_tests::nodes::{self, Gate};
use evener_tests::{DEADLINE, free_address, noise, wait_until};

fn get_in_background(address: SocketAddr) -> JoinHandle<Response> {
    std::thread::spawn(move || {
        Client::connect(address).and_then(|mut client| client.get("/x")).expect("an answer")
    })
}

fn get(address: SocketAddr) -> Response {
    Client::connect(address).and_then(|mut client| client.get("/x")).expect("an answer")
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Reset,
    Close,
    /// Ends its direction, and would still read.
    HalfClose,
}

const LEAVES: [Leave; 3] = [Leave::Reset, Leave::Close, Leave::HalfClose];

/// Lets a client leave; what is returned keeps it as open as it is.
fn leave(client: Client, how: Leave) -> Option<Client> {
    match how {
        Leave::Reset => {
            let _ = nodes::reset(&client.stream);
            None
        }
        Leave::Close => None,
        Leave::HalfClose => {
            client.stream.shutdown(Shutdown::Write).expect("shut down");
            Some(client)
        }
    }
}

fn queued(director: &Director) -> u64 {
    director.json("/pools/app")["queued"].as_u64().expect("queued")
}

#[test]
fn jobs_beyond_max_jobs_wait_and_the_queue_is_bounded() {
    let gate = Gate::new("gate");
    let address = free_address();
    let pool = "max_jobs = 2\nqueue = { limit = 3, timeout = \"60s\" }";
    let director = Director::start(&web_with(address, "", &[gate.node.address], pool));
    let mut waiting: Vec<_> = (0..5).map(|_| get_in_background(address)).collect();
    wait_until("two jobs on the node and three in the queue", || gate.held() == 2 && queued(&director) == 3);
    assert_eq!(director.jobs(), 2);

    let refused = get(address);
    assert_eq!(refused.status, 503);
    assert!(
        refused.header("Retry-After").is_some_and(|seconds| seconds.parse::<u32>().is_ok()),
        "{:?}",
        refused.head
    );

    gate.pass();
    wait_until("one job to end and a waiting one to take its place", || {
        gate.held() == 2 && queued(&director) == 2
    });
    gate.open();
    for answer in waiting.drain(..) {
        assert_eq!(answer.join().expect("no panic").text(), "gate");
    }
    wait_until("the jobs to end", || director.jobs() == 0 && queued(&director) == 0);
}

#[test]
fn jobs_do_not_wait_for_ever() {
    let gate = Gate::new("gate");
    let address = free_address();
    let pool = "max_jobs = 1\nqueue = { limit = 10, timeout = \"300ms\" }";
    let director = Director::start(&web_with(address, "", &[gate.node.address], pool));
    let first = get_in_background(address);
    wait_until("the node to be full", || gate.held() == 1);
    let late = get(address);
    assert_eq!(late.status, 503);
    assert!(late.header("Retry-After").is_some());
    gate.open();
    assert_eq!(first.join().expect("no panic").status, 200);
    wait_until("the jobs to end", || director.jobs() == 0 && queued(&director) == 0);
}

/// Begins a POST whose body is not sent whole, and returns when its own time for that is up.
fn wait_for_a_body_timeout(address: SocketAddr) {
    let mut stalled = Client::connect(address).expect("the listener accepts");
    stalled.send("POST /other HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf").expect("sent");
    assert_eq!(stalled.response().expect("an answer").status, 408);
}

#[test]
fn a_body_is_not_timed_while_no_node_takes_it() {
    let (gate, other) = (Gate::new("gate"), nodes::echo());
    let address = free_address();
    let listener = "route = [{ prefix = \"/other\", pool = \"other\" }]\ntimeouts = { body = \"300ms\" }";
    let pool = "max_jobs = 1\nqueue = { limit = 10, timeout = \"60s\" }";
    let config = web_with(address, listener, &[gate.node.address], pool);
    let director = Director::start_with("workers = 1", &(config + &pool_of("other", &[other.address], "")));
    let first = get_in_background(address);
    wait_until("the node to be full", || gate.held() == 1);
    let mut second = Client::connect(address).expect("the listener accepts");
    second.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf ").expect("sent");
    wait_until("the second to wait", || queued(&director) == 1);
    wait_for_a_body_timeout(address);
    wait_for_a_body_timeout(address);
    assert_eq!(queued(&director), 1, "it waits longer than a body may pause");
    gate.pass();
    assert_eq!(first.join().expect("no panic").status, 200);
    wait_until("the second to be placed", || director.jobs() == 1);
    second.send("whole").expect("sent");
    gate.open();
    assert_eq!(second.response().expect("an answer").status, 200);
    assert_eq!(gate.node.last().body, b"half whole");

    // From when the node takes it, the client has its time and no more.
    let mut third = Client::connect(address).expect("the listener accepts");
    third.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf ").expect("sent");
    assert_eq!(third.response().expect("an answer").status, 408);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn a_body_that_came_while_its_job_waited_is_passed_on() {
    let gate = Gate::new("gate");
    let address = free_address();
    let pool = "max_jobs = 1\nqueue = { limit = 10, timeout = \"60s\" }";
    let director = Director::start_with("workers = 1", &web_with(address, "", &[gate.node.address], pool));
    let first = get_in_background(address);
    wait_until("the node to be full", || gate.held() == 1);
    let mut second = Client::connect(address).expect("the listener accepts");
    second.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf ").expect("sent");
    wait_until("the second to wait", || queued(&director) == 1);
    second.send("whole").expect("sent");
    // A request after that one: when it is refused, what was sent before it has been seen.
    let third = Client::connect(address).and_then(|mut client| {
        client.send("nonsense\r\n\r\n")?;
        client.response()
    });
    assert_eq!(third.expect("an answer").status, 400);
    gate.open();
    assert_eq!(first.join().expect("no panic").status, 200);
    assert_eq!(second.response().expect("an answer").status, 200);
    assert_eq!(gate.node.last().body, b"half whole");
    assert_eq!(gate.node.connections(), 1, "over the connection that was there");
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn a_node_that_does_not_take_a_body_has_failed() {
    let deaf = nodes::Node::tcp(|_stream| std::thread::sleep(DEADLINE));
    let address = free_address();
    let director = Director::start(&web_with(
        address,
        "timeouts = { body = \"300ms\" }",
        &[deaf.address],
        "retry = { attempts = 0 }",
    ));
    let mut client = Client::connect(address).expect("the listener accepts");
    let size = 64 << 20;
    let body = noise(size, 3);
    client.send(format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n")).expect("sent");
    let mut writer = client.stream.try_clone().expect("a second handle");
    let sender = std::thread::spawn(move || {
        // More than fits between the client and the node; the rest is refused with the request.
        let _ = std::io::Write::write_all(&mut writer, &body);
    });
    assert_eq!(client.response().expect("an answer").status, 504);
    sender.join().expect("no panic");
    assert_eq!(director.node("app", "n1")["outcomes"]["timeout"], 1);
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn a_client_that_leaves_gives_up_its_place() {
    let gate = Gate::new("gate");
    let address = free_address();
    let pool = "max_jobs = 1\nqueue = { limit = 10, timeout = \"60s\" }";
    let director = Director::start(&web_with(address, "", &[gate.node.address], pool));
    let first = get_in_background(address);
    wait_until("the node to be full", || gate.held() == 1);
    for how in LEAVES {
        let mut second = Client::connect(address).expect("the listener accepts");
        second.send("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n12").expect("sent");
        wait_until("the second to wait", || queued(&director) == 1);
        let left = leave(second, how);
        wait_until(&format!("its place to be free ({how:?})"), || queued(&director) == 0);
        if let Some(mut left) = left {
            assert!(left.rest().expect("the connection closes").is_empty());
        }
    }
    gate.open();
    assert_eq!(first.join().expect("no panic").status, 200);
    wait_until("the jobs to end", || director.jobs() == 0);
    assert_eq!(gate.node.seen().len(), 1);
}

#[test]
fn a_client_that_leaves_frees_its_node() {
    let gate = Gate::new("gate");
    let address = free_address();
    let director = Director::start(&web(address, &[gate.node.address]));
    for (number, how) in LEAVES.into_iter().enumerate() {
        let mut client = Client::connect(address).expect("the listener accepts");
        client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        wait_until("the job to be placed", || gate.held() == number + 1 && director.jobs() == 1);
        let _left = leave(client, how);
        wait_until(&format!("the job to end ({how:?})"), || director.jobs() == 0);
    }
    assert_eq!(director.node("app", "n1")["outcomes"]["cancelled"], LEAVES.len());
    gate.open();
}

#[test]
fn the_node_with_the_fewest_jobs_is_chosen() {
    // One worker: two see the end of a job an instant apart, and the client's next request may be quicker.
    let (busy, free) = (Gate::new("busy"), nodes::named("free"));
    let address = free_address();
    let director = Director::start_with(
        "workers = 1",
        &web_with(address, "", &[busy.node.address, free.address], "scheduler = \"least-jobs\""),
    );
    let mut held = Vec::new();
    wait_until("a job to rest on the one node", || {
        if busy.held() == 0 {
            held.push(get_in_background(address));
        }
        busy.held() == 1
    });
    for _ in 0..20 {
        assert_eq!(get(address).text(), "free");
    }
    busy.open();
    for answer in held {
        assert_eq!(answer.join().expect("no panic").status, 200);
    }
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn failed_jobs_are_retried_on_another_node() {
    let (resetting, good) = (nodes::Node::http(|_, stream| nodes::reset(stream)), nodes::named("good"));
    let address = free_address();
    let pool = "scheduler = \"round-robin\"\nretry = { attempts = 1, budget = 100 }\neject = \"off\"";
    let director = Director::start(&web_with(address, "", &[resetting.address, good.address], pool));
    let mut client = Client::connect(address).expect("the listener accepts");
    for _ in 0..20 {
        assert_eq!(client.get("/x").expect("an answer").text(), "good");
    }
    let tried = resetting.seen().len();
    assert!(tried >= 5, "half went there first: {tried}");

    // A POST may have been executed: once it is sent, it is not sent again.
    let mut statuses = Vec::new();
    for _ in 0..6 {
        statuses.push(client.post("/x", b"once").expect("an answer").status);
    }
    let posts = |node: &nodes::Node| node.seen().iter().filter(|request| request.method() == "POST").count();
    assert_eq!(posts(&resetting) + posts(&good), 6, "each POST reached one node: {statuses:?}");
    assert_eq!(statuses.iter().filter(|&&status| status == 502).count(), posts(&resetting));
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn unavailable_nodes_are_retried_only_where_asked_for() {
    for on_unavailable in [true, false] {
        let (failing, good) = (nodes::failing("503 Service Unavailable"), nodes::named("good"));
        let address = free_address();
        let pool = format!(
            "scheduler = \"round-robin\"\nretry = {{ attempts = 1, budget = 100, on_unavailable = {on_unavailable} }}\neject = \"off\""
        );
        let _director = Director::start(&web_with(address, "", &[failing.address, good.address], &pool));
        let statuses: Vec<_> = (0..10).map(|_| get(address).status).collect();
        let good = statuses.iter().filter(|&&status| status == 200).count();
        assert_eq!(good == 10, on_unavailable, "{statuses:?}");
        assert!(!failing.seen().is_empty());
    }
}

#[test]
fn where_there_is_no_other_node_the_answer_stands() {
    let busy =
        || nodes::Node::http(|_, stream| nodes::respond(stream, "503 Busy", "Retry-After: 77\r\n", b"busy"));
    let reset = || nodes::Node::http(|_, stream| nodes::reset(stream));
    let start = |nodes: &[&nodes::Node], budget: u32| {
        let addresses: Vec<_> = nodes.iter().map(|node| node.address).collect();
        let retry = format!("retry = {{ attempts = 3, budget = {budget}, on_unavailable = true }}");
        let address = free_address();
        let config = web_with(address, "", &addresses, &format!("{retry}\neject = \"off\""));
        (Director::start_with("workers = 1", &config), address)
    };
    // The only node, or the second one of two, is not asked once more.
    let (only, first, second) = (busy(), busy(), busy());
    for nodes in [&[&only][..], &[&first, &second]] {
        let (director, address) = start(nodes, 100);
        let answer = get(address);
        assert_eq!((answer.status, answer.header("Retry-After"), answer.text()), (503, Some("77"), "busy"));
        assert!(nodes.iter().all(|node| node.seen().len() == 1));
        wait_until("the jobs to end", || director.jobs() == 0);
    }
    let only = reset();
    let (director, address) = start(&[&only], 100);
    assert_eq!(get(address).status, 502);
    assert_eq!(only.seen().len(), 1);
    wait_until("the jobs to end", || director.jobs() == 0);

    // Nor is any other beyond the budget: 10 a second over the 10 seconds that are looked at.
    let (first, second) = (busy(), busy());
    let (director, address) = start(&[&first, &second], 0);
    let mut client = Client::connect(address).expect("the listener accepts");
    for _ in 0..150 {
        assert_eq!(client.get("/x").expect("an answer").text(), "busy");
    }
    let tries = first.seen().len() + second.seen().len();
    assert!((150..=250).contains(&tries), "{tries} tries for 150 jobs");
    wait_until("the jobs to end", || director.jobs() == 0);
}

#[test]
fn retries_keep_within_their_budget() {
    // Both nodes fail after the request is read, so that each try is one more request on a node.
    let node = || nodes::Node::http(|_, stream| nodes::reset(stream));
    let (a, b) = (node(), node());
    let address = free_address();
    let pool = "retry = { attempts = 1, budget = 20 }\neject = \"off\"";
    let director = Director::start_with("workers = 1", &web_with(address, "", &[a.address, b.address], pool));
    let mut client = Client::connect(address).expect("the listener accepts");
    let jobs = 600;
    for _ in 0..jobs {
        assert_eq!(client.get("/x").expect("an answer").status, 502);
    }
    let retries = a.seen().len() + b.seen().len() - jobs;
    // Beside the share, 10 a second are always allowed, over the 10 seconds that are looked at.
    let allowed = jobs / 5 + 100;
    assert!((jobs / 10..=allowed).contains(&retries), "{retries} retries of {jobs} jobs, {allowed} allowed");
    assert_eq!(director.jobs(), 0);
}

#[test]
fn a_node_that_fails_fast_does_not_attract_jobs() {
    let (failing, good) = (nodes::failing("500 Internal Server Error"), nodes::named("good"));
    let address = free_address();
    let pool = "scheduler = \"least-jobs\"\neject = { failures = 5, base = \"60s\" }";
    let _director =
        Director::start_with("workers = 1", &web_with(address, "", &[failing.address, good.address], pool));
    let failures = (0..200).filter(|_| get(address).status == 500).count();
    assert!((1..=10).contains(&failures), "it had {failures}");
}

#[test]
fn an_ejected_node_comes_back() {
    let node = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let fails = std::sync::Arc::clone(&node);
    let moody = nodes::Node::http(move |_, stream| {
        let status = if fails.load(std::sync::atomic::Ordering::SeqCst) { "500 Down" } else { "200 OK" };
        nodes::respond(stream, status, "", b"moody")
    });
    let good = nodes::named("good");
    let address = free_address();
    let pool = "scheduler = \"round-robin\"\neject = { failures = 3, base = \"500ms\" }";
    let director =
        Director::start_with("workers = 1", &web_with(address, "", &[moody.address, good.address], pool));
    wait_until("the node to be ejected", || {
        get(address);
        director.node("app", "n1")["state"].to_string().to_lowercase().contains("eject")
    });
    node.store(false, std::sync::atomic::Ordering::SeqCst);
    wait_until("the node to serve again", || get(address).text() == "moody");
}

#[test]
fn clients_beyond_the_limit_wait_in_the_accept_queue() {
    let node = nodes::named("node");
    let address = free_address();
    let _director =
        Director::start_with("workers = 1", &web_with(address, "clients_max = 2", &[node.address], ""));
    let mut first = Client::connect(address).expect("accepted");
    let mut second = Client::connect(address).expect("accepted");
    assert_eq!(first.get("/x").expect("an answer").status, 200);
    assert_eq!(second.get("/x").expect("an answer").status, 200);
    let third = get_in_background(address);
    for _ in 0..20 {
        assert_eq!(first.get("/x").expect("an answer").status, 200);
    }
    assert!(!third.is_finished(), "the third waits");
    drop(first);
    assert_eq!(third.join().expect("no panic").status, 200);
}

/// Lets the director open `more` descriptors and not one beyond; `None`: as many as before.
fn limit_descriptors(director: &Director, more: Option<usize>) {
    use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
    let pid = director.pid();
    let limit = getrlimit(Resource::Nofile);
    let current = match more {
        None => limit.current,
        Some(more) => {
            let open = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
            let open: std::collections::BTreeSet<u64> =
                open.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
            // A descriptor gets the lowest free number, and must be below the limit.
            (0..).filter(|number| !open.contains(number)).nth(more)
        }
    };
    let pid = Pid::from_raw(pid.cast_signed());
    prlimit(pid, Resource::Nofile, Rlimit { current, maximum: limit.maximum }).expect("a limit");
}

#[test]
fn nodes_are_not_blamed_for_want_of_descriptors() {
    let node = nodes::named("node");
    let address = free_address();
    // Each job needs a connection of its own.
    let pool = "idle_connections = 0\nretry = { attempts = 3, budget = 100 }\neject = { failures = 1 }";
    let director = Director::start_with("workers = 1", &web_with(address, "", &[node.address], pool));
    // One for the client, none for the node. A connection of the admin API may still be on its way out.
    wait_until("a refusal", || {
        limit_descriptors(&director, Some(1));
        get(address).status == 503
    });
    limit_descriptors(&director, None);
    assert_eq!(get(address).status, 200);
    let node = director.node("app", "n1");
    assert_eq!((&node["outcomes"]["refused"], &node["state"]), (&0.into(), &"up".into()), "{node}");
    assert!(node["outcomes"]["cancelled"].as_u64() >= Some(1), "{node}");
    wait_until("the jobs to end", || director.jobs() == 0);
}
