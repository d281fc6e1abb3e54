//! `evener agent` and `evener run`: what the one measures, the other knows.

use std::fs::{self, Permissions};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use evener_tests::authority::{Authority, Identity};
use evener_tests::director::{Director, evener, program, texts};
use evener_tests::{free_address, wait_for, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// An agent that runs; it is killed with the value.
struct Agent {
    folder: TempDir,
    child: Child,
}

impl Agent {
    /// Measures nothing of this machine, which has other things to do in tests: a program says that there are 7 jobs.
    fn start(arguments: &[&str]) -> Agent {
        Agent::start_with("", arguments)
    }

    /// The same with more lines in `[agent]`.
    fn start_with(lines: &str, arguments: &[&str]) -> Agent {
        let folder = tempfile::tempdir().expect("a folder");
        let config = folder.path().join("agent.toml");
        let quiet = format!(
            "[agent]\ninterval = \"20ms\"\nperiod = \"50ms\"\nreconnect = {{ min = \"20ms\", max = \"100ms\" }}\n\
             cpu = {{ factor = 0 }}\nnetwork = {{ factor = 0 }}\n{lines}\n\
             [[agent.source]]\nprogram = {{ run = [\"/bin/echo\", \"jobs=7\"] }}\n"
        );
        fs::write(&config, quiet).expect("written");
        let log = fs::File::create(folder.path().join("log")).expect("a file");
        let child = Command::new(program())
            .args(["agent", "-c", config.to_str().expect("a plain path"), "--node", "rat"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(fs::File::create(folder.path().join("printed")).expect("a file"))
            .stderr(log)
            .spawn()
            .expect("evener starts");
        Agent { folder, child }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).expect("readable")
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.folder.path().join("printed")).expect("readable")
    }

    fn wait_for_log(&self, text: &str) {
        wait_until(text, || self.log().contains(text));
    }

    fn end(mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).expect("it runs");
        self.child.wait().expect("it ends")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const KEY: &str = "ours 0123456789abcdef0123456789abcdef\n";

fn secret(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, text).expect("written");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    path
}

/// A director that hears agents in every way, with one node.
struct Cluster {
    director: Director,
    folder: TempDir,
    keys: PathBuf,
    necp: SocketAddr,
    http: SocketAddr,
    datagrams: SocketAddr,
    node: SocketAddr,
}

impl Cluster {
    fn start() -> Cluster {
        Cluster::start_with("", tempfile::tempdir().expect("a folder"))
    }

    /// With more lines in `[feedback]`, and with a folder where files lie that they name.
    fn start_with(lines: &str, folder: TempDir) -> Cluster {
        let keys = secret(folder.path(), "keys", KEY);
        let [necp, http, node] = [free_address(), free_address(), free_address()];
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("bound").local_addr().expect("bound");
        let config = format!(
            "[feedback]\nnecp = \"{necp}\"\nhttp = \"{http}\"\ndatagrams = {{ listen = \"{datagrams}\" }}\nkeys = {keys:?}\n{lines}\n\
             [listener.web]\nbind = \"{}\"\nprotocol = \"tcp\"\npool = \"app\"\n\
             [pool.app]\nphase = \"100ms\"\nnode = [{{ name = \"rat\", address = \"{node}\" }}]\n",
            free_address()
        );
        Cluster { director: Director::start(&config), folder, keys, necp, http, datagrams, node }
    }

    fn keys(&self) -> &str {
        self.keys.to_str().expect("a plain path")
    }

    /// What the node reported by that way, by name.
    fn reported(&self, source: &str, name: &str) -> Option<Value> {
        let node = self.director.node("app", "rat");
        let mut signals = node["signals"].as_array().expect("signals").iter();
        let found = signals.find(|signal| signal["source"] == source && signal["name"] == name);
        found.map(|signal| signal["value"].clone())
    }

    fn wait_for_jobs(&self, source: &str) {
        wait_for("the jobs that the agent reports", || {
            self.reported(source, "reported_jobs").filter(|jobs| *jobs == 7)
        });
    }
}

#[test]
fn a_director_knows_by_necp_what_an_agent_measures_until_it_stops() {
    let cluster = Cluster::start();
    let director = format!("necp://{}", cluster.necp);
    let service = cluster.node.port().to_string();
    let agent = Agent::start(&["--director", &director, "--service", &service, "--keys", cluster.keys()]);
    cluster.wait_for_jobs("necp");
    assert_eq!(cluster.director.node("app", "rat")["agent"], "started");
    agent.wait_for_log("connected");
    assert!(agent.end().success());
    wait_until("nobody to speak for the node", || cluster.director.node("app", "rat")["agent"] != "started");
}

#[test]
fn a_director_that_comes_back_hears_of_the_node_again() {
    let mut cluster = Cluster::start();
    let director = format!("necp://{}", cluster.necp);
    let service = cluster.node.port().to_string();
    let _agent = Agent::start(&["--director", &director, "--service", &service, "--keys", cluster.keys()]);
    cluster.wait_for_jobs("necp");
    let config = fs::read_to_string(cluster.director.config_path()).expect("readable");
    let config = config.split_once("[feedback]").expect("its feedback").1.to_owned();
    cluster.director.signal(cluster.director.pid(), Signal::KILL);
    cluster.director.wait();
    cluster.director = Director::start(&format!("[feedback]{config}"));
    cluster.wait_for_jobs("necp");
}

#[test]
fn a_director_is_told_by_posts_and_by_datagrams() {
    let cluster = Cluster::start();
    let posts = Agent::start(&["--director", &format!("http://{}", cluster.http), "--keys", cluster.keys()]);
    cluster.wait_for_jobs("push");
    posts.wait_for_log("takes reports");
    let datagrams = Agent::start(&["--datagrams", &cluster.datagrams.to_string(), "--keys", cluster.keys()]);
    cluster.wait_for_jobs("datagram");
    assert!(posts.end().success() && datagrams.end().success());
}

#[test]
fn an_agent_with_a_wrong_key_is_refused_by_every_way() {
    let cluster = Cluster::start();
    let wrong = secret(cluster.folder.path(), "wrong", &KEY.replace("0123", "3210"));
    let wrong = wrong.to_str().expect("a plain path");
    let service = cluster.node.port().to_string();
    let director = format!("necp://{}", cluster.necp);
    let necp = Agent::start(&["--director", &director, "--service", &service, "--keys", wrong]);
    necp.wait_for_log("not authenticated");
    let posts = Agent::start(&["--director", &format!("http://{}", cluster.http), "--keys", wrong]);
    posts.wait_for_log("status 40");
    let node = cluster.director.node("app", "rat");
    let signals = node["signals"].as_array().expect("signals");
    assert!(signals.iter().all(|signal| signal["source"].is_null()), "{signals:?}");
    assert!(node["agent"].is_null(), "{node}");
}

/// What a configuration says of a new certificate of this machine and its key.
fn identity(authority: &Authority, folder: &Path, name: &str) -> String {
    let Identity { certificate, key } = authority.sign("127.0.0.1");
    let certificate = secret(folder, &format!("{name}.crt"), &certificate);
    let key = secret(folder, &format!("{name}.key"), &key);
    format!("certificate = {certificate:?}, key = {key:?}")
}

#[test]
fn within_tls_a_director_hears_agents_of_its_authority_and_no_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, other) = (Authority::new(), Authority::new());
    let (our_ca, other_ca) =
        (secret(folder.path(), "ours", &ours.pem), secret(folder.path(), "other", &other.pem));
    let director = identity(&ours, folder.path(), "director");
    let cluster = Cluster::start_with(&format!("tls = {{ {director}, client_ca = {our_ca:?} }}"), folder);
    let folder = cluster.folder.path();
    let service = cluster.node.port().to_string();
    let (necp, http) = (format!("necps://{}", cluster.necp), format!("https://{}", cluster.http));
    let start = |identity: &str, ca: &Path, director: &str| {
        let arguments = ["--director", director, "--service", &service, "--keys", cluster.keys()];
        Agent::start_with(&format!("tls = {{ {identity} ca = {ca:?} }}"), &arguments)
    };
    // It believes the director, which does not believe it.
    for identity in [String::new(), format!("{},", identity(&other, folder, "stranger"))] {
        let (one, two) = (start(&identity, &our_ca, &necp), start(&identity, &our_ca, &http));
        one.wait_for_log("not connected");
        two.wait_for_log("no report");
    }
    let identity = format!("{},", identity(&ours, folder, "rat"));
    // The director believes it, and it does not believe the director.
    start(&identity, &other_ca, &necp).wait_for_log("invalid peer certificate");
    assert_eq!(cluster.reported("necp", "reported_jobs").or(cluster.reported("push", "reported_jobs")), None);
    let _agents = (start(&identity, &our_ca, &necp), start(&identity, &our_ca, &http));
    cluster.wait_for_jobs("necp");
    cluster.wait_for_jobs("push");
}

