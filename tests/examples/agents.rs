//! What reports cost a director: so many agents, each with an address of its own on the loopback, connected by NECP with
//! a key and asked all the time.
//!
//! ```sh
//! EVENER_BIN=target/release/evener cargo run --release -p evener-tests --example agents -- --agents 1000 --seconds 60
//! ```

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use evener_feedback::necp::session::{Agent, AgentEvent, AgentSettings, Values};
use evener_feedback::necp::{Forwarding, Key, Port, Protocol, Service};
use evener_model::{Health, Time};
use evener_tests::director::Director;
use evener_tests::{free_address, raise_descriptor_limit, wait_for};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Where nodes are, in the eyes of the director. Nothing listens there.
const PORT: u16 = 80;
/// The kernel counts CPU time in ticks of so much.
const TICK: Duration = Duration::from_millis(10);

fn main() {
    let options = Options::of_command_line();
    let Options { agents: count, seconds, .. } = options;
    let files = raise_descriptor_limit();
    assert!(files > count as u64 + 100, "{files} open files are too few for {count} agents");
    let necp = free_address();
    let director = start_director(&options, necp);
    let (before, idle) = (director.resident_bytes(), cpu_over(&director, Duration::from_secs(5)));

    let mut swarm = Swarm::connect(necp, count);
    let begun = Instant::now();
    while swarm.agents.iter().any(|agent| agent.reports == 0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "not all agents were asked within a minute");
        swarm.turn();
    }
    let opened = begun.elapsed();
    let known = director.nodes("app").iter().filter(|node| is_heard(node)).count();
    println!("{known} of {count} agents connected and asked within {:.1} s", opened.as_secs_f64());
    assert_eq!(known, count, "the director knows a report of each");

    let (reports, cpu, start) = (swarm.reports(), cpu_of(&director), Instant::now());
    while start.elapsed() < Duration::from_secs(seconds) {
        swarm.turn();
    }
    let (took, cpu, reports) = (start.elapsed(), cpu_of(&director) - cpu, swarm.reports() - reports);
    let rest = idle.mul_f64(took.as_secs_f64() / 5.0);
    let bytes = director.resident_bytes();
    let per_report = |cpu: Duration| cpu.as_secs_f64() * 1e6 / reports as f64;
    println!(
        "{reports} reports in {:.1} s, {:.0} a second: {:.2} s of CPU time, {:.1} µs a report\n\
         without what the director uses at rest ({:.2} s): {:.1} µs a report\n\
         its own memory: {:.1} MiB before, {:.1} MiB with the agents, {:.1} KiB an agent",
        took.as_secs_f64(),
        reports as f64 / took.as_secs_f64(),
        cpu.as_secs_f64(),
        per_report(cpu),
        rest.as_secs_f64(),
        per_report(cpu.saturating_sub(rest)),
        before as f64 / 1024.0 / 1024.0,
        bytes as f64 / 1024.0 / 1024.0,
        bytes.saturating_sub(before) as f64 / 1024.0 / count as f64,
    );
}

/// Whether the director shows what the node said.
fn is_heard(node: &Value) -> bool {
    let signals = node["signals"].as_array().map(Vec::as_slice).unwrap_or_default();
    signals.iter().any(|signal| signal["name"] == "reported_health")
}

/// What is asked for.
struct Options {
    agents: usize,
    seconds: u64,
    workers: u32,
    phase: String,
    weights: String,
    scheduler: String,
}

impl Options {
    fn of_command_line() -> Options {
        let mut values: HashMap<String, String> = HashMap::new();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            let name = word.strip_prefix("--").unwrap_or_else(|| panic!("expected --NAME, found {word}"));
            values.insert(name.into(), words.next().unwrap_or_else(|| panic!("{word} needs a value")));
        }
        let mut take = |name: &str, default: &str| values.remove(name).unwrap_or_else(|| default.into());
        let options = Options {
            agents: take("agents", "1000").parse().expect("a number of agents"),
            seconds: take("seconds", "60").parse().expect("a number of seconds"),
            workers: take("workers", "2").parse().expect("a number of workers"),
            phase: take("phase", "5s"),
            weights: take("weights", "off"),
            scheduler: take("scheduler", "informed"),
        };
        assert!(values.is_empty(), "unknown: {values:?}");
        options
    }
}

/// The address of an agent: none of them is 127.0.0.1.
fn address(index: usize) -> Ipv4Addr {
    let [_, _, high, low] = u32::try_from(index).expect("few agents").to_be_bytes();
    Ipv4Addr::new(127, 1, high, low)
}

