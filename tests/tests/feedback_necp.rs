//! Agents that speak NECP with the director: what they say, and what becomes of clients' requests by it.
//!
//! The agents here drive the session of `evener_feedback` over real sockets, each from an address of its node's own
//! (127.0.x.y), as agents of different machines would.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use evener_feedback::necp::session::{AgentEvent, Reason};
use evener_feedback::necp::{Exception, Flows, Prefix, Scope};
use evener_tests::agents::{Agent, connect_from, tcp};
use evener_tests::director::{Director, web_with};
use evener_tests::http::Client;
use evener_tests::nodes::{self, Gate, Node};
use evener_tests::{free_address, wait_for, wait_until};
use rustix::process::Signal;

const KEY: &str = "a-secret-of-all-nodes";
const RAT: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 1);
const MOLE: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 2);
const TOAD: Ipv4Addr = Ipv4Addr::new(127, 0, 1, 3);

/// A director that listens for agents, and two nodes behind it, "rat" (n1) and "mole" (n2).
struct Stage {
    director: Director,
    web: SocketAddr,
    necp: SocketAddr,
    rat: Node,
    mole: Node,
}

impl Stage {
    /// Agents need no key; the pool has these further lines.
    fn new(pool: &str) -> Stage {
        Stage::with("allow_unauthenticated = true", pool)
    }

    /// Agents need a key of the file `feedback.keys` beside the configuration.
    fn keyed(pool: &str) -> Stage {
        Stage::with("keys = \"KEYS\"", pool)
    }

    fn with(feedback: &str, pool: &str) -> Stage {
        let (rat, mole) = (nodes::named_on(RAT, "rat"), nodes::named_on(MOLE, "mole"));
        let (web, necp) = (free_address(), free_address());
        let keys = tempfile::NamedTempFile::new().expect("a file of keys").into_temp_path();
        write_keys(&keys, &format!("all {KEY}\n"));
        let keys = keys.keep().expect("the file stays");
        let feedback = feedback.replace("KEYS", &keys.display().to_string());
        let director = Director::start(&config(web, necp, &feedback, pool, &[&rat, &mole]));
        std::fs::rename(&keys, director.folder.path().join("feedback.keys")).expect("the same file system");
        let feedback = feedback.replace(
            &keys.display().to_string(),
            &director.folder.path().join("feedback.keys").display().to_string(),
        );
        director.write_config(&config(web, necp, &feedback, pool, &[&rat, &mole]));
        Stage { director, web, necp, rat, mole }
    }

    fn keys(&self, lines: &str) {
        write_keys(&self.director.folder.path().join("feedback.keys"), lines);
        let answer = self.director.reload();
        assert_eq!(answer.status, 200, "{}", answer.text());
    }

    /// An agent of the rat's, connected, its service started.
    fn agent(&self, key: Option<&str>) -> Agent {
        let agent = Agent::connect(self.necp, RAT, key);
        agent.start(tcp(self.rat.address.port()));
        agent.wait_open();
        self.wait_service("n1", "started");
        agent
    }

