//! What becomes of traffic when feedback fails: agents that are killed, frozen, lie or have the wrong key or time, reports
//! that are replayed, a director that is restarted, a network that is cut.
//!
//! Four nginx nodes, the real agent and the real director. The agents say what the test has written into a file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use evener_feedback::datagram::{Key, Sender};
use evener_feedback::json::Said;
use evener_tests::director::{Director, program, web_with};
use evener_tests::load::{Load, Report};
use evener_tests::network::{Network, REPORTS, THEIRS};
use evener_tests::nginx::Nginx;
use evener_tests::{free_address, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const SECRET: &str = "0123456789abcdef0123456789abcdef";
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];
/// For so long a report is believed.
const EXPIRY: Duration = Duration::from_secs(2);
/// What a node says that has work, and could take as much again.
const HALF: &str = "health=50\nload=0.5\njobs=5\n";
/// What a node says that has nothing to do.
const IDLE: &str = "health=100\nload=0\njobs=0\n";
/// What a node says that wants nothing.
const NOTHING: &str = "health=0\nload=2\njobs=50\n";

/// Four nodes behind a director, and what agents need to report to it.
struct Stage {
    director: Director,
    nodes: Vec<Nginx>,
    web: SocketAddr,
    necp: SocketAddr,
    datagrams: SocketAddr,
    config: String,
    folder: TempDir,
}

impl Stage {
    /// With these further lines in the pool.
    fn new(pool: &str) -> Stage {
        Stage::with(NODES.map(|name| Nginx::start(&[name])).into(), Ipv4Addr::LOCALHOST, pool)
    }

    /// With these nodes. The director listens for agents on this address, the loopback or all.
    fn with(nodes: Vec<Nginx>, listens: Ipv4Addr, pool: &str) -> Stage {
        let folder = tempfile::tempdir().expect("a folder");
        write_keys(&folder, "keys", SECRET);
        let (web, necp) = (free_address(), free_address());
        let addresses: Vec<_> = nodes.iter().map(Nginx::address).collect();
        let datagrams = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("bound");
        let feedback = format!(
            "[feedback]\nnecp = \"{listens}:{}\"\ndatagrams = {{ listen = \"{datagrams}\" }}\nkeys = \"{}\"\n",
            necp.port(),
            folder.path().join("keys").display()
        );
        let pool = format!("phase = \"200ms\"\nreport_expiry = \"{}s\"\n{pool}", EXPIRY.as_secs());
        let config = feedback + &web_with(web, "", &addresses, &pool);
        let director = Director::start(&config);
        Stage { director, nodes, web, necp, datagrams, config, folder }
    }

    /// The agent of a node, which says this; the director has heard it.
    fn agent(&self, node: &str, says: &str) -> Agent {
        let agent = Agent::start(self, node, self.necp, "keys", says);
        self.wait_heard(node);
        agent
    }

    /// Agents of all nodes, which say this.
    fn agents(&self, says: &str) -> Vec<Agent> {
        NODES.iter().map(|node| self.agent(node, says)).collect()
    }

    fn address(&self, node: &str) -> SocketAddr {
        self.nodes[NODES.iter().position(|name| *name == node).expect("a node")].address()
    }

    fn wait_heard(&self, node: &str) {
        wait_until("a report", || self.heard(node).is_some());
    }

    /// The health that a node has reported by NECP, and its age in milliseconds, while it is believed.
    fn heard(&self, node: &str) -> Option<(f64, f64)> {
        self.director.said("app", node, "necp", "health")
    }

    /// What becomes of some requests.
    fn requests(&self) -> Report {
        let load = Load::start(self.web, 8, Duration::ZERO);
        load.go_on(400);
        let report = load.stop();
        assert_eq!(report.failures(), 0, "{report}");
        report
    }

    /// The nodes' shares of requests of now.
    fn shares(&self) -> BTreeMap<String, f64> {
        let report = self.requests();
        let share = |count: u64| count as f64 / report.answered as f64;
        report.by_node.into_iter().map(|(node, count)| (node, share(count))).collect()
    }

    fn share(&self, node: &str) -> f64 {
        self.shares().get(node).copied().unwrap_or(0.0)
    }

