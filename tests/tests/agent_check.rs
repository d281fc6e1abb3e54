//! Real HAProxy, which asks agents itself: `evener agent --agent-check`, without a director.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evener_tests::director::program;
use evener_tests::haproxy::Haproxy;
use evener_tests::load::{Load, Report};
use evener_tests::nginx::Nginx;
use evener_tests::{free_address, wait_until};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["n1", "n2", "n3"];

/// The agent of a node whose health is what a file says; it is killed with the value.
struct Agent {
    address: SocketAddr,
    folder: TempDir,
    child: Child,
}

impl Agent {
    fn start(health: &str) -> Agent {
        let folder = tempfile::tempdir().expect("a folder");
        let (address, config) = (free_address(), folder.path().join("agent.toml"));
        let told = folder.path().join("told");
        fs::write(&told, health).expect("written");
        let text = format!(
            "[agent]\ninterval = \"50ms\"\ncpu = {{ factor = 0 }}\nnetwork = {{ factor = 0 }}\n\
             [[agent.source]]\nprogram = {{ run = [\"/bin/cat\", {told:?}] }}\n"
        );
        fs::write(&config, text).expect("written");
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new(program())
            .args(["agent", "--agent-check", &address.to_string(), "-c"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("evener starts");
        let mut agent = Agent { address, folder, child };
        wait_until("the agent to listen", || {
            let log = || fs::read_to_string(agent.folder.path().join("log")).unwrap_or_default();
            assert!(agent.child.try_wait().expect("ours").is_none(), "the agent ended: {}", log());
            std::net::TcpStream::connect(address).is_ok()
        });
        agent
    }

    /// What its program says from now on.
    fn say(&self, health: &str) {
        // At once: half of a file is another health.
        let next: PathBuf = self.folder.path().join("next");
        fs::write(&next, health).expect("written");
        fs::rename(next, self.folder.path().join("told")).expect("replaced");
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Stage {
    haproxy: Haproxy,
    agents: Vec<Agent>,
    _nginx: Nginx,
}

impl Stage {
    /// Three nodes of weight 100 with agents.
    fn new(health: [u8; 3]) -> Stage {
        let nginx = Nginx::start(&NAMES);
        let agents: Vec<Agent> = health.iter().map(|health| Agent::start(&said(*health))).collect();
        let servers: String = NAMES
            .iter()
            .zip(nginx.addresses.iter().zip(&agents))
            .map(|(name, (node, agent))| {
                let (address, port) = (agent.address.ip(), agent.address.port());
                format!(
                    "  server {name} {node} weight 100 \
                     agent-check agent-addr {address} agent-port {port} agent-inter 100ms\n"
                )
            })
            .collect();
        let haproxy = Haproxy::start(&format!("backend app\n  balance roundrobin\n{servers}"));
        Stage { haproxy, agents, _nginx: nginx }
    }

    fn wait_for(&self, weights: [u32; 3]) {
        wait_until(&format!("HAProxy to have {weights:?}, not {}", self.haproxy.shown()), || {
            self.haproxy.rows("app").iter().map(|row| row.weight).eq(weights)
        });
    }

    fn load(&self, count: u64) -> Report {
        let load = Load::start(self.haproxy.address, 8, Duration::ZERO);
        load.go_on(count);
        load.stop()
    }
}

fn said(health: u8) -> String {
    format!("health={health}\n")
}

#[test]
fn haproxy_that_asks_agents_shares_by_health() {
    let stage = Stage::new([100, 100, 100]);
    stage.wait_for([100, 100, 100]);
    stage.agents[1].say(&said(20));
    stage.agents[2].say(&said(80));
    stage.wait_for([100, 20, 80]);
    let report = stage.load(2000);
    assert_eq!(report.failures(), 0, "{report}");
    for (node, weight) in [("n1", 100.0), ("n2", 20.0), ("n3", 80.0)] {
        let (share, wanted) = (report.by_node[node] as f64 / report.sent as f64, weight / 200.0);
        assert!((share - wanted).abs() < 0.02, "{node} has {share} of {report}");
    }
}

#[test]
fn a_node_that_says_0_gets_nothing_and_nothing_fails() {
    let stage = Stage::new([100, 100, 100]);
    stage.wait_for([100, 100, 100]);
    let load = Load::start(stage.haproxy.address, 8, Duration::from_millis(1));
    load.go_on(100);
    stage.agents[0].say(&said(0));
    stage.wait_for([0, 100, 100]);
    wait_until("its sessions to end", || stage.haproxy.row("n1").is_some_and(|row| row.sessions == 0));
    let during = stage.load(300);
    assert_eq!((during.failures(), during.by_node.get("n1")), (0, None), "{during}");
    stage.agents[0].say(&said(70));
    stage.wait_for([70, 100, 100]);
    let report = load.stop();
    assert_eq!(report.failures(), 0, "{report}");
}

#[test]
fn an_agent_that_is_gone_or_does_not_know_leaves_the_node_as_it_was() {
    let mut stage = Stage::new([100, 60, 50]);
    stage.wait_for([100, 60, 50]);
    // Neither a health nor anything else.
    stage.agents[1].say("nonsense\n");
    drop(stage.agents.pop());
    wait_until("HAProxy to miss the agent", || {
        let rows = stage.haproxy.ask("show stat app 4 -1");
        rows.contains("L4CON") || rows.contains("Connection refused")
    });
    let report = stage.load(600);
    assert_eq!(report.failures(), 0, "{report}");
    assert_eq!(report.by_node.len(), 3, "{report}");
    stage.wait_for([100, 60, 50]);
}
