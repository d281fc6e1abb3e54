//! Real HAProxy, steered by what nodes report to a director that serves nobody itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use evener_tests::agents::{Agent, tcp};
use evener_tests::director::Director;
use evener_tests::haproxy::Haproxy;
use evener_tests::http::Client;
use evener_tests::load::{Load, Report};
use evener_tests::nginx::Nginx;
use evener_tests::{free_address, wait_until};
use rustix::process::Signal;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];
/// Weights follow health at once.
const SMOOTHING: &str = "feedback = { from = [\"push\"], weights = \"smoothing\", alpha = 1.0, step = 1.0, \
    dead_band = 0.0 }\nphase = \"1s\"\n";

/// HAProxy, its nodes, and a director with an output to it.
struct Stage {
    haproxy: Haproxy,
    director: Director,
    nginx: Nginx,
    reports: SocketAddr,
}

impl Stage {
    /// With these lines in the director's pool; its nodes have weights 5, 5 and 10, and HAProxy's 1, 1 and 2.
    fn new(pool: &str) -> Stage {
        Stage::with_balance("roundrobin", pool)
    }

    fn with_balance(balance: &str, pool: &str) -> Stage {
        let nginx = Nginx::start(&NAMES);
        let haproxy = Haproxy::start(&proxies(balance, &nginx.addresses));
        let reports = free_address();
        let config = config(reports, &haproxy, &nginx.addresses, pool);
        let director = Director::start(&config);
        Stage { haproxy, director, nginx, reports }
    }

    /// Says the health of all nodes again and again, as agents do, until the value ends.
    fn keep_saying(&self, health: [u8; 3]) -> Agents {
        Agents::start(self.reports, health)
    }

    fn wait_for(&self, shown: &str) {
        wait_until(&format!("HAProxy to have {shown}"), || self.haproxy.shown() == shown);
    }

    fn wait_for_log(&self, text: &str) {
        wait_until(text, || self.director.stderr().contains(text));
    }

    /// What the load of 8 clients gets, `count` requests long.
    fn load(&self, count: u64) -> Report {
        let load = Load::start(self.haproxy.address, 8, Duration::ZERO);
        load.go_on(count);
        load.stop()
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = self.director.admin("GET", "/metrics", "");
        let name = format!("evener_output_{name}{{pool=\"app\"}} ");
        let value = metrics.text().lines().find_map(|line| line.strip_prefix(&name));
        value.expect("the metric").parse().expect("a number")
    }
}

/// HAProxy's proxy `app`, and another with the same nodes that nobody is to touch.
fn proxies(balance: &str, nodes: &[SocketAddr]) -> String {
    let servers = NAMES.iter().zip(nodes).zip([1, 1, 2]);
    let servers: String = servers
        .map(|((name, address), weight)| format!("  server {name} {address} weight {weight}\n"))
        .collect();
    format!("backend app\n  balance {balance}\n{servers}backend other\n  balance roundrobin\n{servers}")
}

fn config(reports: SocketAddr, haproxy: &Haproxy, nodes: &[SocketAddr], pool: &str) -> String {
    let nodes = NAMES.iter().zip(nodes).zip([5, 5, 10]);
    let nodes: Vec<String> = nodes
        .map(|((name, address), weight)| {
            format!("{{ name = \"{name}\", address = \"{address}\", weight = {weight} }}")
        })
        .collect();
    format!(
        "[feedback]\nhttp = \"{reports}\"\n[pool.app]\n{pool}\n\
         output = {{ haproxy = \"{}\", proxy = \"app\", drain_timeout = \"2s\" }}\nnode = [ {} ]\n",
        haproxy.socket().display(),
        nodes.join(", ")
    )
}

fn say(reports: SocketAddr, health: [u8; 3]) {
    let said: Vec<String> = NAMES
        .iter()
        .zip(health)
        .map(|(name, health)| format!("{{\"node\": \"{name}\", \"health\": {health}}}"))
        .collect();
    // The director may be away.
    let Ok(mut client) = Client::connect(reports) else { return };
    let body = format!("[{}]", said.join(", "));
    let head = format!("POST /report HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    if client.send(head + &body).is_ok() {
        let _ = client.response();
    }
}

/// Agents that report ten times a second.
struct Agents {
    stopping: Arc<AtomicBool>,
    health: Arc<Mutex<[u8; 3]>>,
    thread: Option<JoinHandle<()>>,
}

