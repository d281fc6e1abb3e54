//! The client of HAProxy's runtime API against sockets that misbehave, and its parser on what HAProxy really says.

#[path = "../../../fuzz/src/haproxy.rs"]
#[allow(unreachable_pub, reason = "the fuzzer uses it too")]
mod invariants;

#[path = "../../../fuzz/src/corpus.rs"]
#[allow(unreachable_pub, reason = "the tests of several crates use it")]
mod corpus;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evener_model::{Time, Weight};
use evener_plane::haproxy::{Endpoint, Haproxy, HaproxyError, Limits, Wanted, WantedNode};
use proptest::prelude::*;

const LIMITS: Limits =
    Limits { answer_timeout: Duration::from_millis(200), apply_timeout: Duration::from_millis(600) };

#[test]
fn what_haproxy_said() {
    corpus::replay("haproxy", 8, invariants::haproxy);
}

proptest! {
    #[test]
    fn words_of_haproxy(words in proptest::collection::vec(
        prop_oneof![
            "app\n", "1\n", "# be_id be_name srv_name", " srv_addr srv_port srv_op_state", " srv_admin_state",
            " srv_uweight srv_iweight\n", "3 app n[0-9] ", "127.0.0.1 ", "- ", "[0-9]{1,11} ", "\n", " ",
            "# pxname,svname,qcur,qmax,scur", ",", "app,n1,", "Name: HAProxy\n", "Version: ", "Pid: [0-9]{1,11}\n",
            "Can't find backend.", "Server deleted.", "\u{202e}", "\u{0}",
        ], 0..40,
    )) {
        invariants::haproxy(words.concat().as_bytes());
    }
}

/// A program behind a UNIX socket.
struct Fake {
    folder: tempfile::TempDir,
    /// What it was told, without prompts.
    told: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    /// Serves each connection with `serve`.
    fn new(serve: impl Fn(UnixStream) + Send + 'static) -> Fake {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("socket")).expect("a socket");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                serve(stream);
            }
        });
        Fake { folder, told: Arc::default() }
    }

    /// Answers as HAProxy does; `answer` gives what comes before the prompt.
    fn talking(answer: impl Fn(&str) -> String + Send + 'static) -> Fake {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let heard = Arc::clone(&told);
        let fake = Fake::new(move |mut stream| {
            let lines = BufReader::new(stream.try_clone().expect("a second handle")).lines();
            for line in lines.map_while(Result::ok) {
                let answer = if line == "prompt" { String::new() } else { answer(&line) };
                if line != "prompt" {
                    heard.lock().expect("nobody panics with it").push(line);
                }
                let _ = write!(stream, "{answer}\n> ");
            }
        });
        Fake { told, ..fake }
    }

    fn haproxy(&self) -> Haproxy {
        haproxy(&self.folder.path().join("socket"))
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().expect("nobody panics with it").clone()
    }
}

fn haproxy(path: &Path) -> Haproxy {
    Haproxy::with_limits(Endpoint::Unix(path.into()), LIMITS)
}

const INFO: &str = "Name: HAProxy\nVersion: 3.2.0\nPid: 7\nStart_time_sec: 1\nStopping: 0\n";

fn state(weight: u32) -> String {
    format!(
        "1\n# be_id be_name srv_id srv_name srv_addr srv_op_state srv_admin_state srv_uweight srv_iweight srv_port\n\
         3 app 1 n1 10.0.0.1 2 0 {weight} 1 80\n"
    )
}

fn wanted(nodes: &[(&str, u64)]) -> Wanted {
    let nodes = nodes.iter().map(|&(address, weight)| WantedNode {
        name: address.into(),
        address: address.parse().expect("an address"),
        weight: Weight::new(weight).expect("a weight"),
    });
    Wanted::new("app", nodes.collect()).expect("valid")
}

fn apply(haproxy: &mut Haproxy) -> Result<usize, HaproxyError> {
    haproxy.apply(Time::from_nanos(1), &wanted(&[("10.0.0.1:80", 5)])).map(|changes| changes.done.len())
}

#[test]
fn what_is_right_is_left_and_what_is_not_is_told_once() {
    let fake = Fake::talking(|line| match line {
        "show info" => INFO.into(),
        "show servers state app" => state(3),
        _ => String::new(),
    });
    assert_eq!(apply(&mut fake.haproxy()).expect("obeyed"), 1);
    assert_eq!(fake.told(), ["show info", "show servers state app", "set server app/n1 weight 5"]);
}

