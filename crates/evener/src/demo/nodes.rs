//! Embedded nodes: HTTP servers whose service takes time, but no CPU.
//!
//! Each node is a queue with a few places of service, first in, first out. When a job arrives
//! it is known when it will be done; a timer then sends the answer. So four nodes, a director
//! and a load fit on a small machine without taking the CPU from each other.
//!
//! A page, `/load`, tells how much a node has to do, as an application would tell its agent.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evener_protocol::http1::{Limits, Request};
use evener_replay::{Alarm, Random};
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token, Waker};
use serde::Serialize;
use slab::Slab;

const ALARM: Token = Token(usize::MAX);
const WAKE: Token = Token(usize::MAX - 1);
const LIMITS: Limits = Limits { head_bytes_max: 16 * 1024, headers_max: 64 };

/// What a node is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodePlan {
    pub(crate) name: &'static str,
    /// How much faster than the slowest.
    pub(crate) speed: f64,
}

/// What jobs cost: the same for the same number, whichever node gets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobPlan {
    pub(crate) seed: u64,
    /// Mean time of a job on a node of speed 1.
    pub(crate) mean: Duration,
    /// Of the logarithm of the time: how unequal jobs are.
    pub(crate) sigma: f64,
    /// Jobs that a node works on at a time.
    pub(crate) places: usize,
}

impl JobPlan {
    fn time(&self, number: u64, speed: f64) -> Duration {
        self.mean.mul_f64(Random::of(self.seed, number).lognormal(self.sigma) / speed)
    }
}

/// The nodes, serving until dropped.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(crate) addresses: Vec<SocketAddr>,
    meters: Arc<Vec<Mutex<Meter>>>,
    /// What is left of each node's speed, as the bits of an `f64`.
    left: Arc<Vec<AtomicU64>>,
    stop: Arc<AtomicBool>,
    waker: Waker,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// Jobs on a node over a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct NodeUse {
    /// Jobs begun.
    pub(crate) jobs: u64,
    /// Jobs there at a time, waiting ones included: the mean over the time.
    pub(crate) jobs_mean: f64,
    /// The most at a time.
    pub(crate) jobs_max: u32,
}

/// Counts jobs on a node; exact, not sampled.
#[derive(Debug)]
struct Meter {
    now: u32,
    max: u32,
    begun: u64,
    since: Instant,
    changed: Instant,
    /// Jobs times seconds.
    area: f64,
    /// The same since the page was last asked for, and when that was.
    area_seen: f64,
    seen: Instant,
}

/// How often the page tells something new.
const LOOK: Duration = Duration::from_millis(100);

impl Meter {
    fn new(now: Instant) -> Meter {
        Meter { now: 0, max: 0, begun: 0, since: now, changed: now, area: 0.0, area_seen: 0.0, seen: now }
    }

    /// Jobs there at a time, the mean since this was last asked; those of now if that was just before.
    fn jobs_lately(&mut self, at: Instant) -> f64 {
        self.change(at, 0);
        let since = at.duration_since(self.seen);
        if since < LOOK {
            return f64::from(self.now);
        }
        let mean = (self.area - self.area_seen) / since.as_secs_f64();
        (self.area_seen, self.seen) = (self.area, at);
        mean
    }

    fn change(&mut self, at: Instant, by: i32) {
        self.area += f64::from(self.now) * at.duration_since(self.changed).as_secs_f64();
        self.changed = at;
        self.now = self.now.saturating_add_signed(by);
        self.max = self.max.max(self.now);
    }
}

