//! Nodes that do not want some clients: other nodes serve these, and nobody does where there is no other; what was
//! recorded of it replays.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use evener_feedback::necp::{Exception, Flows, Prefix, Scope};
use evener_scheduler::Policy;
use evener_tests::agents::{Agent, connect_from, tcp};
use evener_tests::director::{Director, evener, pool_of, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Gate, Node};
use evener_tests::{free_address, wait_for, wait_until};
use rustix::process::Signal;

const RAT: Ipv4Addr = Ipv4Addr::new(127, 0, 7, 1);
const MOLE: Ipv4Addr = Ipv4Addr::new(127, 0, 7, 2);
/// A client that nobody has anything against, and one that is not wanted.
const WANTED: Ipv4Addr = Ipv4Addr::new(127, 0, 8, 1);
const UNWANTED: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 1);

/// A director with a pool for each policy, and one over TCP; the nodes of all are the rat and the mole.
struct Stage {
    director: Director,
    listeners: Vec<(String, SocketAddr)>,
    necp: SocketAddr,
    nodes: [Node; 2],
}

impl Stage {
    fn new() -> Stage {
        let nodes = [(RAT, "rat"), (MOLE, "mole")].map(|(ip, name)| {
            Node::http_on(ip, move |_, stream| nodes::respond(stream, "200 OK", "", name.as_bytes()))
        });
        let names = Policy::ALL.iter().map(|policy| policy.name().to_owned());
        let listeners: Vec<_> = names.chain(["tcp".into()]).map(|name| (name, free_address())).collect();
        let necp = free_address();
        let addresses = [nodes[0].address, nodes[1].address];
        let parts = listeners.iter().map(|(name, address)| {
            let (protocol, policy) =
                if name == "tcp" { ("tcp", "least-jobs") } else { ("http", name.as_str()) };
            let listener = format!(
                "[listener.{name}]\nbind = \"{address}\"\nprotocol = \"{protocol}\"\npool = \"{name}\"\n"
            );
            listener + &pool_of(name, &addresses, &format!("scheduler = \"{policy}\"\nhash = \"uri\""))
        });
        let feedback = format!("[feedback]\nnecp = \"{necp}\"\nallow_unauthenticated = true\n");
        let config = feedback + &parts.collect::<String>();
        let director = Director::start_recording("workers = 2", &config, &[]);
        Stage { director, listeners, necp, nodes }
    }

    /// The agent of the first or second node, its service started.
    fn agent(&self, place: usize) -> Agent {
        let node = &self.nodes[place];
        let agent = Agent::connect(self.necp, node.address.ip(), None);
        agent.start(tcp(node.address.port()));
        agent.wait_open();
        agent
    }

    /// Who answers a client, over all listeners: names of nodes, or statuses.
    fn answers(&self, client: Ipv4Addr) -> BTreeSet<String> {
        self.listeners.iter().flat_map(|(_, listener)| self.answers_of(*listener, client)).collect()
    }

    fn answers_of(&self, listener: SocketAddr, client: Ipv4Addr) -> BTreeSet<String> {
        let ask = |number: usize| {
            let stream = connect_from(listener, client).expect("the listener accepts");
            // Where a connection is not placed it is closed.
            let Ok(answer) = Client::new(stream).get(&format!("/{number}")) else { return "closed".into() };
            if answer.status == 200 { answer.text().to_owned() } else { answer.status.to_string() }
        };
        (0..8).map(ask).collect()
    }

    fn wait(&self, client: Ipv4Addr, answers: &[&str]) {
        wait_until(&format!("{client} to get {answers:?}"), || self.answers(client).iter().eq(answers));
    }
}

fn exception(source: Option<Ipv4Addr>, destination: Option<IpAddr>, port: u16) -> Exception {
    let host = |address: Ipv4Addr| Prefix::new(address, 32).expect("a prefix");
    let destination = match destination {
        Some(IpAddr::V4(address)) => host(address),
        _ => Prefix::ALL,
    };
    let flows = Flows { source: source.map_or(Prefix::ALL, host), destination, protocol: 6, port };
    Exception { scope: Scope::Local, ttl_s: 0, flows }
}

