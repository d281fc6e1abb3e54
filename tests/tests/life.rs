//! The life of a director: readiness, drain, hot restart.

use std::net::SocketAddr;
use std::os::unix::net::UnixDatagram;
use std::thread::JoinHandle;

use evener_tests::director::{Director, web};
use evener_tests::http::{Client, Response};
use evener_tests::nodes::{self, Gate};
use evener_tests::{DEADLINE, free_address, wait_until};
use rustix::process::Signal;

fn get_in_background(address: SocketAddr) -> JoinHandle<std::io::Result<Response>> {
    std::thread::spawn(move || Client::connect(address).and_then(|mut client| client.get("/x")))
}

#[test]
fn a_terminated_director_finishes_what_it_accepted() {
    let gate = Gate::new("gate");
    let address = free_address();
    let mut director = Director::start(&web(address, &[gate.node.address]));
    let mut idle = Client::connect(address).expect("the listener accepts");
    let waiting = get_in_background(address);
    wait_until("the job to be placed", || gate.held() == 1);
    director.signal(director.pid(), Signal::TERM);
    wait_until("the listener to close", || Client::connect(address).is_err());
    assert!(director.runs(), "a job is in flight");
    assert!(idle.rest().unwrap_or_default().is_empty(), "connections at rest are closed");
    gate.open();
    let answer = waiting.join().expect("no panic").expect("an answer");
    assert_eq!(answer.text(), "gate");
    assert!(answer.head.has_token("Connection", "close"), "{:?}", answer.head);
    assert_eq!(director.wait().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let gate = Gate::new("gate");
    let address = free_address();
    let mut director = Director::start(&web(address, &[gate.node.address]));
    let waiting = get_in_background(address);
    wait_until("the job to be placed", || gate.held() == 1);
    director.signal(director.pid(), Signal::INT);
    wait_until("the listener to close", || Client::connect(address).is_err());
    assert!(director.runs());
    director.signal(director.pid(), Signal::INT);
    director.wait();
    assert!(waiting.join().expect("no panic").is_err());
    gate.open();
}

#[test]
fn the_drain_has_a_deadline() {
    let gate = Gate::new("gate");
    let address = free_address();
    let mut director =
        Director::start_with("workers = 1\ndrain_timeout = \"300ms\"", &web(address, &[gate.node.address]));
    let waiting = get_in_background(address);
    wait_until("the job to be placed", || gate.held() == 1);
    director.signal(director.pid(), Signal::TERM);
    director.wait();
    assert!(waiting.join().expect("no panic").is_err());
    gate.open();
}

#[test]
fn systemd_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
    let node = nodes::named("a");
    let address = free_address();
    let path = path.display().to_string();
    let mut director =
        Director::spawn("workers = 1", &web(address, &[node.address]), &[("NOTIFY_SOCKET", &path)]);
    let hear = |what: &str| {
        let mut said = String::new();
        while !said.contains(what) {
            let mut message = [0; 1024];
            let length = socket
                .recv(&mut message)
                .unwrap_or_else(|error| panic!("{what} is not said ({error}): {said}"));
            said.push_str(&String::from_utf8_lossy(&message[..length]));
            said.push('\n');
        }
        said
    };
    hear("READY=1");
    director.signal(director.pid(), Signal::USR2);
    let said = hear("MAINPID=");
    assert_eq!(director.wait().code(), Some(0));
    let new = director.pids();
    assert!(new.len() == 1 && said.contains(&format!("MAINPID={}", new[0])), "{new:?}: {said}");
    director.signal(new[0], Signal::TERM);
    hear("STOPPING=1");
}

#[test]
fn a_hot_restart_keeps_long_answers_and_the_admin_address() {
    let gate = Gate::new("gate");
    let address = free_address();
    let mut director = Director::start(&web(address, &[gate.node.address]));
    let waiting = get_in_background(address);
    wait_until("the job to be placed", || gate.held() == 1);
    assert!(director.admin("POST", "/upgrade", "").status < 300);
    wait_until("a second process", || director.pids().len() == 2);
    wait_until("the new one to take over the admin address", || director.jobs() == 0);
    gate.open();
    assert_eq!(waiting.join().expect("no panic").expect("an answer").text(), "gate");
    assert_eq!(director.wait().code(), Some(0));
    let answer =
        Client::connect(address).and_then(|mut client| client.get("/x")).expect("the new process serves");
    assert_eq!(answer.text(), "gate");
}

#[test]
fn a_hot_restart_that_fails_changes_nothing() {
    let node = nodes::named("a");
    let address = free_address();
    let director = Director::start(&web(address, &[node.address]));
    director.write_config("this is no configuration");
    director.signal(director.pid(), Signal::USR2);
    wait_until("the failure to be logged", || director.stderr().contains("ERROR"));
    wait_until("the new process to be gone", || director.pids() == [director.pid()]);
    let answer =
        Client::connect(address).and_then(|mut client| client.get("/x")).expect("the old process serves");
    assert_eq!(answer.text(), "a");
}

#[test]
fn ctl_tells_that_a_hot_restart_failed() {
    let node = nodes::named("a");
    let director = Director::start(&web(free_address(), &[node.address]));
    director.write_config("this is no configuration");
    let output = director.ctl(&["upgrade"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