impl Nodes {
    /// Starts a node for each plan, on free ports of the loopback address.
    pub(crate) fn start(plans: &[NodePlan], jobs: JobPlan) -> io::Result<Nodes> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let stop = Arc::new(AtomicBool::new(false));
        let now = Instant::now();
        let meters = Arc::new(plans.iter().map(|_| Mutex::new(Meter::new(now))).collect::<Vec<_>>());
        let left = Arc::new(plans.iter().map(|_| AtomicU64::new(1f64.to_bits())).collect::<Vec<_>>());
        let mut addresses = Vec::new();
        let mut nodes = Vec::new();
        for (index, plan) in plans.iter().enumerate() {
            let mut listener = TcpListener::bind("127.0.0.1:0".parse().expect("an address"))?;
            addresses.push(listener.local_addr()?);
            poll.registry().register(&mut listener, Token(index), Interest::READABLE)?;
            let free_at = (0..jobs.places).map(|_| Reverse(now)).collect();
            nodes.push(Node { name: plan.name, speed: plan.speed, listener, free_at });
        }
        let alarm = Alarm::new(poll.registry(), ALARM)?;
        let mut server = Server {
            poll,
            alarm,
            jobs,
            nodes,
            meters: Arc::clone(&meters),
            left: Arc::clone(&left),
            connections: Slab::new(),
            opened: 0,
            due: BinaryHeap::new(),
            request: Request::new(),
        };
        let until = Arc::clone(&stop);
        let thread =
            std::thread::Builder::new().name("nodes".to_string()).spawn(move || server.run(&until))?;
        Ok(Nodes { addresses, meters, left, stop, waker, thread: Some(thread) })
    }

    /// Leaves a node this part of its speed: something else takes the rest. Jobs that it has already take as
    /// long as they would have.
    pub(crate) fn slow_down(&self, node: usize, left: f64) {
        self.left[node].store(left.to_bits(), Ordering::Relaxed);
    }

    /// Jobs on each node now.
    pub(crate) fn jobs(&self) -> Vec<u32> {
        self.meters.iter().map(|meter| lock(meter).now).collect()
    }

    /// Begins to measure anew.
    pub(crate) fn restart_meters(&self) {
        for meter in self.meters.iter() {
            let mut meter = lock(meter);
            *meter = Meter { now: meter.now, ..Meter::new(Instant::now()) };
        }
    }

    /// How each node was used since the last restart.
    pub(crate) fn usage(&self) -> Vec<NodeUse> {
        let now = Instant::now();
        let usage = |meter: &Mutex<Meter>| {
            let mut meter = lock(meter);
            meter.change(now, 0);
            let seconds = now.duration_since(meter.since).as_secs_f64().max(f64::MIN_POSITIVE);
            NodeUse { jobs: meter.begun, jobs_mean: meter.area / seconds, jobs_max: meter.max }
        };
        self.meters.iter().map(usage).collect()
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A failed wake-up or run means that the thread has ended.
        let _ = self.waker.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Server {
    poll: Poll,
    alarm: Alarm,
    jobs: JobPlan,
    nodes: Vec<Node>,
    meters: Arc<Vec<Mutex<Meter>>>,
    left: Arc<Vec<AtomicU64>>,
    connections: Slab<Connection>,
    opened: u64,
    due: BinaryHeap<Reverse<Due>>,
    request: Request,
}

struct Node {
    name: &'static str,
    speed: f64,
    listener: TcpListener,
    /// When each place of service is free.
    free_at: BinaryHeap<Reverse<Instant>>,
}

struct Connection {
    id: u64,
    node: usize,
    stream: TcpStream,
    bytes: Vec<u8>,
}

/// A job that will be done.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    node: usize,
    key: usize,
    /// Whether the connection is still the same.
    id: u64,
}

impl Server {
    fn run(&mut self, stop: &AtomicBool) -> io::Result<()> {
        let mut events = Events::with_capacity(1024);
        while !stop.load(Ordering::Relaxed) {
            self.finish_due()?;
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                match event.token() {
                    ALARM | WAKE => {}
                    Token(node) if node < self.nodes.len() => self.accept(node)?,
                    Token(token) => self.read(token - self.nodes.len()),
                }
            }
        }
        Ok(())
    }

    fn finish_due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        while let Some(Reverse(due)) = self.due.peek().copied() {
            if due.at > now {
                return self.alarm.set(due.at, now);
            }
            self.due.pop();
            lock(&self.meters[due.node]).change(now, -1);
            let Some(connection) = self.connections.get_mut(due.key).filter(|there| there.id == due.id)
            else {
                // The client has gone; the node did the job all the same.
                continue;
            };
            let body = format!("{{\"node\":\"{}\"}}\n", self.nodes[due.node].name);
            if !connection.answer(&body) {
                self.connections.remove(due.key);
            }
        }
        Ok(())
    }

    fn accept(&mut self, node: usize) -> io::Result<()> {
        loop {
            let mut stream = match self.nodes[node].listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let entry = self.connections.vacant_entry();
            let token = Token(entry.key() + self.nodes.len());
            self.poll.registry().register(&mut stream, token, Interest::READABLE)?;
            self.opened += 1;
            entry.insert(Connection { id: self.opened, node, stream, bytes: Vec::new() });
        }
    }

    fn read(&mut self, key: usize) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        let mut scratch = [0; 4096];
        let open = loop {
            match connection.stream.read(&mut scratch) {
                Ok(0) => break false,
                Ok(count) => connection.bytes.extend_from_slice(&scratch[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break false,
            }
        };
        if !open || !self.begin_jobs(key) {
            self.connections.remove(key);
        }
    }

    /// Begins the jobs that have come completely; `false` if what came was no request.
    fn begin_jobs(&mut self, key: usize) -> bool {
        let connection = &mut self.connections[key];
        loop {
            match self.request.parse(&connection.bytes, &LIMITS) {
                Err(_) => return false,
                Ok(false) => return true,
                Ok(true) => {}
            }
            let path = self.request.path.of(&connection.bytes);
            let (number, is_page) = (number_of(path), path == b"/load");
            connection.bytes.drain(..self.request.head_len as usize);
            let now = Instant::now();
            if is_page {
                let mut meter = lock(&self.meters[connection.node]);
                let load = meter.jobs_lately(now) / self.jobs.places as f64;
                let body = format!("{{\"load\":{load:.3},\"jobs\":{}}}\n", meter.now);
                if !connection.answer(&body) {
                    return false;
                }
                continue;
            }
            let left = f64::from_bits(self.left[connection.node].load(Ordering::Relaxed));
            let node = &mut self.nodes[connection.node];
            let Reverse(free) = node.free_at.pop().expect("a node has a place of service");
            let at = free.max(now) + self.jobs.time(number, node.speed * left);
            node.free_at.push(Reverse(at));
            self.due.push(Reverse(Due { at, node: connection.node, key, id: connection.id }));
            let mut meter = lock(&self.meters[connection.node]);
            meter.begun += 1;
            meter.change(now, 1);
        }
    }
}

