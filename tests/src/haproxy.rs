//! Real HAProxy 3.2, as `tests/setup` unpacks it.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::servers::program;
use crate::{free_address, wait_until};

/// A HAProxy that runs until the value ends.
#[derive(Debug)]
pub struct Haproxy {
    /// Where its clients connect.
    pub address: SocketAddr,
    folder: TempDir,
    /// The present process, and those before it that serve their last connections.
    processes: Vec<Child>,
}

/// A server of a proxy, as `show stat` tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Such as `UP`, `DRAIN`, `MAINT` or `no check`.
    pub status: String,
    /// Its weight, 0 while it drains.
    pub weight: u32,
    /// The weight that it was given, whatever its status.
    pub given: u32,
    /// Sessions now.
    pub sessions: u32,
}

impl Haproxy {
    /// Starts HAProxy with a frontend that sends everything to the proxy `app` and with these lines as the rest of
    /// its configuration, of which `backend app` must be the first.
    pub fn start(rest: &str) -> Haproxy {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut haproxy = Haproxy { address: free_address(), folder, processes: Vec::new() };
        haproxy.write_config(rest);
        haproxy.revive();
        haproxy
    }

    /// The path of its runtime socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// Replaces its configuration; a reload makes it count.
    pub fn write_config(&self, rest: &str) {
        let (address, socket) = (self.address, self.socket());
        let text = format!(
            "global\n  stats socket {} mode 600 level admin expose-fd listeners\n\
             defaults\n  mode http\n  timeout connect 2s\n  timeout client 30s\n  timeout server 30s\n\
             frontend web\n  bind {address}\n  default_backend app\n{rest}\n",
            socket.display()
        );
        std::fs::write(self.folder.path().join("haproxy.cfg"), text).expect("a configuration file");
    }

    /// Starts a process, after the last one was killed.
    pub fn revive(&mut self) {
        self.spawn(&[]);
    }

    /// Starts a process that takes over the sockets; the one before serves its last connections.
    pub fn reload(&mut self) {
        let old = self.pid().to_string();
        let socket = self.socket().display().to_string();
        self.spawn(&["-x", &socket, "-sf", &old]);
        wait_until("the new process to answer", || {
            self.ask("show info").contains(&format!("\nPid: {}\n", self.pid()))
        });
    }

    /// Ends it with SIGKILL.
    pub fn kill(&mut self) {
        for mut process in std::mem::take(&mut self.processes) {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Holds it up, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.pid().cast_signed()).expect("not 0"), signal).expect("it runs");
    }

    /// The answer to a command of its runtime API; empty if it does not answer.
    pub fn ask(&self, command: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = UnixStream::connect(self.socket()) {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
            let _ = writeln!(stream, "{command}");
            let _ = stream.read_to_string(&mut answer);
        }
        answer
    }

    /// The servers of a proxy.
    pub fn rows(&self, proxy: &str) -> Vec<Row> {
        let answer = self.ask(&format!("show stat {proxy} 4 -1"));
        let mut lines = answer.lines().filter(|line| !line.is_empty());
        let Some(header) = lines.next().and_then(|line| line.strip_prefix("# ")) else { return Vec::new() };
        let columns: Vec<&str> = header.split(',').collect();
        let place = |name| columns.iter().position(|column| *column == name).expect("a column");
        let [name, status, weight, given, sessions] =
            ["svname", "status", "weight", "uweight", "scur"].map(place);
        lines
            .map(|line| {
                let fields = fields(line);
                let number = |at: usize| fields[at].parse().expect("a number");
                Row {
                    name: fields[name].clone(),
                    status: fields[status].clone(),
                    weight: number(weight),
                    given: number(given),
                    sessions: number(sessions),
                }
            })
            .collect()
    }

    /// A server of the proxy `app`, while it is there.
    pub fn row(&self, name: &str) -> Option<Row> {
        self.rows("app").into_iter().find(|row| row.name == name)
    }

    /// The servers of the proxy `app` with weight and status, such as `n1=5 n2=3/DRAIN`; of those without checks
    /// that work, the weight alone.
    pub fn shown(&self) -> String {
        let mut shown = String::new();
        for row in self.rows("app") {
            let space = if shown.is_empty() { "" } else { " " };
            let _ = write!(shown, "{space}{}={}", row.name, row.given);
            if !matches!(row.status.as_str(), "UP" | "no check") {
                let _ = write!(shown, "/{}", row.status);
            }
        }
        shown
    }

    fn pid(&self) -> u32 {
        self.processes.last().expect("a process").id()
    }

    fn spawn(&mut self, arguments: &[&str]) {
        let log = self.folder.path().join("output.log");
        let output =
            std::fs::File::options().create(true).append(true).open(&log).expect("a file for its output");
        let child = Command::new(program("haproxy"))
            .arg("-db")
            .arg("-f")
            .arg(self.folder.path().join("haproxy.cfg"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a second handle"))
            .stderr(output)
            .spawn();
        self.processes.push(child.expect("haproxy starts"));
        wait_until("HAProxy to answer", || {
            let ended = self.processes.last_mut().expect("just begun").try_wait().expect("it is our child");
            assert!(ended.is_none(), "haproxy ended: {}", std::fs::read_to_string(&log).unwrap_or_default());
            self.ask("show info").starts_with("Name: HAProxy")
        });
    }
}

/// Whether HAProxy accepts a configuration file, and what it says of it.
pub fn check(file: &Path) -> (bool, String) {
    let output =
        Command::new(program("haproxy")).arg("-c").arg("-f").arg(file).output().expect("haproxy runs");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.success(), said.into_owned())
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The fields of a line of comma-separated values, of which some are quoted.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        match c {
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => fields.last_mut().expect("one at least").push(c),
        }
    }
    fields
}
