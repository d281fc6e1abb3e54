//! A steady load that counts every response: what was sent, what was answered, what failed and why.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::http::Client;
use crate::{DEADLINE, wait_until};

/// What became of all requests.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// GETs sent, each with a number of its own.
    pub sent: u64,
    /// Answers of 200 with the whole body and the number of their request.
    pub answered: u64,
    /// Requests sent once more on a new connection, because a kept one had been closed before
    /// a byte of the answer: what every HTTP client does, as either side may close a connection at rest.
    pub resent: u64,
    /// The others, by reason.
    pub failed: BTreeMap<String, u64>,
    /// Answers by the name of the node in them.
    pub by_node: BTreeMap<String, u64>,
}

impl Report {
    /// How many failed, for any reason.
    pub fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    fn add(&mut self, other: Report) {
        self.sent += other.sent;
        self.answered += other.answered;
        self.resent += other.resent;
        for (reason, count) in other.failed {
            *self.failed.entry(reason).or_default() += count;
        }
        for (node, count) in other.by_node {
            *self.by_node.entry(node).or_default() += count;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "sent {}, answered {}, resent {}, failed {}",
            self.sent,
            self.answered,
            self.resent,
            self.failures()
        )?;
        for (reason, count) in &self.failed {
            write!(out, "; {reason}: {count}")?;
        }
        write!(out, "; by node {:?}", self.by_node)
    }
}

/// Connections that send GETs, each the next one a pause after the answer to the last.
#[derive(Debug)]
pub struct Load {
    stopping: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    started: Arc<AtomicU64>,
    shared: Arc<Mutex<Report>>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts `connections` keep-alive connections to `address`. Each waits `pause` between its requests.
    pub fn start(address: SocketAddr, connections: usize, pause: Duration) -> Load {
        let (stopping, answered, started) = (Arc::<AtomicBool>::default(), Arc::default(), Arc::default());
        let shared: Arc<Mutex<Report>> = Arc::default();
        let threads = (0..connections)
            .map(|number| {
                let run = Run {
                    address,
                    pause,
                    stopping: Arc::clone(&stopping),
                    answered: Arc::clone(&answered),
                    started: Arc::clone(&started),
                    first: number as u64 * 1_000_000_000,
                };
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || {
                    let report = run.run();
                    shared.lock().expect("no load thread panics").add(report);
                })
            })
            .collect();
        Load { stopping, answered, started, shared, threads }
    }

    /// Waits until `count` more requests than now have been answered or failed.
    pub fn go_on(&self, count: u64) {
        let until = self.answered.load(Ordering::SeqCst) + count;
        wait_until("the load to go on", || self.answered.load(Ordering::SeqCst) >= until);
    }

    /// Waits until every connection has finished at least one request that begins after now.
    pub fn turn_over(&self) {
        let before = self.started.load(Ordering::SeqCst);
        self.go_on(2 * self.threads.len() as u64);
        wait_until("all connections to go on", || {
            self.started.load(Ordering::SeqCst) >= before + 2 * self.threads.len() as u64
        });
    }

    /// Lets every connection finish its request, and counts.
    pub fn stop(self) -> Report {
        self.stopping.store(true, Ordering::SeqCst);
        for thread in self.threads {
            thread.join().expect("no load thread panics");
        }
        let report = self.shared.lock().expect("no load thread panics").clone();
        assert_eq!(report.sent, report.answered + report.failures(), "a request was lost count of: {report}");
        report
    }
}

struct Run {
    address: SocketAddr,
    pause: Duration,
    stopping: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    started: Arc<AtomicU64>,
    first: u64,
}

impl Run {
    fn run(&self) -> Report {
        let mut report = Report::default();
        let mut client = None;
        let mut number = self.first;
        while !self.stopping.load(Ordering::SeqCst) {
            number += 1;
            report.sent += 1;
            self.started.fetch_add(1, Ordering::SeqCst);
            match self.request(&mut client, number, &mut report) {
                Ok(node) => {
                    report.answered += 1;
                    *report.by_node.entry(node).or_default() += 1;
                }
                Err(reason) => {
                    client = None;
                    *report.failed.entry(reason).or_default() += 1;
                }
            }
            self.answered.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(self.pause);
        }
        report
    }

    /// One GET; the name of the node that answered, or why there is no good answer.
    fn request(&self, kept: &mut Option<Client>, number: u64, report: &mut Report) -> Result<String, String> {
        let begun = Instant::now();
        let reused = kept.is_some();
        let mut outcome = self.exchange(kept, number);
        if reused && outcome.as_ref().is_err_and(closed_at_rest) {
            report.resent += 1;
            *kept = None;
            outcome = self.exchange(kept, number);
        }
        match outcome {
            Ok(answer) => answer,
            Err(error) if begun.elapsed() >= DEADLINE => {
                Err(format!("no answer in {DEADLINE:?} ({:?})", error.kind()))
            }
            Err(error) => Err(format!("{error}")),
        }
    }

    fn exchange(&self, kept: &mut Option<Client>, number: u64) -> io::Result<Result<String, String>> {
        let client = match kept {
            Some(client) => client,
            None => kept.insert(Client::connect(self.address)?),
        };
        let response = client.get(&format!("/load?n={number}"))?;
        if response.head.has_token("Connection", "close") {
            *kept = None;
        }
        if response.status != 200 {
            return Ok(Err(format!("status {}", response.status)));
        }
        let text = String::from_utf8_lossy(&response.body);
        Ok(match text.trim_end().rsplit_once(' ') {
            Some((node, echoed)) if echoed == number.to_string() => Ok(node.to_owned()),
            _ => Err("an answer to another request".to_owned()),
        })
    }
}

/// Whether the connection was closed with nothing of an answer on it.
fn closed_at_rest(error: &io::Error) -> bool {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => error.to_string() == "closed before a response",
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => true,
        _ => false,
    }
}