#[test]
fn weights_are_told_if_somebody_has_steered_them() {
    for (weight, present) in [(1, vec![]), (7, vec![(1, 7)])] {
        let fake = Fake::talking(move |_| state(weight));
        let nodes = wanted(&[("10.0.0.2:80", 5), ("10.0.0.1:80", 5)]);
        assert_eq!(fake.haproxy().present(&nodes).expect("an answer"), present);
    }
}

#[test]
fn a_server_that_cannot_be_made_is_not_told_more() {
    let fake = Fake::talking(|line| match line {
        "show info" => INFO.into(),
        "show servers state app" => state(5),
        _ if line.starts_with("add server") => "Backend must use a dynamic load balancing.\n".into(),
        _ => String::new(),
    });
    let mut haproxy = fake.haproxy();
    let both = wanted(&[("10.0.0.1:80", 5), ("[2001:db8::1]:80", 2)]);
    let changes = haproxy.apply(Time::from_nanos(1), &both).expect("the rest is done");
    assert_eq!((changes.done.len(), changes.failed.len()), (0, 1));
    let added = fake.told().pop().expect("the last command");
    assert_eq!(added, "add server app/evener-2001:db8::1:80 [2001:db8::1]:80 weight 2");
    let again = haproxy.apply(Time::from_nanos(2), &both).expect("the rest is done");
    assert_eq!(again.failed.len(), 0, "it is not asked again at once");
}

#[test]
fn a_socket_that_does_not_allow_it_is_said() {
    let fake = Fake::talking(|line| match line {
        "show info" => INFO.into(),
        "show servers state app" => state(3),
        _ => "Permission denied\n".into(),
    });
    let error = apply(&mut fake.haproxy()).expect_err("it may not").to_string();
    assert!(error.contains("level admin"), "{error}");
}

#[test]
fn a_process_that_hands_over_is_not_steered() {
    let fake = Fake::talking(|_| INFO.replace("Stopping: 0", "Stopping: 1"));
    assert!(matches!(apply(&mut fake.haproxy()), Err(HaproxyError::Stopping(_, 7))));
}

#[test]
fn nobody_there() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nowhere = haproxy(&folder.path().join("socket"));
    assert!(matches!(apply(&mut nowhere), Err(HaproxyError::Connect(..))));
    // Nobody accepts, and the queue is full.
    let full = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    let listens = folder.path().join("backlog");
    full.bind(&socket2::SockAddr::unix(&listens).expect("a path")).expect("bound");
    full.listen(0).expect("it listens");
    let _first = UnixStream::connect(&listens).expect("there is room for one");
    let begun = Instant::now();
    let error = apply(&mut haproxy(&listens)).expect_err("there is no room");
    assert!(matches!(error, HaproxyError::Connect(..)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn one_who_says_nothing_or_always_a_little_more_is_left() {
    let silent = Fake::new(|mut stream| {
        // Until the other end is gone.
        let _ = std::io::copy(&mut stream, &mut std::io::sink());
    });
    assert!(matches!(apply(&mut silent.haproxy()), Err(HaproxyError::Late(..))));
    let dripping = Fake::new(|mut stream| {
        while stream.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(matches!(apply(&mut dripping.haproxy()), Err(HaproxyError::Late(..))));
}

#[test]
fn one_who_says_too_much_is_left() {
    let noise = vec![b'x'; 1 << 16];
    let loud = Fake::new(move |mut stream| while stream.write_all(&noise).is_ok() {});
    let mut haproxy = Haproxy::new(Endpoint::Unix(loud.folder.path().join("socket")));
    let error = apply(&mut haproxy).expect_err("too much");
    assert!(matches!(error, HaproxyError::Long(_)), "{error}");
}

#[test]
fn strangers_and_those_who_leave_are_told_apart() {
    let stranger = Fake::new(|mut stream| {
        let _ = stream.write_all(b"220 mail.example ESMTP\n> ");
    });
    assert!(matches!(apply(&mut stranger.haproxy()), Err(HaproxyError::Stranger(_))));
    let leaving = Fake::new(|stream| {
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
    });
    assert!(matches!(apply(&mut leaving.haproxy()), Err(HaproxyError::Closed(_))));
}

#[test]
fn endpoints_are_paths_or_addresses() {
    let read = |text: &str| text.parse::<Endpoint>().map(|endpoint| endpoint.to_string()).ok();
    assert_eq!(read("/run/haproxy.sock").as_deref(), Some("/run/haproxy.sock"));
    assert_eq!(read("unix@/run/haproxy.sock").as_deref(), Some("/run/haproxy.sock"));
    assert_eq!(read("[::1]:9999").as_deref(), Some("[::1]:9999"));
    assert_eq!(read(&format!("/{}", "x".repeat(200))), None, "longer than the kernel takes");
    assert_eq!(read("haproxy"), None);
}
