//! The program under test: the real `evener`, as a process of its own.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;

use crate::http::{Client, Response};
use crate::{checkout, free_address, wait_for, wait_until};

/// The path of the program: `EVENER_BIN`, or built once from the checkout.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        if let Some(path) = std::env::var_os("EVENER_BIN") {
            return path.into();
        }
        // This test is TARGET/PROFILE/deps/NAME: build beside it.
        let test = std::env::current_exe().expect("the path of this test");
        let target = test.ancestors().nth(3).expect("a target folder");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(checkout()).args([
            "build",
            "--quiet",
            "--profile",
            "quick",
            "-p",
            "evener",
            "--target-dir",
        ]);
        let built = cargo.arg(target).status().expect("cargo runs");
        assert!(built.success(), "evener does not build");
        target.join("quick/evener")
    })
}

/// Runs `evener` with arguments to its end.
pub fn evener(arguments: &[&str]) -> Output {
    Command::new(program()).args(arguments).stdin(Stdio::null()).output().expect("evener runs")
}

/// Output of a command as text: stdout and stderr.
pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A running director, and the processes it started; all end with the value.
#[derive(Debug)]
pub struct Director {
    /// Where its admin API listens.
    pub admin: SocketAddr,
    /// Where its configuration lies; `config_path` in it.
    pub folder: TempDir,
    child: Child,
}

impl Director {
    /// Starts a director with listeners and pools from `config` and waits until it is ready. Two workers,
    /// and an admin API on a free port.
    pub fn start(config: &str) -> Director {
        Director::start_with("workers = 2", config)
    }

    /// The same with other lines in `[process]`.
    pub fn start_with(process: &str, config: &str) -> Director {
        Director::spawn(process, config, &[])
    }

    /// The same, recording to `run.rec` beside its configuration; with further arguments.
    pub fn start_recording(process: &str, config: &str, arguments: &[&str]) -> Director {
        Director::begin(process, config, &[], |folder| {
            let record = folder.join("run.rec").display().to_string();
            let arguments = arguments.iter().map(|&argument| argument.to_owned());
            ["--record".to_owned(), record].into_iter().chain(arguments).collect()
        })
    }

    /// The same with environment variables.
    pub fn spawn(process: &str, config: &str, environment: &[(&str, &str)]) -> Director {
        Director::begin(process, config, environment, |_| Vec::new())
    }

    fn begin(
        process: &str,
        config: &str,
        environment: &[(&str, &str)],
        more: impl FnOnce(&Path) -> Vec<String>,
    ) -> Director {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let admin = free_address();
        let preamble = format!("[process]\n{process}\n[admin]\nlisten = \"{admin}\"\n");
        std::fs::write(folder.path().join("preamble"), &preamble).expect("the preamble is kept for reloads");
        std::fs::write(folder.path().join("evener.toml"), preamble + config).expect("a configuration file");
        let config = folder.path().join("evener.toml").display().to_string();
        let mut arguments = vec!["run".to_owned(), "-c".to_owned(), config];
        arguments.extend(more(folder.path()));
        Director::run(folder, admin, &arguments, environment)
    }

    /// Starts `evener` with these arguments, to which `--admin` is added, and waits until it is ready.
    pub fn start_from_arguments(arguments: &[&str]) -> Director {
        let admin = free_address();
        let mut arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        arguments.extend(["--admin".into(), admin.to_string()]);
        Director::run(tempfile::tempdir().expect("a temporary folder"), admin, &arguments, &[])
    }

    fn run(
        folder: TempDir,
        admin: SocketAddr,
        arguments: &[String],
        environment: &[(&str, &str)],
    ) -> Director {
        let file =
            |name| std::fs::File::create(folder.path().join(name)).expect("a file for the director's output");
        let mut command = Command::new(program());
        command.args(arguments).envs(environment.iter().copied()).stdin(Stdio::null());
        // A process group, to find and to end what a hot restart started.
        command.stdout(file("stdout")).stderr(file("stderr")).process_group(0);
        let child = command.spawn().expect("evener starts");
        let mut director = Director { admin, folder, child };
        wait_until("the director to be ready", || {
            if let Some(status) = director.child.try_wait().expect("the child can be waited for") {
                panic!("evener ended with {status}: {}", director.stderr());
            }
            director.try_admin("GET", "/healthz", "").is_some_and(|answer| answer.status == 200)
        });
        director
    }

    /// The configuration file.
    pub fn config_path(&self) -> PathBuf {
        self.folder.path().join("evener.toml")
    }

    /// Replaces listeners and pools in the configuration file; a reload makes it count.
    pub fn write_config(&self, config: &str) {
        let preamble = std::fs::read_to_string(self.folder.path().join("preamble")).expect("the preamble");
        std::fs::write(self.config_path(), preamble + config).expect("a configuration file");
    }