    /// Waits until a node gets no jobs.
    fn wait_spared(&self, node: &str) {
        wait_until(&format!("no more jobs for {node}"), || self.share(node) == 0.0);
    }

    /// Waits until each node gets its quarter.
    fn wait_shared(&self) {
        wait_until("a quarter for each", || {
            let shares = self.shares();
            shares.len() == 4 && shares.values().all(|share| (0.2..0.3).contains(share))
        });
    }

    /// A load that goes on until it is stopped.
    fn steady(&self) -> Load {
        Load::start(self.web, 4, Duration::from_millis(5))
    }
}

/// An agent that runs; it is killed with the value.
struct Agent {
    child: Child,
    says: PathBuf,
}

impl Agent {
    /// Reports to this address with a key from this file.
    fn start(stage: &Stage, node: &str, director: SocketAddr, keys: &str, says: &str) -> Agent {
        let path = |name: &str| stage.folder.path().join(name);
        let (config, file) = (path(&format!("{node}.toml")), path(&format!("{node}.says")));
        let text = format!(
            "[agent]\nnode = \"{node}\"\ndirector = \"necp://{director}\"\nkeys = \"{}\"\nservice = \"{},start=always\"\n\
             interval = \"200ms\"\nreconnect = {{ min = \"50ms\", max = \"500ms\" }}\n\
             cpu = {{ factor = 0 }}\nnetwork = {{ factor = 0 }}\n\
             [[agent.source]]\ntimeout = \"5s\"\nprogram = {{ run = [\"/bin/cat\", \"{}\"] }}\n",
            path(keys).display(),
            stage.address(node).port(),
            file.display()
        );
        fs::write(&config, text).expect("written");
        fs::write(&file, says).expect("written");
        let log = fs::File::create(path(&format!("{node}.log"))).expect("a file");
        let child = Command::new(program())
            .args(["agent", "-c", config.to_str().expect("a plain path")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        Agent { child: child.expect("evener starts"), says: file }
    }

    /// Says something else from now on.
    fn say(&self, text: &str) {
        let new = self.says.with_extension("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, &self.says).expect("one file instead of another");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn write_keys(folder: &TempDir, name: &str, secret: &str) {
    let path = folder.path().join(name);
    fs::write(&path, format!("all {secret}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
}

#[test]
fn a_node_whose_agent_was_killed_is_placed_on_as_configured() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    let agents = stage.agents(HALF);
    agents[1].say(NOTHING);
    stage.wait_spared("n2");
    agents[1].signal(Signal::KILL);
    stage.wait_shared();
    wait_until("what it said to be forgotten", || stage.heard("n2").is_none());
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn a_frozen_agent_is_believed_until_its_report_expires() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    let agents = stage.agents(HALF);
    agents[1].say(NOTHING);
    stage.wait_spared("n2");
    agents[1].signal(Signal::STOP);
    wait_until("the report to expire", || {
        let heard = stage.heard("n2");
        let age_ms = heard.map_or(0.0, |(_, age_ms)| age_ms);
        // The director looks for what has expired a few times a second; a busy machine may keep it from that for a while.
        assert!(age_ms <= 1000.0 + EXPIRY.as_secs_f64() * 1000.0, "believed for {age_ms} ms");
        heard.is_none()
    });
    stage.wait_shared();
    // When it goes on it is heard again, whether or not it has lost its connection.
    agents[1].signal(Signal::CONT);
    stage.wait_spared("n2");
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

/// Lets one agent of four say that its node is idle, whatever it gets, and the others that theirs are half in use. Gives
/// the share that the liar has when weights have had seconds to follow.
fn share_of_a_liar(pool: &str) -> f64 {
    let stage = Stage::new(pool);
    let agents = stage.agents(HALF);
    agents[1].say(IDLE);
    wait_until("the lie to be heard", || stage.heard("n2").is_some_and(|(health, _)| health == 100.0));
    let shares: Vec<f64> = (0..12)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(300));
            stage.share("n2")
        })
        .collect();
    println!("{pool}: {shares:.2?}");
    shares[6..].iter().sum::<f64>() / 6.0
}

#[test]
fn with_the_integral_a_liar_gets_half_at_the_most() {
    let share = share_of_a_liar(
        "scheduler = \"weighted-round-robin\"\n\
         feedback = { weights = \"integral\", gain = 1.0, step = 1.0, odds = 3 }",
    );
    // 3 of 3 + 3; chance is no part of it, but weights are whole numbers.
    assert!(share <= 0.53, "{share}");
}

#[test]
fn with_smoothing_a_liar_gets_what_its_health_is_of_all() {
    let share = share_of_a_liar(
        "scheduler = \"weighted-round-robin\"\n\
         feedback = { weights = \"smoothing\", alpha = 1.0, step = 1.0 }",
    );
    // 100 of 100 + 3 · 50.
    assert!(share <= 0.43, "{share}");
}

#[test]
fn with_informed_a_liar_gets_little_more_than_its_quarter() {
    let share = share_of_a_liar("scheduler = \"informed\"");
    // What the director counts and measures itself speaks against it. Who answers faster by chance gets more for a while.
    assert!(share <= 0.4, "{share}");
}

#[test]
fn with_job_informed_a_liar_gets_little_more_than_its_quarter() {
    let share = share_of_a_liar("scheduler = \"job-informed\"");
    // It is short of no more than the few jobs that the others say they have.
    assert!(share <= 0.35, "{share}");
}

#[test]
fn a_liar_that_wants_nothing_gets_nothing_and_liars_do_not_take_all_down() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    let agents = stage.agents(HALF);
    agents[1].say(NOTHING);
    stage.wait_spared("n2");
    let shares = stage.shares();
    assert!(shares.len() == 3 && shares.values().all(|share| (0.3..0.37).contains(share)), "{shares:?}");
    // When most of them want nothing, that is less likely to be true than that something is wrong with what they say.
    agents[0].say(NOTHING);
    agents[2].say(NOTHING);
    stage.wait_shared();
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn reports_of_another_time_are_counted_and_change_nothing() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bound");
    let mut sender = Sender::new(Key::new(SECRET.as_bytes()), "n2").expect("a name");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    let hour = Duration::from_secs(3600);
    let mut send = |at: Duration| {
        let mut datagram = Vec::new();
        let said = Said { health: Some(0), ..Said::default() };
        sender.write(at, &[said], &mut datagram).expect("it fits");
        socket.send_to(&datagram, stage.datagrams).expect("sent");
    };
    for (times, clock) in [now - hour, now + hour, Duration::from_secs(1)].into_iter().enumerate() {
        send(clock);
        wait_until("it to be counted", || stage.director.refused("datagram", "time") == times as u64 + 1);
    }
    stage.wait_shared();
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn an_agent_with_a_wrong_key_changes_nothing() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    write_keys(&stage.folder, "wrong", "another secret, of nobody".replace(' ', "-").as_str());
    let _agent = Agent::start(&stage, "n2", stage.necp, "wrong", NOTHING);
    wait_until("it to be refused", || stage.director.refused("necp", "key") >= 2);
    assert_eq!(stage.heard("n2"), None);
    stage.wait_shared();
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

/// Somebody on the way, who passes on what an agent says, and keeps it.
struct Tap {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<u8>>>,
}

impl Tap {
    fn before(director: SocketAddr) -> Tap {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let recorded = Arc::<Mutex<Vec<u8>>>::default();
        let log = Arc::clone(&recorded);
        std::thread::spawn(move || {
            // One agent, one connection.
            let (mut agent, _) = listener.accept().expect("the agent connects");
            let mut onward = TcpStream::connect(director).expect("the director accepts");
            let (mut answers, mut back) =
                (onward.try_clone().expect("a handle"), agent.try_clone().expect("a handle"));
            std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = agent.read(&mut buffer) {
                log.lock().expect("no panic").extend_from_slice(&buffer[..length]);
                if onward.write_all(&buffer[..length]).is_err() {
                    break;
                }
            }
            let _ = onward.shutdown(Shutdown::Both);
        });
        Tap { address, recorded }
    }
}

#[test]
fn a_recording_of_an_agent_is_of_no_use() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    let tap = Tap::before(stage.necp);
    let agent = Agent::start(&stage, "n2", tap.address, "keys", NOTHING);
    stage.wait_spared("n2");
    drop(agent);
    stage.wait_shared();
    let recording = tap.recorded.lock().expect("no panic").clone();
    assert!(!recording.is_empty());
    for _ in 0..3 {
        let mut thief = TcpStream::connect(stage.necp).expect("the director accepts");
        thief.write_all(&recording).expect("sent");
        let mut answer = [0; 4096];
        assert!(thief.read(&mut answer).expect("an answer") > 0, "the first message asks who it is");
        wait_until("nothing to be believed", || stage.heard("n2").is_none());
        stage.wait_shared();
    }
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn agents_find_a_director_that_was_replaced_and_nothing_fails_meanwhile() {
    let stage = Stage::new("scheduler = \"round-robin\"");
    let steady = stage.steady();
    let agents = stage.agents(HALF);
    agents[1].say(NOTHING);
    stage.wait_spared("n2");
    let old = stage.director.pid();
    stage.director.signal(old, Signal::USR2);
    wait_until("the old process to end", || !stage.director.pids().contains(&old));
    NODES.iter().for_each(|node| stage.wait_heard(node));
    stage.wait_spared("n2");
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn agents_find_a_director_that_was_killed_and_started_again() {
    let mut stage = Stage::new("scheduler = \"round-robin\"");
    let agents = stage.agents(HALF);
    agents[1].say(NOTHING);
    stage.wait_spared("n2");
    stage.director.signal(stage.director.pid(), Signal::KILL);
    stage.director.wait();
    stage.director = Director::start(&stage.config);
    // It knows nothing at first, and places on all. Then it hears the same as the one before.
    NODES.iter().for_each(|node| stage.wait_heard(node));
    stage.wait_spared("n2");
    let shares = stage.shares();
    assert!(shares.len() == 3 && shares.values().all(|share| (0.3..0.37).contains(share)), "{shares:?}");
}

#[test]
fn a_node_whose_network_is_cut_loses_first_its_voice_and_then_its_jobs() {
    let Some(network) = Network::lay() else {
        return println!("not tested: needs ip (iproute2) and the right to make networks");
    };
    let mut nodes: Vec<_> = NODES[..3].iter().map(|name| Nginx::start(&[name])).collect();
    nodes.push(network.within(|| Nginx::start_on(THEIRS, &["n4"])));
    let pool = "scheduler = \"round-robin\"\n\
        check = { tcp = true, interval = \"1s\", timeout = \"1s\", fall = 2, rise = 2 }\n\
        timeouts = { connect = \"1s\", response = \"2s\" }";
    let stage = Stage::with(nodes, Ipv4Addr::UNSPECIFIED, pool);
    let steady = stage.steady();
    let _others: Vec<_> = NODES[..3].iter().map(|node| stage.agent(node, HALF)).collect();
    let reports = SocketAddr::from((REPORTS, stage.necp.port()));
    let _cut_off = network.within(|| Agent::start(&stage, "n4", reports, "keys", NOTHING));
    stage.wait_spared("n4");

    // Of a node that cannot report any more, what it said expires, and it gets its share as configured.
    network.cut_reports();
    stage.wait_shared();
    wait_until("what it said to be forgotten", || stage.heard("n4").is_none());
    network.let_reports_through();
    stage.wait_spared("n4");
    network.cut_reports();
    stage.wait_shared();
    let report = steady.stop();
    assert_eq!(report.failures(), 0, "{report}");

    // A node that cannot be reached at all gets no jobs. Those that it has when the wire is cut end at their time limit.
    network.set_wire("down");
    wait_until("jobs to go to the others alone, and none to fail", || {
        let load = Load::start(stage.web, 8, Duration::ZERO);
        load.go_on(200);
        let report = load.stop();
        report.failures() == 0 && !report.by_node.contains_key("n4")
    });
    network.set_wire("up");
    // It is up and heard again, and it has said all the time that it wants nothing.
    wait_until("it to be up and heard", || stage.director.node("app", "n4")["state"] == "refusing");
    stage.wait_spared("n4");
}
