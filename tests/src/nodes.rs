//! Nodes as threads of the test: they echo, record, and misbehave in every way that a test needs.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::http::{Client, Fields, Head};
use crate::{DEADLINE, checksum};

/// A request as it reached a node.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// The head as it came.
    pub head: Head,
    /// The body, chunks put together.
    pub body: Vec<u8>,
    /// Trailers of a chunked body.
    pub trailers: Fields,
}

impl Received {
    /// The request's method.
    pub fn method(&self) -> &str {
        self.head.start.split(' ').next().unwrap_or_default()
    }

    /// The request's target.
    pub fn target(&self) -> &str {
        self.head.start.split(' ').nth(1).unwrap_or_default()
    }

    /// The path of the target, without the query.
    pub fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }
}

/// A listening node; ends with the value.
#[derive(Debug)]
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
    stopped: Arc<AtomicBool>,
    connections: Arc<AtomicU64>,
    seen: Arc<Mutex<Vec<Received>>>,
}

impl Node {
    /// A node that hands each connection to `serve`, in a thread of its own.
    pub fn tcp(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Node {
        Node::tcp_on(Ipv4Addr::LOCALHOST, serve)
    }

    /// The same on another address of this machine.
    pub fn tcp_on(ip: impl Into<IpAddr>, serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Node {
        Node::listen(ip.into(), Arc::default(), serve)
    }

    /// A node that answers each request by `answer`, which writes the response itself.
    /// The connection stays open until an answer is an error or the client closes.
    pub fn http(
        answer: impl Fn(&Received, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Node {
        Node::http_on(Ipv4Addr::LOCALHOST, answer)
    }

    /// The same on another address of this machine.
    pub fn http_on(
        ip: impl Into<IpAddr>,
        answer: impl Fn(&Received, &mut TcpStream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Node {
        let seen: Arc<Mutex<Vec<Received>>> = Arc::default();
        let log = Arc::clone(&seen);
        Node::listen(ip.into(), seen, move |stream| {
            let mut client = Client::new(stream);
            // A connection that rests is no fault: it ends when the director closes it.
            let _ = client.stream.set_read_timeout(None);
            let _ = serve_requests(&mut client, &log, &answer);
        })
    }

    /// How many connections it accepted.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// The requests that reached it so far.
    pub fn seen(&self) -> Vec<Received> {
        self.seen.lock().expect("no node thread panics").clone()
    }

    /// The last request that reached it.
    ///
    /// # Panics
    /// If there was none.
    pub fn last(&self) -> Received {
        self.seen().pop().expect("a request reached the node")
    }

    fn listen(
        ip: IpAddr,
        seen: Arc<Mutex<Vec<Received>>>,
        serve: impl Fn(TcpStream) + Send + Sync + 'static,
    ) -> Node {
        let listener = TcpListener::bind((ip, 0)).expect("a free port for a node");
        let address = listener.local_addr().expect("a bound socket has an address");
        let stopped = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(AtomicU64::new(0));
        let (ended, count) = (Arc::clone(&stopped), Arc::clone(&connections));
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Node { address, stopped, connections, seen }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address); // wakes it from accept
    }
}

fn serve_requests(
    client: &mut Client,
    log: &Mutex<Vec<Received>>,
    answer: &impl Fn(&Received, &mut TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    while let Some(head) = client.head()? {
        if head.has_token("Expect", "100-continue") {
            client.send("HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let (body, trailers) = client.body(&head, false)?;
        let request = Received { head, body, trailers };
        log.lock().expect("no node thread panics").push(request.clone());
        answer(&request, &mut client.stream)?;
        if request.head.header("Upgrade").is_some() {
            return tunnel(client);
        }
    }
    Ok(())
}

/// After an upgrade: what comes goes back, until the end of the stream.
fn tunnel(client: &mut Client) -> io::Result<()> {
    let mut reader = client.stream.try_clone()?;
    io::copy(&mut reader, &mut client.stream)?;
    Ok(())
}

/// Writes a response with a Content-Length.
pub fn respond(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) -> io::Result<()> {
    let mut message =
        format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    message.extend_from_slice(body);
    stream.write_all(&message)
}

/// Answers every request with its name.
pub fn named(name: &'static str) -> Node {
    named_on(Ipv4Addr::LOCALHOST, name)
}

/// The same on another address of this machine.
pub fn named_on(ip: impl Into<IpAddr>, name: &'static str) -> Node {
    Node::http_on(ip, move |_, stream| respond(stream, "200 OK", "", name.as_bytes()))
}

/// Answers every request with `status`.
pub fn failing(status: &'static str) -> Node {
    Node::http(move |_, stream| respond(stream, status, "", b"failed\n"))
}

/// A node of many behaviours, by path: `/echo` gives the request's body back, `/head` its head,
/// `/trailers` the body in chunks with the trailers X-Checksum and those sent, `/chunked` the body in
/// chunks of 1,000 bytes, `/hints` a 103 first, `/until-close` a body that ends with the connection,
/// `/status/NNN` an empty response of that status; an upgrade is accepted and echoed.
pub fn echo() -> Node {
    Node::http(|request, stream| {
        if request.head.header("Upgrade").is_some() {
            let answer = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";
            return stream.write_all(answer.as_bytes());
        }
        match request.path() {
            "/head" => respond(stream, "200 OK", "", head_text(request).as_bytes()),
            "/trailers" => respond_chunked(stream, request, 1000, true),
            "/chunked" => respond_chunked(stream, request, 1000, false),
            "/hints" => {
                stream.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n")?;
                respond(stream, "200 OK", "", b"after hints\n")
            }
            "/until-close" => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")?;
                stream.write_all(&request.body)?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            path if path.starts_with("/status/") => match &path[8..] {
                code @ ("204" | "304") => write!(stream, "HTTP/1.1 {code} Empty\r\n\r\n"),
                code => respond(stream, &format!("{code} Status"), "", b""),
            },
            _ if request.method() == "HEAD" => {
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n")
            }
            _ => respond(stream, "200 OK", "Content-Type: application/octet-stream\r\n", &request.body),
        }
    })
}

fn head_text(request: &Received) -> String {
    let headers = request.head.headers.iter().map(|(name, value)| format!("{name}: {value}\n"));
    std::iter::once(format!("{}\n", request.head.start)).chain(headers).collect()
}

fn respond_chunked(
    stream: &mut TcpStream,
    request: &Received,
    size: usize,
    trailers: bool,
) -> io::Result<()> {
    let announced = if trailers { "Trailer: X-Checksum, X-Sent\r\n" } else { "" };
    let mut message =
        format!("HTTP/1.1 200 OK\r\n{announced}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for chunk in request.body.chunks(size) {
        message.extend(format!("{:x}\r\n", chunk.len()).bytes().chain(chunk.iter().copied()).chain(*b"\r\n"));
    }
    message.extend_from_slice(b"0\r\n");
    if trailers {
        message.extend(format!("X-Checksum: {:x}\r\n", checksum(&request.body)).bytes());
        for (name, value) in &request.trailers {
            message.extend(format!("{name}: {value}\r\n").bytes());
        }
    }
    message.extend_from_slice(b"\r\n");
    stream.write_all(&message)
}

/// Accepts connections, reads, and never answers.
pub fn silent() -> Node {
    Node::http(|_, _| {
        std::thread::sleep(Duration::from_secs(600));
        Ok(())
    })
}

/// Answers `answer` one byte at a time, `pause` apart.
pub fn dripping(pause: Duration) -> Node {
    Node::http(move |request, stream| {
        stream.set_nodelay(true)?;
        let body = format!("dripping {}\n", sequence(request));
        for byte in format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).bytes() {
            stream.write_all(&[byte])?;
            std::thread::sleep(pause);
        }
        Ok(())
    })
}

/// Announces 1,000 bytes, sends half of them and resets the connection.
pub fn resetting() -> Node {
    Node::http(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")?;
        stream.write_all(&[b'x'; 500])?;
        reset(stream)
    })
}

/// Makes the end of `stream` a reset rather than a close, and ends it.
pub fn reset(stream: &TcpStream) -> io::Result<()> {
    socket2::SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
    Err(io::ErrorKind::ConnectionReset.into())
}

/// The number in `?n=NUMBER` of a request, as the load client sends it.
pub fn sequence(request: &Received) -> &str {
    request.target().split_once("?n=").map_or("", |(_, number)| number)
}

/// A node whose requests wait until the test lets them go.
#[derive(Debug)]
pub struct Gate {
    /// The node.
    pub node: Node,
    state: Arc<(Mutex<GateState>, Condvar)>,
}

#[derive(Debug, Default)]
struct GateState {
    held: usize,
    passes: usize,
    open: bool,
}

impl Gate {
    /// A node that holds every request; it answers those let go with `name`.
    pub fn new(name: &'static str) -> Gate {
        Gate::new_on(Ipv4Addr::LOCALHOST, name)
    }

    /// The same on another address of this machine.
    pub fn new_on(ip: impl Into<IpAddr>, name: &'static str) -> Gate {
        let state: Arc<(Mutex<GateState>, Condvar)> = Arc::default();
        let shared = Arc::clone(&state);
        let node = Node::http_on(ip, move |_, stream| {
            let (lock, changed) = &*shared;
            let mut gate = lock.lock().expect("no node thread panics");
            gate.held += 1;
            while !gate.open && gate.passes == 0 {
                gate = changed.wait(gate).expect("no node thread panics");
            }
            gate.held -= 1;
            gate.passes = gate.passes.saturating_sub(1);
            drop(gate);
            respond(stream, "200 OK", "", name.as_bytes())
        });
        Gate { node, state }
    }

    /// How many requests it holds.
    pub fn held(&self) -> usize {
        self.state.0.lock().expect("no node thread panics").held
    }

    /// Lets one request go, held now or coming.
    pub fn pass(&self) {
        self.state.0.lock().expect("no node thread panics").passes += 1;
        self.state.1.notify_all();
    }

    /// Lets all requests go, now and later.
    pub fn open(&self) {
        self.state.0.lock().expect("no node thread panics").open = true;
        self.state.1.notify_all();
    }
}

/// A TCP node that gives back what comes, and ends its direction when the client ends the other.
pub fn tcp_echo() -> Node {
    Node::tcp(|mut stream| {
        let _ = stream.set_read_timeout(Some(DEADLINE));
        if let Ok(mut reader) = stream.try_clone() {
            let _ = io::copy(&mut reader, &mut stream);
        }
        let _ = stream.shutdown(Shutdown::Write);
    })
}