    /// What it wrote to stderr so far.
    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stderr")).unwrap_or_default()
    }

    /// What it wrote to stdout so far.
    pub fn stdout(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("stdout")).unwrap_or_default()
    }

    /// The process that was started first.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// All processes of the director that still run: more than one during a hot restart.
    pub fn pids(&self) -> Vec<u32> {
        let group = self.pid().to_string();
        let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
        let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        numbers.filter(|&pid| in_group(pid, &group)).collect()
    }

    /// Sends a signal to a process of the director.
    pub fn signal(&self, pid: u32, signal: Signal) {
        let pid = Pid::from_raw(pid.cast_signed()).expect("not 0");
        kill_process(pid, signal).expect("the process is there");
    }

    /// Waits until the first process ends.
    pub fn wait(&mut self) -> ExitStatus {
        wait_for("the director to end", || self.child.try_wait().expect("the child can be waited for"))
    }

    /// Whether the first process still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("the child can be waited for").is_none()
    }

    /// Asks the admin API.
    pub fn admin(&self, method: &str, path: &str, body: &str) -> Response {
        self.try_admin(method, path, body).expect("the admin API answers")
    }

    fn try_admin(&self, method: &str, path: &str, body: &str) -> Option<Response> {
        let mut client = Client::connect(self.admin).ok()?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let kind = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        client.send(format!("{head}{kind}Content-Length: {}\r\n\r\n{body}", body.len())).ok()?;
        client.response().ok()
    }

    /// `/pools`, or what else answers with JSON.
    pub fn json(&self, path: &str) -> Value {
        let answer = self.admin("GET", path, "");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        serde_json::from_slice(&answer.body).expect("JSON")
    }

    /// The nodes of a pool as `/pools/NAME` tells.
    pub fn nodes(&self, pool: &str) -> Vec<Value> {
        let pool = self.json(&format!("/pools/{pool}"));
        pool["nodes"].as_array().expect("nodes").clone()
    }

    /// A node of a pool, by name.
    pub fn node(&self, pool: &str, name: &str) -> Value {
        let found = self.nodes(pool).into_iter().find(|node| node["name"] == name);
        found.unwrap_or_else(|| panic!("pool {pool} has no node {name}"))
    }

    /// What a node of a pool said last by a way such as `necp`: its `health`, say, and how old that is in milliseconds.
    pub fn said(&self, pool: &str, node: &str, source: &str, name: &str) -> Option<(f64, f64)> {
        let node = self.node(pool, node);
        let name = format!("reported_{name}");
        let signals = node["signals"].as_array().expect("signals");
        let signal = signals.iter().find(|signal| signal["source"] == source && signal["name"] == *name)?;
        Some((signal["value"].as_f64().expect("a number"), signal["age_ms"].as_f64().expect("an age")))
    }

    /// How many reports that came by a way were refused so far, for that reason.
    pub fn refused(&self, source: &str, reason: &str) -> u64 {
        let metrics = self.admin("GET", "/metrics", "");
        let name = format!("evener_reports_refused_total{{source=\"{source}\",reason=\"{reason}\"}} ");
        let line = metrics.text().lines().find_map(|line| line.strip_prefix(&name));
        line.expect("the metric").parse().expect("a number")
    }

    /// Jobs on all nodes of all pools.
    pub fn jobs(&self) -> u64 {
        let pools = self.json("/pools");
        let nodes =
            pools["pools"].as_array().expect("pools").iter().flat_map(|pool| pool["nodes"].as_array());
        nodes.flatten().map(|node| node["jobs"].as_u64().expect("jobs")).sum()
    }

    /// Runs `evener ctl` against this director.
    pub fn ctl(&self, arguments: &[&str]) -> Output {
        let admin = self.admin.to_string();
        let command = ["ctl", "--admin", &admin];
        evener(&[&command[..], arguments].concat())
    }

    /// Reloads through the admin API.
    pub fn reload(&self) -> Response {
        self.admin("POST", "/reload", "")
    }

    /// Memory that the first process has for itself, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let mut text = String::new();
        let path = format!("/proc/{}/smaps_rollup", self.pid());
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).expect("smaps_rollup");
        let kib = |line: &str| line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
        let private = text.lines().filter(|line| line.starts_with("Private_"));
        private.filter_map(kib).sum::<u64>() * 1024
    }
}

impl Drop for Director {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = writeln!(std::io::stderr(), "the director's stderr:\n{}", self.stderr());
        }
        let group = Pid::from_raw(self.pid().cast_signed()).expect("not 0");
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}

fn in_group(pid: u32, group: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // After the name in parentheses: state, parent, process group.
    let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().take(3).collect();
    matches!(fields[..], [state, _, of] if of == group && state != "Z" && state != "X")
}

/// The lines of an HTTP listener `web` on `address`, and of the pool `app` with nodes n1, n2, … at `nodes`.
pub fn web(address: SocketAddr, nodes: &[SocketAddr]) -> String {
    web_with(address, "", nodes, "")
}

/// The same with further lines for the listener and for the pool.
pub fn web_with(address: SocketAddr, listener: &str, nodes: &[SocketAddr], pool: &str) -> String {
    let listener =
        format!("[listener.web]\nbind = \"{address}\"\nprotocol = \"http\"\npool = \"app\"\n{listener}\n");
    listener + &pool_of("app", nodes, pool)
}

/// The lines of a pool with nodes n1, n2, … at `nodes`.
pub fn pool_of(name: &str, nodes: &[SocketAddr], lines: &str) -> String {
    let nodes = nodes.iter().enumerate();
    let nodes: Vec<_> =
        nodes.map(|(i, address)| format!("{{ name = \"n{}\", address = \"{address}\" }}", i + 1)).collect();
    format!("[pool.{name}]\n{lines}\nnode = [ {} ]\n", nodes.join(", "))
}