fn start_director(options: &Options, necp: SocketAddr) -> Director {
    let keys = tempfile::NamedTempFile::new().expect("a file for keys");
    let (_, keys) = keys.keep().expect("a file that stays");
    std::fs::write(&keys, format!("bench {SECRET}\n")).expect("written");
    std::fs::set_permissions(&keys, std::fs::Permissions::from_mode(0o600)).expect("ours");
    let nodes: Vec<_> =
        (0..options.agents).map(|index| format!("{{ address = \"{}:{PORT}\" }}", address(index))).collect();
    let config = format!(
        "[feedback]\nnecp = \"{necp}\"\nkeys = \"{}\"\n\
         [listener.web]\nbind = \"{}\"\nprotocol = \"http\"\npool = \"app\"\n\
         [pool.app]\nscheduler = \"{}\"\nphase = \"{}\"\n\
         feedback = {{ from = [\"necp\"], weights = \"{}\" }}\nnode = [ {} ]\n",
        keys.display(),
        free_address(),
        options.scheduler,
        options.phase,
        options.weights,
        nodes.join(",\n ")
    );
    let director = Director::start_with(&format!("workers = {}", options.workers), &config);
    std::fs::remove_file(keys).expect("ours");
    director
}

/// CPU time that the director has used, in user and system mode.
fn cpu_of(director: &Director) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", director.pid())).expect("it runs");
    // After the name in parentheses, the state is the first field, user and system time the twelfth and thirteenth.
    let fields: Vec<_> = stat.rsplit(')').next().expect("a name").split_whitespace().collect();
    let ticks = |field: usize| fields[field].parse::<u32>().expect("a number of ticks");
    TICK * (ticks(11) + ticks(12))
}

fn cpu_over(director: &Director, time: Duration) -> Duration {
    let before = cpu_of(director);
    std::thread::sleep(time);
    cpu_of(director) - before
}

/// An agent that is what it says.
struct Simulated {
    session: Agent,
    stream: TcpStream,
    values: Values,
    reports: u64,
}

/// All of them, in one thread.
struct Swarm {
    start: Instant,
    poll: Poll,
    events: Events,
    agents: Vec<Simulated>,
    /// When the next deadline of any of them is.
    due: Time,
}

impl Swarm {
    /// Connects them, one after another.
    fn connect(director: SocketAddr, count: usize) -> Swarm {
        let start = Instant::now();
        let poll = Poll::new().expect("epoll");
        let settings = AgentSettings { key: Some(Key::new(SECRET.as_bytes())), ..AgentSettings::default() };
        let agents = (0..count).map(|index| {
            let mut stream =
                wait_for("the director to take a connection", || connect(address(index), director).ok());
            let now = Time::ZERO + start.elapsed();
            let mut session = Agent::new(settings.clone(), now, index as u64);
            let port = Port { protocol: Protocol::Tcp, number: PORT };
            session.start(now, Service { forwarding: Forwarding::Layer3, port });
            session.timeout(now);
            assert_eq!(session.poll(), Some(AgentEvent::Connect));
            session.connected(now, index as u64 + 1);
            let token = Token(index);
            poll.registry().register(&mut stream, token, Interest::READABLE).expect("registered");
            let values = Values {
                health: Some(Health::FULL),
                jobs: Some(0),
                queue: Some(0),
                cpu_load_milli: Some(0),
                network_load_milli: Some(0),
            };
            let mut agent = Simulated { session, stream, values, reports: 0 };
            agent.write();
            agent
        });
        let agents = agents.collect();
        Swarm { start, poll, events: Events::with_capacity(1024), agents, due: Time::ZERO }
    }

    fn reports(&self) -> u64 {
        self.agents.iter().map(|agent| agent.reports).sum()
    }

    /// Waits for a moment, and does what there is to do.
    fn turn(&mut self) {
        self.poll.poll(&mut self.events, Some(Duration::from_millis(50))).expect("epoll");
        let now = Time::ZERO + self.start.elapsed();
        for event in &self.events {
            self.agents[event.token().0].read(now);
        }
        if now >= self.due {
            self.due = now + Duration::from_millis(50);
            for agent in &mut self.agents {
                agent.session.timeout(now);
                agent.write();
            }
        }
    }
}

/// A connection from one address to another.
fn connect(from: Ipv4Addr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&to.into())?;
    socket.set_nonblocking(true)?;
    Ok(TcpStream::from_std(socket.into()))
}

impl Simulated {
    /// Reads until there is no more, and answers. What is told changes with each report, as that of a node at work does.
    fn read(&mut self, now: Time) {
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => panic!("the director closed a connection"),
                Ok(length) => {
                    let Simulated { session, values, reports, .. } = self;
                    session.received(now, &buffer[..length], &mut |query| {
                        if query.kind == evener_feedback::necp::QueryType::HEALTH {
                            *reports += 1;
                            let load = (*reports * 37 % 1000) as u32;
                            values.cpu_load_milli = Some(load);
                            values.health = Some(Health::saturating((100 - load / 10) as u8));
                            values.jobs = Some(load / 50);
                        }
                        values.answer(query)
                    });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.write();
    }

    fn write(&mut self) {
        while let Some(event) = self.session.poll() {
            assert_eq!(event, AgentEvent::Opened, "the director takes what it is told");
        }
        let output = self.session.output();
        if !output.is_empty() {
            // A few hundred bytes at a time fit into any socket's buffer.
            self.stream.write_all(output).expect("written");
            output.clear();
        }
    }
}
