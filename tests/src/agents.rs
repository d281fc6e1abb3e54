//! Agents of nodes, as threads of the test: they speak NECP with a director, and misbehave where a test needs it.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use evener_feedback::necp::session::{
    Agent as Session, AgentEvent, AgentSettings, Backoff, Reason, Rhythm, Values,
};
use evener_feedback::necp::{Exception, Forwarding, Key, Port, Protocol, Query, Service};
use evener_model::{Health, Time};
use socket2::{Domain, Socket, Type};

use crate::wait_until;

/// How long the thread may take to see an order.
const LOOK: Duration = Duration::from_millis(5);

/// An agent of the node at `from`; ends with the value, without a word.
#[derive(Debug)]
pub struct Agent {
    orders: Option<Sender<Order>>,
    shared: Arc<Mutex<Shared>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    values: Values,
    events: Vec<AgentEvent>,
    questions: u64,
    is_open: bool,
    sent: Vec<u8>,
}

#[derive(Debug)]
enum Order {
    Start(Service),
    Stop(Port),
    Except(Exception),
    Freeze,
    Cut,
}

/// The TCP service of a port, reached as a proxy does.
pub fn tcp(number: u16) -> Service {
    Service { forwarding: Forwarding::Layer3, port: Port { protocol: Protocol::Tcp, number } }
}

impl Agent {
    /// Connects to the director from an address of this machine, and again whenever the connection is lost.
    pub fn connect(director: SocketAddr, from: impl Into<IpAddr>, key: Option<&str>) -> Agent {
        let settings = AgentSettings {
            key: key.map(|key| Key::new(key.as_bytes())),
            rhythm: Rhythm { interval: Duration::from_secs(1), ..Rhythm::default() },
            backoff: Backoff { min: Duration::from_millis(50), max: Duration::from_secs(1) },
            ..AgentSettings::default()
        };
        let shared: Arc<Mutex<Shared>> = Arc::default();
        let (orders, queue) = mpsc::channel();
        let driver = Driver {
            director,
            from: from.into(),
            begun: Instant::now(),
            stream: None,
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::spawn(move || driver.run(settings, &queue));
        let agent = Agent { orders: Some(orders), shared, thread: Some(thread) };
        agent.say(|values| values.health = Some(Health::FULL));
        agent
    }

    /// Waits until the director knows the agent.
    pub fn wait_open(&self) {
        wait_until("the agent to be connected", || self.shared().is_open);
    }

    /// Whether the director knows the agent.
    pub fn is_open(&self) -> bool {
        self.shared().is_open
    }

    /// Changes what the agent answers from now on.
    pub fn say(&self, change: impl FnOnce(&mut Values)) {
        change(&mut self.shared().values);
    }

    /// Answers with another health from now on.
    pub fn say_health(&self, health: u8) {
        self.say(|values| values.health = Some(Health::saturating(health)));
    }

    /// Offers a service.
    pub fn start(&self, service: Service) {
        self.order(Order::Start(service));
    }

    /// Takes a service back.
    pub fn stop(&self, service: Service) {
        self.order(Order::Stop(service.port));
    }

    /// Asks to be spared flows.
    pub fn except(&self, exception: Exception) {
        self.order(Order::Except(exception));
    }

    /// Neither reads nor writes any more; its connection stays open.
    pub fn freeze(&self) {
        self.order(Order::Freeze);
    }

    /// Loses its connection.
    pub fn cut(&self) {
        self.order(Order::Cut);
    }

    /// How many values it was asked for so far.
    pub fn questions(&self) -> u64 {
        self.shared().questions
    }

    /// Why its connections ended so far.
    pub fn failures(&self) -> Vec<Reason> {
        let reason = |event: &AgentEvent| match event {
            AgentEvent::Closed(reason) => Some(*reason),
            _ => None,
        };
        self.shared().events.iter().filter_map(reason).collect()
    }

    /// What happened so far.
    pub fn events(&self) -> Vec<AgentEvent> {
        self.shared().events.clone()
    }

    /// All that it has sent on its present connection, as somebody on the way would record it.
    pub fn recording(&self) -> Vec<u8> {
        self.shared().sent.clone()
    }

    fn order(&self, order: Order) {
        let orders = self.orders.as_ref().expect("taken only at the end");
        orders.send(order).expect("the agent runs");
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().expect("no agent panics")
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Driver {
    director: SocketAddr,
    from: IpAddr,
    begun: Instant,
    stream: Option<TcpStream>,
    shared: Arc<Mutex<Shared>>,
}

impl Driver {
    fn run(mut self, settings: AgentSettings, orders: &Receiver<Order>) {
        let mut session = Session::new(settings, self.now(), seed());
        let mut is_frozen = false;
        loop {
            match orders.try_recv() {
                Ok(Order::Start(service)) => {
                    session.start(self.now(), service);
                }
                Ok(Order::Stop(port)) => session.stop(self.now(), port),
                Ok(Order::Except(exception)) => {
                    session.except(self.now(), exception);
                }
                Ok(Order::Freeze) => is_frozen = true,
                Ok(Order::Cut) => {
                    self.stream = None;
                    session.closed(self.now());
                }
                Err(mpsc::TryRecvError::Disconnected) => return,
                Err(mpsc::TryRecvError::Empty) => {}
            }
            if is_frozen {
                std::thread::sleep(LOOK);
                continue;
            }
            self.read(&mut session);
            session.timeout(self.now());
            self.obey(&mut session);
            self.write(&mut session);
            self.shared.lock().expect("no test panics here").is_open = session.is_open();
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(1) + self.begun.elapsed()
    }

    /// Waits for bytes, but not for long.
    fn read(&mut self, session: &mut Session) {
        let Some(stream) = &mut self.stream else { return std::thread::sleep(LOOK) };
        let mut buffer = [0; 4096];
        match stream.read(&mut buffer) {
            Ok(0) => self.lost(session),
            Ok(length) => {
                let shared = Arc::clone(&self.shared);
                session.received(self.now(), &buffer[..length], &mut |query: Query| {
                    let mut shared = shared.lock().expect("no test panics here");
                    shared.questions += 1;
                    shared.values.answer(query)
                });
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => self.lost(session),
        }
    }

    fn lost(&mut self, session: &mut Session) {
        self.stream = None;
        session.closed(self.now());
    }

    fn obey(&mut self, session: &mut Session) {
        while let Some(event) = session.poll() {
            match event {
                AgentEvent::Connect => match connect(self.director, self.from) {
                    Ok(stream) => {
                        self.stream = Some(stream);
                        self.shared.lock().expect("no test panics here").sent.clear();
                        session.connected(self.now(), seed());
                    }
                    Err(_) => session.closed(self.now()),
                },
                AgentEvent::Closed(_) => self.stream = None,
                _ => {}
            }
            self.shared.lock().expect("no test panics here").events.push(event);
        }
    }

    fn write(&mut self, session: &mut Session) {
        let output = std::mem::take(session.output());
        if let Some(stream) = self.stream.as_mut().filter(|_| !output.is_empty()) {
            self.shared.lock().expect("no test panics here").sent.extend_from_slice(&output);
            if stream.write_all(&output).is_err() {
                self.lost(session);
            }
        }
    }
}

fn connect(director: SocketAddr, from: IpAddr) -> io::Result<TcpStream> {
    let stream = connect_from(director, from)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(LOOK))?;
    Ok(stream)
}

/// A connection that comes from an address of this machine.
pub fn connect_from(to: SocketAddr, from: impl Into<IpAddr>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from.into(), 0).into())?;
    socket.connect(&to.into())?;
    Ok(socket.into())
}

fn seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}
