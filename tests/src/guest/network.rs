//! Nodes, clients and the ways between them, in a guest.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Runs a line of shell and gives what it printed.
///
/// # Panics
/// If it fails.
pub fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("there is a shell");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What `ipvsadm` says of services and destinations: words of a line separated by one space.
pub fn ipvsadm() -> Vec<String> {
    let table = sh("ipvsadm -L -n");
    // Three lines are its heading.
    table.lines().skip(3).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

/// An address of this machine for a node.
pub fn local(node: u8) -> (u8, SocketAddr) {
    sh(&format!("ip address add 10.0.1.{node}/32 dev lo"));
    (node, SocketAddr::from(([10, 0, 1, node], 8000)))
}

/// A node that says its number whenever it is asked.
#[derive(Debug)]
pub struct Node {
    /// Where it listens.
    pub address: SocketAddr,
}

impl Node {
    /// Listens until the process ends.
    ///
    /// # Panics
    /// If the address is not this machine's, or taken.
    pub fn listen((number, address): (u8, SocketAddr)) -> Node {
        let listener = TcpListener::bind(address).expect("its address is free");
        let name = number.to_string();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let name = name.clone();
                std::thread::spawn(move || answer(client, &name));
            }
        });
        Node { address }
    }
}

fn answer(mut client: TcpStream, name: &str) {
    let mut byte = [0];
    while client.read(&mut byte).is_ok_and(|length| length > 0) && client.write_all(name.as_bytes()).is_ok() {
    }
}

/// Connects to a virtual service.
pub fn connect(service: SocketAddr) -> TcpStream {
    let connection = TcpStream::connect_timeout(&service, Duration::from_secs(10)).expect("somebody accepts");
    connection.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
    connection
}

/// Asks the node behind a connection for its number.
pub fn say(connection: &mut TcpStream) -> Option<String> {
    let mut byte = [0];
    connection.write_all(b"?").and_then(|()| connection.read_exact(&mut byte)).ok()?;
    Some(char::from(byte[0]).to_string())
}

/// How many of so many connections each of three nodes got.
pub fn counts(service: SocketAddr, connections: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..connections {
        let name = say(&mut connect(service)).expect("it answers");
        counts[name.parse::<usize>().expect("a number") - 1] += 1;
    }
    counts
}

/// Answers datagrams with a number.
pub fn echo_datagrams(number: u8, address: SocketAddr) {
    let socket = UdpSocket::bind(address).expect("its address is free");
    std::thread::spawn(move || {
        let mut byte = [0];
        while let Ok((_, client)) = socket.recv_from(&mut byte) {
            let _ = socket.send_to(&[b'0' + number], client);
        }
    });
}

/// As [`counts`], of clients that send a datagram each.
pub fn datagram_counts(service: SocketAddr, clients: usize) -> [usize; 3] {
    let mut counts = [0; 3];
    for _ in 0..clients {
        let socket = UdpSocket::bind(("::", 0)).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        let mut byte = [0];
        socket.send_to(b"?", service).and_then(|_| socket.recv(&mut byte)).expect("it answers");
        counts[usize::from(byte[0] - b'1')] += 1;
    }
    counts
}

/// The virtual service of the networks below.
pub fn virtual_address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 80))
}

/// As [`counts`], from the client of one of the networks below.
pub fn counts_from_client(connections: usize) -> [usize; 3] {
    within("client", move || counts(virtual_address(), connections))
}

/// Makes a client and three nodes in namespaces of their own. The director, which is where the test runs, lies between
/// them, and answers come back by it, as NAT needs it. The nodes listen on port 8000:
///
/// ```text
/// client ── director ─┬─ n1 10.3.1.2
///                     ├─ n2 10.3.2.2
///                     └─ n3 10.3.3.2
/// ```
pub fn build_nated() {
    link_client();
    for number in 1..=3u8 {
        let node = link_node(number);
        sh(&format!("/bin/ip -n {node} route add default via 10.3.{number}.1"));
        within(&node, move || Node::listen((number, SocketAddr::from(([10, 3, number, 2], 8000)))));
    }
}

/// Makes a client and three nodes that answer it on links of their own, and gives the nodes' addresses. All have the
/// address of the service:
///
/// ```text
/// client ── director ─┬─ n1 ── client     direct: same link
///                     ├─ n2 ── client     IP in IP
///                     └─ n3 ── client     GRE
/// ```
pub fn build_direct() -> [SocketAddr; 3] {
    link_client();
    for number in 1..=3u8 {
        let node = link_node(number);
        let address = |last| format!("10.4.{number}.{last}/24");
        link(("client", &format!("to{node}"), &address(1)), (&node, "toclient", &address(2)));
        sh(&format!("/bin/ip -n {node} route add 10.2.0.2/32 via 10.4.{number}.1"));
        sh(&format!("/bin/ip -n {node} address add 10.0.0.1/32 dev lo"));
        within(&node, move || Node::listen((number, virtual_address())));
    }
    // Devices that unpack whatever tunnel ends here; their packets seem to come from nowhere.
    for (node, device) in [("n2", "tunl0"), ("n3", "gre0")] {
        sh(&format!("/bin/ip -n {node} link set {device} up"));
        let believe = "for f in all default $0; do echo 0 >/proc/sys/net/ipv4/conf/$f/rp_filter; done";
        sh(&format!("/bin/ip netns exec {node} sh -c '{believe}' {device}"));
    }
    [1, 2, 3].map(|number| SocketAddr::from(([10, 3, number, 2], 80)))
}

/// The way between client and director.
fn link_client() {
    sh("/bin/ip netns add client && /bin/ip -n client link set lo up");
    sh("echo 1 >/proc/sys/net/ipv4/ip_forward");
    link(("", "toclient", "10.2.0.1/24"), ("client", "todirector", "10.2.0.2/24"));
    sh("/bin/ip -n client route add 10.0.0.1/32 via 10.2.0.1 && ip address add 10.0.0.1/32 dev lo");
}

/// A node's namespace, `n1`, `n2` or `n3`, and its way to the director.
fn link_node(number: u8) -> String {
    let node = format!("n{number}");
    sh(&format!("/bin/ip netns add {node} && /bin/ip -n {node} link set lo up"));
    let address = |last| format!("10.3.{number}.{last}/24");
    link(("", &format!("to{node}"), &address(1)), (&node, "todirector", &address(2)));
    node
}

/// A link between two namespaces: namespace, name of the device there, its address. The empty name is the test's own.
fn link(here: (&str, &str, &str), there: (&str, &str, &str)) {
    let ip = |space: &str| if space.is_empty() { "/bin/ip".into() } else { format!("/bin/ip -n {space}") };
    let (add, from, to) = (ip(here.0), here.1, there.1);
    sh(&format!("{add} link add {from} type veth peer name {to} netns {}", there.0));
    for (space, device, address) in [here, there] {
        let ip = ip(space);
        sh(&format!("{ip} address add {address} dev {device} && {ip} link set {device} up"));
    }
}

/// Runs something in a namespace, in a thread of its own.
///
/// # Panics
/// If it panics.
pub fn within<T: Send + 'static>(space: &str, body: impl FnOnce() -> T + Send + 'static) -> T {
    let path = format!("/run/netns/{space}");
    let thread = std::thread::spawn(move || {
        let file = std::fs::File::open(path).expect("the namespace is there");
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("root may");
        body()
    });
    thread.join().expect("it ends well")
}