#[test]
fn within_tls_keys_can_stand_for_certificates_of_agents() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Authority::new();
    let ca = secret(folder.path(), "ours", &ours.pem);
    let director = identity(&ours, folder.path(), "director");
    let cluster = Cluster::start_with(&format!("tls = {{ {director} }}"), folder);
    let service = cluster.node.port().to_string();
    let director = format!("necps://{}", cluster.necp);
    let tls = format!("{{ ca = {ca:?} }}");
    let _agent = Agent::start(&[
        "--director",
        &director,
        "--service",
        &service,
        "--keys",
        cluster.keys(),
        "--tls",
        &tls,
    ]);
    cluster.wait_for_jobs("necp");
}

#[test]
fn keys_that_others_can_read_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    fs::write(&keys, KEY).expect("written");
    fs::set_permissions(&keys, Permissions::from_mode(0o644)).expect("set");
    let keys = keys.to_str().expect("a plain path");
    let output = evener(&["agent", "--director", "necp://127.0.0.1:1", "--service", "80", "--keys", keys]);
    let (_, errors) = texts(&output);
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains(&format!("chmod 600 {keys}")), "{errors}");
}

#[test]
fn keys_that_systemd_hands_over_are_taken() {
    if !rustix::process::geteuid().is_root() {
        println!("this test needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let keys = folder.path().join("keys");
    fs::write(&keys, KEY).expect("written");
    // Where an access list lets a service read a file, its mask stands where the rights of the group do.
    fs::set_permissions(&keys, Permissions::from_mode(0o440)).expect("set");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let taken = listener.local_addr().expect("bound").to_string();
    let refused = |credentials: &Path| {
        let mut agent = Command::new(program());
        // A port that is taken: it goes no further than that.
        agent.args(["agent", "--listen", &taken, "--keys"]).arg(&keys);
        let output = agent.env("CREDENTIALS_DIRECTORY", credentials).output().expect("it runs");
        texts(&output).1
    };
    assert!(refused(Path::new("/run")).contains("chmod 600"));
    assert!(refused(folder.path()).contains("already in use"));
    fs::set_permissions(&keys, Permissions::from_mode(0o444)).expect("set");
    assert!(refused(folder.path()).contains("chmod 600"));
}

#[test]
fn root_is_given_up_when_all_is_open() {
    if !rustix::process::geteuid().is_root() {
        println!("this test needs root");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let keys = secret(folder.path(), "keys", KEY);
    let keys = keys.to_str().expect("a plain path");
    // A port that only root can open.
    let port = (1..1024).rev().find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok());
    let listen = port.expect("a free port").to_string();
    let agent = Agent::start(&["--listen", &listen, "--keys", keys, "--user", "nobody"]);
    agent.wait_for_log("answers over HTTP");
    let status = format!("/proc/{}/status", agent.child.id());
    wait_until("it to be nobody", || {
        let status = fs::read_to_string(&status).expect("it runs");
        let line = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let is_nobody = |ids: &[String]| ids.iter().all(|id| id == "65534");
        let powers = ["CapPrm:", "CapEff:"].map(line).concat();
        is_nobody(&line("Uid:"))
            && is_nobody(&line("Gid:"))
            && is_nobody(&line("Groups:"))
            && powers.iter().all(|set| u64::from_str_radix(set, 16) == Ok(0))
    });
    assert!(!agent.log().contains("runs as root"), "{}", agent.log());
    let kept = Agent::start(&["--listen", "0"]);
    kept.wait_for_log("runs as root");
}

#[test]
fn what_cannot_be_measured_is_logged_once() {
    let source = format!("memcached = \"{}\"", free_address());
    let agent = Agent::start(&["--listen", "0", "--source", &source]);
    agent.wait_for_log("cannot be measured");
    let again = Agent::start(&["--listen", "0", "--print", "--source", &source]);
    wait_until("many samples", || {
        again.printed().lines().filter(|line| line.starts_with("health")).count() > 20
    });
    let told = again.log().lines().filter(|line| line.contains("memcached")).count();
    assert_eq!(told, 1, "{}", again.log());
}

#[test]
fn samples_are_printed_unless_they_are_reported() {
    let silent = Agent::start(&["--listen", "0"]);
    let both = Agent::start(&["--listen", "0", "--print", "--json"]);
    let alone = Agent::start(&[]);
    wait_until("samples", || both.printed().lines().count() > 1 && alone.printed().lines().count() > 1);
    let first: Value = serde_json::from_str(both.printed().lines().next().expect("a line")).expect("JSON");
    assert_eq!(first["report"]["jobs"], 7);
    assert!(alone.printed().contains("jobs 7") && alone.log().is_empty(), "{}", alone.log());
    silent.wait_for_log("answers over HTTP");
    assert_eq!(silent.printed(), "");
    assert!(both.log().lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", both.log());
}

#[test]
fn a_user_that_there_is_not_is_told() {
    let (_, errors) = texts(&evener(&["agent", "--listen", "0", "--user", "no-such-user"]));
    assert!(errors.contains("cannot become user \"no-such-user\""), "{errors}");
}
