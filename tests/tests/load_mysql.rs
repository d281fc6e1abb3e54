//! The agent's count of jobs on MariaDB and MySQL, beside what each says of itself while sysbench is at work.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evener_tests::databases::Threads;
use evener_tests::director::{evener, program, texts};
use evener_tests::servers::Server;
use evener_tests::wait_until;
use serde_json::Value;

/// How many figures are compared for each number of connections.
const FIGURES: usize = 100;

#[test]
fn threads_that_run_under_sysbench_are_the_jobs_of_mariadb() {
    the_agent_agrees_with(&Server::mariadb());
}

#[test]
fn threads_that_run_under_sysbench_are_the_jobs_of_mysql() {
    the_agent_agrees_with(&Server::mysql());
}

/// Compares the agent's figures with the server's, for several tests of sysbench and numbers of connections.
fn the_agent_agrees_with(server: &Server) {
    server.prepare_sysbench();
    let source = source_of(server);
    let mut beside = server.watch_threads();
    wait_until("both to see no work", || beside.running() == 0 && once(&source) == 0);
    for (test, connections) in
        [("oltp_read_only", 1), ("oltp_read_only", 4), ("oltp_read_only", 16), ("oltp_read_write", 8)]
    {
        let work = server.sysbench(test, connections);
        wait_until("sysbench to work", || beside.running() > 0);
        let (told, seen) = figures(&source, &mut beside);
        println!("{test} with {connections} connections: the agent says {told}, the server {seen}");
        let most = told.figures.iter().max().expect("figures");
        assert!(*most <= connections as u64 + 1, "{most} jobs of {connections} connections");
        // The two look at different moments: their means agree, as far as the spread of so many moments allows.
        let apart = (told.mean - seen.mean).abs();
        let allowed = 0.5 + 0.05 * connections as f64 + 4.0 * told.error.hypot(seen.error);
        assert!(apart <= allowed, "{apart} apart, more than {allowed}: {told:?}, {seen:?}");
        assert!(once(&source) <= connections as u64 + 1);
        drop(work);
        wait_until("sysbench's connections to end", || beside.running() == 0);
        wait_until("the agent to see them end", || once(&source) == 0);
    }
}

/// What `--source` takes for this server.
fn source_of(server: &Server) -> String {
    let password = server.password_file("secret");
    let password = password.display();
    format!(
        "mysql = {{ address = \"{}\", user = \"evener\", password_file = \"{password}\" }}",
        server.address
    )
}

/// Jobs as `evener agent --once` finds them.
fn once(source: &str) -> u64 {
    let output = evener(&["agent", "--once", "--json", "--source", source]);
    let (told, errors) = texts(&output);
    let found: Value = serde_json::from_str(&told).unwrap_or_else(|_| panic!("{told}{errors}"));
    found["report"]["jobs"].as_u64().unwrap_or_else(|| panic!("no jobs: {found}"))
}

/// An agent that runs until the value ends.
struct Running {
    agent: Child,
    config: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
        let _ = std::fs::remove_file(&self.config);
    }
}

/// Lets the agent run, and takes figures of the server's own beside it, at moments that have nothing to do with the
/// agent's.
fn figures(source: &str, beside: &mut Threads) -> (Figures, Figures) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let (_, config) = file.keep().expect("a file that stays");
    std::fs::write(&config, "[agent]\ninterval = \"50ms\"\n").expect("written");
    let mut agent = Command::new(program())
        .args(["agent", "--json", "--source", source, "-c"])
        .arg(&config)
        .stdout(Stdio::piped())
        .spawn()
        .expect("evener runs");
    let lines = BufReader::new(agent.stdout.take().expect("a pipe")).lines();
    let _running = Running { agent, config };
    let found = lines.map(|line| serde_json::from_str::<Value>(&line.expect("a line")).expect("JSON"));
    // There is none before the connection is made.
    let mut jobs = found.filter_map(|found| found["report"]["jobs"].as_u64());
    let mut told = vec![jobs.next().expect("a figure")];
    let enough = AtomicBool::new(false);
    let seen = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut seen = Vec::new();
            while !enough.load(Ordering::SeqCst) || seen.len() < FIGURES / 2 {
                std::thread::sleep(Duration::from_millis(37));
                seen.push(beside.running());
            }
            seen
        });
        told.extend(jobs.take(FIGURES - 1));
        enough.store(true, Ordering::SeqCst);
        watcher.join().expect("the server answers")
    });
    (Figures::new(told), Figures::new(seen))
}

/// Figures of jobs, one after another.
#[derive(Debug)]
struct Figures {
    figures: Vec<u64>,
    mean: f64,
    /// The standard error of the mean.
    error: f64,
}

impl Figures {
    fn new(figures: Vec<u64>) -> Figures {
        let count = figures.len() as f64;
        let mean = figures.iter().sum::<u64>() as f64 / count;
        let variance = figures.iter().map(|&figure| (figure as f64 - mean).powi(2)).sum::<f64>() / count;
        Figures { figures, mean, error: (variance / count).sqrt() }
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} ± {:.2}", self.mean, self.error)
    }
}