impl Agents {
    fn start(reports: SocketAddr, health: [u8; 3]) -> Agents {
        let stopping = Arc::<AtomicBool>::default();
        let health = Arc::new(Mutex::new(health));
        let (stops, says) = (Arc::clone(&stopping), Arc::clone(&health));
        let thread = std::thread::spawn(move || {
            while !stops.load(Ordering::SeqCst) {
                let now = *says.lock().expect("nobody panics with it");
                say(reports, now);
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Agents { stopping, health, thread: Some(thread) }
    }

    fn change(&self, health: [u8; 3]) {
        *self.health.lock().expect("nobody panics with it") = health;
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn weights_follow_reports_and_shares_follow_weights() {
    let stage = Stage::new(SMOOTHING);
    let version = stage.haproxy.ask("show info");
    assert!(version.contains("\nVersion: 3.") || version.contains("\nVersion: 4."), "{version}");
    let agents = stage.keep_saying([100, 100, 100]);
    stage.wait_for("n1=50 n2=50 n3=100");
    let before = stage.load(2000);
    assert_eq!(
        (before.failures(), before.by_node["n3"] / 100),
        (0, before.sent / 200),
        "half of all: {before}"
    );
    agents.change([100, 20, 50]);
    stage.wait_for("n1=50 n2=10 n3=50");
    let after = stage.load(2200);
    assert_eq!(after.failures(), 0, "{after}");
    for (node, weight) in [("n1", 50.0), ("n2", 10.0), ("n3", 50.0)] {
        let (share, wanted) = (after.by_node[node] as f64 / after.sent as f64, weight / 110.0);
        assert!((share - wanted).abs() < 0.02, "{node} has {share} of {after}");
    }
    let other: Vec<u32> = stage.haproxy.rows("other").iter().map(|row| row.given).collect();
    assert_eq!(other, [1, 1, 2], "another proxy is nobody's business");
    assert_eq!(stage.metric("up"), 1.0);
    assert!(stage.metric("changes_total") >= 5.0);
}

#[test]
fn a_node_without_health_drains_and_no_request_fails() {
    let stage = Stage::new("feedback = { from = [\"push\"] }");
    let agents = stage.keep_saying([100, 100, 100]);
    stage.wait_for("n1=5 n2=5 n3=10");
    let load = Load::start(stage.haproxy.address, 8, Duration::from_millis(1));
    load.go_on(200);
    agents.change([100, 100, 0]);
    stage.wait_for("n1=5 n2=5 n3=10/DRAIN");
    wait_until("its sessions to end", || stage.haproxy.row("n3").is_some_and(|row| row.sessions == 0));
    let total = |stage: &Stage| stage.haproxy.ask("show stat app 4 -1").lines().nth(3).map(str::to_owned);
    let requests = |line: Option<String>| line.and_then(|line| line.split(',').nth(7)?.parse::<u64>().ok());
    let drained = requests(total(&stage)).expect("sessions of n3");
    load.go_on(400);
    assert_eq!(requests(total(&stage)), Some(drained), "no new sessions");
    agents.change([100, 100, 60]);
    stage.wait_for("n1=5 n2=5 n3=10");
    load.go_on(200);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    assert!(requests(total(&stage)) > Some(drained), "it takes sessions again");
}

#[test]
fn when_all_refuse_all_are_used() {
    let stage = Stage::new("feedback = { from = [\"push\"] }");
    let agents = stage.keep_saying([100, 100, 100]);
    stage.wait_for("n1=5 n2=5 n3=10");
    agents.change([0, 100, 100]);
    stage.wait_for("n1=5/DRAIN n2=5 n3=10");
    agents.change([0, 0, 0]);
    stage.wait_for("n1=5 n2=5 n3=10");
}

#[test]
fn configured_weights_come_back_when_agents_are_gone() {
    let stage = Stage::new(&format!("{SMOOTHING}report_expiry = \"2s\"\n"));
    let agents = stage.keep_saying([100, 10, 0]);
    stage.wait_for("n1=50 n2=5 n3=2/DRAIN");
    drop(agents);
    stage.wait_for("n1=50 n2=50 n3=100");
    let report = stage.load(400);
    assert_eq!(
        (report.failures(), report.by_node["n3"] / 20),
        (0, report.sent / 40),
        "half of all: {report}"
    );
}

#[test]
fn haproxy_serves_on_without_a_director_and_the_next_one_takes_over_where_that_was() {
    let mut stage = Stage::new(SMOOTHING);
    let agents = stage.keep_saying([100, 20, 0]);
    stage.wait_for("n1=50 n2=10 n3=2/DRAIN");
    let load = Load::start(stage.haproxy.address, 4, Duration::from_millis(1));
    stage.director.signal(stage.director.pid(), Signal::KILL);
    stage.director.wait();
    load.go_on(200);
    assert_eq!(stage.haproxy.shown(), "n1=50 n2=10 n3=2/DRAIN");
    stage.director =
        Director::start(&config(stage.reports, &stage.haproxy, &stage.nginx.addresses, SMOOTHING));
    // It says nothing before it has heard of all nodes, and goes on where the last one was.
    wait_until("the next director to steer", || {
        assert_eq!(stage.haproxy.shown(), "n1=50 n2=10 n3=2/DRAIN");
        stage.metric("up") == 1.0
    });
    agents.change([100, 20, 50]);
    stage.wait_for("n1=50 n2=10 n3=50");
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn a_haproxy_that_was_reloaded_or_restarted_is_told_again() {
    let mut stage = Stage::new(SMOOTHING);
    let _agents = stage.keep_saying([100, 20, 0]);
    stage.wait_for("n1=50 n2=10 n3=2/DRAIN");
    let load = Load::start(stage.haproxy.address, 4, Duration::from_millis(1));
    load.go_on(100);
    stage.haproxy.reload();
    stage.wait_for("n1=50 n2=10 n3=2/DRAIN");
    load.go_on(100);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    wait_until("the director to have seen it", || stage.metric("restarts_total") == 1.0);
    stage.haproxy.kill();
    wait_until("the director to notice", || stage.metric("up") == 0.0);
    let output = &stage.director.json("/pools/app")["output"];
    assert!(output["error"].as_str().is_some_and(|error| error.contains("cannot connect")), "{output}");
    stage.wait_for_log("it goes on with what it has");
    stage.haproxy.revive();
    stage.wait_for("n1=50 n2=10 n3=2/DRAIN");
    wait_until("the director to say so", || {
        stage.metric("up") == 1.0 && stage.metric("restarts_total") == 2.0
    });
    assert!(stage.metric("failures_total") >= 1.0);
    assert!(stage.director.json("/pools/app")["output"]["error"].is_null());
}

#[test]
fn a_haproxy_that_hangs_holds_nobody_up() {
    let stage = Stage::new(SMOOTHING);
    let agents = stage.keep_saying([100, 100, 100]);
    stage.wait_for("n1=50 n2=50 n3=100");
    wait_until("the director to know", || stage.metric("up") == 1.0);
    stage.haproxy.signal(Signal::STOP);
    wait_until("the director to give up", || stage.metric("up") == 0.0);
    let output = &stage.director.json("/pools/app")["output"];
    assert!(
        output["error"].as_str().is_some_and(|error| error.contains("not answered within 2s")),
        "{output}"
    );
    agents.change([100, 30, 100]);
    stage.haproxy.signal(Signal::CONT);
    stage.wait_for("n1=50 n2=15 n3=100");
}

#[test]
fn maintenance_is_the_operators_and_what_else_another_changes_is_corrected() {
    let stage = Stage::new("feedback = { from = [\"push\"] }");
    let agents = stage.keep_saying([100, 100, 100]);
    stage.wait_for("n1=5 n2=5 n3=10");
    stage.haproxy.ask("set server app/n1 state maint");
    stage.haproxy.ask("set server app/n2 weight 9");
    stage.wait_for("n1=5/MAINT n2=5 n3=10");
    stage.wait_for_log("another had changed");
    agents.change([0, 100, 100]);
    wait_until("the director to know", || stage.director.node("app", "n1")["state"] == "refusing");
    agents.change([100, 100, 0]);
    stage.wait_for("n1=5/MAINT n2=5 n3=10/DRAIN");
    stage.haproxy.ask("set server app/n1 state ready");
    stage.wait_for("n1=5 n2=5 n3=10/DRAIN");
}

#[test]
fn nodes_that_haproxy_does_not_have_are_added_and_leave_with_the_configuration() {
    let mut stage = Stage::new("feedback = { from = [\"push\"] }");
    let agents = stage.keep_saying([100, 100, 100]);
    stage.wait_for("n1=5 n2=5 n3=10");
    let fourth = Nginx::start(&["n4"]);
    let name = format!("evener-{}", fourth.address());
    let with = |stage: &Stage, nodes: &str| {
        let config =
            config(stage.reports, &stage.haproxy, &stage.nginx.addresses, "feedback = { from = [\"push\"] }");
        let config = config.replace("drain_timeout", "node_options = \"check inter 200ms\", drain_timeout");
        stage.director.write_config(&config.replace(" ]\n", &format!(", {nodes} ]\n")));
        let answer = stage.director.reload();
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let load = Load::start(stage.haproxy.address, 4, Duration::from_millis(1));
    with(&stage, &format!("{{ name = \"n4\", address = \"{}\", weight = 20 }}", fourth.address()));
    stage.wait_for(&format!("n1=5 n2=5 n3=10 {name}=20"));
    wait_until("checks of the new one", || stage.haproxy.row(&name).is_some_and(|row| row.status == "UP"));
    load.go_on(400);
    // A process that was started anew has forgotten what was added.
    stage.haproxy.reload();
    stage.wait_for(&format!("n1=5 n2=5 n3=10 {name}=20"));
    load.go_on(100);
    with(&stage, "");
    stage.wait_for("n1=5 n2=5 n3=10");
    load.go_on(100);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.by_node["n4"] > 100, "{report}");
    drop(agents);
}

#[test]
fn a_service_that_starts_is_added_and_one_that_stops_is_deleted() {
    const RAT: Ipv4Addr = Ipv4Addr::new(127, 0, 5, 1);
    const MOLE: Ipv4Addr = Ipv4Addr::new(127, 0, 5, 2);
    let (rat, mole) = (Nginx::start_on(RAT, &["rat"]), Nginx::start_on(MOLE, &["mole"]));
    let haproxy =
        Haproxy::start(&format!("backend app\n  balance leastconn\n  server rat {}\n", rat.address()));
    let (necp, port) = (free_address(), mole.address().port());
    let config = format!(
        "[feedback]\nnecp = \"{necp}\"\n[pool.app]\nphase = \"300ms\"\nreport_expiry = \"2s\"\n\
         join = {{ from = [\"{MOLE}/32\"], port = {port}, weight = 5, linger = \"1s\" }}\n\
         output = {{ haproxy = \"{}\", proxy = \"app\" }}\n\
         node = [ {{ name = \"rat\", address = \"{}\", weight = 5 }} ]\n",
        haproxy.socket().display(),
        rat.address()
    );
    let mut director = Director::start(&config);
    let agent = Agent::connect(necp, MOLE, None);
    agent.start(tcp(port));
    let both = format!("rat=5 evener-{MOLE}:{port}=5");
    let wait_for = |wanted: &str| wait_until(wanted, || haproxy.shown() == wanted);
    wait_for(&both);
    let load = Load::start(haproxy.address, 8, Duration::from_millis(1));
    load.go_on(400);
    agent.say_health(0);
    wait_for(&format!("{both}/DRAIN"));
    agent.say_health(90);
    wait_for(&both);
    // The next director finds a server that one of its kind has added, and hears of its node in time.
    director.signal(director.pid(), Signal::KILL);
    director.wait();
    director = Director::start(&config);
    wait_until("the agent to be back", || director.nodes("app").len() == 2);
    wait_until("the next director to steer", || {
        assert_eq!(haproxy.shown(), both);
        director.json("/pools/app")["output"]["up"] == true
    });
    agent.stop(tcp(port));
    wait_for("rat=5");
    agent.start(tcp(port));
    wait_for(&both);
    load.go_on(100);
    drop(agent);
    wait_for("rat=5");
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
    assert!(report.by_node["mole"] > 100, "{report}");
}

#[test]
fn under_an_algorithm_with_static_weights_nodes_still_drain() {
    let stage = Stage::with_balance("static-rr", SMOOTHING);
    let agents = stage.keep_saying([100, 50, 0]);
    stage.wait_for("n1=1 n2=1 n3=2/DRAIN");
    stage.wait_for_log("weights do not change while HAProxy runs");
    // Weights change on, and are not put out any more.
    agents.change([80, 40, 100]);
    stage.wait_for("n1=1 n2=1 n3=2");
    assert_eq!((stage.metric("up"), stage.metric("refused_total")), (1.0, 1.0), "it is asked once");
}

#[test]
fn the_example_of_haproxys_side_is_valid() {
    let text =
        std::fs::read_to_string(evener_tests::checkout().join("examples/haproxy.cfg")).expect("the example");
    // The group is the operator's to make.
    let text = text.replace(" group evener", "");
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), text).expect("written");
    let (is_valid, said) = evener_tests::haproxy::check(file.path());
    assert!(is_valid && !said.contains("WARNING"), "{said}");
}

#[test]
fn what_cannot_be_an_output_is_said() {
    let check = |output: &str| {
        let text = format!("[pool.app]\noutput = {output}\nnode = [ {{ address = \"127.0.0.1:1\" }} ]\n");
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        let output = evener_tests::director::evener(&["check", &file.path().display().to_string()]);
        evener_tests::director::texts(&output).1
    };
    let wrong = [
        ("{ haproxy = \"nowhere\", proxy = \"app\" }", "expected the path of HAProxy's socket"),
        ("{ haproxy = \"/run/h.sock\", proxy = \"a b\" }", "expected the name of a proxy"),
        ("{ haproxy = \"/run/h.sock\", proxy = \"a\", node_options = \"check; quit\" }", "expected options"),
        ("{ haproxy = \"/run/h.sock\" }", "expected a key proxy"),
        ("{ ipvs = \"10.0.0.9:80\", scheduler = \"best!\" }", "expected the name of a scheduler"),
        ("{ ipvs = \"fwmark:0\" }", "expected ADDRESS:PORT or \"fwmark:NUMBER\""),
    ];
    for (output, what) in wrong {
        let said = check(output);
        assert!(said.contains(what), "{output}: {said}");
    }
    assert_eq!(check("{ haproxy = \"/run/h.sock\", proxy = \"a\", node_options = \"check\" }"), "");
}