#[test]
fn a_client_that_a_node_does_not_want_goes_to_others_by_every_policy() {
    let mut stage = Stage::new();
    let (rat, mole) = (stage.agent(0), stage.agent(1));
    stage.wait(UNWANTED, &["mole", "rat"]);
    rat.except(exception(Some(UNWANTED), None, 0));
    stage.wait(UNWANTED, &["mole"]);
    assert!(stage.answers(WANTED).iter().eq(["mole", "rat"]));
    mole.except(exception(Some(UNWANTED), None, 0));
    stage.wait(UNWANTED, &["503", "closed"]);
    assert!(stage.answers(WANTED).iter().eq(["mole", "rat"]));
    let explained = stage.director.json("/explain?pool=informed&n=64");
    assert!(explained.to_string().contains("excepted this client"), "{explained}");
    // Who is gone wants nothing any more.
    drop((rat, mole));
    stage.wait(UNWANTED, &["mole", "rat"]);

    stage.director.signal(stage.director.pid(), Signal::TERM);
    assert_eq!(stage.director.wait().code(), Some(0), "{}", stage.director.stderr());
    let recording = stage.director.folder.path().join("run.rec").display().to_string();
    let replayed = evener(&["sim", "replay", &recording]);
    assert!(replayed.status.success(), "{replayed:?}");
}

#[test]
fn a_flow_is_meant_by_where_the_client_or_the_node_sees_it_go_to() {
    let stage = Stage::new();
    let rat = stage.agent(0);
    let (_, first) = stage.listeners[0];
    let (_, second) = stage.listeners[1];
    // The director's address and port, as the client sees them: other listeners are not meant.
    rat.except(exception(None, Some(first.ip()), first.port()));
    wait_until("the rat to be spared", || stage.answers_of(first, WANTED).iter().eq(["mole"]));
    assert!(stage.answers_of(second, WANTED).contains("rat"));
    // The node's own.
    let own = stage.nodes[0].address;
    rat.except(exception(Some(UNWANTED), Some(own.ip()), own.port()));
    wait_until("the rat to be spared", || stage.answers_of(second, UNWANTED).iter().eq(["mole"]));
    assert!(stage.answers_of(second, WANTED).contains("rat"));
}

#[test]
fn who_waits_for_one_node_does_not_keep_others_from_another() {
    let (rat, mole) = (Gate::new_on(RAT, "rat"), Gate::new_on(MOLE, "mole"));
    let (web, necp) = (free_address(), free_address());
    let feedback = format!("[feedback]\nnecp = \"{necp}\"\nallow_unauthenticated = true\n");
    let pool = "scheduler = \"round-robin\"\nmax_jobs = 1\nqueue = { limit = 10, timeout = \"60s\" }";
    let config = feedback + &web_with(web, "", &[rat.node.address, mole.node.address], pool);
    let director = Director::start_with("workers = 1", &config);
    let agent = Agent::connect(necp, RAT, None);
    agent.start(tcp(rat.node.address.port()));
    agent.wait_open();
    agent.except(exception(Some(UNWANTED), None, 0));
    let ask = |client: Ipv4Addr| {
        let mut client = Client::new(connect_from(web, client).expect("the listener accepts"));
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
        client
    };
    let queued = |jobs: u64| move |director: &Director| director.json("/pools/app")["queued"] == jobs;
    // The mole is kept busy by a client that the rat does not want: until the exception is known, by the next one.
    let mut first = wait_for("a job at the mole and none at the rat", || {
        let client = ask(UNWANTED);
        wait_until("the job to be placed", || rat.held() + mole.held() == 1);
        if rat.held() == 0 {
            return Some(client);
        }
        rat.pass();
        wait_until("the job to end", || rat.held() == 0);
        None
    });
    let busy = ask(WANTED);
    wait_until("both to be busy", || rat.held() == 1 && mole.held() == 1);
    let mut unwanted = ask(UNWANTED);
    wait_until("a client to wait", || queued(1)(&director));
    let mut wanted = ask(WANTED);
    wait_until("two to wait", || queued(2)(&director));
    rat.pass();
    wait_until("the second to be placed", || queued(1)(&director) && rat.held() == 1);
    rat.pass();
    assert_eq!(wanted.response().expect("an answer").text(), "rat");
    assert!(queued(1)(&director), "the first waits on");
    mole.pass();
    assert_eq!(first.response().expect("an answer").text(), "mole");
    mole.pass();
    assert_eq!(unwanted.response().expect("an answer").text(), "mole");
    drop(busy);
}