    /// The nodes that answer requests now, and how many of them.
    fn answers(&self, requests: usize) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for _ in 0..requests {
            let mut client = Client::connect(self.web).expect("the listener accepts");
            let answer = client.get("/x").expect("an answer");
            let name =
                if answer.status == 200 { answer.text().to_owned() } else { answer.status.to_string() };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// Waits until new jobs go to these nodes alone.
    fn wait_answers(&self, names: &[&str]) {
        wait_until(&format!("jobs to go to {names:?}"), || {
            self.answers(12).into_keys().eq(names.iter().copied())
        });
    }

    /// Jobs go to both nodes.
    fn assert_shared(&self) {
        let answers = self.answers(12);
        assert!(answers.keys().eq(["mole", "rat"]), "{answers:?}");
    }

    fn wait_service(&self, node: &str, state: &str) {
        wait_until(&format!("{node} to be {state}"), || self.director.node("app", node)["agent"] == state);
    }

    /// Reports of agents that were refused so far, for that reason.
    fn refused(&self, reason: &str) -> u64 {
        self.director.refused("necp", reason)
    }
}

fn config(web: SocketAddr, necp: SocketAddr, feedback: &str, pool: &str, nodes: &[&Node]) -> String {
    let nodes: Vec<SocketAddr> = nodes.iter().map(|node| node.address).collect();
    let pool = format!("scheduler = \"round-robin\"\n{pool}");
    format!("[feedback]\nnecp = \"{necp}\"\n{feedback}\n") + &web_with(web, "", &nodes, &pool)
}

fn write_keys(path: &Path, lines: &str) {
    std::fs::write(path, lines).expect("a file of keys");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("its mode");
}

#[test]
fn a_node_gets_jobs_from_start_to_stop_and_what_it_has_it_finishes() {
    let (rat, mole) = (Gate::new_on(RAT, "rat"), nodes::named_on(MOLE, "mole"));
    let (web, necp) = (free_address(), free_address());
    let director =
        Director::start(&config(web, necp, "allow_unauthenticated = true", "", &[&rat.node, &mole]));
    let get = move || std::thread::spawn(move || Client::connect(web).expect("a client").get("/x"));
    let agent = Agent::connect(necp, RAT, None);
    agent.wait_open();
    // Connected and not started: nothing comes.
    wait_until("the node to be stopped", || director.node("app", "n1")["agent"] == "stopped");
    for _ in 0..10 {
        assert_eq!(get().join().expect("no panic").expect("an answer").text(), "mole");
    }
    agent.start(tcp(rat.node.address.port()));
    let held = wait_for("a job at the node", || {
        let job = get();
        wait_until("the job to be placed", || job.is_finished() || rat.held() == 1);
        (rat.held() == 1).then_some(job)
    });
    agent.stop(tcp(rat.node.address.port()));
    wait_until("the node to be stopped", || director.node("app", "n1")["agent"] == "stopped");
    for _ in 0..10 {
        assert_eq!(get().join().expect("no panic").expect("an answer").text(), "mole");
    }
    rat.open();
    let answer = held.join().expect("no panic").expect("the job that was running is finished");
    assert_eq!(answer.text(), "rat");
}

#[test]
fn a_health_of_0_keeps_new_jobs_away_at_once() {
    let stage = Stage::new("phase = \"100ms\"");
    let agent = stage.agent(None);
    stage.wait_answers(&["mole", "rat"]);
    agent.say_health(0);
    wait_until("the report", || {
        stage.director.said("app", "n1", "necp", "health").is_some_and(|(health, _)| health == 0.0)
    });
    assert_eq!(stage.answers(12), BTreeMap::from([("mole".into(), 12)]));
    agent.say_health(1);
    stage.wait_answers(&["mole", "rat"]);
}

#[test]
fn signals_are_shown_with_their_source_and_age() {
    let stage = Stage::new("phase = \"100ms\"");
    let agent = stage.agent(None);
    agent.say(|values| {
        (values.jobs, values.queue, values.cpu_load_milli) = (Some(7), Some(2), Some(400));
    });
    let said = |name: &str| stage.director.said("app", "n1", "necp", name);
    wait_until("the report", || said("jobs").is_some_and(|(jobs, _)| jobs == 9.0));
    let (load, age_ms) = said("load").expect("a signal");
    assert!((load - 0.4).abs() < 1e-6 && age_ms < 5000.0, "{load}, {age_ms} ms ago");
}

#[test]
fn an_agent_that_is_gone_leaves_its_node_as_configured() {
    let stage = Stage::new("report_expiry = \"1s\"\nphase = \"100ms\"");
    let agent = stage.agent(None);
    agent.say_health(0);
    stage.wait_answers(&["mole"]);
    drop(agent);
    // Not at once: what it said last is still believed.
    assert_eq!(stage.answers(1), BTreeMap::from([("mole".into(), 1)]));
    stage.wait_answers(&["mole", "rat"]);
    let node = stage.director.node("app", "n1");
    assert!(node["agent"].is_null(), "{node}");
    assert_eq!(stage.director.json("/pools")["pools"][0]["nodes"].as_array().map(Vec::len), Some(2));
}

#[test]
fn a_node_whose_agent_stopped_it_and_went_stays_stopped_until_somebody_takes_it_back() {
    let stage = Stage::new("report_expiry = \"1s\"\nphase = \"100ms\"");
    let agent = stage.agent(None);
    agent.stop(tcp(stage.rat.address.port()));
    stage.wait_service("n1", "stopped");
    drop(agent);
    wait_until("the agent to be gone", || {
        stage.director.admin("GET", "/metrics", "").text().contains("\nevener_agents 0\n")
    });
    assert_eq!(stage.answers(6), BTreeMap::from([("mole".into(), 6)]));
    assert!(stage.director.ctl(&["ready", "app", "n1"]).status.success());
    stage.wait_answers(&["mole", "rat"]);
    // An agent that comes back and starts it has the last word again.
    let agent = stage.agent(None);
    agent.stop(tcp(stage.rat.address.port()));
    stage.wait_answers(&["mole"]);
}

#[test]
fn what_a_frozen_agent_said_is_not_believed_for_longer_than_it_may() {
    let stage = Stage::new("report_expiry = \"1s\"\nphase = \"100ms\"");
    let agent = stage.agent(None);
    agent.say_health(0);
    stage.wait_answers(&["mole"]);
    agent.freeze();
    let frozen = Instant::now();
    stage.wait_answers(&["mole", "rat"]);
    assert!(
        frozen.elapsed() < Duration::from_secs(10),
        "believed until its expiry, not until its connection ends"
    );
}

#[test]
fn a_wrong_key_changes_nothing() {
    let stage = Stage::keyed("");
    let agent = Agent::connect(stage.necp, RAT, Some("another-secret-of-nobody"));
    agent.start(tcp(stage.rat.address.port()));
    wait_until("it to be refused", || agent.failures().contains(&Reason::Unauthenticated));
    let without = Agent::connect(stage.necp, RAT, None);
    wait_until("it to be refused", || without.failures().contains(&Reason::Unauthenticated));
    assert!(stage.refused("key") >= 2);
    assert!(stage.director.node("app", "n1")["agent"].is_null());
    stage.assert_shared();
}

#[test]
fn a_recording_is_of_no_use() {
    let stage = Stage::keyed("phase = \"100ms\"");
    let agent = stage.agent(Some(KEY));
    agent.stop(tcp(stage.rat.address.port()));
    stage.wait_service("n1", "stopped");
    let recording = agent.recording();
    drop(agent);
    assert!(stage.director.ctl(&["ready", "app", "n1"]).status.success());
    stage.wait_answers(&["mole", "rat"]);
    // From the same address, and again and again.
    for _ in 0..3 {
        let mut thief = connect_from(stage.necp, RAT).expect("the director accepts");
        thief.write_all(&recording).expect("it is sent");
        let mut answer = [0; 4096];
        let length = thief.read(&mut answer).expect("an answer");
        assert!(length > 0, "INIT is answered");
        assert!(stage.director.node("app", "n1")["agent"].is_null());
        stage.assert_shared();
    }
}

#[test]
fn a_stranger_cannot_end_an_agents_session() {
    let stage = Stage::keyed("");
    let agent = stage.agent(Some(KEY));
    for key in [None, Some("another-secret-of-nobody")] {
        let stranger = Agent::connect(stage.necp, RAT, key);
        wait_until("it to be refused", || !stranger.failures().is_empty());
    }
    // Nor one who connects and says nothing, or nonsense.
    let mut silent = connect_from(stage.necp, RAT).expect("the director accepts");
    silent.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it is sent");
    assert_eq!(silent.read(&mut [0; 64]).expect("the end"), 0);
    assert!(agent.failures().is_empty() && agent.is_open());
    assert_eq!(stage.director.node("app", "n1")["agent"], "started");
    assert!(stage.refused("form") >= 1);
}

#[test]
fn an_agent_that_begins_anew_takes_its_place() {
    let stage = Stage::keyed("phase = \"100ms\"");
    let old = stage.agent(Some(KEY));
    old.freeze();
    // Its machine was started again: what the old one said is void, and nothing of it is left.
    let new = Agent::connect(stage.necp, RAT, Some(KEY));
    new.wait_open();
    stage.wait_service("n1", "stopped");
    stage.wait_answers(&["mole"]);
    new.start(tcp(stage.rat.address.port()));
    stage.wait_answers(&["mole", "rat"]);
    wait_until("one agent", || {
        stage.director.admin("GET", "/metrics", "").text().contains("\nevener_agents 1\n")
    });
}

#[test]
fn agents_come_back_to_a_director_that_was_restarted() {
    let mut stage = Stage::keyed("phase = \"100ms\"");
    let agent = stage.agent(Some(KEY));
    agent.say_health(0);
    stage.wait_answers(&["mole"]);
    let text = std::fs::read_to_string(stage.director.config_path()).expect("its configuration");
    let text = text[text.find("[feedback]").expect("its section")..].to_owned();
    let keys = tempfile::NamedTempFile::new().expect("a file");
    write_keys(keys.path(), &format!("all {KEY}\n"));
    let old = stage.director.folder.path().join("feedback.keys").display().to_string();
    let text = text.replace(&old, &keys.path().display().to_string());
    stage.director.signal(stage.director.pid(), Signal::KILL);
    stage.director.wait();
    stage.director = Director::start(&text);
    stage.wait_service("n1", "started");
    stage.wait_answers(&["mole"]);
    agent.say_health(100);
    stage.wait_answers(&["mole", "rat"]);
}

#[test]
fn agents_follow_to_the_process_that_takes_over() {
    let stage = Stage::keyed("phase = \"100ms\"");
    let agent = stage.agent(Some(KEY));
    let old = stage.director.pid();
    let answer = stage.director.admin("POST", "/upgrade", "");
    assert_eq!(answer.status, 200, "{}", answer.text());
    wait_until("the agent to be let go", || agent.failures().contains(&Reason::Closed));
    wait_until("the old process to end", || !stage.director.pids().contains(&old));
    stage.wait_service("n1", "started");
    agent.say_health(0);
    stage.wait_answers(&["mole"]);
}

#[test]
fn a_key_is_changed_without_a_gap_and_one_that_is_taken_away_counts_no_more() {
    let stage = Stage::keyed("phase = \"100ms\"");
    let agent = stage.agent(Some(KEY));
    let next = "the-next-secret-of-all";
    stage.keys(&format!("all {KEY}\nnext {next}\n"));
    let mole = Agent::connect(stage.necp, MOLE, Some(next));
    mole.start(tcp(stage.mole.address.port()));
    stage.wait_service("n2", "started");
    assert!(agent.is_open() && agent.failures().is_empty(), "its key is still good");
    stage.keys(&format!("next {next}\n"));
    wait_until("the old key to be refused", || agent.failures().contains(&Reason::Unauthenticated));
    assert!(mole.is_open() && mole.failures().is_empty(), "its key is still good");
    assert!(stage.director.node("app", "n1")["agent"].is_null());
    assert_eq!(stage.director.node("app", "n2")["agent"], "started");
}

#[test]
fn a_key_of_one_node_is_of_no_use_to_another() {
    let stage = Stage::keyed("phase = \"100ms\"");
    stage.keys("node:n1 the-secret-of-the-rat\nnode:n2 the-secret-of-the-mole\n");
    let rat = stage.agent(Some("the-secret-of-the-rat"));
    let liar = Agent::connect(stage.necp, MOLE, Some("the-secret-of-the-rat"));
    liar.start(tcp(stage.mole.address.port()));
    liar.say_health(0);
    liar.wait_open();
    wait_until("it to be counted", || stage.refused("unknown") >= 1);
    assert!(stage.director.node("app", "n2")["agent"].is_null());
    assert!(rat.is_open());
    stage.assert_shared();
}

#[test]
fn nodes_join_when_their_agents_start_a_service_and_leave_when_they_stop_it() {
    let joining = nodes::named_on(TOAD, "toad");
    let port = joining.address.port();
    let stage = Stage::new(&format!("join = {{ from = [\"127.0.1.0/24\"], port = {port} }}"));
    assert_eq!(stage.director.nodes("app").len(), 2);
    let agent = Agent::connect(stage.necp, TOAD, None);
    agent.start(tcp(port));
    stage.wait_answers(&["mole", "rat", "toad"]);
    agent.stop(tcp(port));
    stage.wait_answers(&["mole", "rat"]);
    wait_until("the node to be gone", || stage.director.nodes("app").len() == 2);
    // From elsewhere, or another service: nothing joins.
    let stranger = Agent::connect(stage.necp, Ipv4Addr::new(127, 0, 2, 1), None);
    stranger.start(tcp(port));
    agent.start(tcp(port - 1));
    wait_until("both to be counted", || stage.refused("unknown") >= 2);
    assert_eq!(stage.director.nodes("app").len(), 2);
}

#[test]
fn a_reload_lets_agents_be_and_nodes_that_come_with_it_are_theirs() {
    let toad = nodes::named_on(TOAD, "toad");
    let stage = Stage::new("phase = \"100ms\"");
    let agent = Agent::connect(stage.necp, TOAD, None);
    agent.start(tcp(toad.address.port()));
    agent.wait_open();
    let of = |nodes: &[&Node]| {
        let pool = "phase = \"100ms\"";
        config(stage.web, stage.necp, "allow_unauthenticated = true", pool, nodes)
    };
    stage.director.write_config(&of(&[&stage.rat, &stage.mole, &toad]));
    assert_eq!(stage.director.reload().status, 200);
    stage.wait_service("n3", "started");
    assert!(agent.failures().is_empty());
    // One that cannot be served changes nothing.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address");
    let wrong = of(&[&stage.rat]).replace(&stage.necp.to_string(), &address.to_string());
    stage.director.write_config(&wrong);
    let answer = stage.director.reload();
    assert_eq!(answer.status, 409);
    assert!(answer.text().contains(&format!("cannot listen on {address}")), "{}", answer.text());
    assert_eq!(stage.director.nodes("app").len(), 3);
    assert!(agent.failures().is_empty());
}

#[test]
fn agents_are_asked_in_the_rhythm_of_the_pool() {
    let stage = Stage::new("phase = \"10s\"");
    let agent = stage.agent(None);
    wait_until("the first question", || agent.questions() > 0);
    let before = agent.questions();
    let faster = "phase = \"50ms\"";
    let nodes = [&stage.rat, &stage.mole];
    stage.director.write_config(&config(
        stage.web,
        stage.necp,
        "allow_unauthenticated = true",
        faster,
        &nodes,
    ));
    assert_eq!(stage.director.reload().status, 200);
    wait_until("many questions", || agent.questions() > before + 20);
    assert!(agent.failures().is_empty(), "it is the same connection");
}

#[test]
fn an_agent_may_except_flows_for_its_node_and_not_for_others() {
    let stage = Stage::new("");
    let agent = stage.agent(None);
    let flows = |port| Flows {
        source: Prefix::new(Ipv4Addr::new(127, 0, 0, 1), 32).expect("a prefix"),
        destination: Prefix::ALL,
        protocol: 0,
        port,
    };
    agent.except(Exception { scope: Scope::Global, ttl_s: 0, flows: flows(0) });
    let is_refused = |event: &AgentEvent| matches!(event, AgentEvent::ExceptionRefused(_));
    wait_until("it to be refused", || agent.events().iter().any(is_refused));
    stage.assert_shared();
    agent.except(Exception { scope: Scope::Local, ttl_s: 1, flows: flows(0) });
    stage.wait_answers(&["mole"]);
    // For its time, though the agent is still there.
    stage.wait_answers(&["mole", "rat"]);
    assert!(agent.failures().is_empty());
    agent.except(Exception { scope: Scope::Local, ttl_s: 0, flows: flows(0) });
    stage.wait_answers(&["mole"]);
    drop(agent);
    stage.wait_answers(&["mole", "rat"]);
}