impl Connection {
    /// Sends an answer; `false` if the peer is gone. So short an answer fits into an empty socket buffer.
    fn answer(&mut self, body: &str) -> bool {
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(answer.as_bytes()).is_ok()
    }
}

/// The number at the end of a path such as `/job/17`; 0 if there is none.
fn number_of(path: &[u8]) -> u64 {
    let digits = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

fn lock(meter: &Mutex<Meter>) -> MutexGuard<'_, Meter> {
    meter.lock().expect("no thread panics while it counts")
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOBS: JobPlan = JobPlan { seed: 3, mean: Duration::from_millis(10), sigma: 0.0, places: 1 };

    #[test]
    fn a_node_does_its_jobs_one_after_the_other() {
        let nodes = Nodes::start(&[NodePlan { name: "mule", speed: 2.0 }], JOBS).unwrap();
        let begin = Instant::now();
        let mut clients: Vec<_> = (0..4)
            .map(|number| {
                let mut client = std::net::TcpStream::connect(nodes.addresses[0]).unwrap();
                write!(client, "GET /job/{number} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                client
            })
            .collect();
        for client in &mut clients {
            let mut answer = [0; 256];
            let count = client.read(&mut answer).unwrap();
            assert!(answer[..count].ends_with(b"{\"node\":\"mule\"}\n"));
        }
        // Four jobs of 10 ms at twice the speed.
        assert!(begin.elapsed() >= Duration::from_millis(20));
        let usage = nodes.usage()[0];
        assert_eq!((usage.jobs, usage.jobs_max), (4, 4));
        assert_eq!(nodes.jobs(), [0]);
    }

    #[test]
    fn a_node_tells_how_much_it_has_to_do() {
        let nodes = Nodes::start(&[NodePlan { name: "mule", speed: 0.001 }], JOBS).unwrap();
        nodes.slow_down(0, 0.5);
        let ask = |path: &str| {
            let mut client = std::net::TcpStream::connect(nodes.addresses[0]).unwrap();
            write!(client, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            client
        };
        let _jobs = [ask("/job/1"), ask("/job/2")];
        let jobs_seen = || {
            let mut answer = [0; 256];
            let count = ask("/load").read(&mut answer).unwrap();
            let text = String::from_utf8_lossy(&answer[..count]).into_owned();
            let body: serde_json::Value =
                serde_json::from_str(text.split_once("\r\n\r\n").unwrap().1).unwrap();
            assert!(body["load"].is_number(), "{body}");
            body["jobs"].as_u64().unwrap()
        };
        let deadline = Instant::now() + Duration::from_secs(10);
        while jobs_seen() < 2 {
            assert!(Instant::now() < deadline, "the jobs are never seen");
        }
    }

    #[test]
    fn the_same_job_costs_the_same_on_any_day() {
        let jobs = JobPlan { sigma: 1.0, ..JOBS };
        assert_eq!(jobs.time(5, 1.0), jobs.time(5, 1.0));
        assert_ne!(jobs.time(5, 1.0), jobs.time(6, 1.0));
        assert_eq!(number_of(b"/job/17"), 17);
        assert_eq!(number_of(b"/"), 0);
    }
}
